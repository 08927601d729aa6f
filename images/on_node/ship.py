"""Sends the lines of our units from the journal to Cloud Logging, each line of JSON as the fields of its entry.

    python3 -m images.on_node.ship PROJECT LOG UNIT...

Docker's own driver for Cloud Logging would put a line into one text field, where no metric can read its numbers, and
Google's agent would be one more package to install at boot. Each entry carries the journal's cursor as its id, so what
is sent twice is kept once; the last cursor is on disk, so a restart goes on where it was; on tmpfs, so a reboot begins
with its own journal. Ends when journalctl does.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from images.on_node.gce import Google, RefusedError, log_entry

__all__ = ["Shipper", "entry_of", "main"]

FLUSH_SEC = 5.0
# Cloud Logging takes 1000 entries and 10 MB at once.
MAX_ENTRIES = 500


def entry_of(project: str, log: str, line: dict[str, Any]) -> dict[str, Any]:
    """The entry of one record of `journalctl --output json`."""
    message = line.get("MESSAGE") or ""
    # journald gives what is no text as a list of bytes.
    text = bytes(message).decode(errors="replace") if isinstance(message, list) else str(message)
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    entry = log_entry(project, log, parsed if isinstance(parsed, dict) else {"message": text})
    moment = datetime.fromtimestamp(int(line["__REALTIME_TIMESTAMP"]) / 1e6, timezone.utc)  # noqa: UP017 - Python 3.10
    unit = str(line.get("_SYSTEMD_UNIT", "")).removesuffix(".service")
    return {
        **entry,
        "timestamp": moment.isoformat(),
        "insertId": _insert_id(line["__CURSOR"]),
        "labels": {"unit": unit},
    }


def _insert_id(cursor: str) -> str:
    """Boot and position in it, which are unique on a machine; a whole cursor may be too long for an id."""
    fields = dict(field.partition("=")[::2] for field in cursor.split(";"))
    return f"{fields.get('b', '')}-{fields.get('i', cursor)}"


class Shipper:
    """Collects entries and sends them every few seconds, from a thread of its own.

    Args:
        google: the APIs.
        project: of the log.
        cursor_file: where the last cursor that was sent is kept.
        flush_sec: between two sendings.
    """

    def __init__(self, google: Google, project: str, cursor_file: Path, flush_sec: float = FLUSH_SEC) -> None:
        self._google, self._project, self._file, self._flush_sec = google, project, cursor_file, flush_sec
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        # Reading waits when this many lines could not be sent: memory has an end, and journald has a file.
        self._room = threading.Semaphore(20 * MAX_ENTRIES)
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="gangway-ship", daemon=True)

    def ship(self, log: str, lines: Iterable[str]) -> None:
        """Sends every line of journalctl's, until there are no more."""
        self._thread.start()
        for text in lines:
            line = json.loads(text)
            self._room.acquire()
            with self._lock:
                self._waiting.append((line["__CURSOR"], entry_of(self._project, log, line)))
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._flush_sec):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        """Sends what waits; what cannot be sent now is tried again at the next time."""
        while True:
            with self._lock:
                batch = self._waiting[:MAX_ENTRIES]
            if not batch:
                return
            try:
                self._google.write_log(self._project, [entry for _, entry in batch])
            except RefusedError as error:
                if error.status >= 500 or error.status in (401, 403, 429):
                    self._say(error)
                    return
                # The same lines would be refused for ever.
                self._say(error)
            except OSError as error:
                self._say(error)
                return
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(batch[-1][0])
            with self._lock:
                del self._waiting[: len(batch)]
            self._room.release(len(batch))

    def _say(self, error: Exception) -> None:
        # To the journal of this unit, which is not shipped.
        print(f"gangway: could not send lines: {error}", file=sys.stderr, flush=True)


def main(argv: Sequence[str]) -> int:
    """Follows the journal."""
    project, log, *units = argv
    cursor_file = Path(os.environ.get("GANGWAY_STATE_DIR", "/run/gangway"), "cursor")
    since = [f"--after-cursor={cursor_file.read_text()}"] if cursor_file.exists() else ["--boot"]
    command = ["journalctl", "--follow", "--no-tail", "--output=json", *since, *(f"--unit={unit}" for unit in units)]
    shipper = Shipper(Google.from_environment(), project, cursor_file)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as journal:
        assert journal.stdout is not None, "it was asked for"
        shipper.ship(log, journal.stdout)
    # The unit starts again, where this ended.
    return 1


if __name__ == "__main__":
    # systemd stops journalctl as well, which ends: what it has said is sent before this ends too.
    signal.signal(signal.SIGTERM, lambda *_: None)
    sys.exit(main(sys.argv[1:]))
