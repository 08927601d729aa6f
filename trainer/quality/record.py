"""What a quality metric leaves in the run record: values, how they were computed, their cost. No torch."""

from typing import Literal

from pydantic import Field

from trainer.figure import Figure, Frozen

__all__ = ["PROXY_BELOW", "QualityInTraining", "QualityPoint", "QualityProtocol", "QualityRecord"]

PROXY_BELOW = 10_000
"""Fakes below which a score is a proxy: good for comparing runs at equal protocol, not with published values."""


class QualityProtocol(Frozen):
    """All that must be equal for two values of a metric to be comparable.

    Attributes:
        extractor: the feature network.
        weights_sha256: of its weights file; empty for a network that is trained on the spot.
        dim: length of the feature vector.
        resizer: how images reach the network's input size.
        num_reals: images behind the reference statistics.
        num_fakes: images drawn from the generator.
        num_real_halves: images in each of the two disjoint halves behind `real_vs_real`.
        split: the part of the data set that is the reference.
        seed: of the latents and of the halves.
        kimg: images the judged generator was trained for, thousands.
        quantised: where the images become whole numbers.
        arithmetic: precision of features and of sums.
        parameters: of the metric's own, such as its number of splits and the seed that draws them.
        proxy: whether there were fewer than PROXY_BELOW fakes.
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


class QualityRecord(Frozen):
    """One value of a quality metric.

    Attributes:
        name: of the value; FID only for the Inception features of the FID paper.
        untrained: that of the same generator before its first step.
        trained: that of the averaged generator.
        real_vs_real: that of one half of the real images, with the other half as the reference: what one can hope for.
        protocol: how all three were computed.
        better: the direction of improvement.
        cost_sec: seconds in which the metric was computed, shared by the values that came of the same features.
    """

    name: str
    untrained: Figure
    trained: Figure
    real_vs_real: Figure
    protocol: QualityProtocol
    better: Literal["lower", "higher"] = "lower"
    cost_sec: Figure | None = None


class QualityPoint(Frozen):
    """A value at one moment of training."""

    name: str
    kimg: float
    value: float


class QualityInTraining(Frozen):
    """The metrics computed while the run went on, and what they took from it.

    Attributes:
        points: every value, in the order they were computed.
        cost_sec: seconds that the training waited for them.
        share_of_wall: that, over the run's wall time.
    """

    points: tuple[QualityPoint, ...]
    cost_sec: Figure
    share_of_wall: Figure
