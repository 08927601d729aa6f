"""How a machine starts: the launch template of the nodes, and the head node with the rendezvous."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

import pulumi
from pulumi_aws import autoscaling, ec2, route53

from gangway.components.catalog.loader import load
from gangway.components.catalog.schema import CardRun, EfaFabric, MachineType
from gangway.components.core.capacity import RungPlan
from gangway.components.core.job import AWS_NCCL_NET
from gangway.components.core.outputs import register_outputs

# "Reference the latest AMIs using Systems Manager public parameters", Amazon Linux 2023 user guide.
HEAD_IMAGE = "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
# Of every Amazon Linux.
ROOT_DEVICE = "/dev/xvda"
ROOT_MIBPS = 500
"""Throughput of a node's root disk, to which images of many GiB are pulled and unpacked while the GPUs wait: gp3's
default of 125 MiB/s takes minutes. Its 3,000 IOPS carry up to 750 (EBS user guide, "General Purpose SSD volumes").
"""
_DNS_TTL_SEC = 60


class HeadNodeArgs(TypedDict):
    """Inputs of HeadNode. `user_data` is base64 (gzip is fine). `host_name` is the full name of the A record in the
    private zone `zone_id`. `root_volume_gib` (60) holds the trainer's image; `machine_type` defaults to t3.medium,
    `image_id` to Amazon Linux 2023's newest AMI. `root_device_name` is the AMI's own (/dev/xvda), such as /dev/sda1 for
    Ubuntu. `kms_key_arn` encrypts the disk instead of AWS's own key. `delete_before_replace`: a new machine starts only
    once the old one has shut down.
    """

    subnet_id: pulumi.Input[str]
    security_group_ids: list[pulumi.Input[str]]
    instance_profile_arn: pulumi.Input[str]
    user_data: pulumi.Input[str]
    host_name: str
    zone_id: pulumi.Input[str]
    machine_type: NotRequired[str]
    image_id: NotRequired[pulumi.Input[str]]
    root_device_name: NotRequired[str]
    root_volume_gib: NotRequired[int]
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    delete_before_replace: NotRequired[bool]
    tags: dict[str, str]


class HeadNode(pulumi.ComponentResource):
    """The machine with the rendezvous."""

    instance_id: pulumi.Output[str]
    private_ip: pulumi.Output[str]
    host: pulumi.Output[str]

    def __init__(self, name: str, args: HeadNodeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:HeadNode", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        # Distinguishes it from the workers, which have the same stack tag.
        tags = {**args["tags"], "Name": f"{name}-head", "gangway:role": "head"}
        instance = self._instance(name, args, tags)
        record = route53.Record(
            f"{name}-head",
            zone_id=args["zone_id"],
            name=args["host_name"],
            type="A",
            ttl=_DNS_TTL_SEC,
            records=[instance.private_ip],
            opts=self._child,
        )
        self.instance_id = instance.id
        self.private_ip = instance.private_ip
        self.host = record.name
        register_outputs(self)

    def _instance(self, name: str, args: HeadNodeArgs, tags: dict[str, str]) -> ec2.Instance:
        template = ec2.LaunchTemplate(
            f"{name}-head",
            image_id=args.get("image_id", HEAD_IMAGE),
            iam_instance_profile=ec2.LaunchTemplateIamInstanceProfileArgs(arn=args["instance_profile_arn"]),
            block_device_mappings=[
                root_volume(
                    args.get("root_device_name", ROOT_DEVICE), args.get("root_volume_gib", 60), args.get("kms_key_arn")
                )
            ],
            tags=tags,
            # Other tags would create a template version, which replaces the machine.
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=["tags"]),
        )
        return ec2.Instance(
            f"{name}-head",
            launch_template=ec2.InstanceLaunchTemplateArgs(id=template.id, version=template.latest_version.apply(str)),
            instance_type=args.get("machine_type", "t3.medium"),
            subnet_id=args["subnet_id"],
            vpc_security_group_ids=args["security_group_ids"],
            associate_public_ip_address=False,
            user_data_base64=args["user_data"],
            user_data_replace_on_change=True,
            # Hop limit 1: only the machine itself, or a container on its network, gets an answer.
            metadata_options=ec2.InstanceMetadataOptionsArgs(
                http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
            ),
            # EC2 moves the machine to healthy hardware by itself, with the same address.
            maintenance_options=ec2.InstanceMaintenanceOptionsArgs(auto_recovery="default"),
            instance_initiated_shutdown_behavior="stop",
            tags=tags,
            volume_tags=tags,
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=args.get("delete_before_replace")),
        )


InterfaceType = Literal["interface", "efa-only"]


@dataclass(frozen=True)
class InterfacePlan:
    """One network interface: which card, which device on it, and whether it is ENA (`interface`) or `efa-only`."""

    network_card_index: int
    device_index: int
    interface_type: InterfaceType


def plan_interfaces(machine: MachineType) -> tuple[InterfacePlan, ...]:
    """The interfaces of a launch template for `machine`; one plain ENA without EFA."""
    if not isinstance(machine.fabric, EfaFabric):
        return (InterfacePlan(0, 0, "interface"),)
    return tuple(interface for run in machine.fabric.layout.value for interface in _card_interfaces(run))


def count_efa(machine: MachineType) -> int:
    """The number of planned EFA interfaces."""
    return sum(interface.interface_type == "efa-only" for interface in plan_interfaces(machine))


def efa_nccl(machine: MachineType) -> dict[str, str]:
    """Make NCCL use EFA or fail; empty for a machine without it."""
    return {"NCCL_NET": AWS_NCCL_NET} if count_efa(machine) else {}


def count_lustre_efa(machine: MachineType) -> int:
    """How many interfaces AWS's script gives to an FSx for Lustre client, and so must bring up; 0 without EFA."""
    if not isinstance(machine.fabric, EfaFabric):
        return 0
    interfaces = load().lustre["aws"].efa_client_interfaces.value
    usual = 2 if machine.fabric.num_cards.value > 1 else 1
    return min(interfaces.get(machine.name, usual), count_efa(machine))


def _card_interfaces(run: CardRun) -> tuple[InterfacePlan, ...]:
    return tuple(
        InterfacePlan(card, index, "interface" if device == "ena" else "efa-only")
        for card in range(run.first, run.last + 1)
        for index, device in enumerate(run.devices)
    )


_Market = ec2.LaunchTemplateInstanceMarketOptionsArgs | None
_Target = ec2.LaunchTemplateCapacityReservationSpecificationArgs | None


@dataclass(frozen=True)
class NodeLaunch:
    """Settings of all nodes of a pool, for any rung and machine type. `root_device_name` is the image's own: another
    name would add a second disk beside a small first one. `reads_tags`: its own, from its metadata.
    """

    image_id: pulumi.Input[str]
    root_device_name: str
    instance_profile_arn: pulumi.Input[str]
    user_data: pulumi.Input[str]
    root_volume_gib: int
    kms_key_arn: pulumi.Input[str] | None
    security_group_ids: list[pulumi.Input[str]]
    tags: Mapping[str, str]
    reads_tags: bool = False


def price_text(usd_per_hour: float | None) -> str | None:
    """A price cap as EC2 takes it, unrounded; None means the on-demand price."""
    return None if usd_per_hour is None else f"{usd_per_hour:.10g}"


def launch_market(rung: RungPlan, purchased: pulumi.Input[str] | None = None) -> tuple[_Market, _Target]:
    """Market options and reservation target, None if the rung has none. `purchased`: id of the block bought here."""
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
    """A template for one machine type. `market` is (None, None) if a mixed group or a fleet names the market."""
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
        block_device_mappings=[
            root_volume(launch.root_device_name, launch.root_volume_gib, launch.kms_key_arn, ROOT_MIBPS)
        ],
        # Hop limit 1: only root on the machine itself gets an answer.
        metadata_options=ec2.LaunchTemplateMetadataOptionsArgs(
            http_endpoint="enabled",
            http_tokens="required",
            http_put_response_hop_limit=1,
            instance_metadata_tags="enabled" if launch.reads_tags else None,
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
    device_name: str, size_gib: int, kms_key_arn: pulumi.Input[str] | None, mibps: int | None = None
) -> ec2.LaunchTemplateBlockDeviceMappingArgs:
    """The root disk, encrypted, deleted with its machine. `device_name` is the image's; `mibps` None: gp3's default."""
    return ec2.LaunchTemplateBlockDeviceMappingArgs(
        device_name=device_name,
        ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
            volume_size=size_gib,
            volume_type="gp3",
            throughput=mibps,
            encrypted="true",
            kms_key_id=kms_key_arn,
            delete_on_termination="true",
        ),
    )


def mixed_instances(
    rung: RungPlan, templates: Mapping[str, ec2.LaunchTemplate]
) -> autoscaling.GroupMixedInstancesPolicyArgs:
    """Several machine types in one group, all on the rung's market, in the configured order."""
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
