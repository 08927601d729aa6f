"""The stops of a run before its end, for its record: why, what was saved and how fast, and the time that was lost."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from trainer.record import Figure, InterruptionRecord, SessionRecord
from trainer.records.diary import Line

__all__ = ["SAVE_BUDGET_SEC", "interruptions", "stop_notes"]

SAVE_BUDGET_SEC = 20.0
"""From a notice to a state on disk. Google Cloud and Azure give about 30 s in all, AWS 120."""


def interruptions(
    sessions: Mapping[int, SessionRecord], beginnings: Sequence[Line], lines: Sequence[Line]
) -> Iterable[InterruptionRecord]:
    """One record for each session that was stopped or killed, or failed; `beginnings` are each one's first line."""
    for number, session in sessions.items():
        if session.ended_by not in ("interrupt", "failed", "killed"):
            continue
        before = [line for line in lines if line["session"] <= number]
        told = next((line for line in before[::-1] if line.get("event") == "interrupt"), None)
        agreed = told if session.ended_by == "interrupt" else None
        resumed = next((line for line in beginnings if line["session"] > number), None)
        if resumed is None:
            images = max((line["images"] for line in before if line.get("event") == "checkpoint"), default=0)
            lost = Figure.absent("s", "not resumed yet")
        else:
            images = resumed["images"]
            lost = _lost_sec(before, resumed)
        yield InterruptionRecord(
            at=session.end,
            images=images,
            cause=agreed["cause"] if agreed else session.ended_by,
            lost_sec=lost,
            save_sec=_save_sec(before, agreed),
            stop_sec=_stop_sec(agreed),
        )


def stop_notes(records: Sequence[InterruptionRecord], sessions: Sequence[SessionRecord]) -> list[str]:
    """What a reader must know: stops that took longer than a cloud waits, and clocks that went back in between."""
    slow = [
        f"the stop at {record.images:,} images took {record.stop_sec.value:.0f} s to be on disk, more than the "
        f"{SAVE_BUDGET_SEC:.0f} s that a preemption leaves"
        for record in records
        if (record.stop_sec.value or 0) > SAVE_BUDGET_SEC
    ]
    back = [
        f"the clock of session {number} is behind the end of the one before: the time lost between them is unknown"
        for number, (earlier, later) in enumerate(itertools.pairwise(sessions), 1)
        if later.start < earlier.end
    ]
    return [*slow, *back]


def _save_sec(before: Sequence[Line], agreed: Line | None) -> Figure:
    if agreed is None:
        return Figure.absent("s", "not an agreed stop: nothing was saved at it")
    saves = [line for line in before if line.get("event") == "checkpoint" and line["images"] == agreed["images"]]
    seconds = saves[-1].get("sec") if saves else None
    if seconds is None:
        return Figure.absent("s", "the line that tells of the checkpoint is lost")
    return Figure.measured(seconds, "s", "wall clock of the checkpoint made at the stop")


def _stop_sec(agreed: Line | None) -> Figure:
    if agreed is None or agreed.get("stop_sec") is None:
        return Figure.absent("s", "no signal was taken" if agreed is None else "the session did not say")
    return Figure.measured(agreed["stop_sec"], "s", "wall clock, from the first worker's signal to the state on disk")


def _lost_sec(before: Sequence[Line], resumed: Line) -> Figure:
    held = [line["time"] for line in before if line["images"] >= resumed["images"]]
    if not held:
        return Figure.absent("s", "the lines that say when the run first held those images are lost")
    if resumed["time"] < min(held):
        return Figure.absent("s", "the clock went back between the two sessions")
    return Figure.measured(
        resumed["time"] - min(held),
        "s",
        "wall clock, from first holding the images it resumed from to going on from them",
        note="stopping, downtime, starting up and work done again",
    )
