"""Turns pydantic's validation errors into InputErrors: config path, value, what is allowed, nearest fix.

Pure translation; the rules themselves stand on the models.
"""

import typing
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from components.findings import InputError, nearest_hint

__all__ = ["explain"]


def explain(error: ValidationError, root: type[BaseModel], place: str) -> list[InputError]:
    """One InputError for each of pydantic's findings.

    Args:
        error: what `root.model_validate` raised.
        root: the model at the top, whose fields are keys of the `gangway:` namespace.
        place: file or stack, put before each config path.
    """
    details = error.errors(include_url=False)
    broken = {detail["loc"] for detail in details}
    # A list whose items are all wrong is also reported as too short, which would only confuse.
    return [
        _explain(detail, root, place)
        for detail in details
        if detail["type"] != "too_short" or not any(loc[: len(detail["loc"])] == detail["loc"] != loc for loc in broken)
    ]


def _explain(detail: ErrorDetails, root: type[BaseModel], place: str) -> InputError:
    loc = _without_tags(detail["loc"], root)
    where = f"{place}: gangway:{_spell(loc)}"
    message = detail["msg"].removeprefix("Value error, ")
    match detail["type"]:
        case "extra_forbidden":
            names = sorted({name for model in _models_at(root, loc[:-1]) for name in model.model_fields})
            return InputError(
                where, "unknown key", value=loc[-1], allowed=", ".join(names), fix=nearest_hint(str(loc[-1]), names)
            )
        case "missing":
            return InputError(where, "missing", allowed="it is required", fix=f"add {loc[-1]}")
        case "literal_error" | "enum" | "union_tag_invalid":
            context = detail.get("ctx", {})
            expected = str(context.get("expected") or context.get("expected_tags"))
            words = [word.strip().strip("'") for word in expected.replace(" or ", ",").split(",")]
            value = context.get("tag", detail["input"])
            return InputError(
                where,
                "not one of the allowed words",
                value=value,
                allowed=expected,
                fix=nearest_hint(str(value), words),
            )
        case _:
            # Our own validators write "what is allowed; the fix".
            allowed, _, fix = message.partition("; ")
            return InputError(
                where, "not an accepted value", value=detail["input"], allowed=allowed, fix=fix or "write such a value"
            )


def _spell(loc: Sequence[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")


def _without_tags(loc: Sequence[int | str], root: type[BaseModel]) -> list[int | str]:
    """Pydantic puts a union's tag into the path (`capacity.0.spot.max`); the user never wrote it there."""
    kept: list[int | str] = []
    for part in loc:
        if isinstance(part, str) and kept and isinstance(kept[-1], int) and part in _tags(root, kept):
            continue
        kept.append(part)
    return kept


def _tags(root: type[BaseModel], loc: Sequence[int | str]) -> set[str]:
    kinds = [model.model_fields["kind"] for model in _models_at(root, loc) if "kind" in model.model_fields]
    return {word for kind in kinds for word in typing.get_args(kind.annotation)}


def _models_at(root: type[BaseModel], loc: Sequence[int | str]) -> list[type[BaseModel]]:
    """Every model a value at `loc` may be validated by."""
    models = [root]
    for part in loc:
        if isinstance(part, str):
            fields = [model.model_fields[part] for model in models if part in model.model_fields]
            models = [found for field in fields for found in _models_in(field.annotation)]
    return models


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)
