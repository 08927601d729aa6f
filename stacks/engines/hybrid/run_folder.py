"""What a run's folder on this machine holds, looked through without an object store, which stops at the first name that
it cannot say and at links in a circle.
"""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile

from components.core.findings import InputError
from stacks.engines.hybrid.file_marks import Marks

_ODD = re.compile(r"#[0-9]+$|[\x00-\x1f\x7f\udc80-\udcff]")
_MOST_NAME_BYTES = 240


class CopyDamagedError(InputError):
    """What was read back is not what was sent."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "what arrived is not what was sent", fix="the same move again copies it again")


@dataclass(frozen=True)
class RunFolder:
    """Of one folder, files that links lead to among them.

    Attributes:
        files: name -> bytes.
        left_out: what is no file: empty folders, links that lead nowhere or to a folder around them, devices.
    """

    files: Mapping[str, int]
    left_out: tuple[str, ...]

    @classmethod
    def look(cls, folder: Path) -> "RunFolder":
        """InputError: it cannot be read."""
        files, left_out = dict[str, int](), list[str]()
        try:
            for name, size in _found(folder, "", (folder.resolve(),)):
                if isinstance(size, str):
                    left_out.append(f"{name} ({size})")
                else:
                    files[name] = size
        except OSError as error:
            raise InputError(
                str(error.filename or folder), f"cannot be read: {error.strerror}", allowed="a run folder to be copied",
                fix="let whoever moves the job read it",
            ) from None  # fmt: skip
        return cls(files, tuple(sorted(left_out)))


def is_odd(name: str) -> bool:
    """Whether no object store here takes a file of that name: its end is what obstore calls a file that it has by half,
    some of it is no letter, or there is no room for that end.
    """
    parts = name.split("/")
    return bool(_ODD.search(name)) or any(len(os.fsencode(part)) > _MOST_NAME_BYTES for part in parts)


def copy_by_name(source: Path, target: Path, names: Iterable[str]) -> list[str]:
    """From folder to folder, whatever the names; why some have not their times and modes. CopyDamagedError, OSError."""
    problems = list[str]()
    for path in target.rglob("*"):
        if is_odd(path.name) and not path.is_dir():
            path.unlink()  # of a copy that was killed, by half
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).unlink(missing_ok=True)  # it may be one that cannot be written
        copyfile(source / name, target / name)
        if _sha256(source / name) != _sha256(target / name):
            raise CopyDamagedError(name)
        problems.append(Marks.of(source / name).put_on(target / name))
    return [problem for problem in problems if problem]


def remove_others(folder: Path, kept: Collection[str]) -> None:
    """Leaves nothing in a folder but files of these names: neither folders that are empty then nor links, which are
    followed nowhere. OSError.
    """
    for walked, folders, files in os.walk(folder, topdown=False, onerror=_raise):
        above = Path(walked)
        links = [name for name in folders if (above / name).is_symlink()]  # of the others some have just been removed
        for path in (above / name for name in (*files, *links)):
            if path.is_symlink() or str(path.relative_to(folder)) not in kept:
                path.unlink()
        if above != folder and not any(above.iterdir()):
            above.rmdir()


def _raise(error: OSError) -> None:
    raise error


def _found(folder: Path, below: str, around: tuple[Path, ...]) -> Iterator[tuple[str, int | str]]:
    """Names with bytes, or why they do not travel. `around`: the folders that one has come through, without links."""
    try:
        with os.scandir(folder) as entries:
            each = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return  # it has just gone: the job may be at work
    if not each and below:
        yield below, "empty"
    for entry in each:
        name, path = f"{below}{entry.name}", folder / entry.name
        try:
            mode, size = (seen := path.stat()).st_mode, seen.st_size
        except OSError:  # a link to nothing or in a circle, or a file that has just gone
            if path.is_symlink():
                yield name, "a link"
            continue
        if stat.S_ISDIR(mode):
            real = path.resolve()
            if any(real == one or real in one.parents for one in around):
                yield name, "a link to a folder around it"
            else:
                yield from _found(path, f"{name}/", (*around, real))
        elif not stat.S_ISREG(mode):
            yield name, "no file"
        elif not os.access(path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        else:
            yield name, size


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
