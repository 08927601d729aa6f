"""argparse that raises TrainerErrors with the nearest flag or command, and a flag for each field of TrainConfig."""

import argparse
import math
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gangway.trainer.config.parts.fields import ConfigFields
from gangway.trainer.core.docstrings import attribute_sentences
from gangway.trainer.core.errors import TrainerError, nearest
from gangway.trainer.core.regular_files import check_reachable

T = TypeVar("T", int, float)
_PLACE = "command line"
_MISSING = "the following arguments are required: "
_VALUE = re.compile(
    r"invalid (?:(?P<type>\w+) )?(?:value|choice): (?P<quote>'?)(?P<value>.*?)(?P=quote)"
    r"(?: \(choose from (?P<choices>.*)\))?(?: \(allowed: (?P<allowed>.*)\))?$"
)
_TYPES: Mapping[str, str] = MappingProxyType({"int": "a whole number", "float": "a number"})
_FLAG = re.compile(r"--[a-z][a-z-]*")
_CHANGES_DOC = "docs/controller.md"
_KINDS: Mapping[object, str] = MappingProxyType({int: "N", float: "X", bool: "true|false", str: "NAMES"})


class _WholeWords(argparse.HelpFormatter):
    """Breaks no line at a hyphen, so that names of presets and flags can be copied."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises instead of printing usage. Takes no abbreviated flags: they hide typos."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"formatter_class": _WholeWords, **kwargs, "allow_abbrev": False})
        self._words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """TrainerError for an unknown flag, with the nearest one, and for other errors of argparse."""
        self._words = args
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._raise_unknown(unknown)
        return parsed, unknown

    def print_help(self, file: Any = None) -> None:
        """OSError where it cannot be written, which argparse would hide."""
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Split argparse's sentence into place, problem, value, allowed and fix."""
        if "required" in message:
            # A misspelt flag is likelier than a missing one, but argparse does not report it.
            known = self._flags()
            unknown = [word for word in self._words if word.startswith("--") and word.partition("=")[0] not in known]
            if unknown:
                self._raise_unknown(unknown)
            place = message.removeprefix(_MISSING) if message.startswith(_MISSING) else _PLACE
            problem = message if place == _PLACE else "is required, and was not given"
            raise TrainerError(place=place, problem=problem, fix=f"add it; {self._help()}")
        argument, _, problem = message.removeprefix("argument ").partition(": ")
        found = _VALUE.search(problem)
        if found is None:
            raise TrainerError(place=argument or _PLACE, problem=problem or message, fix=self._help())
        choices = [choice.strip(" '") for choice in (found["choices"] or "").split(",") if choice]
        near = nearest(found["value"], choices)
        raise TrainerError(
            place=argument,
            problem="not an accepted value",
            value=found["value"],
            allowed=", ".join(choices) or found["allowed"] or _TYPES.get(found["type"], ""),
            fix=f"did you mean {near!r}?" if near else self._help(),
        )

    def _raise_unknown(self, unknown: Sequence[str]) -> NoReturn:
        flag = unknown[0].partition("=")[0]
        near = nearest(flag, self._flags())
        raise TrainerError(
            place=_PLACE,
            problem=f"unknown flag {flag}" if flag.startswith("-") else "an argument too many",
            value=" ".join(unknown),
            fix=f"did you mean {near}?" if near else self._help(),
        )

    def _flags(self) -> list[str]:
        return _FLAG.findall(self.format_help())

    def _help(self) -> str:
        return f"`{self.prog} --help` shows what it takes"


def _number_type(kind: Callable[[str], T], fits: Callable[[T], bool], allowed: str) -> Callable[[str], T]:
    """An argument type; its error has argparse's form, for `Parser.error`."""

    def number(text: str) -> T:
        with suppress(ValueError):
            if fits(value := kind(text)):
                return value
        raise argparse.ArgumentTypeError(f"invalid value: {text!r} (allowed: {allowed})")

    return number


positive = _number_type(float, lambda value: 0 < value < math.inf, "a number above 0")
count = _number_type(int, lambda value: value > 0, "a whole number above 0")
whole = _number_type(int, lambda value: value >= 0, "a whole number, at least 0")


def add_run_dir(parser: argparse.ArgumentParser) -> None:
    """Add the required flag of an existing run's folder."""
    parser.add_argument("--run-dir", type=path, required=True, metavar="DIR", help="folder of the run")


def add_out(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the required output file, and the flag to overwrite one."""
    parser.add_argument("--out", type=path, required=True, help=text)
    parser.add_argument("--overwrite", action="store_true", help="overwrite an existing file")


def path(text: str) -> Path:
    """Argument type: a path. An empty one, as from an unset variable, would be the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"invalid value: {text!r} (allowed: a path; . for this folder)")
    check_reachable(Path(text))
    return Path(text)


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each field but the preset's name."""
    fields = parser.add_argument_group(
        "configuration",
        "Each overrides a value of the preset or file; `python -m gangway.trainer presets NAME` shows a preset's "
        "values. N is "
        "a whole number, X a number, NAMES are names by commas.",
    )
    sentences = attribute_sentences(ConfigFields)
    for name, field in ConfigFields.model_fields.items():
        if name != "preset":
            flag, text = f"--{name.replace('_', '-')}", sentences[name].replace("%", "%%")
            metavar = _metavar(field)
            more = f"; see {_CHANGES_DOC}" if metavar == "JSON" or name == "freeze" else ""
            fields.add_argument(flag, dest=f"field_{name}", metavar=metavar, help=text + more)


def _metavar(field: FieldInfo) -> str:
    kind = field.annotation
    if get_origin(kind) is tuple:
        return "NAMES" if get_args(kind)[0] is str else "JSON"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "JSON"
    return "|".join(map(str, get_args(kind))) if get_origin(kind) is Literal else _KINDS[kind]
