"""Compares policies on the same jobs and outages by seed, with paired differences to the first; as tables and JSON."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from rich.console import Console
from rich.table import Table

from gangway.components.estimate.cost import foreign_note
from gangway.components.estimate.statistics import FEWEST_PAIRS, Comparison, compare_pairs, correct
from gangway.sim.schedule.policies import Policy
from gangway.sim.schedule.scenario import Scenario
from gangway.sim.schedule.simulator import Figures, Outcome, get_figures, simulate

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
            "by_seed": [asdict(one) for one in self.figures],
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
    """Simulate each policy on the same jobs and outages, without and with controllers. Raises EndlessError."""
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


_ROWS: Mapping[str, tuple[str, str]] = {
    "makespan_hours": ("makespan", "{:,.2f} h"),
    "job_hours_mean": ("a job's time, mean", "{:,.2f} h"),
    "job_hours_p95": ("a job's time, 95 %", "{:,.2f} h"),
    "wait_hours_mean": ("a job's wait, mean", "{:,.2f} h"),
    "usd": ("dollars", "${:,.0f}"),
    "kwh": ("kWh", "{:,.0f}"),
    "gco2e": ("kgCO2e", "{:,.0f}"),
    "gpu_hours": ("GPU-hours paid", "{:,.0f}"),
    "used_share": ("of these used", "{:.1%}"),
    "idle_share": ("idle", "{:.1%}"),
    "lost_share": ("lost: starts, saves, redone", "{:.1%}"),
    "interruptions": ("interruptions", "{:,.1f}"),
    "moves": ("moves by the policy", "{:,.1f}"),
    "late": ("jobs too late", "{:,.1f}"),
}
"""Label and format of each figure; grams show as kilograms."""


def answer_json(scenario: Scenario, arms: Sequence[Arm], seeds: Sequence[int]) -> dict[str, Any]:
    """The answer as JSON data."""
    found = changes(arms)
    return {
        "title": scenario.title,
        "kind": "simulated",
        "seeds": list(seeds),
        "gpus": scenario.cluster.num_gpus,
        "foreign_regions": list(scenario.cluster.foreign_regions),
        "policies": [
            {
                **arm.to_json(),
                "change": {
                    name: None if (change := found[arm.policy, name]) is None else change.to_json()
                    for name in COMPARED
                    if arm is not arms[0]
                },
            }
            for arm in arms
        ],
        "assumptions": list(scenario.notes),
    }


def show(scenario: Scenario, arms: Sequence[Arm], seeds: Sequence[int], console: Console) -> None:
    """Print the table, with changes against the first policy below."""
    several = f"mean of {len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    title = f"{scenario.title or 'Simulated'}: {len(arms[0].outcome.jobs)} jobs on {scenario.cluster.num_gpus} GPUs"
    console.print(f"{title}, {several}", soft_wrap=True, highlight=False, markup=False)
    foreign = foreign_note(scenario.cluster.foreign_regions)
    table = Table()
    table.add_column("")
    for arm in arms:
        table.add_column(arm.policy, justify="right")
    for name, (label, form) in _ROWS.items():
        scale = 1000 if name == "gco2e" else 1
        star = "*" if name == "usd" and foreign else ""
        means = [arm.mean(name) for arm in arms]
        table.add_row(label, *("-" if mean is None else f"{form.format(mean / scale)}{star}" for mean in means))
    if foreign:
        table.caption = f"* {foreign}: no bound"
    console.print(table)
    if len(arms) > 1:
        console.print(_heading(arms[0].policy, len(seeds)), soft_wrap=True, highlight=False)
        console.print(_changes(arms))
    for arm in arms:
        console.print(f"{arm.policy}: {arm.says}", soft_wrap=True, highlight=False)
    console.print("Simulated, on these assumptions:", highlight=False)
    for note in scenario.notes:
        console.print(f"- {note}", soft_wrap=True, highlight=False, markup=False)


def _heading(first: str, pairs: int) -> str:
    if pairs < FEWEST_PAIRS:
        spread = "lowest and highest; " if pairs > 1 else ""
        return f"Against {first}, {spread}too few seeds for a claim: {pairs} of {FEWEST_PAIRS}"
    return f"Against {first}, over {pairs} seeds, with 95 % intervals; * differs, by Holm's test over this table:"


def _changes(arms: Sequence[Arm]) -> Table:
    others, found = arms[1:], changes(arms)
    table = Table()
    table.add_column("")
    for arm in others:
        table.add_column(arm.policy, justify="right")
    for name in COMPARED:
        cells = [found[arm.policy, name] for arm in others]
        texts = ["-" if one is None else f"{one.short()}{' *' if one.direction else ''}" for one in cells]
        table.add_row(_ROWS[name][0], *texts)
    return table
