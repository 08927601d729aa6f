"""What stats.jsonl tells of quality: the newest value of each metric, and those of the training with their cost.

A pure reading of its "quality" events, for trainer.records.summary. Does not import torch.
"""

from collections.abc import Sequence
from typing import NamedTuple

from trainer.figure import Figure
from trainer.quality.record import QualityInTraining, QualityPoint, QualityRecord
from trainer.records.diary import Line

__all__ = ["Judgement", "latest_judgements", "latest_quality", "quality_in_training"]


class Judgement(NamedTuple):
    """A record and when it was made, seconds since 1970."""

    time: float
    quality: QualityRecord


def latest_judgements(lines: Sequence[Line]) -> list[Judgement]:
    """The newest of each name, in the order in which the names first came up."""
    by_name = {line["quality"]["name"]: line for line in lines if line.get("event") == "quality"}
    return [Judgement(line["time"], QualityRecord.model_validate(line["quality"])) for line in by_name.values()]


def latest_quality(lines: Sequence[Line]) -> list[QualityRecord]:
    """`latest_judgements` without their times."""
    return [judgement.quality for judgement in latest_judgements(lines)]


def quality_in_training(lines: Sequence[Line], wall_sec: float) -> QualityInTraining | None:
    """The values computed while training, None without any; `wall_sec` is the training time of all sessions."""
    ours = [line for line in lines if line.get("event") == "quality" and "in_training" in line]
    if not ours:
        return None
    told = [(line["quality"]["name"], line["images"] / 1000, line["quality"]["trained"]["value"]) for line in ours]
    points = [QualityPoint(name=name, kimg=kimg, value=value) for name, kimg, value in told]
    # All values of one moment carry its cost, once each.
    moments = {(line["session"], line["images"]): line["in_training"]["cost_sec"] for line in ours}
    cost_sec = sum(moments.values())
    note = f"{len(moments)} computations of {len({point.name for point in points})} values"
    share = Figure.measured(cost_sec / wall_sec, "1", "over the sessions' wall time", note) if wall_sec else None
    return QualityInTraining(
        points=tuple(points),
        cost_sec=Figure.measured(cost_sec, "s", "wall clock; the workers wait for it together", note),
        share_of_wall=share or Figure.absent("1", "the sessions have no time yet"),
    )
