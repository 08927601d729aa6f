"""The `gangway` command: `gangway plan aws-demo`, `gangway demo`, `gangway catalog list`.

Reads arguments, calls the modules that do the work, turns a user's mistake into one message and exit code 2. Heavy
imports stand inside the commands: `gangway --help` has to answer at once.
"""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from components.core.findings import InputError
from stacks.config.paths import ROOT, in_project

EXIT_FINDINGS = 1
EXIT_BAD_INPUT = 2
OVERWRITE = "Overwrite an existing file."
TRUSTED_KEY = "PEM file of the public key of the required signature: `pulumi stack output signing_public_key`."
_PAGE, _PAGES_MARK, _HEAD_BYTES = "report.html", b'<meta name="generator" content="Gangway">', 4096


def stacks_dir() -> Path:
    """Where the stack files are: the working directory of a project, else its `stacks/`, else what Gangway ships."""
    if in_project():
        return Path()
    here = Path("stacks")
    return here if any(here.glob("Pulumi.*.yaml")) else ROOT / "stacks"


def check_new_file(
    out: Path,
    *,
    overwrite: bool,
    written: Callable[[Path], Sequence[Path]] = lambda out: (out,),
    flag: str = "--out",
) -> None:
    """InputError for an `out` that is there already, unless it is to be overwritten. `written`: what it stands for;
    `flag`: that it was named by.
    """
    from trainer.records.folders import free_name, taken

    if not overwrite and (there := taken(out, written)) is not None:
        raise InputError(
            flag,
            "is there already" if there == out else f"{there} is there already",
            value=str(out),
            allowed="a new file; --overwrite for one that may go",
            fix=f"{flag} {shlex.quote(str(free_name(out, written)))}",
        )


def check_page_folder(folder: Path) -> None:
    """InputError for a folder in which a page would be among somebody's files: it holds neither a page nor a run."""
    from trainer.records.folders import is_run, visible

    names = list(visible(folder))
    if not names or _is_page(folder / _PAGE) or is_run(folder) or any(is_run(folder / name) for name in names):
        return
    allowed = "an empty or new folder, one of an earlier report, or one of runs"
    raise _foreign(folder, names, "--out", "holds no report but other files", allowed)


def check_figures_folder(folder: Path) -> None:
    """InputError for a folder in which figures would be among somebody's files: it holds others than figures, of which
    each is there as PDF and as SVG, and a page.
    """
    from trainer.records.folders import visible

    names = [Path(name) for name in visible(folder) if not (name == _PAGE and _is_page(folder / name))]
    kinds = {name.stem: {each.suffix for each in names if each.stem == name.stem} for name in names}
    foreign = [str(name) for name in names if kinds[name.stem] != {".pdf", ".svg"} or (folder / name).is_dir()]
    if foreign:
        allowed = "an empty or new folder, or one of earlier figures"
        raise _foreign(folder, foreign, "--figures", "holds other files than figures", allowed)


def _foreign(folder: Path, names: Sequence[str], flag: str, problem: str, allowed: str) -> InputError:
    from trainer.records.folders import free_name, listed

    return InputError(
        flag,
        f"{problem}: {listed(names)}; nothing is written among them",
        value=str(folder),
        allowed=allowed,
        fix=f"{flag} {shlex.quote(str(free_name(folder)))}",
    )


def _is_page(path: Path) -> bool:
    if not path.is_file():
        return False
    from trainer.core.regular_files import open_file

    with open_file(path) as file:
        return _PAGES_MARK in file.read(_HEAD_BYTES)
