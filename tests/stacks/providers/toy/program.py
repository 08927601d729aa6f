"""A stack of toys: one component of machines and a budget, made of one StackConfig."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from gangway.components.catalog.prices import Kind
from gangway.components.catalog.schema import MachineType, Region
from gangway.components.core.findings import Finding, InputError
from gangway.components.core.job import JobSpec
from gangway.components.estimate.cost import (
    CostComponent,
    CostEstimate,
    Declared,
    from_service,
    of_resources,
    price_line,
)
from gangway.images.specs import Flavour
from gangway.stacks.base import shared
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates import provider_findings
from gangway.stacks.estimates.common_findings import common_findings
from gangway.stacks.estimates.run_context import cloud_context

from .provider import catalog
from .settings import toy_of

__all__ = ["ToyPlan", "build", "findings", "plan", "price"]

_MACHINE = "toy:compute:Machine"


@dataclass(frozen=True)
class ToyPlan:
    """What the configuration means with toys.

    Attributes:
        machine: each of them.
        region: where they are.
        tags: of every machine.
        flavour: of the trainer's image.
    """

    machine: MachineType
    region: Region
    tags: dict[str, str]
    flavour: Flavour = "cuda"


def plan(config: StackConfig) -> ToyPlan:
    """Looks everything up, without declaring a resource.

    Raises:
        InputError: no such machine or region; several machines, which cannot meet.
    """
    known, cluster = catalog(), config.cluster
    if cluster.nodes.max > 1:
        raise InputError(
            "gangway:cluster.nodes.max",
            "toys do not meet",
            value=cluster.nodes.max,
            allowed="1",
            fix="set nodes: {min: 1, max: 1}",
        )
    if cluster.machine_type is not None:
        machine = known.machine(cluster.machine_type, "gangway:cluster.machine_type")
    else:
        machine = known.machine_for(cluster.accelerator or "", "toy", "gangway:cluster.accelerator")
    region = known.region(config.region, "toy", "gangway:region")
    return ToyPlan(machine, region, shared.tag_policy(config, machine, region).hosts())


def findings(config: StackConfig, planned: ToyPlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """All findings of a stack; `cost` as in `common_findings`."""
    owner = Finding.warning("toy.owner", "gangway:toy.owner", f"{toy_of(config).owner} may take them back")
    return (*common_findings(config, planned.machine, cost), *provider_findings.trainable(planned.machine), owner)


def price(config: StackConfig, resources: Sequence[Declared]) -> list[CostComponent]:
    """The bill of the declared resources."""
    lines: list[CostComponent] = []
    for resource in resources:
        if resource.type == _MACHINE:
            kind: Kind = "spot" if config.cluster.capacity[0].kind == "spot" else "on-demand"
            quote = catalog().price(resource.inputs["size"], config.region, kind)
            lines += of_resources([price_line(f"{resource.name}: a toy", 1, quote, kind=kind)], resource)
        elif resource.type == "toy:billing:Budget":
            service = catalog().service_price("toy", config.region, "budget")
            lines += of_resources([from_service("budget", service, 1, config.region)], resource)
    return lines


class ToyBox(pulumi.ComponentResource):
    """Machines, and a budget that counts them."""

    def __init__(self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:toy:ToyBox", name, {}, opts)
        below = pulumi.ResourceOptions(parent=self)
        pulumi.CustomResource(_MACHINE, f"{name}-0-{args['kind']}:0", dict(args["machine"]), below)
        pulumi.CustomResource("toy:billing:Budget", f"{name}-budget", {"amount": args["monthly_usd"]}, below)
        self.register_outputs({})


def build(config: StackConfig, planned: ToyPlan) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports."""
    image = config.image.prebuilt or ""
    prices = catalog().get_prices(planned.machine.name)
    context = cloud_context(config, planned.machine, planned.region, prices, image.rpartition("@")[2])
    job = JobSpec(
        name=config.stack,
        image=image,
        backend="nccl",
        num_nodes_min=1,
        num_nodes_max=1,
        processes_per_node=planned.machine.num_accelerators.value,
        rendezvous=shared.rendezvous(config, at_head=False),
        env={"GANGWAY_CONTEXT": context.model_dump_json()},
        training=shared.get_training(config, run_dir="/toys/runs", data_dir="", fabric_min_gbps=None),
    )
    labels = planned.tags if toy_of(config).labelled else {}
    machine = {"size": planned.machine.name, "place": config.region, "labels": labels, "job": job.model_dump_json()}
    kind, monthly_usd = config.cluster.capacity[0].kind, config.budget.monthly_usd
    ToyBox(config.stack, {"machine": machine, "kind": kind, "monthly_usd": monthly_usd})
    return {"job": job.model_dump(mode="json")}
