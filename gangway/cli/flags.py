"""Checks flags: numbers, with the nearest valid one as the fix, and paths that this user cannot reach."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import typer
from typer.core import TyperGroup

from gangway.components.core.findings import InputError
from gangway.stacks.config.corrections import Span, parse_number

if TYPE_CHECKING:
    from typer._click import Context


class Gangway(TyperGroup):
    """The `gangway` command and its subcommands. An invalid number becomes an InputError; a path in a folder that this
    user may not enter raises PermissionError before the command starts.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for param in _params(self):
            kind = param.type_descriptor.annotation
            if Path in (kind, *get_args(kind)):
                param.callback = _check_reachable

    def invoke(self, ctx: "Context") -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            raise _explain_number(error) or error from None


def check_range(flag: str, value: float | None, *, is_valid: bool, allowed: str, example: object) -> None:
    """InputError: `value` is given and not valid."""
    if value is not None and not is_valid:
        raise InputError(flag, "out of range", value=value, allowed=allowed, fix=f"write {flag} {example}")


def _params(command: Any) -> Iterator[Any]:
    yield from command.params
    for subcommand in getattr(command, "commands", {}).values():
        yield from _params(subcommand)


def _check_reachable(context: Any, param: Any, value: Any) -> Any:
    from gangway.trainer.core.regular_files import check_reachable

    if value != param.default:  # a default may never be used
        for path in value if isinstance(value, list | tuple) else [value]:
            check_reachable(path)
    return value


def _explain_number(error: typer.BadParameter) -> InputError | None:
    """The error for an invalid number, with its fix; None for other errors, which Typer explains."""
    from pydantic import ValidationError

    cause, param = error.__cause__, error.param
    if not isinstance(cause, ValidationError) or param is None or not param.opts:
        return None
    detail = cause.errors(include_url=False)[0]
    option, value, limits = param.opts[-1], detail["input"], detail.get("ctx", {})
    is_number = detail["type"].startswith(("int", "float"))
    if not is_number and not limits.keys() & {"ge", "le"}:
        return None
    whole = detail["type"].startswith("int") or isinstance(param.default, int)
    meant = parse_number(
        option.lstrip("-"), value, Span(limits.get("ge", -math.inf), limits.get("le", math.inf), whole=whole)
    )
    kind = "a whole number" if whole else "a number"
    ends = [f"{word} {limits[end]:g}" for end, word in (("ge", "at least"), ("le", "at most")) if end in limits]
    about = str(getattr(param, "help", None) or "").rstrip(".")
    example = param.default if isinstance(param.default, int | float) and param.default else 1
    return InputError(
        option,
        "not a number" if is_number else "out of range",
        value=value,
        allowed=", ".join([kind, *ends]) + (f" ({about[0].lower()}{about[1:]})" if about else ""),
        fix=f"write {option} {example if meant is None else meant}",
    )
