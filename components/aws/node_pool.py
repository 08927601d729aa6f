"""EfaNodePool: GPU nodes with their EFA interfaces, one Auto Scaling group per rung of the capacity ladder.

The first rung asks for every node. Each further rung starts empty and is filled by CloudWatch itself when the rungs
above it hold fewer nodes than the job's minimum, and emptied again when they recover: the fallback order works with
nobody watching, and no code of ours runs in the account. Not a scheduler: what runs on the nodes is the JobSpec in
their user data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import pulumi
from pulumi_aws import autoscaling, cloudwatch, ec2

from components.aws.capacity import launch_market, rung_from_args
from components.aws.fabric import InterfacePlan, plan_interfaces
from components.capacity import RungPlan, plan_ladder
from components.catalog import MachineType, load

__all__ = ["CapacityRungArgs", "EfaNodePool", "EfaNodePoolArgs", "NodePoolPlan", "plan_fill_steps", "plan_node_pool"]

FALLBACK_PERIODS = 3
# AWS allows 20 adjustments a scaling policy.
MAX_STEPS = 20


class CapacityRungArgs(TypedDict):
    """One rung: `kind` is capacity-block, reservation, spot or on-demand; `id` or `max_usd_per_hour` as it needs."""

    kind: str
    id: NotRequired[str]
    max_usd_per_hour: NotRequired[float]


class EfaNodePoolArgs(TypedDict):
    """Inputs of EfaNodePool. `user_data` is base64; `image_id` may be an SSM reference (`resolve:ssm:...`)."""

    machine_type: str
    num_nodes_min: int
    num_nodes_max: int
    capacity: list[CapacityRungArgs]
    subnet_ids: pulumi.Input[list[str]]
    security_group_ids: list[pulumi.Input[str]]
    image_id: str
    instance_profile_arn: pulumi.Input[str]
    user_data: pulumi.Input[str]
    root_volume_gib: int
    tags: dict[str, str]


@dataclass(frozen=True)
class NodePoolPlan:
    """What the pool will declare, before any resource exists."""

    machine: MachineType
    interfaces: tuple[InterfacePlan, ...]
    rungs: tuple[RungPlan, ...]
    num_nodes_min: int
    num_nodes_max: int

    @property
    def placement_group(self) -> bool:
        """Whether any rung may use a cluster placement group of our own."""
        return self.machine.efa_interfaces.value > 0 and any(rung.placement_group for rung in self.rungs)


def plan_node_pool(args: EfaNodePoolArgs) -> NodePoolPlan:
    """Compiles the arguments into interfaces and launch fields. Raises InputError for an unknown machine type."""
    machine = load().machine(args["machine_type"], "machine_type")
    rungs = plan_ladder(tuple(rung_from_args(rung) for rung in args["capacity"]))
    return NodePoolPlan(machine, plan_interfaces(machine), rungs, args["num_nodes_min"], args["num_nodes_max"])


def plan_fill_steps(num_nodes: int) -> list[tuple[int, int]]:
    """Steps that fill a rung: (nodes missing above it beyond the first, size to set).

    A step for each missing node; where AWS's 20 do not suffice, each step covers several and sets the largest of them.
    """
    stride = -(-num_nodes // MAX_STEPS)
    return [(beyond, min(beyond + stride, num_nodes)) for beyond in range(0, num_nodes, stride)]


class EfaNodePool(pulumi.ComponentResource):
    """GPU nodes in one zone, wired for EFA, filled from the capacity ladder in its order."""

    group_names: pulumi.Output[list[str]]
    launch_template_ids: pulumi.Output[list[str]]
    interfaces_per_node: pulumi.Output[int]

    def __init__(self, name: str, args: EfaNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:EfaNodePool", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        self._plan = plan_node_pool(args)
        self._placement = self._placement_group() if self._plan.placement_group else None
        templates: list[ec2.LaunchTemplate] = []
        groups: list[autoscaling.Group] = []
        for position, rung in enumerate(self._plan.rungs):
            template = self._launch_template(f"{position}-{rung.kind}", rung)
            group = self._group(f"{position}-{rung.kind}", position, template)
            if position:
                self._fall_back_to(f"{position}-{rung.kind}", group, above=list(groups))
            templates.append(template)
            groups.append(group)
        self.group_names = pulumi.Output.all(*[group.name for group in groups]).apply(list)
        self.launch_template_ids = pulumi.Output.all(*[template.id for template in templates]).apply(list)
        self.interfaces_per_node = pulumi.Output.from_input(len(self._plan.interfaces))
        self.register_outputs(
            {
                "group_names": self.group_names,
                "launch_template_ids": self.launch_template_ids,
                "interfaces_per_node": self.interfaces_per_node,
            }
        )

    def _placement_group(self) -> ec2.PlacementGroup:
        return ec2.PlacementGroup(
            f"{self._name}-cluster", strategy="cluster", tags=self._args["tags"], opts=self._child
        )

    def _network_interfaces(self) -> list[ec2.LaunchTemplateNetworkInterfaceArgs]:
        return [
            ec2.LaunchTemplateNetworkInterfaceArgs(
                network_card_index=interface.network_card_index,
                device_index=interface.device_index,
                interface_type=interface.interface_type,
                security_groups=self._args["security_group_ids"],
                delete_on_termination="true",
            )
            for interface in self._plan.interfaces
        ]

    def _launch_template(self, suffix: str, rung: RungPlan) -> ec2.LaunchTemplate:
        market, reservation = launch_market(rung)
        tags = {**self._args["tags"], "Name": f"{self._name}-{suffix}"}
        placement = self._placement if rung.placement_group else None
        return ec2.LaunchTemplate(
            f"{self._name}-{suffix}",
            image_id=self._args["image_id"],
            instance_type=self._plan.machine.name,
            update_default_version=True,
            iam_instance_profile=ec2.LaunchTemplateIamInstanceProfileArgs(arn=self._args["instance_profile_arn"]),
            instance_market_options=market,
            capacity_reservation_specification=reservation,
            placement=None if placement is None else ec2.LaunchTemplatePlacementArgs(group_name=placement.name),
            network_interfaces=self._network_interfaces(),
            block_device_mappings=[
                ec2.LaunchTemplateBlockDeviceMappingArgs(
                    device_name="/dev/sda1",
                    ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                        volume_size=self._args["root_volume_gib"],
                        volume_type="gp3",
                        encrypted="true",
                        delete_on_termination="true",
                    ),
                )
            ],
            # Hop limit 2: also a container with a network of its own may ask for its credentials and notices.
            metadata_options=ec2.LaunchTemplateMetadataOptionsArgs(
                http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=2
            ),
            user_data=self._args["user_data"],
            tag_specifications=[
                ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags)
                for kind in ("instance", "volume", "network-interface")
            ],
            tags=tags,
            opts=self._child,
        )

    def _group(self, suffix: str, position: int, template: ec2.LaunchTemplate) -> autoscaling.Group:
        """The first rung holds all nodes; the others wait at zero and may grow to the job's minimum."""
        first = position == 0
        return autoscaling.Group(
            f"{self._name}-{suffix}",
            min_size=0,
            max_size=self._args["num_nodes_max"] if first else self._args["num_nodes_min"],
            # Below the first rung the scaling policy owns the number: a declared one would empty the rung on each `up`.
            desired_capacity=self._args["num_nodes_max"] if first else None,
            vpc_zone_identifiers=self._args["subnet_ids"],
            launch_template=autoscaling.GroupLaunchTemplateArgs(
                id=template.id, version=template.latest_version.apply(str)
            ),
            # Capacity may take hours to come: `up` declares it and does not wait.
            wait_for_capacity_timeout="0",
            # Rebalancing between zones would end healthy workers in the middle of a run.
            suspended_processes=["AZRebalance"],
            enabled_metrics=[autoscaling.Metric.GROUP_IN_SERVICE_INSTANCES, autoscaling.Metric.GROUP_DESIRED_CAPACITY],
            metrics_granularity=autoscaling.MetricsGranularity.ONE_MINUTE,
            tags=[
                autoscaling.GroupTagArgs(key=key, value=value, propagate_at_launch=False)
                for key, value in self._args["tags"].items()
            ],
            opts=self._child,
        )

    def _fall_back_to(self, suffix: str, group: autoscaling.Group, above: list[autoscaling.Group]) -> None:
        """Fills `group` with exactly the nodes that the rungs above it lack, and empties it when they lack none."""
        minimum = self._args["num_nodes_min"]
        steps = plan_fill_steps(minimum)
        ends = [*(str(beyond) for beyond, _ in steps[1:]), None]
        fill = [(size, str(beyond), end) for (beyond, size), end in zip(steps, ends, strict=True)]
        fill_policy = self._policy(f"{suffix}-fill", group, fill)
        empty_policy = self._policy(f"{suffix}-empty", group, [(0, None, "0")])
        self._missing_nodes_alarm(f"{suffix}-fill", above, fill_policy, "GreaterThanOrEqualToThreshold")
        self._missing_nodes_alarm(f"{suffix}-empty", above, empty_policy, "LessThanThreshold")

    def _policy(
        self, suffix: str, group: autoscaling.Group, steps: Sequence[tuple[int, str | None, str | None]]
    ) -> autoscaling.Policy:
        """Sets the group to the size whose bounds hold the alarm's breach: (size, from, below), from its threshold."""
        return autoscaling.Policy(
            f"{self._name}-{suffix}",
            autoscaling_group_name=group.name,
            policy_type="StepScaling",
            adjustment_type="ExactCapacity",
            metric_aggregation_type="Maximum",
            step_adjustments=[
                autoscaling.PolicyStepAdjustmentArgs(
                    scaling_adjustment=size, metric_interval_lower_bound=lower, metric_interval_upper_bound=upper
                )
                for size, lower, upper in steps
            ],
            opts=self._child,
        )

    def _missing_nodes_alarm(
        self, suffix: str, above: list[autoscaling.Group], policy: autoscaling.Policy, comparison: str
    ) -> None:
        """An alarm on (minimum - nodes in service above), which is how many nodes are missing.

        No FILL: groups publish their metrics late, and a filled newest minute would look as if all nodes were gone.
        """
        running = [
            cloudwatch.MetricAlarmMetricQueryArgs(
                id=f"m{index}",
                return_data=False,
                metric=cloudwatch.MetricAlarmMetricQueryMetricArgs(
                    namespace="AWS/AutoScaling",
                    metric_name="GroupInServiceInstances",
                    dimensions={"AutoScalingGroupName": group.name},
                    period=60,
                    stat="Minimum",
                ),
            )
            for index, group in enumerate(above)
        ]
        in_service = " - ".join(f"m{index}" for index in range(len(above)))
        missing = cloudwatch.MetricAlarmMetricQueryArgs(
            id="missing",
            label="nodes missing above this rung",
            expression=f"{self._args['num_nodes_min']} - {in_service}",
            return_data=True,
        )
        cloudwatch.MetricAlarm(
            f"{self._name}-{suffix}",
            alarm_description=f"{self._name}: nodes missing on the rungs above",
            comparison_operator=comparison,
            threshold=1,
            evaluation_periods=FALLBACK_PERIODS,
            metric_queries=[*running, missing],
            alarm_actions=[policy.arn],
            tags=self._args["tags"],
            opts=self._child,
        )
