"""The plot of `gangway simulate`: a panel per policy of which job had which GPUs when, above the available GPUs."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from gangway.render.drawing import LIGHT, draw
from gangway.sim.comparison import Arm
from gangway.sim.schedule.simulator import Span

_LETTERS, _LINES = 46, 9
"""Width and height of a panel in text."""


def draw_use(arms: Sequence[Arm], kind: Literal["png", "svg"]) -> bytes:
    """Draw the plot as bytes of a file of that kind; a job has one colour in all panels, and its name where it fits."""
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
        for first, count in get_runs(span):
            times, inks = bars[first, count]
            times.append((span.from_sec / 3600, (span.to_sec - span.from_sec) / 3600))
            inks.append(colours[span.job])
    for (first, count), (times, inks) in bars.items():
        axes.broken_barh(times, (first, count), facecolors=inks, edgecolors=LIGHT.paper, linewidth=0.3)
    for job, (hour, gpu) in names_at(outcome.spans, until, outcome.num_gpus).items():
        axes.text(hour, gpu, job, color=LIGHT.paper, ha="center", va="center", clip_on=True)
    secs, gpus = zip(*dict(outcome.there).items(), strict=True)  # of several at one time the last
    hours = [sec / 3600 for sec in secs if sec / 3600 <= until]
    axes.step(
        [*hours, until], [*gpus[: len(hours)], gpus[len(hours) - 1]], where="post", color=LIGHT.ink, linewidth=0.8
    )
    axes.set_title(f"{arm.policy}: GPUs by job; line: GPUs that could be had")
    axes.set_ylabel("GPU")
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.set_xlim(0, until)
    axes.set_ylim(0, outcome.num_gpus * 1.02)


def names_at(spans: Sequence[Span], until: float, num_gpus: int) -> dict[str, tuple[float, float]]:
    """Hour and GPU at the middle of each job's largest block with room for its name."""
    largest: dict[str, tuple[float, float, float]] = {}
    for span in spans:
        hours = (span.to_sec - span.from_sec) / 3600
        for first, count in get_runs(span):
            has_room = len(span.job) <= _LETTERS * hours / until and _LINES * count >= num_gpus
            if has_room and hours * count > largest.get(span.job, (0.0,))[0]:
                largest[span.job] = hours * count, span.from_sec / 3600 + hours / 2, first + count / 2
    return {job: (hour, gpu) for job, (_, hour, gpu) in largest.items()}


def get_runs(span: Span) -> list[tuple[int, int]]:
    """Adjacent GPUs of a span as (first, how many).

    >>> get_runs(Span("a", (3, 4, 5, 9), 0, 1))
    [(3, 3), (9, 1)]
    """
    runs: list[tuple[int, int]] = []
    for slot in sorted(span.slots):
        if runs and sum(runs[-1]) == slot:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((slot, 1))
    return runs
