"""EfaNodePool: GPU nodes with EFA interfaces, one Auto Scaling group per rung, and when each may hold nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NotRequired, TypedDict

import pulumi
from pulumi_aws import autoscaling, cloudwatch, ec2

from gangway.components.aws.capacity import (
    BLOCK_STOP_LEAD,
    block_stop_time,
    check_ladder,
    check_zones,
    opening_times,
    rung_machines,
)
from gangway.components.aws.launch import (
    InterfacePlan,
    NodeLaunch,
    launch_market,
    launch_template,
    mixed_instances,
    plan_interfaces,
)
from gangway.components.aws.pricing import QUEUE_TAG
from gangway.components.catalog.loader import load
from gangway.components.catalog.schema import MachineType
from gangway.components.core.capacity import RungPlan, plan_ladder, rung_from_args
from gangway.components.core.outputs import register_outputs

FILL_MINUTES = 15
FILL_WITHIN_MINUTES = 30
EMPTY_MINUTES = 20
# AWS allows 20 adjustments a scaling policy.
MAX_STEPS = 20


def plan_fill_steps(num_nodes: int) -> list[tuple[int, int]]:
    """Steps (nodes missing above, beyond the first; size to set). Beyond AWS's 20 steps each covers several."""
    stride = -(-num_nodes // MAX_STEPS)
    return [(beyond, min(beyond + stride, num_nodes)) for beyond in range(0, num_nodes, stride)]


# Keeps the ladder's order with CloudWatch alarms and step policies that fill a rung with what those above it lack. No
# code of ours runs in the account, and a fallback rung only covers the job's minimum. A node counts once it is in
# service. A rung is filled when nodes were missing in FILL_MINUTES of the last FILL_WITHIN_MINUTES (a large machine
# takes ten minutes or more to boot, and a rung with frequent interruptions needs a fallback), and emptied after
# EMPTY_MINUTES in a row without a missing node, longer than FILL_WITHIN_MINUTES - FILL_MINUTES, so that the two never
# act at once. Behind a capacity block that has not started the alarm has no effect: the group is closed (below).
# GroupPendingInstances would distinguish booting nodes from missing capacity, but takes two of an expression's ten
# metrics per group, which would limit a ladder to six rungs.
@dataclass(frozen=True)
class Fallback:
    """Declares the alarms and policies of one pool. `pool` is the prefix of resource names."""

    pool: str
    num_nodes_min: int
    tags: dict[str, str]
    opts: pulumi.ResourceOptions

    def fill_behind(self, suffix: str, group: autoscaling.Group, above: Sequence[autoscaling.Group]) -> None:
        """Fill `group` with exactly the nodes that the rungs above it lack."""
        steps = plan_fill_steps(self.num_nodes_min)
        ends = [*(str(beyond) for beyond, _ in steps[1:]), None]
        fill = [(size, str(beyond), end) for (beyond, size), end in zip(steps, ends, strict=True)]
        fill_policy = self._policy(f"{suffix}-fill", group, fill)
        empty_policy = self._policy(f"{suffix}-empty", group, [(0, None, "0")])
        rising, falling = "GreaterThanOrEqualToThreshold", "LessThanThreshold"
        self._missing_nodes_alarm(f"{suffix}-fill", above, fill_policy, rising, FILL_MINUTES, FILL_WITHIN_MINUTES)
        self._missing_nodes_alarm(f"{suffix}-empty", above, empty_policy, falling, EMPTY_MINUTES, EMPTY_MINUTES)

    def _policy(
        self, suffix: str, group: autoscaling.Group, steps: Sequence[tuple[int, str | None, str | None]]
    ) -> autoscaling.Policy:
        """Set the group to the size for the alarm's breach: (size, from, below), relative to its threshold."""
        return autoscaling.Policy(
            f"{self.pool}-{suffix}",
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
            opts=self.opts,
        )

    def _missing_nodes_alarm(
        self,
        suffix: str,
        above: Sequence[autoscaling.Group],
        policy: autoscaling.Policy,
        comparison: str,
        minutes: int,
        within_minutes: int,
    ) -> None:
        """An alarm on (minimum - nodes in service above), the number of missing nodes. No FILL: metrics arrive late,
        and a filled newest minute would look as if all nodes were gone.
        """
        in_service = " - ".join(f"m{index}" for index in range(len(above)))
        missing = cloudwatch.MetricAlarmMetricQueryArgs(
            id="missing",
            label="nodes missing above this rung",
            expression=f"{self.num_nodes_min} - {in_service}",
            return_data=True,
        )
        cloudwatch.MetricAlarm(
            f"{self.pool}-{suffix}",
            alarm_description=f"{self.pool}: nodes missing on the rungs above",
            comparison_operator=comparison,
            threshold=1,
            evaluation_periods=within_minutes,
            datapoints_to_alarm=minutes,
            metric_queries=[*(_nodes_query(index, group) for index, group in enumerate(above)), missing],
            alarm_actions=[policy.arn],
            tags=self.tags,
            opts=self.opts,
        )


def _nodes_query(index: int, group: autoscaling.Group) -> cloudwatch.MetricAlarmMetricQueryArgs:
    return cloudwatch.MetricAlarmMetricQueryArgs(
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


START_MARGIN = timedelta(minutes=30)
"""Closer to the start, a group is declared open: AWS refuses an action for the past, and `up` takes time."""
LIFECYCLE_HOOK = "gangway-terminate"  # the hook's name on every group, which a node needs to complete it
TERMINATION_HEARTBEAT_SEC = 300  # for a leaving node's last checkpoint, more than spot's two minutes
DELETE_TIMEOUT = "40m"  # of `destroy` for a group's nodes: the hook, then EC2, which ends large GPU machines slowly
# Of Ubuntu, the base of the Deep Learning AMI of a stack.
ROOT_DEVICE = "/dev/sda1"


@dataclass(frozen=True)
class GroupSize:
    """A group's size limits. `wanted` None: set by an alarm or queue; `opens_at`: closed until then, None if open."""

    most: int
    wanted: int | None
    opens_at: datetime | None
    least: int = 0

    @property
    def most_now(self) -> int:
        """The group's maximum to declare."""
        return self.most if self.opens_at is None else 0

    @property
    def least_now(self) -> int:
        """The group's minimum to declare."""
        return self.least if self.opens_at is None else 0

    @property
    def wanted_now(self) -> int | None:
        """The group's desired size to declare."""
        return self.wanted if self.opens_at is None or self.wanted is None else 0


def plan_sizes(
    rungs: Sequence[RungPlan], num_nodes_min: int, num_nodes_max: int, now: datetime, by_queue: bool = False
) -> tuple[GroupSize, ...]:
    """The size of each rung's group: the first holds all nodes, the others start empty and may grow to the minimum.
    With a queue, the first keeps the minimum, and each may grow to the maximum.
    """
    return tuple(
        GroupSize(
            most=num_nodes_min if position and not by_queue else num_nodes_max,
            # Below the first rung the scaling policy owns the size: declaring it would empty the rung on each `up`.
            wanted=None if position or by_queue else num_nodes_max,
            opens_at=opens_at if opens_at is not None and now + START_MARGIN < opens_at else None,
            least=num_nodes_min if by_queue and not position else 0,
        )
        for position, opens_at in enumerate(opening_times(rungs))
    )


def declare_hours(
    name: str,
    group: autoscaling.Group,
    size: GroupSize,
    stops_at: datetime | None,
    opts: pulumi.ResourceOptions,
) -> None:
    """Declare the actions that open a group at its time, and empty it at `stops_at`. Each runs once."""

    def act(resource: str, action: str, time: datetime, most: int, wanted: int, least: int = 0) -> None:
        autoscaling.Schedule(
            resource,
            scheduled_action_name=action,
            # The name, by which the cost model finds the group.
            autoscaling_group_name=group.id,
            start_time=time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            # All three: the provider sends 0 for an omitted one.
            min_size=least,
            max_size=most,
            desired_capacity=wanted,
            opts=opts,
        )

    if size.opens_at is not None:
        act(f"{name}-start", f"{name}-start", size.opens_at, size.most, size.wanted or size.least, size.least)
    if stops_at is not None:
        # A maximum of 0 too, so that nothing requests nodes of an expired block.
        act(name, f"{name}-stop", stops_at, 0, 0)


class CapacityRungArgs(TypedDict):
    """One rung: `kind` is capacity-block, reservation, spot or on-demand; the rest as in
    `gangway.components.core.capacity`. `starts_at` and `ends_at` are ISO 8601 with a zone, such as
    2026-07-01T11:30:00Z.
    """

    kind: str
    id: NotRequired[str]
    purchase: NotRequired[bool]
    offering_id: NotRequired[str]
    upfront_usd: NotRequired[float]
    starts_at: NotRequired[str]
    ends_at: NotRequired[str]
    zone: NotRequired[str]
    max_usd_per_hour: NotRequired[float]
    allocation: NotRequired[str]
    machine_types: NotRequired[list[str]]
    zones: NotRequired[list[str]]


class RungNodesArgs(TypedDict):
    """A rung's `user_data` instead of the pool's, base64, and `group_tags` for the program that sizes the group."""

    user_data: pulumi.Input[str]
    group_tags: dict[str, str]


class EfaNodePoolArgs(TypedDict):
    """Inputs of EfaNodePool. `user_data` is base64; `image_id` may be an SSM reference (`resolve:ssm:...`).
    `root_device_name` is the image's own: /dev/sda1 (default) on Ubuntu, /dev/xvda on Amazon Linux. `kms_key_arn`
    encrypts the root disks instead of AWS's own key; its policy must allow Auto Scaling's role. `zones` names the zone
    of each of `subnet_ids`, the cluster's first; required if rungs name zones. `block_stop_lead_minutes` (10): how long
    before EC2 ends a block's nodes the group is emptied. `sized_by_queue` leaves the sizes to a cluster autoscaler or
    similar; by default each group is filled with what those above it lack. `rungs`: settings per rung. `named_by_tag`:
    a machine reads its name from its own tags; a shrinking group removes the newest first.
    """

    machine_type: str
    num_nodes_min: int
    num_nodes_max: int
    capacity: list[CapacityRungArgs]
    subnet_ids: pulumi.Input[list[str]]
    zones: NotRequired[list[str]]
    security_group_ids: list[pulumi.Input[str]]
    image_id: pulumi.Input[str]
    instance_profile_arn: pulumi.Input[str]
    user_data: pulumi.Input[str]
    root_volume_gib: int
    root_device_name: NotRequired[str]
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    block_stop_lead_minutes: NotRequired[int]
    sized_by_queue: NotRequired[bool]
    named_by_tag: NotRequired[bool]
    rungs: NotRequired[list[RungNodesArgs]]
    tags: dict[str, str]


@dataclass(frozen=True)
class NodePoolPlan:
    """The planned resources. Each rung has its `machines` and its group's `sizes`."""

    machine: MachineType
    interfaces: tuple[InterfacePlan, ...]
    rungs: tuple[RungPlan, ...]
    machines: tuple[tuple[MachineType, ...], ...]
    sizes: tuple[GroupSize, ...]

    @property
    def placement_group(self) -> bool:
        """Whether any rung may use our cluster placement group."""
        return self.machine.fabric is not None and any(rung.placement_group for rung in self.rungs)


def plan_node_pool(args: EfaNodePoolArgs, now: datetime) -> NodePoolPlan:
    """Compile the arguments; `now` opens blocks. InputError: unknown machine type, bad id, missing zone."""
    machine = load().machine(args["machine_type"], "machine_type")
    rungs = tuple(rung_from_args(rung) for rung in args["capacity"])
    check_ladder(rungs, machine, "capacity")
    check_zones(rungs, args.get("zones", []), "capacity")
    ladder = plan_ladder(rungs)
    return NodePoolPlan(
        machine,
        plan_interfaces(machine),
        ladder,
        tuple(rung_machines(rung, machine, "capacity") for rung in rungs),
        plan_sizes(ladder, args["num_nodes_min"], args["num_nodes_max"], now, args.get("sized_by_queue", False)),
    )


def _last_checkpoint() -> autoscaling.GroupInitialLifecycleHookArgs:
    """Holds a leaving node until it has saved. Inline in the group: a separate hook would be destroyed first. The
    provider adds it before it requests nodes, and ignores later changes.
    """
    return autoscaling.GroupInitialLifecycleHookArgs(
        name=LIFECYCLE_HOOK,
        lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
        heartbeat_timeout=TERMINATION_HEARTBEAT_SEC,
        # The node is ended after the wait, with or without its answer.
        default_result="CONTINUE",
    )


class EfaNodePool(pulumi.ComponentResource):
    """GPU nodes with EFA, filled from the capacity ladder in order. `destroy` waits for the nodes' last checkpoints:
    pass values that outlive them (`gangway.components.core.outputs`), as NodeIdentity and TrainingNetwork provide.
    """

    group_names: pulumi.Output[list[str]]
    launch_template_ids: pulumi.Output[list[str]]
    interfaces_per_node: pulumi.Output[int]

    def __init__(self, name: str, args: EfaNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:EfaNodePool", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        self._plan = plan_node_pool(args, datetime.now(UTC))
        self._placement = self._placement_group() if self._plan.placement_group else None
        fallback = Fallback(name, args["num_nodes_min"], args["tags"], self._child)
        templates: list[ec2.LaunchTemplate] = []
        groups: list[autoscaling.Group] = []
        parts = zip(self._plan.rungs, self._plan.machines, self._plan.sizes, strict=True)
        for position, (rung, machines, size) in enumerate(parts):
            suffix = f"{position}-{rung.kind}"
            mine = self._launch_templates(suffix, rung, machines, self._user_data(position))
            group = self._group(suffix, size, rung, mine, self._group_tags(position))
            declare_hours(f"{name}-{suffix}", group, size, self._stop_time(rung), self._child)
            if position and not args.get("sized_by_queue", False):
                fallback.fill_behind(suffix, group, above=list(groups))
            templates += mine.values()
            groups.append(group)
        self.group_names = pulumi.Output.all(*[group.name for group in groups]).apply(list)
        self.launch_template_ids = pulumi.Output.all(*[template.id for template in templates]).apply(list)
        self.interfaces_per_node = pulumi.Output.from_input(len(self._plan.interfaces))
        register_outputs(self)

    def _placement_group(self) -> ec2.PlacementGroup:
        return ec2.PlacementGroup(
            f"{self._name}-cluster", strategy="cluster", tags=self._args["tags"], opts=self._child
        )

    def _user_data(self, position: int) -> pulumi.Input[str]:
        own = self._args.get("rungs")
        return own[position]["user_data"] if own else self._args["user_data"]

    def _group_tags(self, position: int) -> dict[str, str]:
        own = self._args.get("rungs")
        sized_by = dict([QUEUE_TAG]) if self._args.get("sized_by_queue", False) else {}
        return {**self._args["tags"], **sized_by, **(own[position]["group_tags"] if own else {})}

    def _launch_templates(
        self, suffix: str, rung: RungPlan, machines: Sequence[MachineType], user_data: pulumi.Input[str]
    ) -> dict[str, ec2.LaunchTemplate]:
        """One template per machine type: their network interfaces differ, and overrides cannot change those."""
        launch = NodeLaunch(
            image_id=self._args["image_id"],
            root_device_name=self._args.get("root_device_name", ROOT_DEVICE),
            instance_profile_arn=self._args["instance_profile_arn"],
            user_data=user_data,
            root_volume_gib=self._args["root_volume_gib"],
            kms_key_arn=self._args.get("kms_key_arn"),
            security_group_ids=self._args["security_group_ids"],
            tags=self._args["tags"],
            reads_tags=self._args.get("named_by_tag", False),
        )
        mixed = len(machines) > 1
        # A mixed group names the market itself; EC2 refuses templates that name one too.
        market = (None, None) if mixed else launch_market(rung, self._purchase(rung))
        placement = self._placement if rung.placement_group else None
        return {
            machine.name: launch_template(
                f"{self._name}-{suffix}-{machine.name.replace('.', '-')}" if mixed else f"{self._name}-{suffix}",
                launch,
                machine,
                market=market,
                placement=placement,
                opts=self._child,
            )
            for machine in machines
        }

    def _purchase(self, rung: RungPlan) -> pulumi.Output[str] | None:
        """Buy the rung's block: no refund, so retained; named by offering, lest a reordered ladder buys again."""
        if rung.purchase is None:
            return None
        block = ec2.CapacityBlockReservation(
            f"{self._name}-{rung.purchase.offering_id}",
            capacity_block_offering_id=rung.purchase.offering_id,
            instance_platform="Linux/UNIX",
            tags=self._args["tags"],
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
        return block.id

    def _group(
        self,
        suffix: str,
        size: GroupSize,
        rung: RungPlan,
        templates: dict[str, ec2.LaunchTemplate],
        tags: dict[str, str],
    ) -> autoscaling.Group:
        only = None if len(templates) > 1 else next(iter(templates.values()))
        return autoscaling.Group(
            f"{self._name}-{suffix}",
            min_size=size.least_now,
            max_size=size.most_now,
            desired_capacity=size.wanted_now,
            vpc_zone_identifiers=self._subnets(rung),
            launch_template=None
            if only is None
            else autoscaling.GroupLaunchTemplateArgs(id=only.id, version=only.latest_version.apply(str)),
            mixed_instances_policy=None if only is not None else mixed_instances(rung, templates),
            # Capacity may take hours: `up` does not wait.
            wait_for_capacity_timeout="0",
            # Off: nodes handle the interruption notice themselves, and a rebalance would replace workers in the middle
            # of a run that may continue for hours.
            capacity_rebalance=False,
            # Rebalancing between zones would end healthy workers in the middle of a run.
            suspended_processes=["AZRebalance"],
            # Rather a node that came too late to be named than one with a job.
            termination_policies=["NewestInstance"] if self._args.get("named_by_tag", False) else None,
            initial_lifecycle_hooks=[_last_checkpoint()],
            enabled_metrics=[autoscaling.Metric.GROUP_IN_SERVICE_INSTANCES, autoscaling.Metric.GROUP_DESIRED_CAPACITY],
            metrics_granularity=autoscaling.MetricsGranularity.ONE_MINUTE,
            tags=[
                autoscaling.GroupTagArgs(key=key, value=value, propagate_at_launch=False) for key, value in tags.items()
            ],
            opts=pulumi.ResourceOptions(parent=self, custom_timeouts=pulumi.CustomTimeouts(delete=DELETE_TIMEOUT)),
        )

    def _subnets(self, rung: RungPlan) -> pulumi.Input[list[str]]:
        zones = self._args.get("zones")
        if zones is None:
            return self._args["subnet_ids"]
        places = [zones.index(zone) for zone in rung.zones or zones[:1]]
        return pulumi.Output.from_input(self._args["subnet_ids"]).apply(lambda ids: [ids[place] for place in places])

    def _stop_time(self, rung: RungPlan) -> datetime | None:
        if rung.ends_at is None:
            return None
        minutes = self._args.get("block_stop_lead_minutes")
        return block_stop_time(rung.ends_at, BLOCK_STOP_LEAD if minutes is None else timedelta(minutes=minutes))
