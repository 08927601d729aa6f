"""Which metrics there are, by the names that people write; what each is in one line. Does not import torch.

Not here: how one is computed (trainer.quality.spaces).
"""

from collections.abc import Mapping
from types import MappingProxyType

from trainer.errors import nearest

__all__ = ["METRICS", "NONE", "parse"]

NONE = "none"
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
        "digits-classes": "digit recognition, own classifier, never an Inception Score",
    }
)
"""One line on each metric, by its name on the command line and in the configuration."""


def parse(text: str) -> tuple[str, ...]:
    """Names from a comma-separated list, each once; nothing for "none".

    Raises:
        ValueError: an unknown or a repeated name, with what is allowed.
    """
    names = tuple(name.strip() for name in text.split(",")) if text != NONE else ()
    for name in names:
        if name not in METRICS:
            near = nearest(name, METRICS)
            hint = f"; did you mean {near}?" if near else ""
            raise ValueError(f"comma-separated names of {', '.join(METRICS)}, or {NONE}; not {name!r}{hint}")
    if len(set(names)) != len(names):
        raise ValueError("each metric at most once")
    return names
