"""Messages and progress lines, every 2 s on a terminal, else every 10 s. A closed or full output ends no run."""

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

_TTY_SEC, _LOG_SEC = 2.0, 10.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Messages:
    """Lines on stdout that are no results: a command without them has not failed."""

    has_lost = False

    def print(self, text: str) -> None:
        try:
            print(text, flush=True)
        except OSError:
            self.has_lost = True


_MESSAGES = _Messages()


def info(text: str) -> None:
    """A line on stdout at once; lost where its reader has left, as `| head` does, or the disk is full."""
    _MESSAGES.print(text)


def warn(text: str) -> None:
    """Print a line to stderr; ignore a closed pipe or full disk."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def refuse(mistake: object) -> None:
    """A mistake on stderr, as every command of Gangway says it."""
    warn(f"error: {mistake}")


def flush_output() -> OSError | None:
    """Flushes stdout and stderr at a command's end. Returns why stdout does not take what was printed, unless only
    `info` has lost lines; the rest is dropped, so that Python has nothing to report.
    """
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    try:
        sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
            sys.stdout.flush()
        return None if _MESSAGES.has_lost else error
    except ValueError:  # it is closed
        pass
    return None


def output_failed(error: OSError | None) -> int:
    """Report that stdout did not take what was printed; the exit code for it, 0 for any other error."""
    if error is None or error.errno not in _FULL or error.filename is not None:
        return 0
    from gangway.trainer.core.errors import EXIT_BAD_INPUT  # with pydantic, which takes longer than this module

    refuse(f"what is printed cannot be written: {error.strerror}")
    return EXIT_BAD_INPUT


def announce(sentence: str) -> None:
    """Print a message of the launcher to stderr, prefixed because torchrun's workers write there too."""
    warn(f"gangway: {sentence}")


class Progress:
    """Progress of a preparation over `total` `unit`s; `was_complete` means that no work remained."""

    def __init__(
        self,
        what: str,
        total: int,
        unit: str = "files",
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what, self._total, self._unit = what, total, unit
        self.was_complete = False
        self._before = self._done = 0
        self._out, self._clock = out or sys.stdout, clock
        self._tty = self._out.isatty()
        self._every_sec = _TTY_SEC if self._tty else _LOG_SEC
        self._began = self._last = clock()

    def go_on(self, done: int, damaged: tuple[str, ...]) -> None:
        """Report what an earlier session finished: `done` items, not counted in the rate, and its `damaged` files."""
        self._before = self._done = done
        if done:
            self._out.write(f"{self._what}: resuming, {done:,} of {self._total:,} {self._unit} are done\n")
        for file in damaged:
            self._out.write(f"{self._what}: {file} is damaged or missing and is made again\n")

    def add(self, number: int) -> None:
        """Count items and show a line when one is due."""
        self._done += number
        now = self._clock()
        if now - self._last >= self._every_sec:
            self._last = now
            self._show(now)

    def _show(self, now: float) -> None:
        rate = (self._done - self._before) / max(now - self._began, 1e-9)
        remaining = f"{_duration((self._total - self._done) / rate)} left" if rate else "no estimate yet"
        share = 100 * self._done / max(self._total, 1)
        pace = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
        text = f"{self._what}: {self._done:,} of {self._total:,} {self._unit} ({share:.0f} %), {pace}/s, {remaining}"
        self._out.write(f"\r\033[K{text}" if self._tty else f"{text}\n")
        self._out.flush()

    def close(self) -> None:
        """End the line on a terminal."""
        if self._tty and self._last > self._began:
            self._out.write("\n")
            self._out.flush()


def _duration(sec: float) -> str:
    minutes, seconds = divmod(round(sec), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
