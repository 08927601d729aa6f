"""The jobs in a folder that several users may share: which there are, whose they are, and which of them this user may
open. What another user's folder is follows from its owner alone, however open it is.
"""

import errno
import os
import re
from contextlib import suppress
from pathlib import Path

from gangway.jobs.job_folder import ForeignError, JobFolder, NotOwnError, OwnJobFolder, UnreadableError, user_name
from trainer.core.file_errors import file_problem

STATE_FILE = "state.json"
_ID = re.compile(r"([a-z][a-z0-9-]*)-([0-9]{1,18})")
_MOST_FOREIGN_NUMBER = 10**9
"""Another user's folder of a higher number takes none: else one folder could use all numbers up."""


class ClosedError(UnreadableError):
    """A folder on the way to a job is closed to this user: nothing is known of what is in it."""

    def __init__(self, path: Path) -> None:
        found = file_problem(PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)))
        assert found is not None, "a path, and an error that a user can correct"
        super().__init__(found.place, found.problem, fix=found.fix)


def check_open(folder: Path) -> None:
    """ClosedError: this user cannot enter the folder of jobs, or one above it. One that is not there is open."""
    try:
        os.stat(f"{folder}/.")  # noqa: PTH116 # pathlib would leave the dot out, by which the folder has to be entered
    except PermissionError:
        raise ClosedError(folder / "*") from None
    except OSError:
        return


def job_names(folder: Path) -> list[str]:
    """Of all that has the name of a job. ClosedError: nobody knows what is there."""
    try:
        found = os.listdir(folder)  # noqa: PTH208 # iterdir() and glob() take a closed folder for an empty one
    except PermissionError:
        raise ClosedError(folder) from None
    except OSError:
        return []  # there is none
    check_open(folder)
    return [name for name in found if _ID.fullmatch(name)]


def job_ids(folder: Path) -> list[str]:
    """Of all jobs in the folder, the oldest first. ClosedError."""
    return sorted((name for name in job_names(folder) if is_job(folder / name)), key=get_number)


def own_jobs(folder: Path) -> list[OwnJobFolder]:
    """Those that this user may begin and end, the oldest first. ClosedError."""
    found = list[OwnJobFolder]()
    for job_id in job_ids(folder):
        with suppress(OSError, NotOwnError):
            found.append(OwnJobFolder(folder / job_id))
    return found


def open_job(path: Path) -> JobFolder:
    """An own job's folder; to root anybody's. ForeignError: it is another user's. UnreadableError: it is this user's
    own, and closed all the same. ClosedError. FileNotFoundError: it has just been removed.
    """
    try:
        folder = JobFolder(path)
    except PermissionError:
        check_open(path.parent)
        owner = owner_of(path)
        if not is_own(path):
            raise ForeignError(path, owner) from None
        raise UnreadableError(str(path), f"is closed to {owner}, who owns it", fix=f"chmod u+rwx {path}") from None
    except OSError as error:
        raise FileNotFoundError(error.errno, error.strerror, str(path)) from None
    if os.geteuid() not in (0, folder.uid):
        raise ForeignError(path, folder.owner)
    return folder


def is_id(word: str) -> bool:
    """Whether a job may have that id."""
    return _ID.fullmatch(word) is not None


def is_job(path: Path) -> bool:
    """Whether a folder with the name of a job is one, whatever its state is; of a folder that is closed to this user
    its name says so.
    """
    try:
        return JobFolder(path).has_entry(STATE_FILE)
    except PermissionError:
        return True
    except OSError:
        return False  # or it has just been removed


def is_own(path: Path) -> bool:
    """Whether it is this user's; so is what has just been removed."""
    with suppress(OSError):
        return path.lstat().st_uid == os.geteuid()
    return True


def owner_of(path: Path) -> str:
    """Empty where nobody may know."""
    with suppress(OSError):
        return user_name(path.lstat().st_uid)
    return ""


def get_number(job_id: str) -> int:
    """In the order of submission."""
    return int(job_id.rpartition("-")[2])


def next_number(folder: Path, least: int) -> int:
    """Above that one and all that are taken: whosever a folder is and whatever it holds, of what has the name of a job
    no other can be made. ClosedError.
    """
    return 1 + max(least, *(_taken_number(folder / name) for name in job_names(folder)), 0)


def _taken_number(path: Path) -> int:
    number = get_number(path.name)
    return number if number <= _MOST_FOREIGN_NUMBER or is_own(path) else 0
