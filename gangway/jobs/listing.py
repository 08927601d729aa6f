"""The jobs in a folder that several users may share: which exist, who owns them, which of them this user may open. Only
the owner decides, not the mode.
"""

import errno
import os
import re
from contextlib import suppress
from pathlib import Path

from gangway.jobs.job_folder import ForeignError, JobFolder, NotOwnError, OwnJobFolder, UnreadableError, user_name
from gangway.trainer.core.regular_files import file_problem

STATE_FILE = "state.json"
_ID = re.compile(r"([a-z][a-z0-9-]*)-([0-9]{1,18})")
_MOST_FOREIGN_NUMBER = 10**9
"""Other users' folders with higher numbers do not count, else one folder could use up all numbers."""


class ClosedError(UnreadableError):
    """This user cannot enter a folder on the way to a job."""

    def __init__(self, path: Path) -> None:
        found = file_problem(PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)))
        assert found is not None, "a path, and an error that a user can correct"
        super().__init__(found.place, found.problem, fix=found.fix)


def check_open(folder: Path) -> None:
    """ClosedError: this user cannot enter the folder of jobs or one above it. A missing folder is fine."""
    try:
        os.stat(f"{folder}/.")  # noqa: PTH116 # pathlib would drop the dot, which requires entering the folder
    except PermissionError:
        raise ClosedError(folder / "*") from None
    except OSError:
        return


def list_names(folder: Path) -> list[str]:
    """All entries named like a job. ClosedError."""
    try:
        found = os.listdir(folder)  # noqa: PTH208 # iterdir() and glob() treat a closed folder as empty
    except PermissionError:
        raise ClosedError(folder) from None
    except OSError:
        return []  # there is none
    check_open(folder)
    return [name for name in found if _ID.fullmatch(name)]


def job_ids(folder: Path) -> list[str]:
    """All jobs in the folder, oldest first. ClosedError."""
    return sorted((name for name in list_names(folder) if is_job(folder / name)), key=get_number)


def list_own_jobs(folder: Path) -> list[OwnJobFolder]:
    """Jobs that this user may start and end, oldest first. ClosedError."""
    found = list[OwnJobFolder]()
    for job_id in job_ids(folder):
        with suppress(OSError, NotOwnError):
            found.append(OwnJobFolder(folder / job_id))
    return found


def open_job(path: Path) -> JobFolder:
    """Opens a job's folder that this user owns; root opens any. ForeignError: another user's. UnreadableError: this
    user's, but closed. ClosedError. FileNotFoundError: just removed.
    """
    try:
        folder = JobFolder(path)
    except PermissionError:
        check_open(path.parent)
        owner = get_owner(path)
        if not is_own(path):
            raise ForeignError(path, owner) from None
        raise UnreadableError(str(path), f"is closed to {owner}, who owns it", fix=f"chmod u+rwx {path}") from None
    except OSError as error:
        raise FileNotFoundError(error.errno, error.strerror, str(path)) from None
    if os.geteuid() not in (0, folder.uid):
        raise ForeignError(path, folder.owner)
    return folder


def is_id(word: str) -> bool:
    """Whether the word is a valid job id."""
    return _ID.fullmatch(word) is not None


def is_job(path: Path) -> bool:
    """Whether a folder with a job's name holds a job; one that is closed to this user counts by its name."""
    try:
        return JobFolder(path).has_entry(STATE_FILE)
    except PermissionError:
        return True
    except OSError:
        return False  # or just removed


def is_own(path: Path) -> bool:
    """Whether it is this user's or was just removed."""
    with suppress(OSError):
        return path.lstat().st_uid == os.geteuid()
    return True


def get_owner(path: Path) -> str:
    """Empty if unknown."""
    with suppress(OSError):
        return user_name(path.lstat().st_uid)
    return ""


def get_number(job_id: str) -> int:
    """Orders jobs by submission."""
    return int(job_id.rpartition("-")[2])


def next_number(folder: Path, least: int) -> int:
    """Higher than `least` and every number in use, by any user and whatever the folder holds. ClosedError."""
    return 1 + max(least, *(_taken_number(folder / name) for name in list_names(folder)), 0)


def _taken_number(path: Path) -> int:
    number = get_number(path.name)
    return number if number <= _MOST_FOREIGN_NUMBER or is_own(path) else 0
