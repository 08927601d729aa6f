"""Checks that a folder or file is free, or a run's, before anything is written: foreign files are never touched."""

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.run_record import RunRecord
from gangway.trainer.records.stats_log import read_stats_log

_CHECKPOINT = re.compile(r"(\.partial-[0-9a-f]+-)?[0-9]{12}\.(pt|part-[0-9]+-of-[0-9]+)")
"""Complete or partial checkpoints, and workers' parts."""
_BEFORE_A_RUN = re.compile(r"data|(job|plan|train)\.json|.+\.log|report")
"""Files that launchers, nodes and `data prepare` put into a run directory before the run."""
_SHOWN = 3


def visible(folder: Path) -> Iterator[str]:
    """Names in a folder, sorted, without hidden ones, the file system's own and folders without files."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        hidden = path.name.startswith(".") or path.name == "lost+found"
        if not hidden and (not path.is_dir() or any(not each.is_dir() for each in path.rglob("*"))):
            yield path.name


def is_run(folder: Path) -> bool:
    """Whether the trainer has written here: one intact file that only it writes is enough."""
    checkpoints = folder / "checkpoints"
    if checkpoints.is_dir() and any(_CHECKPOINT.fullmatch(path.name) for path in checkpoints.iterdir()):
        return True
    if (folder / "config.json").is_file() and _is_readable(lambda: TrainConfig.from_file(folder / "config.json")):
        return True
    if (folder / "run.json").is_file() and _is_readable(lambda: RunRecord.read(folder / "run.json")):
        return True
    return (folder / "stats.jsonl").is_file() and bool(read_stats_log(folder).lines)


def _is_readable(read: Callable[[], object]) -> bool:
    try:
        read()
    except TrainerError:
        return False
    return True


def check_run_folder(folder: Path) -> None:
    """TrainerError for a folder with foreign files and no run."""
    try:
        names = [name for name in visible(folder) if not _BEFORE_A_RUN.fullmatch(name)]
        if not names or is_run(folder):
            return
    except PermissionError as error:
        raise TrainerError(
            place="--run-dir",
            problem=f"cannot be looked into: {error.strerror}",
            value=str(folder),
            allowed="a folder that this user can read and write",
            fix="get the right to read it, or name another --run-dir",
        ) from None
    raise TrainerError(
        place="--run-dir",
        problem=f"holds no run but other files: {listed(names)}; nothing is written among them",
        value=str(folder),
        allowed="an empty or new folder, or one of an earlier run",
        fix=f"--run-dir {shlex.quote(str(free_name(folder)))}",
    )


def listed(names: Sequence[str]) -> str:
    """The first few names, and the number of others."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def free_name(path: Path, written: Callable[[Path], Sequence[Path]] = lambda out: (out,)) -> Path:
    """An unused name like this one in the same folder; `written` are the files that a name stands for."""
    named = path if path.name not in ("", "..") else path.resolve()
    named = named if named.name else Path("run")
    suffix = "" if named.is_dir() else named.suffix
    stem = named.name.removesuffix(suffix)
    names = (named.with_name(f"{stem}-{number}{suffix}") for number in itertools.count(1))
    return next(name for name in names if not any(each.exists() or each.is_symlink() for each in written(name)))


def taken(out: Path, written: Callable[[Path], Sequence[Path]] = lambda out: (out,)) -> Path | None:
    """The first existing file of those that `out` stands for; devices and pipes do not count."""
    return next((path for path in written(out) if path.is_file()), None)


def check_new_file(
    out: Path, *, overwrite: bool, written: Callable[[Path], Sequence[Path]] = lambda out: (out,)
) -> None:
    """TrainerError for an --out that exists, unless it may be overwritten."""
    if not overwrite and (existing := taken(out, written)) is not None:
        raise TrainerError(
            place="--out",
            problem="is there already" if existing == out else f"{existing} is there already",
            value=str(out),
            allowed="a new file; --overwrite for one that may go",
            fix=f"--out {shlex.quote(str(free_name(out, written)))}",
        )
