"""The papers' tables from papers.yaml, and their rows for the task of given runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

from gangway.render.rendering import number
from gangway.report.comparison.groups import Member
from gangway.trainer.config.train_config import TrainConfig

Name = Literal["P2", "P3"]
_SAME_LENGTH = 0.1
"""Relative difference in epochs below which runs are equally long."""


class Task(BaseModel):
    """What a row trained. `said`: in the paper's words; `architectures`: networks of the same family, by the trainer's
    names; `datasets`: data sets with the resolutions that count as equal, empty: any; `remark`: what is assumed where
    the paper does not say.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    said: str
    architectures: tuple[str, ...]
    datasets: dict[str, tuple[int, ...]]
    remark: str = ""

    def matches(self, config: TrainConfig) -> bool:
        """Whether a run has the same task."""
        resolutions = self.datasets.get(config.dataset)
        if resolutions is None or config.architecture not in self.architectures:
            return False
        return not resolutions or config.resolution in resolutions


class PaperRow(BaseModel):
    """A row of a paper's table. `change`: whether its cells are per cent of another row; `cells`: by measure."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    task: str
    change: bool = False
    cells: dict[str, float]


class Paper(BaseModel):
    """A paper's table. `title`: of our table in its shape; `units`: where they differ from ours; `suite_only`: shown
    only with runs of a suite that names it; `epochs`: of each run, None if unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    source: str
    setting: str
    tasks: dict[str, Task]
    columns: tuple[str, ...]
    units: dict[str, str] = {}
    suite_only: bool = False
    epochs: float | None = None
    rows: tuple[PaperRow, ...]


def get_paper(name: Name) -> Paper:
    """A paper's table by its name in suites."""
    text = Path(__file__).with_name("papers.yaml").read_text("utf-8")
    return TypeAdapter(dict[str, Paper]).validate_python(yaml.safe_load(text))[name]


class Beside(NamedTuple):
    """A paper's rows beside some runs. `notes`: caveats of the comparison; `left_out`: a sentence on hidden rows, and
    why, empty for none.
    """

    rows: tuple[PaperRow, ...]
    notes: tuple[str, ...]
    left_out: str


def beside(name: Name, paper: Paper, members: Sequence[Member]) -> Beside:
    """The rows of a paper comparable with these runs. `members`: at least one, all of one training."""
    first = members[0].record
    configs = [member.record.config for member in members]
    ours = ", ".join(
        dict.fromkeys(f"{one.architecture} on {one.dataset}, {one.resolution} x {one.resolution}" for one in configs)
    )
    if paper.suite_only and not all(member.paper == name for member in members):
        return Beside((), (), f"The rows of paper {name} are left out: no suite of that paper made these runs.")
    fitting = [task for task in paper.tasks.values() if all(map(task.matches, configs))]
    others = [task.said for task in paper.tasks.values() if task not in fitting]
    rows = tuple(row for row in paper.rows if paper.tasks[row.task] in fitting)
    notes = [task.remark for task in fitting if task.remark]
    if rows and paper.epochs is not None and first.dataset.images:
        epochs = first.config.total_images / first.dataset.images
        if abs(epochs / paper.epochs - 1) > _SAME_LENGTH:
            notes.append(
                f"The paper's runs are of {number(paper.epochs)} epochs, ours of {number(epochs)}: "
                "compare epochs, not hours"
            )
    left_out = ""
    if others:
        hidden = f"{len(paper.rows) - len(rows)} rows" if rows else "The rows"
        left_out = (
            f"{hidden} of paper {name} are left out, of another task: {' and '.join(others)}; these runs: {ours}."
        )
    return Beside(rows, tuple(f"{note}." for note in notes), left_out)
