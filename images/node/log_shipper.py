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
# Units whose JSON is this node's own word. The job prints what it likes in all others, an event of a node among it.
OWN_UNITS = ("gangway-fill",)
_MOST_DEPTH = 32
"""Of a line's JSON. Python's own limit depends on who asks, and the clouds have theirs."""
# Bad content, or too much of it: one entry may be at fault, and the others are not to go with it.
_BAD_CONTENT = (400, 413)

Entry = dict[str, Any]


def get_unit(line: dict[str, Any]) -> str:
    """Which unit said a record of `journalctl --output json`, without its ending."""
    return str(line.get("_SYSTEMD_UNIT", "")).removesuffix(".service")


def journal_fields(line: dict[str, Any]) -> dict[str, Any]:
    """What a record of `journalctl --output json` says: JSON as `printed`, of OWN_UNITS as it is; or text as `message`.

    Metrics and alarms go by `event` of nodes, which therefore nothing that a job prints can become.
    """
    message = line.get("MESSAGE") or ""
    # journald gives what is no text as a list of bytes.
    text = bytes(message).decode(errors="replace") if isinstance(message, list) else str(message)
    parsed = _plain_object(text)
    if parsed is None:
        return {"message": text}
    return parsed if get_unit(line) in OWN_UNITS else {"printed": parsed}


def _plain_object(text: str) -> Entry | None:
    """The JSON object in a line; None for no JSON, and for what Python alone takes for it: NaN, or without an end."""
    try:
        parsed = json.loads(text)
        json.dumps(parsed, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) and not _is_deep(parsed) else None


def _is_deep(value: Entry) -> bool:
    level: list[Any] = [value]
    for _ in range(_MOST_DEPTH):
        lists = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list)))
        level = [child for children in lists for child in children]
    return bool(level)


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
            try:
                line = json.loads(text)
                waits = (line["__CURSOR"], entry_of(line))
            except (ValueError, RecursionError) as error:
                # The cursor of the line after it is beyond this one.
                print(f"gangway: a line that cannot be read is left out: {error}", file=sys.stderr, flush=True)
                continue
            self._room.acquire()
            with self._lock:
                self._waiting.append(waits)
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._flush_sec):
            self._flush()
        self._flush()

    def _batch(self, most: int) -> list[tuple[str, Entry]]:
        """The next entries that fit together, `most` of them at most."""
        with self._lock:
            first = self._waiting[:most]
        left = self._most_bytes
        for count, (_, entry) in enumerate(first):
            left -= len(json.dumps(entry)) + 1
            if left < 0:
                return first[: max(count, 1)]
        return first

    def _flush(self) -> None:
        """Sends what waits; what cannot be sent now is tried again at the next time. Of entries that are refused
        together fewer are tried, until the one that is at fault goes alone, and is left out.
        """
        most = self._most_entries
        while batch := self._batch(most):
            try:
                self._send([entry for _, entry in batch])
                most = min(2 * most, self._most_entries)
            except RefusedError as error:
                # To the journal of this unit, which is not shipped.
                print(f"gangway: could not send {len(batch)} lines: {error}", file=sys.stderr, flush=True)
                if error.status >= 500 or error.status in (401, 403, 429):
                    return
                if error.status in _BAD_CONTENT and len(batch) > 1:
                    most = len(batch) // 2
                    continue
                # The same lines would be refused for ever.
            except OSError as error:
                print(f"gangway: could not send {len(batch)} lines: {error}", file=sys.stderr, flush=True)
                return
            self._done(batch)

    def _done(self, batch: list[tuple[str, Entry]]) -> None:
        """Goes on after these entries, at the next start too."""
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
