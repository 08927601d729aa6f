"""The folder in which a command starts, checked before the job is submitted."""

import os
from collections.abc import Iterator
from pathlib import Path

from gangway.components.core.findings import Finding, InputError
from gangway.jobs.listing import ClosedError
from gangway.stacks.config.job_file import JobFile

_FIX = "cd to a folder that you can enter, or name one in the job file: workdir: /data/mine"


def working_folder(job: JobFile) -> str | None:
    """The current folder, as in every batch system, unless the job file names one; None if the engine decides.
    InputError: it was removed.
    """
    if job.workdir is not None or not job.command or job.image is not None:
        return job.workdir
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        raise InputError(
            "job.workdir", "the current folder, where the command would start, was removed",
            allowed="an existing folder", fix="cd to one, or name it in the job file: workdir: /data/mine",
        ) from None  # fmt: skip


def working_folder_findings(job: JobFile, *, is_here: bool) -> Iterator[Finding]:
    """A folder that this user cannot enter. `is_here`: the command runs on this machine; elsewhere the folder may
    differ, so it is only a warning. A missing folder is fine, since it may be made later. InputError: it was removed.
    """
    folder = working_folder(job)
    if folder is None or job.image is not None:  # a container's own
        return
    try:
        os.stat(f"{folder}/.")  # noqa: PTH116 # pathlib would drop the dot, which requires entering the folder
    except PermissionError:
        problem = ClosedError(Path(folder) / "*").problem
    except NotADirectoryError:
        problem = "it is a file"
    except OSError:
        return
    else:
        return
    finding = Finding.error if is_here else Finding.warning
    where = "" if is_here else " (checked on this machine)"
    yield finding("job.workdir", "workdir", f"the command starts in {folder}{where}: {problem}", _FIX)
