"""What `gangway status` knows about each stack, job and run: figures with a source, or why there is none.

`--json` prints an `Overview`. A reading without a value has provenance `absent`, and its `source` says why.
"""

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import AwareDatetime, model_validator

from gangway.components.core.safe_text import one_line, visible
from gangway.trainer.records.quantity import Frozen, Quantity


class Reading(Quantity):
    """A figure now. `low` and `high`: its interval, described in `note`; `as_of`: when it was true, ISO 8601."""

    low: float | None = None
    high: float | None = None


class Fact(Frozen):
    """A text with its source. `text`: None if unknown, and `source` says why; `at`: when it happened."""

    text: str | None
    source: str
    at: AwareDatetime | None = None

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        # Jobs and other users write these texts.
        object.__setattr__(self, "text", None if self.text is None else one_line(self.text))
        object.__setattr__(self, "source", visible(self.source))
        return self


class RungNodes(Frozen):
    """The nodes of one rung. `wanted`: the group's target, None if it has none or it cannot be read."""

    name: str
    wanted: int | None
    by_state: dict[str, int]


class Row(Frozen):
    """One stack, job or run.

    Attributes:
        where: provider and region of a stack, engine of a job, folder of a run.
        problem: why nothing could be read; the figures then repeat it.
        nodes: by rung; empty without groups, or if `nodes_source` says why they are unknown.
        images_wanted: at the end of the job.
        sec_left: without interruptions.
        usd: so far, from recorded hours and prices.
        usd_estimate: of the whole job, from the plan.
        budget_usd: per month, from the stack file.
        idle_devices: GPUs that do no work now.
        checkpoint: the last one, with its time.
        notice: the last interruption, with its time.
        breaker: whether launches are held.
    """

    kind: Literal["stack", "job", "run"]
    name: str
    where: str
    state: Fact
    nodes: tuple[RungNodes, ...]
    nodes_source: str
    images: Reading
    images_wanted: Reading
    images_per_sec: Reading
    sec_left: Reading
    usd: Reading
    usd_estimate: Reading
    budget_usd: Reading
    idle_devices: Reading
    checkpoint: Fact
    notice: Fact
    breaker: Fact
    problem: str = ""

    @classmethod
    def unreadable(cls, kind: Literal["stack", "job", "run"], name: str, where: str, why: str) -> Self:
        """A row in which everything is unknown for one reason."""
        return cls(kind=kind, name=one_line(name), where=one_line(where), problem=visible(why), **unknown(why))


_UNITS = {
    "images": "images",
    "images_wanted": "images",
    "images_per_sec": "images/s",
    "sec_left": "s",
    "usd": "USD",
    "usd_estimate": "USD",
    "budget_usd": "USD",
    "idle_devices": "devices",
}


def unknown(why: str) -> dict[str, Any]:
    """All figures and facts of a row, unknown for this reason."""
    fact = Fact(text=None, source=why)
    readings = {name: Reading.absent(unit, visible(why)) for name, unit in _UNITS.items()}
    facts = dict.fromkeys(("state", "checkpoint", "notice", "breaker"), fact)
    return {**readings, **facts, "nodes": (), "nodes_source": visible(why)}


class Overview(Frozen):
    """What exists at a time. `notes`: what was not read, and why."""

    version: Literal[1] = 1
    at: AwareDatetime
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


def iso(moment: datetime | None) -> str | None:
    """For `Reading.as_of`."""
    return None if moment is None else moment.isoformat(timespec="seconds")
