"""What a person sees while a suite runs: a line for what happened, and a moving one for what goes on."""

import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.status import Status

__all__ = ["Screen"]

_COLOURS = {
    "recorded": "green",
    "failed": "red",
    "destroy failed": "red",
    "still standing": "bold red",
    "attached": "yellow",
}
_ON_PAPER_SEC = 30.0
"""A log file shows no moving line: there, a line each so many seconds."""


class Screen:
    """A console that tells of items; a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._status: Status | None = None
        self._told_at = time.monotonic()

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._status = self.console.status("")
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._status is not None:
            with suppress(OSError):
                self._status.stop()

    def say(self, item: str, word: str, more: str = "") -> None:
        """Something happened."""
        colour = _COLOURS.get(word, "bold")
        words = f"{time.strftime('%H:%M:%S')} {escape(item)}: [{colour}]{word}[/]{': ' if more else ''}{escape(more)}"
        self._print(words)

    def show(self, item: str, doing: str) -> None:
        """Something goes on."""
        words = f"{escape(item)}: {escape(doing)}"
        if self._status is not None:
            with suppress(OSError):
                self._status.update(words)
        elif time.monotonic() - self._told_at > _ON_PAPER_SEC:
            self._told_at = time.monotonic()
            self._print(words)

    def _print(self, words: str) -> None:
        """Nobody reads any more (a closed terminal, a pipe's end): no reason to leave something standing."""
        with suppress(OSError, SystemExit):
            self.console.print(words, soft_wrap=True)
