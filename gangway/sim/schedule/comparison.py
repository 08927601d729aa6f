"""Compares policies on the same jobs and outages by seed, with paired differences to the first."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from gangway.components.estimate.statistics import Comparison, compare_pairs, correct
from gangway.sim.schedule.outcome import Figures, Outcome, get_figures
from gangway.sim.schedule.policy import Policy
from gangway.sim.schedule.scenario import Scenario
from gangway.sim.schedule.simulator import simulate

__all__ = ["COMPARED", "Arm", "changes", "compare"]

COMPARED = ("makespan_hours", "job_hours_mean", "job_hours_p95", "usd", "kwh", "gco2e")
"""Figures compared between policies."""


@dataclass(frozen=True)
class Arm:
    """One policy over all seeds. `outcome`: of the first seed, for the plot."""

    policy: str
    says: str
    figures: Sequence[Figures]
    outcome: Outcome

    def mean(self, name: str) -> float | None:
        """Over the seeds; None if unknown."""
        values = [getattr(one, name) for one in self.figures]
        return None if None in values else statistics.fmean(values)

    def to_json(self) -> dict[str, object]:
        """Figures per seed and their means."""
        return {
            "policy": self.policy,
            "mean": {field.name: self.mean(field.name) for field in fields(Figures)},
            "by_seed": [one.to_json() for one in self.figures],
        }


def changes(arms: Sequence[Arm]) -> dict[tuple[str, str], Comparison | None]:
    """Compare each policy with the first, by policy and figure: pairs by seed, one family of claims. None: unknown."""
    first, *others = arms
    found = {}
    for arm in others:
        for name in COMPARED:
            both = zip(first.figures, arm.figures, strict=True)
            pairs = [(getattr(control, name), getattr(own, name)) for control, own in both]
            found[arm.policy, name] = compare_pairs([pairs])
    return correct(found)


def compare(scenario: Scenario, policies: Sequence[type[Policy]], seeds: Sequence[int]) -> Iterator[Arm]:
    """Simulate each policy on the same jobs and outages, without and with controllers if configured. Raises
    EndlessError.
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
            found = [get_figures(one) for one in outcomes]
            yield Arm(f"{policy.name}{name}", f"{policy.says}{says}", found, outcomes[0])
