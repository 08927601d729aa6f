"""The offline plan: the very program `pulumi up` runs, under the SDK's test runtime, priced and checked.

Needs no credentials, no network and no CLI. Ids of resources that do not exist yet are written `${Type.name.id}`, so
the plan shows who refers to whom. Not a diff: what already runs in the cloud is the engine's business.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from components.cost import CostEstimate, estimate
from components.energy import CarbonEstimate, EnergyEstimate, estimate_carbon, estimate_energy
from components.findings import Finding, Severity
from stacks.checks import check_budget
from stacks.config import StackConfig
from stacks.program import build, provider_module
from stacks.recording import Cloud, PlaceholderCloud, PlannedResource, Recording, record

__all__ = ["Plan", "make_plan", "run_program", "without_gc"]


@dataclass(frozen=True)
class Plan:
    """Everything `gangway plan` prints."""

    config: StackConfig
    resources: tuple[PlannedResource, ...]
    findings: tuple[Finding, ...]
    cost: CostEstimate
    energy: EnergyEstimate
    carbon: CarbonEstimate
    job: dict[str, Any]

    @property
    def has_errors(self) -> bool:
        """Whether any finding forbids `up`."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The plan as design.md specifies it."""
        packages = ("gangway", "pulumi", f"pulumi-{self.config.provider}")
        return {
            "stack": self.config.stack,
            "provider": self.config.provider,
            "region": self.config.region,
            "resources": [resource.to_json() for resource in self.resources],
            "findings": [finding.to_json() for finding in self.findings],
            "cost": self.cost.to_json(),
            "energy": self.energy.to_json(),
            "carbon": self.carbon.to_json(),
            "job": self.job,
            "versions": {package: version(package) for package in packages},
        }


@contextmanager
def without_gc() -> Iterator[None]:
    """A cloud's SDK allocates a million objects that live on: collecting among them costs a fifth of a plan."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def run_program(config: StackConfig, cloud: Cloud) -> Recording:
    """Runs the stack's program against `cloud`; the recording's result is what the stack exports.

    Raises:
        InputError: whatever the program finds wrong with `config`.
    """
    return record(lambda: build(config), cloud, config.stack)


def make_plan(config: StackConfig) -> Plan:
    """Runs the program, prices its resources and collects the findings.

    Raises:
        InputError: a value that cannot be planned, such as a budget below one hour's cost.
    """
    with without_gc():
        provider = provider_module(config.provider)
        planned = provider.plan(config)
        program = run_program(config, PlaceholderCloud())
        cost = estimate(provider.price(config, program.resources), config.job.max_hours)
        check_budget(config, cost)
        energy = estimate_energy(planned.machine, config.cluster.nodes.max, config.job.max_hours, planned.region)
        return Plan(
            config=config,
            resources=program.resources,
            findings=provider.findings(config, planned, cost),
            cost=cost,
            energy=energy,
            carbon=estimate_carbon(energy, planned.region),
            job=program.result["job"],
        )
