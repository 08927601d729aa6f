"""A recorded history shown to a policy, interval by interval: what it would have decided, beside what was done."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainer.config.control import ControlSettings
from trainer.control.bottleneck import bottleneck
from trainer.control.decide import next_decision, policy_of
from trainer.control.guardrails import Machine
from trainer.control.interval import Decision, Interval


class Row(NamedTuple):
    """One interval, and what came of it."""

    images: int
    bottleneck: str
    evidence: str
    would: Decision | None
    why: str
    did: Decision | None

    def told(self) -> Iterator[str]:
        """In lines, where anything was decided."""
        if self.would is not None:
            would = self.would
            yield f"{self.images:>10,} images: {would.knob} {would.was} to {would.value}: {would.reason}"
        if self.did is not None and self.did[:2] != (self.would or ())[:2]:
            did = f"{self.did.knob} {self.did.was} to {self.did.value}, by {self.did.policy}"
            yield f"{self.images:>10,} images: (the run itself: {did})"


def replayed(history: Sequence[Interval], settings: ControlSettings, machine: Machine | None = None) -> list[Row]:
    """What the settings' policy would have decided after each interval of what the run really did before: the run's
    own changes stay in the history, so a policy is asked, and never followed.
    """
    policy, rows = policy_of(settings), list[Row]()
    start = history[0].knobs
    for number, last in enumerate(history, 1):
        seen = [*history[: number - 1], last._replace(decision=None)]
        here = machine or Machine(
            cores=last.cores, local_workers=max(1, last.workers // last.knobs.nodes), workers=last.workers
        )
        outcome = next_decision(seen, policy, settings, start, here)
        rows.append(Row(last.images, *bottleneck(last), outcome.decision, outcome.why, last.decision))
    return rows
