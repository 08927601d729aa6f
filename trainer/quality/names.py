"""Which metrics there are, by the names that people write; what each is in one line, and what it is no metric of.

Does not import torch.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from trainer.listed import listed

if TYPE_CHECKING:
    from trainer.config import TrainConfig

__all__ = ["DIGITS_RECOGNISED", "DIGIT_CLASSES", "FEWEST_IMAGES", "METRICS", "Misfit", "misfit", "parse"]

_FACES = ("celeba",)

DIGITS_RECOGNISED, DIGIT_CLASSES = "digits recognised", "digit classes"
"""The two values of digits-classes, as they are called in run.json."""
METRICS: Mapping[str, str] = MappingProxyType(
    {
        "fid": "FID: Fréchet distance, TF-2015 Inception, TensorFlow's bilinear resizing (Heusel et al. 2017)",
        "fid-clean": "FID-clean: the same with antialiased bicubic resizing (Parmar et al. 2022)",
        "is": "IS: Inception Score, 10 splits (Salimans et al. 2016); none for faces",
        "kid": "KID: kernel Inception distance, subsets of up to 1000 (Binkowski et al. 2018)",
        "precision-recall": "precision, recall, density and coverage in Inception features, k = 3 and 5",
        "fd-enl0": "FD-ENL0: Fréchet distance in EfficientNet-Lite0 features, offline; never an FID",
        "precision-recall-enl0": "precision, recall, density and coverage in EfficientNet-Lite0 features",
        "fd-enl0-frames": "FD-ENL0 of single frames of video, offline; never the papers' score",
        "video-is": "video IS: C3D fine-tuned on UCF101, 10 splits (Saito et al. 2017)",
        "digits-classes": "share of digits recognised and digits present, own classifier, never an Inception Score",
    }
)
"""One line on each metric, by its name on the command line and in the configuration."""

_OF_NEIGHBOURS, _OF_SPLITS = 6, 10
FEWEST_IMAGES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(METRICS, 2),
        **dict.fromkeys(("precision-recall", "precision-recall-enl0"), _OF_NEIGHBOURS),
        **dict.fromkeys(("is", "video-is"), _OF_SPLITS),
        "digits-classes": 1,
    }
)
"""Images of each side without which a metric has no value."""


class Misfit(NamedTuple):
    """Why a metric means nothing for a run's data; `instead` names some that do."""

    why: str
    instead: str


def misfit(name: str, config: "TrainConfig") -> Misfit | None:
    """Why this metric means nothing for the run's data; None where it means something."""
    on_video = config.frames > 1
    if name in ("fd-enl0-frames", "video-is") and not on_video:
        return Misfit("is for video, and the run's images have one frame", "fd-enl0")
    if name not in ("fd-enl0-frames", "video-is") and on_video:
        return Misfit("is for images, and the run makes video", "fd-enl0-frames or video-is")
    if name == "is" and config.dataset in _FACES:
        why = "means nothing for faces: it rewards spread over ImageNet's classes, of which none is a face"
        return Misfit(why, "fid, kid or precision-recall")
    if name == "digits-classes" and (config.dataset, config.resolution) != ("digits", 32):
        return Misfit("knows the ten digits of the data set digits at 32x32 only", "fd-enl0")
    if name == "video-is" and (config.channels, config.frames) != (3, 16):
        return Misfit("needs colour clips of 16 frames, which C3D was made for", "fd-enl0-frames")
    return None


def parse(text: str) -> tuple[str, ...]:
    """Names from a comma-separated list, each once; nothing for "none". PydanticCustomError as `listed`."""
    return listed(text, METRICS)
