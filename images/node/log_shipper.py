"""Sends the journal's lines to a cloud's log every few seconds, with retries; see `gcp.logs` and `azure.logs`.

The last sent cursor is on tmpfs: a restart continues there, a reboot starts with its own journal. Ends with journalctl.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from gangway.images.node.web import RefusedError

FLUSH_SEC = 5.0
# Units that log trusted JSON. The job can print anything in the others, such as forged events.
OWN_UNITS = ("gangway-fill",)
_MAX_DEPTH = 32
"""Of a line's JSON; the clouds have limits too."""
# Bad or too much content: one entry may be the cause, and the others must not be lost with it.
_BAD_CONTENT = (400, 413)

Entry = dict[str, Any]


def get_unit(line: dict[str, Any]) -> str:
    """The unit of a record of `journalctl --output json`, without its suffix."""
    return str(line.get("_SYSTEMD_UNIT", "")).removesuffix(".service")


def journal_fields(line: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record of `journalctl --output json`: text as `message`, JSON as `printed`, or its own fields if
    from OWN_UNITS. Metrics and alarms use `event`, which a job must not be able to forge.
    """
    message = line.get("MESSAGE") or ""
    # journald outputs binary data as a list of bytes.
    text = bytes(message).decode(errors="replace") if isinstance(message, list) else str(message)
    parsed = _plain_object(text)
    if parsed is None:
        return {"message": text}
    return parsed if get_unit(line) in OWN_UNITS else {"printed": parsed}


def _plain_object(text: str) -> Entry | None:
    """The JSON object in a line; None for anything else, such as NaN, which only Python accepts."""
    try:
        parsed = json.loads(text)
        json.dumps(parsed, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) and not _is_deep(parsed) else None


def _is_deep(value: Entry) -> bool:
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        lists = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list)))
        level = [child for children in lists for child in children]
    return bool(level)


class LogShipper:
    """Collects entries and sends them every few seconds, in its own thread.

    Args:
        send: sends a batch. Raises OSError; a RefusedError may be permanent.
        cursor_file: holds the last sent cursor.
        most: entries, and bytes of their JSON, per batch; a longer entry goes alone.
        flush_sec: between batches.
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
        # Reading blocks at this many unsent lines, to bound memory.
        self._room = threading.Semaphore(20 * self._most_entries)
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="gangway-ship", daemon=True)

    def ship(self, lines: Iterable[str], entry_of: Callable[[dict[str, Any]], Entry]) -> None:
        """Sends journalctl's lines until the last one."""
        self._thread.start()
        for text in lines:
            try:
                line = json.loads(text)
                entry = (line["__CURSOR"], entry_of(line))
            except (ValueError, RecursionError) as error:
                # The next line's cursor skips this one.
                print(f"gangway: skipping an unreadable line: {error}", file=sys.stderr, flush=True)
                continue
            self._room.acquire()
            with self._lock:
                self._waiting.append(entry)
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._flush_sec):
            self._flush()
        self._flush()

    def _batch(self, most: int) -> list[tuple[str, Entry]]:
        """The next entries, at most `most`, that fit in one batch."""
        with self._lock:
            first = self._waiting[:most]
        left = self._most_bytes
        for count, (_, entry) in enumerate(first):
            left -= len(json.dumps(entry)) + 1
            if left < 0:
                return first[: max(count, 1)]
        return first

    def _flush(self) -> None:
        """Sends what waits, or retries at the next flush. Splits a rejected batch, until the bad entry is alone and
        dropped.
        """
        most = self._most_entries
        while batch := self._batch(most):
            try:
                self._send([entry for _, entry in batch])
                most = min(2 * most, self._most_entries)
            except RefusedError as error:
                # This unit's journal is not shipped.
                print(f"gangway: could not send {len(batch)} lines: {error}", file=sys.stderr, flush=True)
                if error.status >= 500 or error.status in (401, 403, 429):
                    return
                if error.status in _BAD_CONTENT and len(batch) > 1:
                    most = len(batch) // 2
                    continue
                # The same lines would always be rejected.
            except OSError as error:
                print(f"gangway: could not send {len(batch)} lines: {error}", file=sys.stderr, flush=True)
                return
            self._commit(batch)

    def _commit(self, batch: list[tuple[str, Entry]]) -> None:
        """Continue after these entries, also after a restart."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(batch[-1][0])
        with self._lock:
            del self._waiting[: len(batch)]
        self._room.release(len(batch))


def follow_journal(units: Sequence[str], cursor_file: Path, ship: Callable[[Iterable[str]], None]) -> None:
    """Passes journalctl's lines of the units to `ship`, until it ends."""
    since = [f"--after-cursor={cursor_file.read_text()}"] if cursor_file.exists() else ["--boot"]
    command = ["journalctl", "--follow", "--no-tail", "--output=json", *since, *(f"--unit={unit}" for unit in units)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as journal:
        assert journal.stdout is not None
        ship(journal.stdout)
