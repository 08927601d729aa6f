"""A quality record in one line for a terminal: values with units, and with what is wanted where known.

All of it is read from the record: an old one is told by its own protocol. Does not import torch.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from trainer.quality.names import DIGIT_CLASSES, DIGITS_RECOGNISED
from trainer.quality.record import QualityRecord

__all__ = ["sentence", "value_text"]

_DIGITS = 10


class _Unit(NamedTuple):
    """How a metric's values are told: `wanted` is the protocol's parameter that is the least wanted of a trained run,
    `meaning` what is counted, to be filled in with its parameters.
    """

    text: Callable[[float], str]
    wanted: str
    meaning: str


def _per_cent(share: float) -> str:
    return f"{100 * share:.3g} %"


_UNITS: Mapping[str, _Unit] = MappingProxyType(
    {
        DIGITS_RECOGNISED: _Unit(
            _per_cent, "wanted_share", "of the images: those that the classifier is more than {confidence:.0%} sure of"
        ),
        DIGIT_CLASSES: _Unit(
            lambda classes: f"{classes:g} of {_DIGITS}",
            "wanted_classes",
            "digits that make up {class_present_share:.0%} or more of the recognised images",
        ),
    }
)
"""Values that are no plain scores."""


def value_text(name: str, value: float) -> str:
    """A value of a metric with its unit; a score has none."""
    return _UNITS[name].text(value) if name in _UNITS else f"{value:.4g}"


def sentence(quality: QualityRecord, of: str = "") -> str:
    """One record in one line, without the values of an unfinished comparison. `of` is which state of the run that was,
    and when; empty where a line above says so.
    """
    figures = {"untrained": quality.untrained, "trained": quality.trained, "real vs real": quality.real_vs_real}
    known = {label: figure.value for label, figure in figures.items() if figure.value is not None}
    told = {label: f"{label} {value_text(quality.name, value)}" for label, value in known.items()}
    told["trained"] += _against_what_is_wanted(quality)
    notes = [of, _meaning(quality), f"{quality.better} is better", quality.trained.note]
    return f"{quality.name}  {'  '.join(told.values())}  ({'; '.join(filter(None, notes))})"


def _against_what_is_wanted(quality: QualityRecord) -> str:
    """Whether a trained run's value is enough; empty where nothing says what would be."""
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
