"""A run's loss for tables: the mean over the last tenth of its images. One line of statistics alone is mostly noise.

Reads lines that were read already, and the record where there are none; curves of losses are in `series`.
"""

import math

from stacks.report.several.members import Member
from trainer.record import Figure

__all__ = ["late_loss"]

_PARTS = 10


def late_loss(member: Member, name: str) -> Figure:
    """Mean of the lines of statistics in the last tenth of the images; of the last line at least.

    Of images that were shown twice, after an interruption, the later lines count. Without stats.jsonl it is the
    record's, which keeps the last line alone; the figure's note says which.

    Args:
        member: the run.
        name: loss_g or loss_d.
    """
    known = _known(member, name)
    if not known:
        return _of_the_record(member, name)
    late = [one for one in known if _PARTS * one[0] > (_PARTS - 1) * member.record.images] or known[-1:]
    values = [value for _, value in late]
    if not all(math.isfinite(value) for value in values):
        return Figure.absent("", f"{name} is no finite number in the last tenth of the images")
    first, last = (f"{images / 1000:g}" for images, _ in (late[0], late[-1]))
    where = f"at {last} kimg" if len(late) == 1 else f"from {first} to {last} kimg"
    note = f"mean over the last tenth of the images: {len(late)} line{'' if len(late) == 1 else 's'}, {where}"
    return Figure.measured(math.fsum(values) / len(values), "", "stats.jsonl", note=note)


def _known(member: Member, name: str) -> list[tuple[int, float]]:
    """Images and loss of the lines that have one, ascending; what was done again stands there once."""
    found: list[tuple[int, float | None]] = []
    for line in member.ticks:
        while found and found[-1][0] >= line["images"]:
            found.pop()
        found.append((line["images"], line.get(name)))
    return [(images, value) for images, value in found if value is not None]


def _of_the_record(member: Member, name: str) -> Figure:
    summary = member.record.summaries.get(name)
    if summary is None:
        return Figure.absent("", "not recorded by that version")
    last = summary.last.model_copy(update={"unit": ""})
    if last.value is None:
        return last
    return last.model_copy(update={"note": "the last line's alone: no stats.jsonl with it lies beside the record"})
