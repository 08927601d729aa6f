"""Metrics by name, with one line on each. No torch."""

from collections.abc import Collection, Mapping

from gangway.trainer.core.errors import broken_rule, nearest

NONE = "none"
DIGITS_RECOGNISED, DIGIT_CLASSES = "digits recognised", "digit classes"
"""The two values of digits-classes in run.json."""
FD_ENL0 = "FD-ENL0"
"""The value of fd-enl0 in run.json."""
_FEWEST_FOR_NEIGHBOURS, _FEWEST_FOR_SPLITS = 6, 10


def of_frames(value: str) -> str:
    """The name of an image distance between single frames of video."""
    return f"{value}-frames"


def parse_names(text: str, known: Collection[str]) -> tuple[str, ...]:
    """Names in a text; none for "none" (`broken_rule`: an unknown name, with the nearest one, or a duplicate)."""
    names = tuple(name.strip() for name in text.split(","))
    if NONE in names:
        if len(names) > 1:
            raise broken_rule(f"names, or {NONE} alone", value=text, fix=f"leave {NONE} out")
        return ()
    for number, name in enumerate(names):
        if name not in known:
            near = nearest(name, known)
            allowed = f"{', '.join(known)}, by commas; or {NONE}"
            raise broken_rule(allowed, value=name, fix=f"did you mean {near!r}?" if near else "")
        if name in names[:number]:
            raise broken_rule("each name at most once", fix=f"leave the second {name} out")
    return names


METRICS: Mapping[str, str] = {
    "fid": "FID: Fréchet distance, TF-2015 Inception, TensorFlow's bilinear resizing (Heusel et al. 2017)",
    "fid-clean": "FID-clean: the same with antialiased bicubic resizing (Parmar et al. 2022)",
    "is": "IS: Inception Score, 10 splits (Salimans et al. 2016); none for faces",
    "kid": "KID: kernel Inception distance, subsets of up to 1000 (Binkowski et al. 2018)",
    "precision-recall": "precision, recall, density and coverage in Inception features, k = 3 and 5",
    "fd-enl0": "FD-ENL0: Fréchet distance in EfficientNet-Lite0 features, offline; never an FID",
    "precision-recall-enl0": "precision, recall, density and coverage in EfficientNet-Lite0 features",
    "fd-enl0-frames": "FD-ENL0 of single frames of video, offline; never the papers' score",
    "video-is": "video IS: C3D fine-tuned on UCF101, 10 draws (Saito et al. 2017, 2020)",
    "digits-classes": "share of digits recognised and digits present, own classifier, never an Inception Score",
}
"""One line on each metric, by its name in flags and configuration."""

FEWEST_IMAGES: Mapping[str, int] = {
    **dict.fromkeys(METRICS, 2),
    **dict.fromkeys(("precision-recall", "precision-recall-enl0"), _FEWEST_FOR_NEIGHBOURS),
    "is": _FEWEST_FOR_SPLITS,
    "digits-classes": 1,
}
"""Minimum of reals and of fakes for a metric."""


def parse(text: str) -> tuple[str, ...]:
    """Metric names in a text, as `parse_names`."""
    return parse_names(text, METRICS)
