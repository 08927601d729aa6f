"""Quality metrics in the run record and in the statistics log, and as lines for a terminal."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from pydantic import Field

from gangway.trainer.config.values.metric_names import DIGIT_CLASSES, DIGITS_RECOGNISED
from gangway.trainer.records.quantity import Frozen, Quantity
from gangway.trainer.records.stats_log import Line

PROXY_BELOW = 10_000
"""Below so many fakes a score is a proxy: comparable at an equal protocol, not with published values."""
_DIGITS = 10


class QualityProtocol(Frozen):
    """Everything that must be equal for two values of a metric to be comparable.

    Attributes:
        extractor: the feature network, of `dim` features.
        weights_sha256: of its weights file; empty for a network trained on the spot.
        resizer: how images reach the network's input size.
        num_real_halves: images in each of the two disjoint halves behind `real_vs_real`.
        split: the part of the data set that is the reference.
        seed: of latents, classes and halves.
        kimg: training of the generator, thousands of images.
        quantised: where the images become whole numbers.
        arithmetic: precision of features and sums.
        parameters: of the metric, such as its number of splits and their seed.
        proxy: whether there were fewer fakes than in the metric's papers.
        labels: classes of the fakes; empty without classes, and in old records with evenly drawn ones.
    """

    extractor: str
    weights_sha256: str
    dim: int
    resizer: str
    num_reals: int
    num_fakes: int
    num_real_halves: int
    split: str
    seed: int
    kimg: float
    quantised: str = "to uint8 before resizing"
    arithmetic: str = "float32 features without TF32, float64 sums"
    parameters: dict[str, int | float | str] = Field(default_factory=dict)
    proxy: bool = True
    labels: str = ""


class QualityRecord(Frozen):
    """One value of a quality metric.

    Attributes:
        name: FID only for the Inception features of the FID paper.
        untrained: of the same generator before its first step.
        trained: of the averaged generator.
        real_vs_real: of one half of the real images against the other: the best to expect.
        cost_sec: of computing the metric, shared by all values of the same features.
    """

    name: str
    untrained: Quantity
    trained: Quantity
    real_vs_real: Quantity
    protocol: QualityProtocol
    better: Literal["lower", "higher"] = "lower"
    cost_sec: Quantity | None = None


class QualityPoint(Frozen):
    """A value at one moment of training."""

    name: str
    kimg: float
    value: float


class QualityInTraining(Frozen):
    """Metrics computed while training, in order, and the time that the training waited for them."""

    points: tuple[QualityPoint, ...]
    cost_sec: Quantity
    share_of_wall: Quantity


class Judgement(NamedTuple):
    """A record and its time, seconds since 1970."""

    time: float
    quality: QualityRecord


def latest_judgements(lines: Sequence[Line]) -> list[Judgement]:
    """The newest judgement of each name, in the order of first appearance."""
    by_name = {line["quality"]["name"]: line for line in lines if line.get("event") == "quality"}
    return [Judgement(line["time"], QualityRecord.model_validate(line["quality"])) for line in by_name.values()]


def quality_in_training(lines: Sequence[Line], wall_sec: float) -> QualityInTraining | None:
    """Values computed while training, None without any; `wall_sec` is the training time of all sessions."""
    ours = [line for line in lines if line.get("event") == "quality" and "in_training" in line]
    if not ours:
        return None
    rows = [(line["quality"]["name"], line["images"] / 1000, line["quality"]["trained"]["value"]) for line in ours]
    points = [QualityPoint(name=name, kimg=kimg, value=value) for name, kimg, value in rows]
    # Every value of one evaluation carries the cost of all.
    moments = {(line["session"], line["images"]): line["in_training"]["cost_sec"] for line in ours}
    cost_sec = sum(moments.values())
    note = f"{len(moments)} computations of {len({point.name for point in points})} values"
    share = Quantity.measured(cost_sec / wall_sec, "1", "over the sessions' wall time", note) if wall_sec else None
    return QualityInTraining(
        points=tuple(points),
        cost_sec=Quantity.measured(cost_sec, "s", "wall clock; the workers wait for it together", note),
        share_of_wall=share or Quantity.absent("1", "the sessions have no time yet"),
    )


class _Unit(NamedTuple):
    """Format of a metric; `wanted` is the parameter with the minimum for a trained run, `meaning` a template."""

    text: Callable[[float], str]
    wanted: str
    meaning: str


_UNITS: Mapping[str, _Unit] = MappingProxyType(
    {
        DIGITS_RECOGNISED: _Unit(
            lambda share: f"{100 * share:.3g} %",
            "wanted_share",
            "of the images: those that the classifier is more than {confidence:.0%} sure of",
        ),
        DIGIT_CLASSES: _Unit(
            lambda classes: f"{classes:g} of {_DIGITS}",
            "wanted_classes",
            "digits that make up {class_present_share:.0%} or more of the recognised images",
        ),
    }
)
"""Metrics that are not plain scores."""


def value_text(name: str, value: float) -> str:
    """A metric's value with its unit."""
    return _UNITS[name].text(value) if name in _UNITS else f"{value:.4g}"


def sentence(quality: QualityRecord, of: str = "") -> str:
    """One record on one line, without missing values; `of` is the run's state and time, empty if shown above."""
    quantities = {"untrained": quality.untrained, "trained": quality.trained, "real vs real": quality.real_vs_real}
    known = {label: quantity.value for label, quantity in quantities.items() if quantity.value is not None}
    rows = {label: f"{label} {value_text(quality.name, value)}" for label, value in known.items()}
    rows["trained"] += _target_note(quality)
    notes = [of, _meaning(quality), f"{quality.better} is better", quality.trained.note]
    return f"{quality.name}  {'  '.join(rows.values())}  ({'; '.join(filter(None, notes))})"


def _target_note(quality: QualityRecord) -> str:
    unit, value = _UNITS.get(quality.name), quality.trained.value
    wanted = quality.protocol.parameters.get(unit.wanted) if unit else None
    if unit is None or value is None or not isinstance(wanted, int | float):
        return ""
    return f" ({'' if value >= wanted else 'too few, '}{unit.text(wanted)} wanted)"


def _meaning(quality: QualityRecord) -> str:
    unit = _UNITS.get(quality.name)
    try:
        return unit.meaning.format(**quality.protocol.parameters).replace("%", " %") if unit else ""
    except (KeyError, ValueError):  # a record of another protocol
        return ""
