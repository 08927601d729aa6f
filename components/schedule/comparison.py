"""Policies beside each other: the same jobs and the same outages by seed, and paired differences to the first."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from components.schedule.outcome import Figures, Outcome, figures_of
from components.schedule.policies.base import Policy
from components.schedule.scenario import Scenario
from components.schedule.simulator import simulate

__all__ = ["Arm", "Change", "compare"]

STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Two-sided quantiles of 95 % for 1 to 9 degrees of freedom,"""
MORE_SEEDS_95 = 2.262
"""and for more, on the safe side."""


@dataclass(frozen=True)
class Change:
    """Of a figure against the first policy's, relative: its mean over seeds, and the half width of its 95 % interval;
    None where there is one seed.
    """

    mean: float
    half: float | None

    @property
    def is_noise(self) -> bool:
        """Whether the interval holds 0."""
        return self.half is not None and abs(self.mean) <= self.half


@dataclass(frozen=True)
class Arm:
    """One policy over all seeds. `outcome`: of the first seed, for the picture."""

    policy: str
    says: str
    figures: Sequence[Figures]
    outcome: Outcome

    def mean(self, name: str) -> float | None:
        """Of a figure over the seeds; None where it is not known."""
        values = [getattr(one, name) for one in self.figures]
        return None if None in values else statistics.fmean(values)

    def change(self, first: "Arm", name: str) -> Change | None:
        """None where the figure is not known, or nothing to compare with."""
        pairs = [
            (getattr(own, name), getattr(other, name))
            for own, other in zip(self.figures, first.figures, strict=True)
        ]  # fmt: skip
        if any(own is None or not other for own, other in pairs):
            return None
        changes = [own / other - 1 for own, other in pairs]
        if len(changes) == 1:
            return Change(changes[0], None)
        quantile = STUDENT_95[len(changes) - 2] if len(changes) < len(STUDENT_95) + 2 else MORE_SEEDS_95
        return Change(statistics.fmean(changes), quantile * statistics.stdev(changes) / math.sqrt(len(changes)))

    def to_json(self, first: "Arm") -> dict[str, object]:
        """Figures of each seed, their means, and the changes; plain JSON data."""
        names = [field.name for field in fields(Figures)]
        changes = {name: self.change(first, name) for name in names if self is not first}
        return {
            "policy": self.policy,
            "mean": {name: self.mean(name) for name in names},
            "by_seed": [one.to_json() for one in self.figures],
            "change": {
                name: None if change is None else {"mean": change.mean, "half_width_95": change.half}
                for name, change in changes.items()
            },
        }


def compare(scenario: Scenario, policies: Sequence[type[Policy]], seeds: Sequence[int]) -> Iterator[Arm]:
    """Each policy in turn, on the same jobs and outages; where the scenario has controllers, without them and with.
    Raises EndlessError.
    """
    plain = [scenario.jobs(seed) for seed in seeds]
    arms = [("", "", plain)]
    if scenario.controlled is not None:
        arms = [
            (", fixed", "; every job keeps the settings that it came with", plain),
            (", resource aware", "; every job's controller mends its settings", [*map(scenario.controlled, seeds)]),
        ]
    for policy in policies:
        for name, says, jobs in arms:
            outcomes = [
                simulate(some, scenario.cluster, policy(), seed) for some, seed in zip(jobs, seeds, strict=True)
            ]  # fmt: skip
            found = [figures_of(one) for one in outcomes]
            yield Arm(f"{policy.name}{name}", f"{policy.says}{says}", found, outcomes[0])
