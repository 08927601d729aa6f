"""Mistakes in numbers of the command line, told as those in files are: the value, what is allowed, what was meant."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import typer
from typer.core import TyperGroup

from components.core.findings import InputError
from stacks.config.corrections import Span, parse_number

if TYPE_CHECKING:
    from typer._click import Context


class Gangway(TyperGroup):
    """The `gangway` command and all below it: a flag that is no number is an `InputError`, with the nearest that is; a
    path in a folder that this user may not enter is a PermissionError, before a command does anything.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for param in _params(self):
            kind = param.type_descriptor.annotation
            if Path in (kind, *get_args(kind)):
                param.callback = _reachable

    def invoke(self, ctx: "Context") -> Any:
        """Runs the command that was asked for."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as wrong:
            raise _told(wrong) or wrong from None


def _params(command: Any) -> Iterator[Any]:
    """The parameters of a command and of all below it."""
    yield from command.params
    for below in getattr(command, "commands", {}).values():
        yield from _params(below)


def _reachable(context: Any, param: Any, value: Any) -> Any:
    """A path or several, as they are. A default that cannot be reached may not be needed."""
    from trainer.core.file_errors import check_reachable

    if value != param.default:
        for path in value if isinstance(value, list | tuple) else [value]:
            check_reachable(path)
    return value


def _told(wrong: typer.BadParameter) -> InputError | None:
    """The mistake in a number, with its fix; None for one of another kind, which Typer tells by itself."""
    from pydantic import ValidationError

    cause, param = wrong.__cause__, wrong.param
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
