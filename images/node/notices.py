"""Keeps in a file what a cloud says now of this machine's end. The job reads it there: of a machine's users root alone
may ask the metadata service (close-metadata.sh). With Python 3.9 alone.

A line is a kind of `trainer.preemption.notices` and, where the cloud names one, a time in its own words. The file is
written whole after each answer, so its age says when the cloud was last heard.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

METADATA_URL = "http://169.254.169.254"
TIMEOUT_SEC = 2.0

Poll = Callable[[], Iterable[tuple[str, str]]]
"""Asks once: the kind and the time, or an empty text, of each notice that holds now. OSError: no answer."""


class Keeper:
    """Writes `file` after each answer. A cloud that does not answer is told once, not every few seconds."""

    def __init__(self, file: Path, poll: Poll) -> None:
        self._file, self._poll, self._trouble = file, poll, ""

    def look(self) -> None:
        """Asks once; without an answer the file stays as it is, and grows old."""
        try:
            held = "".join(f"{kind} {moment}".rstrip() + "\n" for kind, moment in self._poll())
        except Exception as error:  # an answer of any form: without this loop nobody hears of an end
            said = f"cannot ask for notices, trying on: {type(error).__name__}: {error}"
            if said != self._trouble:
                print("gangway:", said, file=sys.stderr, flush=True)
            self._trouble = said
            return
        self._trouble = ""
        new = self._file.with_name(f"{self._file.name}.new")
        new.write_text(held, encoding="utf-8")
        new.replace(self._file)


def keep(file: str, poll: Poll, poll_sec: float) -> None:
    """Never returns. `poll_sec`: between two questions, unless GANGWAY_POLL_SEC says otherwise."""
    keeper, rest_sec = Keeper(Path(file), poll), float(os.environ.get("GANGWAY_POLL_SEC", poll_sec))
    while True:
        keeper.look()
        time.sleep(rest_sec)
