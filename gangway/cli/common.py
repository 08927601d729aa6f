"""What several commands share: exit codes, stack files, JSON output, checks of flags, output files and folders."""

import json
import math
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import typer
from typer.core import TyperGroup

from gangway.components.core.findings import InputError
from gangway.stacks.config.corrections import Span, parse_number
from gangway.stacks.config.paths import ROOT, in_project

if TYPE_CHECKING:
    from typer._click import Context

    from gangway.stacks.config.stack_config import StackConfig


ChoiceT = TypeVar("ChoiceT", bound=str)
EXIT_FINDINGS = 1
"""The command ran, and its answer is a negative one: findings, differences, something missing."""
EXIT_BAD_INPUT = 2
OVERWRITE = "Overwrite an existing file."
TRUSTED_KEY = "PEM file of the public key of the required signature: `pulumi stack output signing_public_key`."
_PAGE, _PAGE_MARK, _HEAD_BYTES = "report.html", b'<meta name="generator" content="Gangway">', 4096


def stacks_dir() -> Path:
    """The folder of stack files: the working directory of a project, else its `stacks/`, else the shipped ones."""
    if in_project():
        return Path()
    here = Path("stacks")
    return here if any(here.glob("Pulumi.*.yaml")) else ROOT / "stacks"


def load_stack(stack_or_file: str) -> "StackConfig":
    """Read a stack by name or path. InputError: no such stack, or an invalid file."""
    from gangway.stacks.loading.loader import find_stack_file, from_file

    return from_file(find_stack_file(stack_or_file, stacks_dir()))


def print_json(data: Any) -> None:
    """Print data as indented JSON."""
    typer.echo(json.dumps(data, indent=2))


def choose(flag: str, problem: str, word: str, choices: Collection[ChoiceT]) -> ChoiceT:
    """The choice that the word is. InputError: none; the fix is the nearest."""
    for choice in choices:
        if choice == word:
            return choice
    raise InputError.not_among(flag, problem, word, choices)


def check_plot(plot: Path, *, overwrite: bool) -> None:
    """InputError: matplotlib is missing, an unsupported suffix, no such folder, or the file exists."""
    from gangway.stacks.base.extras import require

    if plot.suffix not in (".png", ".svg"):
        fix = f"--plot {shlex.quote(str(plot.with_suffix('.png')))}"
        raise InputError("--plot", "unsupported file type", value=str(plot), allowed=".png, .svg", fix=fix)
    if not plot.parent.is_dir():
        fix = f"mkdir -p {shlex.quote(str(plot.parent))}"
        raise InputError("--plot", "folder does not exist", value=str(plot), allowed="an existing folder", fix=fix)
    require("matplotlib")
    check_new_file(plot, overwrite=overwrite, flag="--plot")


def check_new_file(
    out: Path,
    *,
    overwrite: bool,
    outputs: Callable[[Path], Sequence[Path]] = lambda out: (out,),
    flag: str = "--out",
) -> None:
    """InputError: one of the `outputs` of `out` exists and may not be overwritten."""
    from gangway.trainer.records.folders import free_name, taken

    if not overwrite and (existing := taken(out, outputs)) is not None:
        raise InputError(
            flag,
            "already exists" if existing == out else f"{existing} already exists",
            value=str(out),
            allowed="a new file, or --overwrite",
            fix=f"{flag} {shlex.quote(str(free_name(out, outputs)))}",
        )


def check_page_folder(folder: Path) -> None:
    """InputError: the folder has files, but no report and no run."""
    from gangway.trainer.records.folders import is_run, visible

    names = list(visible(folder))
    if not names or _is_page(folder / _PAGE) or is_run(folder) or any(is_run(folder / name) for name in names):
        return
    raise _other_files(folder, names, "--out", "an empty or new folder, one with a report, or one of runs")


def check_figures_folder(folder: Path) -> None:
    """InputError: the folder has files other than figures (each as PDF and SVG) and a report."""
    from gangway.trainer.records.folders import visible

    names = [Path(name) for name in visible(folder) if not (name == _PAGE and _is_page(folder / name))]
    suffixes = {name.stem: {each.suffix for each in names if each.stem == name.stem} for name in names}
    others = [str(name) for name in names if suffixes[name.stem] != {".pdf", ".svg"} or (folder / name).is_dir()]
    if others:
        raise _other_files(folder, others, "--figures", "an empty or new folder, or one of earlier figures")


def _other_files(folder: Path, names: Sequence[str], flag: str, allowed: str) -> InputError:
    from gangway.trainer.records.folders import free_name, listed

    return InputError(
        flag,
        f"the folder has other files: {listed(names)}; nothing was written",
        value=str(folder),
        allowed=allowed,
        fix=f"{flag} {shlex.quote(str(free_name(folder)))}",
    )


def _is_page(path: Path) -> bool:
    if not path.is_file():
        return False
    from gangway.trainer.core.regular_files import open_file

    with open_file(path) as file:
        return _PAGE_MARK in file.read(_HEAD_BYTES)


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

    from gangway.trainer.core.validation import bounds_text

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
    bounds = bounds_text(**{name: limits[name] for name in ("ge", "le") if name in limits})
    about = str(getattr(param, "help", None) or "").rstrip(".")
    example = param.default if isinstance(param.default, int | float) and param.default else 1
    return InputError(
        option,
        "not a number" if is_number else "out of range",
        value=value,
        allowed=f"a {'whole ' * whole}number{bounds}" + (f" ({about[0].lower()}{about[1:]})" if about else ""),
        fix=f"write {option} {example if meant is None else meant}",
    )
