"""Short texts of configuration values, including schedules and segments, for tables. No torch."""

from collections.abc import Sequence

from gangway.trainer.config.values.schedules import Ramp, Steps
from gangway.trainer.config.values.segments import Segment


def in_words(value: object) -> str:
    """A field's value on one line; a schedule with its length in thousands of images."""
    if isinstance(value, Ramp):
        after = f" after {_number(value.after_kimg)}" if value.after_kimg else ""
        return f"{_number(value.start)} to {_number(value.to)}, {value.shape}, {_number(value.over_kimg)} kimg{after}"
    if isinstance(value, Steps):
        return ", ".join(_number(each) + (f" from {_number(kimg)} kimg" if kimg else "") for kimg, each in value.steps)
    if isinstance(value, tuple):
        return _segments(value)
    if value is None:
        return "none"
    return _number(value) if isinstance(value, float) else str(value)


def _segments(segments: Sequence[Segment]) -> str:
    parts, named = list[str](), list[str]()
    for segment in segments:
        values = segment.model_dump(exclude={"from_image"}, exclude_none=True, exclude_defaults=True)
        words = [
            in_words(value) if named == [*values] else f"{field} {in_words(value)}" for field, value in values.items()
        ]
        place = f" from {_number(segment.from_image / 1000)} kimg" if segment.from_image else ""
        parts.append(" and ".join(words) + place)
        named = [*values]
    return ", ".join(parts) or "none"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:g}"
