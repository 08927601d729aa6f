"""Capacity as EC2 spells it, and SpotFleet for those who want a fleet instead of an Auto Scaling group.

`launch_market` is the one place where a rung becomes EC2's market options and reservation target. Buying a capacity
block is not done here: it cannot be undone by destroy.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

import pulumi
from pulumi_aws import ec2
from pydantic import TypeAdapter

from components.capacity import CapacityBlock, OnDemand, Reservation, Rung, RungPlan, Spot

__all__ = ["SpotFleet", "SpotFleetArgs", "launch_market", "rung_from_args"]

_Market = ec2.LaunchTemplateInstanceMarketOptionsArgs | None
_Target = ec2.LaunchTemplateCapacityReservationSpecificationArgs | None


def rung_from_args(rung: Mapping[str, Any]) -> CapacityBlock | Reservation | Spot | OnDemand:
    """A component's rung argument as the typed rung. Raises pydantic's ValidationError for a rung that is none."""
    adapter: TypeAdapter[CapacityBlock | Reservation | Spot | OnDemand] = TypeAdapter(Rung)
    return adapter.validate_python(dict(rung))


def launch_market(rung: RungPlan) -> tuple[_Market, _Target]:
    """Market options and reservation target of a launch template; each is None where the rung has none."""
    market: _Market = None
    target: _Target = None
    if rung.market_type == "spot":
        market = ec2.LaunchTemplateInstanceMarketOptionsArgs(
            market_type="spot",
            spot_options=ec2.LaunchTemplateInstanceMarketOptionsSpotOptionsArgs(
                spot_instance_type="one-time",
                instance_interruption_behavior="terminate",
                max_price=None if rung.max_usd_per_hour is None else f"{rung.max_usd_per_hour:.10g}",
            ),
        )
    elif rung.market_type is not None:
        market = ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type=rung.market_type)
    if rung.reservation_id is not None:
        target = ec2.LaunchTemplateCapacityReservationSpecificationArgs(
            capacity_reservation_target=ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
                capacity_reservation_id=rung.reservation_id
            )
        )
    return market, target


class SpotFleetArgs(TypedDict):
    """Inputs of SpotFleet. The launch template must name no market of its own: the fleet does."""

    num_nodes: int
    launch_template_id: pulumi.Input[str]
    launch_template_version: pulumi.Input[str]
    machine_types: list[str]
    subnet_ids: list[pulumi.Input[str]]
    fleet_role_arn: pulumi.Input[str]
    max_usd_per_hour: float
    tags: dict[str, str]


class SpotFleet(pulumi.ComponentResource):
    """A Spot Fleet that holds a number of nodes over several machine types and subnets, cheapest deep pools first."""

    fleet_id: pulumi.Output[str]

    def __init__(self, name: str, args: SpotFleetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:SpotFleet", name, None, opts)
        fleet = ec2.SpotFleetRequest(
            f"{name}-fleet",
            iam_fleet_role=args["fleet_role_arn"],
            target_capacity=args["num_nodes"],
            allocation_strategy="priceCapacityOptimized",
            spot_price=f"{args['max_usd_per_hour']:.10g}",
            fleet_type="maintain",
            instance_interruption_behaviour="terminate",
            terminate_instances_with_expiration=False,
            # A destroyed fleet must not leave GPU nodes running.
            terminate_instances_on_delete="true",
            wait_for_fulfillment=False,
            launch_template_configs=[
                ec2.SpotFleetRequestLaunchTemplateConfigArgs(
                    launch_template_specification=ec2.SpotFleetRequestLaunchTemplateConfigLaunchTemplateSpecificationArgs(
                        id=args["launch_template_id"], version=args["launch_template_version"]
                    ),
                    overrides=[
                        ec2.SpotFleetRequestLaunchTemplateConfigOverrideArgs(instance_type=machine, subnet_id=subnet)
                        for machine in args["machine_types"]
                        for subnet in args["subnet_ids"]
                    ],
                )
            ],
            tags=args["tags"],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.fleet_id = fleet.id
        self.register_outputs({"fleet_id": self.fleet_id})
