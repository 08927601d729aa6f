"""Lines of the journal on their way to a cloud's log: collected, sent every few seconds, and tried again.

What an entry of that log looks like and who takes it is the caller's (`gcp.logs` and `azure.logs` beside it).
The last cursor that was sent is on disk, so a restart goes on where it was; on tmpfs, so a reboot begins with its own
journal. Ends when journalctl does.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from images.node.web import RefusedError

FLUSH_SEC = 5.0

Entry = dict[str, Any]


def journal_fields(line: dict[str, Any]) -> dict[str, Any]:
    """What a record of `journalctl --output json` says: its JSON, or its text as `message`."""
    message = line.get("MESSAGE") or ""
    # journald gives what is no text as a list of bytes.
    text = bytes(message).decode(errors="replace") if isinstance(message, list) else str(message)
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"message": text}


class LogShipper:
    """Collects entries and sends them every few seconds, from a thread of its own.

    Args:
        send: takes some entries. Raises OSError, of which RefusedError may say that it will never take them.
        cursor_file: where the last cursor that was sent is kept.
        most: entries, and bytes of their JSON, that it takes at once; a longer entry goes alone.
        flush_sec: between two sendings.
    """

    def __init__(
        self,
        send: Callable[[list[Entry]], None],
        cursor_file: Path,
        most: tuple[int, int],
        flush_sec: float = FLUSH_SEC,
    ) -> None:
        self._send, self._file, self._flush_sec = send, cursor_file, flush_sec
        self._most_entries, self._most_bytes = most
        self._waiting: list[tuple[str, Entry]] = []
        # Reading waits when this many lines could not be sent: memory has an end, and journald has a file.
        self._room = threading.Semaphore(20 * self._most_entries)
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="gangway-ship", daemon=True)

    def ship(self, lines: Iterable[str], entry_of: Callable[[dict[str, Any]], Entry]) -> None:
        """Sends every line of journalctl's, until there are no more."""
        self._thread.start()
        for text in lines:
            line = json.loads(text)
            self._room.acquire()
            with self._lock:
                self._waiting.append((line["__CURSOR"], entry_of(line)))
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._flush_sec):
            self._flush()
        self._flush()

    def _batch(self) -> list[tuple[str, Entry]]:
        """The next entries that fit together."""
        with self._lock:
            first = self._waiting[: self._most_entries]
        left = self._most_bytes
        for count, (_, entry) in enumerate(first):
            left -= len(json.dumps(entry)) + 1
            if left < 0:
                return first[: max(count, 1)]
        return first

    def _flush(self) -> None:
        """Sends what waits; what cannot be sent now is tried again at the next time."""
        while batch := self._batch():
            try:
                self._send([entry for _, entry in batch])
            except RefusedError as error:
                # To the journal of this unit, which is not shipped.
                print(f"gangway: could not send lines: {error}", file=sys.stderr, flush=True)
                if error.status >= 500 or error.status in (401, 403, 429):
                    return
                # The same lines would be refused for ever.
            except OSError as error:
                print(f"gangway: could not send lines: {error}", file=sys.stderr, flush=True)
                return
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(batch[-1][0])
            with self._lock:
                del self._waiting[: len(batch)]
            self._room.release(len(batch))


def follow_journal(units: Sequence[str], cursor_file: Path, ship: Callable[[Iterable[str]], None]) -> None:
    """Hands the units' lines over as journalctl writes them, until it ends."""
    since = [f"--after-cursor={cursor_file.read_text()}"] if cursor_file.exists() else ["--boot"]
    command = ["journalctl", "--follow", "--no-tail", "--output=json", *since, *(f"--unit={unit}" for unit in units)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as journal:
        assert journal.stdout is not None, "it was asked for"
        ship(journal.stdout)
