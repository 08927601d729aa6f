"""Stores of runs that stand in for buckets, and a reader of what is drawn."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from matplotlib.figure import Figure as Sheet
from matplotlib.text import Text

PIXELS = 400
"""A telephone."""
SMALLEST_PIXELS = 10.0


class Word(NamedTuple):
    """A piece of text on a sheet: its height in pixels, and its box, all of the sheet at 400 pixels of width."""

    text: str
    pixels: float
    box: tuple[float, float, float, float]


def find_words(sheet: Sheet) -> list[Word]:
    sheet.draw_without_rendering()
    scale = PIXELS / sheet.bbox.width
    points = scale * sheet.dpi / 72
    found, hidden = [], hidden_of(sheet)
    for text in sheet.findobj(Text):
        assert isinstance(text, Text)
        if text.get_text().strip() and text.get_visible() and text not in hidden:
            box = text.get_window_extent()
            around = (box.x0 * scale, box.y0 * scale, box.x1 * scale, box.y1 * scale)
            found.append(Word(text.get_text(), float(text.get_fontsize()) * points, around))
    return found


def hidden_of(sheet: Sheet) -> set[Text]:
    """Labels of ticks beyond the ends of their axes, which exist and are not drawn."""
    found = set()
    for axis in (axis for axes in sheet.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        found |= {label for tick in ticks for label in (tick.label1, tick.label2) if not low <= tick.get_loc() <= high}
    return found


def faults_of(sheet: Sheet) -> list[str]:
    """What is wrong with the text of a sheet."""
    words, height = find_words(sheet), PIXELS * sheet.bbox.height / sheet.bbox.width
    small = [f"{word.text!r}: {word.pixels:.1f} pixels" for word in words if word.pixels < SMALLEST_PIXELS]
    cut = [
        f"{word.text!r}: cut off"
        for word in words
        if min(word.box[:2]) < -1 or word.box[2] > PIXELS + 1 or word.box[3] > height + 1
    ]
    over = [
        f"{one.text!r} on {two.text!r}"
        for one, two in itertools.combinations(words, 2)
        if min(one.box[2], two.box[2]) - max(one.box[0], two.box[0]) > 1
        and min(one.box[3], two.box[3]) - max(one.box[1], two.box[1]) > 2
    ]
    return small + cut + over


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is wrong with all that is drawn in a test; at its end there has to be something drawn, and nothing wrong."""
    found: list[str] = []
    drawn: list[Sheet] = []
    save = Sheet.savefig

    def savefig(self: Sheet, *args: Any, **more: Any) -> None:
        drawn.append(self)
        found.extend(faults_of(self))
        save(self, *args, **more)

    monkeypatch.setattr(Sheet, "savefig", savefig)
    yield found
    assert drawn
    assert all(len(find_words(sheet)) > 1 for sheet in drawn)
    assert found == []


@pytest.fixture
def unreadable() -> Callable[[Sheet], list[str]]:
    return faults_of


@pytest.fixture
def s3(load_module: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with load_module(Path(__file__).with_name("stores_standin.py")).s3(monkeypatch) as made:
        yield made


@pytest.fixture
def lab(load_module: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with load_module(Path(__file__).with_name("stores_standin.py")).lab(tmp_path, monkeypatch) as made:
        yield made
