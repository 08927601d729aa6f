"""The offline plan: runs the program of `pulumi up` in the SDK's test runtime, then prices and checks it."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from gangway.components.core.findings import Finding, Severity
from gangway.components.estimate.cost import CostEstimate, estimate, foreign_regions
from gangway.components.estimate.energy import (
    CarbonEstimate,
    EmbodiedEstimate,
    EnergyEstimate,
    Footprint,
    RunHours,
    SciEstimate,
    estimate_footprint,
)
from gangway.components.estimate.spot import LadderEstimate
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.common_findings import check_budget, money_findings
from gangway.stacks.estimates.expected_run import ExpectedRun, expected_run, run_throughput
from gangway.stacks.estimates.limits import limit_findings
from gangway.stacks.estimates.provider_findings import resource_findings, unknown_replacements, unpriced
from gangway.stacks.estimates.run_costs import (
    Pace,
    RungCost,
    assumptions,
    bill_in_reach,
    ladder_cost,
    most_bound,
    most_expensive_rung,
    most_usd,
    pace,
    price_ladder,
    run_nodes,
)
from gangway.stacks.estimates.usage_costs import usage_lines
from gangway.stacks.plan.gc_pause import without_gc
from gangway.stacks.plan.rules.guardrails import with_guardrails
from gangway.stacks.plan.team_access import TeamAccess, team_access
from gangway.stacks.program import build, get_program
from gangway.stacks.recording import Cloud, PlaceholderCloud, PlannedResource, Recording, record


@dataclass(frozen=True)
class Plan:
    """Everything that `gangway plan` prints. Cost, energy and emissions are for all of max_hours on the first rung in
    reach; rungs, ladder and `expected` for the expected run. A custom command is priced for all of max_hours, a
    cluster with a queue (with an empty `job`) for a month, both without ladder, pace and energy.
    """

    config: StackConfig
    resources: tuple[PlannedResource, ...]
    findings: tuple[Finding, ...]
    cost: CostEstimate
    rungs: tuple[RungCost, ...]
    ladder_if_trained: LadderEstimate | None
    pace_if_trained: Pace | None
    expected: ExpectedRun
    energy: EnergyEstimate
    carbon: CarbonEstimate
    embodied: EmbodiedEstimate
    sci: SciEstimate
    job: dict[str, Any]

    @property
    def ladder(self) -> LadderEstimate:
        """The ladder of a training."""
        assert self.ladder_if_trained is not None, "only for trainings"
        return self.ladder_if_trained

    @property
    def pace(self) -> Pace:
        """The pace of a training."""
        assert self.pace_if_trained is not None, "only for trainings"
        return self.pace_if_trained

    @property
    def rung(self) -> RungCost | None:
        """The rung in use: the first in reach, if any."""
        return next((rung for rung in self.rungs if rung.in_reach), None)

    @property
    def most_usd(self) -> float:
        """US dollars of all of max_hours on `top_rung`, with known prices."""
        return most_usd(self.config, self.cost)

    @property
    def top_rung(self) -> RungCost:
        """The most expensive rung."""
        return self.rungs[most_expensive_rung(self.config, self.cost)[0]]

    def _run_most(self) -> dict[str, Any] | None:
        if self.rung is None:
            return None
        return {
            "usd": self.most_usd,
            "position": self.top_rung.position,
            "kind": self.top_rung.kind,
            "bound": most_bound(self.cost),
            "foreign_regions": foreign_regions(self.cost.components),
        }

    def hourly_with(self, nodes: int) -> float | None:
        """US dollars per hour with `nodes` of the rung in use; None if their price is unknown."""
        of_all = None if self.rung is None else self.rung.nodes_hourly
        if of_all is None:
            return None
        return self.cost.hourly - of_all * (1 - nodes / self.config.cluster.nodes.max)

    @property
    def team_access(self) -> tuple[TeamAccess, ...]:
        """The permissions of each team of a cluster with a queue."""
        return team_access(self.config.stack, self.resources)

    def _standing(self) -> dict[str, Any] | None:
        if self.config.job is not None:
            return None
        nodes = self.config.cluster.nodes
        return {
            "no_nodes_hourly": self.hourly_with(0),
            "nodes_min_hourly": self.hourly_with(nodes.min),
            "nodes_max_hourly": self.hourly_with(nodes.max),
        }

    @property
    def idle_hourly(self) -> float | None:
        """US dollars per hour without a running job, with or without nodes."""
        stays = get_provider(self.config.provider).nodes_stay(self.resources)
        if self.rung is None:
            return self.cost.hourly
        if self.config.job is None:
            return self.hourly_with(self.config.cluster.nodes.min)
        if not self.config.nodes_leave or stays:
            return self.rung.hourly
        nodes = self.rung.nodes_hourly
        return None if nodes is None else self.cost.hourly - nodes

    @property
    def errors(self) -> list[Finding]:
        """Findings that forbid `up`."""
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]

    @property
    def has_errors(self) -> bool:
        """Whether any finding forbids `up`."""
        return bool(self.errors)

    def plain(self) -> dict[str, Any]:
        """The plan as read from its JSON file, with lists instead of tuples."""
        plain: dict[str, Any] = json.loads(json.dumps(self.to_json()))
        return plain

    def to_json(self) -> dict[str, Any]:
        """The plan as design.md specifies it."""
        sdk = get_provider(self.config.provider).sdk
        packages = {"gangway": "gangway-iac", "pulumi": "pulumi", sdk: sdk}
        return {
            "stack": self.config.stack,
            "provider": self.config.provider,
            "region": self.config.region,
            "resources": [resource.to_json() for resource in self.resources],
            "findings": [finding.to_json() for finding in self.findings],
            "cost": {
                **self.cost.to_json(),
                "idle_hourly": self.idle_hourly,
                "run_most": self._run_most(),
                "standing": self._standing(),
            },
            "rungs": [rung.to_json() for rung in self.rungs],
            "ladder": self.ladder_if_trained and {**self.ladder.to_json(), "assumptions": assumptions(self.rungs)},
            "expected_run": asdict(self.expected),
            "checkpoints": self.pace_if_trained and asdict(self.pace),
            "energy": asdict(self.energy),
            "carbon": {
                **asdict(self.carbon),
                "embodied": asdict(self.embodied),
                "sci": asdict(self.sci),
            },
            "job": self.job or None,
            "team_access": [row.to_json() for row in self.team_access],
            "versions": {name: version(package) for name, package in packages.items()},
        }


def run_program(config: StackConfig, cloud: Cloud, planned: Any = None) -> Recording:
    """Runs the stack's program against `cloud`; the recording's result has the exports. InputError: a mistake."""
    return record(lambda: build(config, planned), cloud, config.stack)


def _footprint(config: StackConfig, planned: Any, run: ExpectedRun) -> Footprint:
    band, most = run.hours, config.work.max_hours
    subject = "a custom command" if config.job is not None else "a queue's jobs"
    return estimate_footprint(
        planned.machine,
        run_nodes(config, planned.machine),
        RunHours.at_most(most) if band is None else RunHours(band.low, band.mid, band.high, most),
        planned.region,
        _kimg(config, run),
        waiting=run.throughput.usual_waiting,
        unknown_power="" if config.trains else f"the power of {subject} is not known",
    )


def _kimg(config: StackConfig, run: ExpectedRun) -> tuple[float, float, float] | None:
    if not config.trains or run.share is None:
        return None
    kimg, share = config.training.kimg, run.share
    return kimg * share.high, kimg * share.mid, kimg * share.low


def make_plan(config: StackConfig) -> Plan:
    """Runs the program, prices its resources and collects the findings. InputError: a value that cannot be planned."""
    with without_gc():
        provider = get_program(config.provider)
        planned = provider.plan(config)
        program = run_program(config, PlaceholderCloud(), planned)
        lines = bill_in_reach(config, planned.machine, provider.price(config, program.resources))
        lines += usage_lines(config, program.resources)
        cost = estimate(lines, config.work.max_hours)
        check_budget(config, cost)
        speed = run_throughput(config, planned.machine)
        run = expected_run(config, planned.machine, speed, cost)
        energy, carbon, embodied, sci = _footprint(config, planned, run)
        job = pace(config, speed) if config.trains else None
        rungs, paid = price_ladder(config, planned.machine, lines, job), cost.upfront + cost.once
        limits = limit_findings(config, planned.machine, rungs, run)
        ladder = None if job is None else ladder_cost(config, planned.machine, rungs, paid)
        return Plan(
            config=config,
            resources=program.resources,
            findings=with_guardrails(
                (
                    *provider.findings(config, planned, cost),
                    *money_findings(config, rungs, job, lines, datetime.now(UTC).date()),
                    *limits,
                    *unpriced(program.resources, lines),
                    *resource_findings(config, program.resources),
                    *unknown_replacements(config, program.resources),
                ),
                *(config, program.resources, job),
            ),
            cost=cost,
            rungs=rungs,
            ladder_if_trained=ladder,
            pace_if_trained=job,
            expected=run,
            energy=energy,
            carbon=carbon,
            embodied=embodied,
            sci=sci,
            job=program.result.get("job", {}),
        )
