"""What a controller changed of a run, or would have changed, in the run record."""

from collections.abc import Iterable, Iterator
from typing import Literal

from trainer.records.quantity import Frozen
from trainer.records.stats_log import Line, iso


class DecisionRecord(Frozen):
    """One decision.

    Attributes:
        at: when, UTC.
        images: real images shown before it.
        knob: what was changed: batch_size, loader_threads and so on.
        value: from then on.
        was: up to then.
        policy: who decided; judge for what was undone.
        reason: why, with the figures that it rested on.
        expected_gain: share of the objective that it should bring.
        undone_if: what would undo it.
        outcome: done; observed, which changes nothing; or failed, for the reason `why`.
    """

    at: str
    images: int
    knob: str
    value: int | float | str
    was: int | float | str
    policy: str
    reason: str
    expected_gain: float
    undone_if: str = ""
    outcome: Literal["done", "observed", "failed"]
    why: str = ""


def decisions(lines: Iterable[Line]) -> Iterator[DecisionRecord]:
    """Those that a log tells of, in order."""
    names = DecisionRecord.model_fields.keys() - {"at"}
    for line in lines:
        if line.get("event") == "decision":
            told = {name: line[name] for name in names if name in line}
            yield DecisionRecord.model_validate({**told, "at": iso(line["time"])})
