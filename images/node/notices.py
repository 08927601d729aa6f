"""Writes a cloud's interruption notices to a file for the job, since only root may reach the metadata service
(close-metadata.sh). Needs only Python 3.9.

A line is a kind of `gangway.trainer.preemption.notices` and, if the cloud gives one, a time in the cloud's format. The
file is replaced after each answer, so its age is that of the last answer.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

METADATA_URL = "http://169.254.169.254"
TIMEOUT_SEC = 2.0

Poll = Callable[[], Iterable[tuple[str, str]]]
"""Kind and time (may be empty) of each current notice. Raises OSError without an answer."""


class NoticeFile:
    """Writes `file` after each answer. Reports an error once, not at every poll."""

    def __init__(self, file: Path, poll: Poll) -> None:
        self._file, self._poll, self._error = file, poll, ""

    def update(self) -> None:
        """Polls once; without an answer the file is unchanged."""
        try:
            notices = "".join(f"{kind} {moment}".rstrip() + "\n" for kind, moment in self._poll())
        except Exception as error:  # whatever the answer: this loop must go on
            message = f"cannot read interruption notices, will retry: {type(error).__name__}: {error}"
            if message != self._error:
                print("gangway:", message, file=sys.stderr, flush=True)
            self._error = message
            return
        self._error = ""
        new = self._file.with_name(f"{self._file.name}.new")
        new.write_text(notices, encoding="utf-8")
        new.replace(self._file)


def write_notices(file: str, poll: Poll, poll_sec: float) -> None:
    """Never returns. GANGWAY_POLL_SEC overrides `poll_sec`."""
    notice_file, rest_sec = NoticeFile(Path(file), poll), float(os.environ.get("GANGWAY_POLL_SEC", poll_sec))
    while True:
        notice_file.update()
        time.sleep(rest_sec)
