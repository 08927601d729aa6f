"""What a target of telemetry must be able to do, and what it is told."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

__all__ = ["Line", "TrackedRun", "Tracker", "scalars"]

Line = Mapping[str, Any]
_NOT_SHOWN = frozenset({"time", "session"})
"""Of a statistics line: every target has a clock of its own, and the session is the run's."""


class TrackedRun(NamedTuple):
    """The run that a tracker shows; a resumed session finds the target's run by `run_id`. `session` counts from 0;
    `images` were seen when it begins.
    """

    run_id: str
    session: int
    images: int
    run_dir: Path
    config: Mapping[str, Any]


class Tracker(Protocol):
    """One target, opened for one session. May raise anything: the feed tells of it once and training goes on."""

    def show(self, line: Line) -> None:
        """Takes a line of stats.jsonl, of any kind."""
        ...

    def picture(self, path: Path, images: int) -> None:
        """Takes a grid of samples that has been written, made after that many images."""
        ...

    def close(self, status: str) -> None:
        """Ends the session: `done`, `interrupted` or `failed`."""
        ...


def scalars(line: Line) -> dict[str, float]:
    """The numbers of a line that make a curve, by name; none for an event other than a quality metric."""
    if line.get("event") == "quality":
        quality = line["quality"]
        value = quality["trained"]["value"]
        return {} if value is None else {f"quality/{quality['name']}": float(value)}
    if "event" in line:
        return {}
    return {
        name: float(value) for name, value in line.items() if isinstance(value, int | float) and name not in _NOT_SHOWN
    }
