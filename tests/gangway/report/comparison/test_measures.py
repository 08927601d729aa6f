"""Losses of tables: the mean over the last tenth of the images, by hand, and what stands in where lines are missing."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from gangway.report.comparison.groups import Member, Source
from gangway.report.comparison.measures import late_loss
from gangway.report.comparison.tables import get_report
from gangway.report.comparison.write import as_markdown

Make = Callable[..., Member]


def lines(*pairs: tuple[int, float | None]) -> tuple[dict[str, Any], ...]:
    return tuple({"images": at, "kimg": at / 1000, "session": 0, "loss_g": value} for at, value in pairs)


@pytest.mark.parametrize(
    ("stats", "expected", "note"),
    [
        # Of 1000 images the last tenth begins after 900: (0.2 + 0.3 + 0.7) / 3.
        (lines((500, 9.0), (900, 5.0), (920, 0.2), (960, 0.3), (1000, 0.7)), 0.4, "3 lines, from 0.92 to 1 kimg"),
        (lines((250, 4.0), (500, 3.0), (750, 2.0), (1000, 1.5)), 1.5, "1 line, at 1 kimg"),
        # None lies in it: the last there is.
        (lines((250, 4.0), (500, 3.0)), 3.0, "1 line, at 0.5 kimg"),
        # Shown twice, after an interruption: the later lines count. (0.5 + 0.7) / 2.
        (lines((950, 8.0), (990, 8.0), (940, 0.5), (1000, 0.7)), 0.6, "2 lines, from 0.94 to 1 kimg"),
        (lines((950, 0.5), (1000, None)), 0.5, "1 line, at 0.95 kimg"),
    ],
)
def test_the_last_tenth_by_hand(member_of: Make, stats: tuple[dict[str, Any], ...], expected: float, note: str) -> None:
    figure = late_loss(member_of(images=1000, stats=stats), "loss_g")
    assert figure.value == pytest.approx(expected)
    assert (figure.unit, figure.provenance, figure.source) == ("", "measured", "stats.jsonl")
    assert figure.note == f"mean over the last tenth of the images: {note}"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_went_off_has_no_mean(member_of: Make, value: float) -> None:
    figure = late_loss(member_of(images=1000, stats=lines((950, value), (1000, 1.0))), "loss_g")
    assert (figure.value, figure.source) == (None, "loss_g is no finite number in the last tenth of the images")
    early = late_loss(member_of(images=1000, stats=lines((100, value), (1000, 1.0))), "loss_g")
    assert early.value == 1.0


def test_without_statistics_it_is_the_last_line_of_the_record_and_says_so(member_of: Make) -> None:
    member = member_of(stats=())
    figure = late_loss(member, "loss_d")
    assert figure.value == member.record.summaries["loss_d"].last.value
    assert figure.note == "the last line's alone: no stats.jsonl with it lies beside the record"
    assert late_loss(member_of(stats=(), summaries={}), "loss_d").source == "not recorded by that version"


def test_the_heading_and_the_source_say_what_it_is(member_of: Make) -> None:
    told = as_markdown(get_report(Source((member_of("a"),), ()), None))
    assert "| G loss, last tenth | D loss, last tenth |" in told
    # The recorded run's last two lines of loss_d: (0.028333 + 0.045298) / 2.
    assert "| 0.0368[^" in told
    assert "mean over the last tenth of the images: 2 lines, from 5.504 to 6.016 kimg" in told
