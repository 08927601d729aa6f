"""The offline plan: the very program `pulumi up` runs, under the SDK's test runtime, priced and checked.

Needs no credentials, no network and no CLI. Ids of resources that do not exist yet are written `${name.id}`, so the
plan shows who refers to whom. Not a diff: what already runs in the cloud is the engine's business.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pulumi
from pulumi.runtime import mocks, settings

from components.catalog import load
from components.cost import CostEstimate, estimate
from components.energy import CarbonEstimate, EnergyEstimate, estimate_carbon, estimate_energy
from components.findings import Finding, Severity
from stacks.checks import check_budget
from stacks.config import StackConfig
from stacks.program import build, provider_module

__all__ = ["Cloud", "Plan", "PlannedResource", "make_plan", "placeholder_cloud", "run_program", "without_gc"]

Cloud = Callable[[str, str, dict[str, Any]], tuple[str, dict[str, Any]]]
"""What stands behind the program: (type token, name, inputs as on the wire) -> (id, outputs as on the wire)."""

# Outputs that other resources or the exports read; the plan names them instead of knowing them.
_COMPUTED = ("arn", "name", "bucket", "dnsName", "mountName", "repositoryUrl", "latestVersion")


@dataclass(frozen=True)
class PlannedResource:
    """A resource as the program registered it: inputs are the wire's, in camelCase."""

    urn: str
    type: str
    name: str
    parent: str
    custom: bool
    inputs: dict[str, Any]
    id: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {k: getattr(self, k) for k in ("urn", "type", "name", "parent", "inputs")}


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
        packages = ("gangway", "pulumi", "pulumi-aws")
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


class _Recorder(mocks.MockMonitor):
    """Pulumi's own mock engine, which also notes what was registered and under which parent."""

    def __init__(self, cloud: mocks.Mocks) -> None:
        super().__init__(cloud)
        self.registered: dict[str, tuple[Any, str]] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the name is gRPC's
        response = super().RegisterResource(request)  # type: ignore[no-untyped-call]  # the SDK's mocks have no types
        self.registered[response.urn] = (request, response.id)
        return response


class _CloudMocks(mocks.Mocks):
    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self.inputs: dict[tuple[str, str], dict[str, Any]] = {}

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.inputs[args.typ, args.name] = args.inputs
        return self._cloud(args.typ, args.name, args.inputs) if args.custom else ("", args.inputs)

    def call(self, args: mocks.MockCallArgs) -> Any:
        raise AssertionError(f"the program calls {args.token}; a plan has no cloud to ask")


def placeholder_cloud(type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A cloud that does not exist: ids and computed outputs are references such as `${aws-demo-vpc.id}`."""
    # Two kinds of resource may share a name; the last word of the type keeps the references apart.
    label = f"{type_token.rpartition(':')[2]}.{name}"
    computed = {key: f"${{{label}.{key}}}" for key in _COMPUTED}
    return f"${{{label}.id}}", {**computed, **inputs}


def _sorted(value: Any) -> Any:
    """`value` with every mapping in the order of its keys: protobuf's order differs from process to process."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


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


def run_program(config: StackConfig, cloud: Cloud) -> tuple[tuple[PlannedResource, ...], dict[str, Any]]:
    """Runs the stack's program against `cloud`.

    Returns:
        The resources, ordered by URN, and the resolved exports.

    Raises:
        InputError: whatever the program finds wrong with `config`.
    """
    stand_in = _CloudMocks(cloud)
    recorder = _Recorder(stand_in)
    exports: dict[str, Any] = {}
    settings.set_root_resource(None)  # type: ignore[arg-type]  # a second run in this process is another stack
    mocks.set_mocks(stand_in, project="gangway", stack=config.stack, preview=False, monitor=recorder)
    run = mocks.test(lambda: pulumi.Output.from_input(dict(build(config))).apply(exports.update))  # type: ignore[no-untyped-call]
    run()
    resources = [
        PlannedResource(
            urn=urn,
            type=request.type,
            name=request.name,
            parent=request.parent,
            custom=request.custom,
            inputs=_sorted(stand_in.inputs[request.type, request.name]),
            id=id_,
        )
        for urn, (request, id_) in sorted(recorder.registered.items())
        if request.type != "pulumi:pulumi:Stack"
    ]
    return tuple(resources), exports


def make_plan(config: StackConfig) -> Plan:
    """Runs the program, prices its resources and collects the findings.

    Raises:
        InputError: a value that cannot be planned, such as a budget below one hour's cost.
    """
    with without_gc():
        provider = provider_module(config.provider)
        planned = provider.plan(config)
        resources, exports = run_program(config, placeholder_cloud)
        cost = estimate(provider.price_resources(resources, load(), config.region), config.job.max_hours)
        check_budget(config, cost)
        energy = estimate_energy(planned.machine, config.cluster.nodes.max, config.job.max_hours, planned.region)
        return Plan(
            config=config,
            resources=resources,
            findings=provider.findings(config, planned, cost),
            cost=cost,
            energy=energy,
            carbon=estimate_carbon(energy, planned.region),
            job=exports["job"],
        )
