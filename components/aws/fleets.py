"""Ec2Fleet and SpotFleet, alternatives to Auto Scaling groups, without a ladder. Templates must not name a market
(`launch` creates such). Neither waits for its nodes: capacity may take hours.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import pulumi
from pulumi_aws import ec2

from gangway.components.aws.launch import price_text
from gangway.components.core.findings import InputError
from gangway.components.core.outputs import register_outputs

SPOT_FLEET_WORDS = {
    "price-capacity-optimized": "priceCapacityOptimized",
    "capacity-optimized": "capacityOptimized",
    "lowest-price": "lowestPrice",
}
# Without price-capacity-optimized: the provider sees a difference on each `up` and replaces the fleet
# (hashicorp/terraform-provider-aws#43176).
EC2_FLEET_WORDS = {"capacity-optimized": "capacity-optimized", "lowest-price": "lowestPrice"}
MARKETS = {"spot": "capacity that may be taken back", "on-demand": "capacity at list price"}


class FleetTemplateArgs(TypedDict):
    """A launch template and its machine types, all with one layout of network interfaces. It must name its AMI by id:
    EC2 resolves an SSM reference only for fleets of type instant (CreateFleet, `ImageId`). `image_id` repeats the
    template's, so that the plan can refuse a reference.
    """

    image_id: NotRequired[str]
    launch_template_id: pulumi.Input[str]
    launch_template_version: pulumi.Input[str]
    machine_types: list[str]


class Ec2FleetArgs(TypedDict):
    """Inputs of Ec2Fleet. `market` is spot or on-demand; `allocation` capacity-optimized (default) or lowest-price, for
    spot. `subnet_ids` has a subnet per zone, `zones` those to use (default all). `max_usd_per_hour` caps the price of a
    spot node.
    """

    num_nodes: int
    market: str
    templates: list[FleetTemplateArgs]
    subnet_ids: dict[str, pulumi.Input[str]]
    zones: NotRequired[list[str]]
    allocation: NotRequired[str]
    max_usd_per_hour: NotRequired[float]
    tags: dict[str, str]


class SpotFleetArgs(TypedDict):
    """Inputs of SpotFleet: as of Ec2Fleet; `allocation` defaults to price-capacity-optimized."""

    num_nodes: int
    templates: list[FleetTemplateArgs]
    subnet_ids: dict[str, pulumi.Input[str]]
    zones: NotRequired[list[str]]
    allocation: NotRequired[str]
    max_usd_per_hour: NotRequired[float]
    fleet_role_arn: pulumi.Input[str]
    tags: dict[str, str]


@dataclass(frozen=True)
class Pool:
    """One machine type in one zone's subnet: a fleet's unit of choice."""

    machine_type: str
    subnet_id: pulumi.Input[str]


def plan_pools(args: Ec2FleetArgs | SpotFleetArgs) -> list[list[Pool]]:
    """The pools of each template, zone by zone. InputError: a zone without a subnet, or an SSM reference as AMI."""
    for index, template in enumerate(args["templates"]):
        _check_image(template.get("image_id"), f"templates[{index}].image_id")
    subnets = args["subnet_ids"]
    zones = args.get("zones", list(subnets))
    for index, zone in enumerate(zones):
        _one_of(zone, subnets, f"zones[{index}]", "no subnet is given for this zone")
    return [
        [Pool(machine, subnets[zone]) for machine in template["machine_types"] for zone in zones]
        for template in args["templates"]
    ]


def _check_image(image_id: str | None, place: str) -> None:
    if image_id is not None and image_id.startswith("resolve:ssm:"):
        raise InputError(
            place,
            "a fleet that keeps a number of nodes resolves no SSM reference",
            value=image_id,
            allowed="an id, such as ami-0123456789abcdef0",
            fix="read the parameter with pulumi_aws.ssm.get_parameter_output, or use EfaNodePool",
        )


def _one_of(word: str, allowed: Mapping[str, object], place: str, problem: str) -> None:
    if word not in allowed:
        raise InputError.not_among(place, problem, word, allowed)


def _allocation(args: Ec2FleetArgs | SpotFleetArgs, spellings: dict[str, str]) -> str:
    word = args.get("allocation", next(iter(spellings)))
    _one_of(word, spellings, "allocation", "no such allocation for this kind of fleet")
    return spellings[word]


class Ec2Fleet(pulumi.ComponentResource):
    """An EC2 Fleet that maintains a number of nodes on one market over several templates and zones. Not of type
    `instant`, a single request whose deletion is known to time out (hashicorp/terraform-provider-aws#48836); the
    options single_* and min_target_capacity apply only to that.
    """

    fleet_id: pulumi.Output[str]

    def __init__(self, name: str, args: Ec2FleetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:Ec2Fleet", name, None, opts)
        spot = _is_spot(args)
        fleet = ec2.Fleet(
            f"{name}-fleet",
            type="maintain",
            target_capacity_specification=ec2.FleetTargetCapacitySpecificationArgs(
                default_target_capacity_type=args["market"], total_target_capacity=args["num_nodes"]
            ),
            spot_options=ec2.FleetSpotOptionsArgs(
                allocation_strategy=_allocation(args, EC2_FLEET_WORDS), instance_interruption_behavior="terminate"
            )
            if spot
            else None,
            on_demand_options=None if spot else ec2.FleetOnDemandOptionsArgs(allocation_strategy="lowestPrice"),
            launch_template_configs=list(_fleet_configs(args)),
            # A destroyed fleet must not leave GPU nodes running.
            terminate_instances=True,
            excess_capacity_termination_policy="termination",
            # A node that fails EC2's checks may still be writing its checkpoint; the trainer decides.
            replace_unhealthy_instances=False,
            tags=args["tags"],
            # EC2 answers 0 for what the provider defaults to 1 unless the strategy is lowest-price, and would replace
            # the fleet for it (the same issue as above).
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=["spotOptions.instancePoolsToUseCount"]),
        )
        self.fleet_id = fleet.id
        register_outputs(self)


def _is_spot(args: Ec2FleetArgs) -> bool:
    """Whether the fleet is on the spot market. InputError: another market, or an ignored setting."""
    _one_of(args["market"], MARKETS, "market", "a fleet has one of two markets")
    spot = args["market"] == "spot"
    for setting in ("allocation", "max_usd_per_hour"):
        if setting in args and not spot:
            raise InputError(
                setting, "of no effect on the on-demand market", value=args.get(setting), fix=f"remove {setting}"
            )
    return spot


def _fleet_configs(args: Ec2FleetArgs) -> Iterator[ec2.FleetLaunchTemplateConfigArgs]:
    cap = price_text(args.get("max_usd_per_hour"))
    for template, pools in zip(args["templates"], plan_pools(args), strict=True):
        yield ec2.FleetLaunchTemplateConfigArgs(
            launch_template_specification=ec2.FleetLaunchTemplateConfigLaunchTemplateSpecificationArgs(
                launch_template_id=template["launch_template_id"], version=template["launch_template_version"]
            ),
            overrides=[
                ec2.FleetLaunchTemplateConfigOverrideArgs(
                    instance_type=pool.machine_type, subnet_id=pool.subnet_id, max_price=cap
                )
                for pool in pools
            ],
        )


class SpotFleet(pulumi.ComponentResource):
    """A Spot Fleet that keeps a number of spot nodes over several templates and zones, cheap deep pools first."""

    fleet_id: pulumi.Output[str]

    def __init__(self, name: str, args: SpotFleetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:SpotFleet", name, None, opts)
        fleet = ec2.SpotFleetRequest(
            f"{name}-fleet",
            iam_fleet_role=args["fleet_role_arn"],
            target_capacity=args["num_nodes"],
            allocation_strategy=_allocation(args, SPOT_FLEET_WORDS),
            spot_price=price_text(args.get("max_usd_per_hour")),
            fleet_type="maintain",
            instance_interruption_behaviour="terminate",
            terminate_instances_with_expiration=False,
            # A destroyed fleet must not leave GPU nodes running.
            terminate_instances_on_delete="true",
            wait_for_fulfillment=False,
            launch_template_configs=[
                ec2.SpotFleetRequestLaunchTemplateConfigArgs(
                    launch_template_specification=ec2.SpotFleetRequestLaunchTemplateConfigLaunchTemplateSpecificationArgs(
                        id=template["launch_template_id"], version=template["launch_template_version"]
                    ),
                    overrides=[
                        ec2.SpotFleetRequestLaunchTemplateConfigOverrideArgs(
                            instance_type=pool.machine_type, subnet_id=pool.subnet_id
                        )
                        for pool in pools
                    ],
                )
                for template, pools in zip(args["templates"], plan_pools(args), strict=True)
            ],
            tags=args["tags"],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.fleet_id = fleet.id
        register_outputs(self)
