"""The picture of `gangway simulate`: who had which GPUs when, a panel for each policy, above what could be had."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes

from components.schedule.comparison import Arm
from components.schedule.outcome import Span
from stacks.report.drawing import LIGHT, draw

__all__ = ["draw_use"]


def draw_use(arms: Sequence[Arm], kind: Literal["png", "svg"]) -> bytes:
    """The picture as bytes of a file of that kind; each job has one colour in all panels."""
    names = sorted({one.ask.name for one in arms[0].outcome.jobs})
    colours = {name: LIGHT.series[index % (len(LIGHT.series) - 1)] for index, name in enumerate(names)}
    until = max(one.end_sec for arm in arms for one in arm.outcome.jobs) / 3600

    def paint(_: object, panels: Sequence[Axes]) -> None:
        for axes, arm in zip(panels, arms, strict=True):
            _paint(axes, arm, colours, until)
        panels[-1].set_xlabel("hours")

    return draw(paint, kind, LIGHT, panels=len(arms))


def _paint(axes: Axes, arm: Arm, colours: dict[str, str], until: float) -> None:
    outcome = arm.outcome
    bars: dict[tuple[int, int], tuple[list[tuple[float, float]], list[str]]] = defaultdict(lambda: ([], []))
    for span in outcome.spans:
        for first, count in runs_of(span):
            times, inks = bars[first, count]
            times.append((span.from_sec / 3600, (span.to_sec - span.from_sec) / 3600))
            inks.append(colours[span.job])
    for (first, count), (times, inks) in bars.items():
        axes.broken_barh(times, (first, count), facecolors=inks, edgecolors=LIGHT.paper, linewidth=0.3)
    secs, gpus = zip(*outcome.there, strict=True)
    hours = [sec / 3600 for sec in secs if sec / 3600 <= until]
    axes.step(
        [*hours, until], [*gpus[: len(hours)], gpus[len(hours) - 1]], where="post", color=LIGHT.ink, linewidth=0.8
    )
    axes.set_title(f"{arm.policy}: GPUs by job; line: GPUs that could be had")
    axes.set_ylabel("GPU")
    axes.set_xlim(0, until)
    axes.set_ylim(0, outcome.num_gpus * 1.02)


def runs_of(span: Span) -> list[tuple[int, int]]:
    """Neighbouring GPUs of a span as one: (first, how many).

    >>> runs_of(Span("a", (3, 4, 5, 9), 0, 1))
    [(3, 3), (9, 1)]
    """
    runs: list[tuple[int, int]] = []
    for slot in sorted(span.slots):
        if runs and sum(runs[-1]) == slot:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((slot, 1))
    return runs
