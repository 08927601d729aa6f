"""Launch templates of GPU nodes: one machine type each, wired for EFA, closed, tagged, with at most one market.

`launch_market` is the one place where a rung becomes EC2's market options and reservation target; `mixed_instances` the
one where several templates share a group, which then names the market.
What launches from a template, and how many, is the node pool's and the fleets' business.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws import autoscaling, ec2

from components.aws.fabric import plan_interfaces
from components.capacity import RungPlan
from components.catalog import MachineType

__all__ = ["NodeLaunch", "launch_market", "launch_template", "mixed_instances", "price_text", "root_volume"]

_Market = ec2.LaunchTemplateInstanceMarketOptionsArgs | None
_Target = ec2.LaunchTemplateCapacityReservationSpecificationArgs | None


@dataclass(frozen=True)
class NodeLaunch:
    """What every node of a pool has in common, whichever rung and machine type it comes from.

    `root_device_name` is the image's own: under another name the node would get a second disk beside a small first.
    """

    image_id: str
    root_device_name: str
    instance_profile_arn: pulumi.Input[str]
    user_data: pulumi.Input[str]
    root_volume_gib: int
    kms_key_arn: pulumi.Input[str] | None
    security_group_ids: list[pulumi.Input[str]]
    tags: Mapping[str, str]


def price_text(usd_per_hour: float | None) -> str | None:
    """A price cap as EC2 takes it, unrounded; None leaves it at the on-demand price."""
    return None if usd_per_hour is None else f"{usd_per_hour:.10g}"


def launch_market(rung: RungPlan, purchased: pulumi.Input[str] | None = None) -> tuple[_Market, _Target]:
    """Market options and reservation target of a launch template; each is None where the rung has none.

    Args:
        rung: the compiled rung.
        purchased: id of the block that this program buys, for a rung that says so.
    """
    market: _Market = None
    target: _Target = None
    if rung.market_type == "spot":
        market = ec2.LaunchTemplateInstanceMarketOptionsArgs(
            market_type="spot",
            spot_options=ec2.LaunchTemplateInstanceMarketOptionsSpotOptionsArgs(
                spot_instance_type="one-time",
                instance_interruption_behavior="terminate",
                max_price=price_text(rung.max_usd_per_hour),
            ),
        )
    elif rung.market_type is not None:
        market = ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type=rung.market_type)
    reservation_id = purchased if rung.purchase is not None else rung.reservation_id
    if reservation_id is not None:
        target = ec2.LaunchTemplateCapacityReservationSpecificationArgs(
            capacity_reservation_target=ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
                capacity_reservation_id=reservation_id
            )
        )
    return market, target


def launch_template(
    name: str,
    launch: NodeLaunch,
    machine: MachineType,
    *,
    market: tuple[_Market, _Target],
    placement: ec2.PlacementGroup | None,
    opts: pulumi.ResourceOptions,
) -> ec2.LaunchTemplate:
    """A template for one machine type. `market` is (None, None) where a mixed group or a fleet names the market."""
    options, reservation = market
    tags = {**launch.tags, "Name": name}
    return ec2.LaunchTemplate(
        name,
        image_id=launch.image_id,
        instance_type=machine.name,
        update_default_version=True,
        iam_instance_profile=ec2.LaunchTemplateIamInstanceProfileArgs(arn=launch.instance_profile_arn),
        instance_market_options=options,
        capacity_reservation_specification=reservation,
        placement=None if placement is None else ec2.LaunchTemplatePlacementArgs(group_name=placement.name),
        network_interfaces=_network_interfaces(machine, launch.security_group_ids),
        block_device_mappings=[root_volume(launch.root_device_name, launch.root_volume_gib, launch.kms_key_arn)],
        # Hop limit 2: also a container with a network of its own may ask for its credentials and notices.
        metadata_options=ec2.LaunchTemplateMetadataOptionsArgs(
            http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=2
        ),
        user_data=launch.user_data,
        tag_specifications=[
            ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags)
            for kind in ("instance", "volume", "network-interface")
        ],
        tags=tags,
        opts=opts,
    )


def _network_interfaces(
    machine: MachineType, security_group_ids: list[pulumi.Input[str]]
) -> list[ec2.LaunchTemplateNetworkInterfaceArgs]:
    return [
        ec2.LaunchTemplateNetworkInterfaceArgs(
            network_card_index=interface.network_card_index,
            device_index=interface.device_index,
            interface_type=interface.interface_type,
            security_groups=security_group_ids,
            delete_on_termination="true",
        )
        for interface in plan_interfaces(machine)
    ]


def root_volume(
    device_name: str, size_gib: int, kms_key_arn: pulumi.Input[str] | None
) -> ec2.LaunchTemplateBlockDeviceMappingArgs:
    """The root disk, encrypted, gone with its machine.

    Args:
        device_name: the image's root device: /dev/sda1 on Ubuntu, /dev/xvda on Amazon Linux.
        size_gib: at least the image's own size.
        kms_key_arn: of the key to encrypt with; None for AWS's own.
    """
    return ec2.LaunchTemplateBlockDeviceMappingArgs(
        device_name=device_name,
        ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
            volume_size=size_gib,
            volume_type="gp3",
            encrypted="true",
            kms_key_id=kms_key_arn,
            delete_on_termination="true",
        ),
    )


def mixed_instances(
    rung: RungPlan, templates: Mapping[str, ec2.LaunchTemplate]
) -> autoscaling.GroupMixedInstancesPolicyArgs:
    """Several machine types in one group, all of them on the rung's market, in the order they were written."""
    spot = rung.market_type == "spot"
    versions = {name: (template.id, template.latest_version.apply(str)) for name, template in templates.items()}
    first_id, first_version = next(iter(versions.values()))
    return autoscaling.GroupMixedInstancesPolicyArgs(
        instances_distribution=autoscaling.GroupMixedInstancesPolicyInstancesDistributionArgs(
            on_demand_base_capacity=0,
            on_demand_percentage_above_base_capacity=0 if spot else 100,
            on_demand_allocation_strategy="prioritized",
            spot_allocation_strategy=rung.allocation,
            spot_max_price=price_text(rung.max_usd_per_hour),
        ),
        launch_template=autoscaling.GroupMixedInstancesPolicyLaunchTemplateArgs(
            launch_template_specification=autoscaling.GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs(
                launch_template_id=first_id, version=first_version
            ),
            overrides=[
                autoscaling.GroupMixedInstancesPolicyLaunchTemplateOverrideArgs(
                    instance_type=name,
                    launch_template_specification=autoscaling.GroupMixedInstancesPolicyLaunchTemplateOverrideLaunchTemplateSpecificationArgs(
                        launch_template_id=id_, version=version
                    ),
                )
                for name, (id_, version) in versions.items()
            ],
        ),
    )
