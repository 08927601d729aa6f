"""GpuNodePool: GPU nodes with their NICs, one group per rung. Lower rungs start empty and are filled by the head node
(`FallbackConfig`); `up` does not change their size. A flex-start rung gets its nodes by a resize
request; replace an expired one with `pulumi up --replace`. GroupTag: for IAM conditions on the groups.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NotRequired, TypedDict, cast

import pulumi
from pulumi_gcp import compute, tags

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType, RoceFabric
from gangway.components.core.capacity import CONTRACT_VERSION, PERIOD_SEC, WINDOW, RungPlan, plan_ladder, rung_from_args
from gangway.components.core.findings import InputError
from gangway.components.core.outputs import register_outputs
from gangway.components.gcp.capacity import Provisioning, check_ladder, plan_provisioning, rung_zone
from gangway.components.gcp.fabric import InterfacePlan, plan_interfaces, secure_boot_allowed
from gangway.components.gcp.launch import GPU_IMAGE, NodeLaunch, instance_template

DISTANCES = ("CLUSTER", "BLOCK", "SUBBLOCK")
# A node is deleted once it has shut down, and a destroy waits for all of them.
DELETE_TIMEOUT = "40m"


class CapacityRungArgs(TypedDict):
    """One rung: `kind` is reservation, flex-start, spot or on-demand; the rest as in
    `gangway.components.core.capacity`. `id` is a reservation's name, or `projects/PROJECT/reservations/NAME` for
    another project's shared one.
    """

    kind: str
    id: NotRequired[str]
    zone: NotRequired[str]
    max_hours: NotRequired[float]
    max_usd_per_hour: NotRequired[float]
    zones: NotRequired[list[str]]


class GpuNodePoolArgs(TypedDict):
    """Inputs of GpuNodePool. `user_data` is base64, `security_group_ids` are network tags. `subnet_ids` begins with the
    main subnet, `fabric_subnet_ids` has those of the further NICs in the machine's order. `image_id` is an image or a
    family (`projects/P/global/images/family/F`), by default Canonical's with NVIDIA's driver; `pinned_image` fixes an
    image of the family. `secure_boot` is off only if the NCCL plug-in needs unsigned code; false turns it off for other
    unsigned modules, such as a Lustre client. `max_topology_distance` (CLUSTER, BLOCK or SUBBLOCK) limits the distance
    of nodes, by default as close as possible; it cannot change while a group has nodes. `tags` are labels, `group_tags`
    GroupTag's `bound`: changing it replaces the group.
    """

    project: str
    region: str
    zone: str
    machine_type: str
    num_nodes_min: int
    num_nodes_max: int
    capacity: list[CapacityRungArgs]
    subnet_ids: pulumi.Input[list[str]]
    fabric_subnet_ids: NotRequired[pulumi.Input[list[str]]]
    security_group_ids: list[pulumi.Input[str]]
    image_id: NotRequired[str | None]
    pinned_image: NotRequired[pulumi.Input[str]]
    service_account_email: pulumi.Input[str]
    user_data: pulumi.Input[str]
    root_volume_gib: int
    secure_boot: NotRequired[bool]
    max_topology_distance: NotRequired[str | None]
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    group_tags: NotRequired[pulumi.Input[dict[str, str]]]
    tags: dict[str, str]


@dataclass(frozen=True)
class NodePoolPlan:
    """The planned resources; `provisioning` and `zones` are by rung."""

    machine: GcpMachineType
    interfaces: tuple[InterfacePlan, ...]
    rungs: tuple[RungPlan, ...]
    provisioning: tuple[Provisioning, ...]
    zones: tuple[str, ...]
    secure_boot: bool

    @property
    def placed(self) -> tuple[bool, ...]:
        """By rung, whether our policy places its nodes: machines with GPU NICs, unless reserved or by resize request
        (AI Hypercomputer, "Compact placement policy and workload policy overview"). Flex-start supports it only on A3
        Ultra and A4 (cluster-toolkit of 2026-06-25, `docs/slurm-dws-flex.md`).
        """
        fabric = self.machine.gpu_fabric
        flexible = isinstance(fabric, RoceFabric)
        return tuple(
            fabric is not None and (rung.placement_group or (flexible and rung.max_hours is not None))
            for rung in self.rungs
        )


def plan_node_pool(args: GpuNodePoolArgs) -> NodePoolPlan:
    """Compile the arguments. InputError: unknown machine type, distance or rung, or no subnets for the GPU NICs."""
    machine = cast("GcpMachineType", load_provider("gcp").machine(args["machine_type"], "machine_type"))
    rungs = tuple(rung_from_args(rung) for rung in args["capacity"])
    check_ladder(rungs, "capacity")
    distance = args.get("max_topology_distance")
    if distance is not None and distance not in DISTANCES:
        raise InputError.not_among("max_topology_distance", "no such distance", distance, DISTANCES)
    interfaces = plan_interfaces(machine)
    if len(interfaces) > 1 and "fabric_subnet_ids" not in args:
        raise InputError(
            "fabric_subnet_ids",
            f"missing: {machine.name} has {len(interfaces)} network interfaces",
            allowed=f"{len(interfaces) - 1} subnets beside the main one",
            fix="pass TrainingNetwork's fabric_subnet_ids, and give it this machine_type",
        )
    plans = plan_ladder(rungs)
    own_image = args.get("image_id") is not None
    return NodePoolPlan(
        machine,
        interfaces,
        plans,
        tuple(plan_provisioning(plan, machine) for plan in plans),
        tuple(rung_zone(rung, args["zone"]) for rung in rungs),
        args.get("secure_boot", True) and secure_boot_allowed(machine, own_image=own_image),
    )


class GpuNodePool(pulumi.ComponentResource):
    """GPU nodes, filled by the ladder. `fallback_config`: JSON of `gangway.components.gcp.node_pool.FallbackConfig`."""

    group_names: pulumi.Output[list[str]]
    launch_template_ids: pulumi.Output[list[str]]
    interfaces_per_node: pulumi.Output[int]
    fallback_config: pulumi.Output[str]

    def __init__(self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:GpuNodePool", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        self._plan = plan = plan_node_pool(args)
        placement = self._placement_policy() if any(plan.placed) else None
        launch = self._launch()
        templates: list[compute.InstanceTemplate] = []
        groups: list[compute.InstanceGroupManager] = []
        for position, (rung, provisioning) in enumerate(zip(plan.rungs, plan.provisioning, strict=True)):
            suffix = f"{position}-{rung.kind}"
            template = instance_template(f"{name}-{suffix}", launch, plan.machine, provisioning, self._child)
            templates.append(template)
            groups.append(self._group(suffix, position, template, placement if plan.placed[position] else None))
        names = pulumi.Output.all(*[group.name for group in groups])
        self.group_names = names.apply(list)
        self.launch_template_ids = pulumi.Output.all(*[template.id for template in templates]).apply(list)
        self.interfaces_per_node = pulumi.Output.from_input(len(plan.interfaces))
        self.fallback_config = pulumi.Output.json_dumps(names.apply(self._fallback))
        register_outputs(self)

    def _fallback(self, names: Sequence[str]) -> dict[str, object]:
        args = self._args
        return plan_fallback(args["project"], args["zone"], args["num_nodes_min"], self._plan.rungs, names).to_json()

    def _placement_policy(self) -> compute.ResourcePolicy:
        """A workload policy: compact placement policies are for single instances."""
        return compute.ResourcePolicy(
            f"{self._name}-cluster",
            project=self._args["project"],
            region=self._args["region"],
            description="Nodes as close together as there is room",
            workload_policy=compute.ResourcePolicyWorkloadPolicyArgs(
                type="HIGH_THROUGHPUT", max_topology_distance=self._args.get("max_topology_distance")
            ),
            opts=self._child,
        )

    def _launch(self) -> NodeLaunch:
        args = self._args
        subnets = pulumi.Output.all(main=args["subnet_ids"], fabric=args.get("fabric_subnet_ids", []))
        return NodeLaunch(
            project=args["project"],
            region=args["region"],
            image=args.get("pinned_image") or args.get("image_id") or GPU_IMAGE,
            service_account_email=args["service_account_email"],
            subnet_ids=subnets.apply(lambda known: [known["main"][0], *known["fabric"]]),
            network_tags=args["security_group_ids"],
            user_data=args["user_data"],
            root_volume_gib=args["root_volume_gib"],
            secure_boot=self._plan.secure_boot,
            kms_key_name=args.get("kms_key_name"),
            labels=args["tags"],
        )

    def _group(
        self,
        suffix: str,
        position: int,
        template: compute.InstanceTemplate,
        placement: compute.ResourcePolicy | None,
    ) -> compute.InstanceGroupManager:
        """The first rung holds all nodes; the head owns the size of the others, which start at zero."""
        duration = self._plan.provisioning[position].run_duration_sec
        holds_all = position == 0 and duration is None
        bound = self._args.get("group_tags")
        group = compute.InstanceGroupManager(
            f"{self._name}-{suffix}",
            project=self._args["project"],
            zone=self._plan.zones[position],
            base_instance_name=f"{self._name}-{position}",
            versions=[compute.InstanceGroupManagerVersionArgs(instance_template=template.id)],
            target_size=self._args["num_nodes_max"] if holds_all else 0,
            # Capacity may take hours: `up` does not wait.
            wait_for_instances=False,
            # `up` never changes a running worker: a new template is for new instances.
            update_policy=compute.InstanceGroupManagerUpdatePolicyArgs(
                type="OPPORTUNISTIC",
                minimal_action="REPLACE",
                max_surge_fixed=0,
                max_unavailable_fixed=max(self._args["num_nodes_max"], 1),
            ),
            # An interrupted node is replaced, as spot needs. Flex-start groups may not repair, nor have a size (AI
            # Hypercomputer documentation, "Create a MIG with A4 or A3 Ultra").
            instance_lifecycle_policy=compute.InstanceGroupManagerInstanceLifecyclePolicyArgs(
                default_action_on_failure="REPAIR" if duration is None else "DO_NOTHING",
                force_update_on_repair="YES",
            ),
            resource_policies=None
            if placement is None
            else compute.InstanceGroupManagerResourcePoliciesArgs(workload_policy=placement.id),
            all_instances_config=compute.InstanceGroupManagerAllInstancesConfigArgs(labels=self._args["tags"]),
            params=None if bound is None else compute.InstanceGroupManagerParamsArgs(resource_manager_tags=bound),
            opts=pulumi.ResourceOptions(
                parent=self,
                ignore_changes=None if holds_all else ["target_size"],
                custom_timeouts=pulumi.CustomTimeouts(delete=DELETE_TIMEOUT),
            ),
        )
        if position == 0 and duration is not None:
            self._resize_request(suffix, group, duration)
        return group

    def _resize_request(self, suffix: str, group: compute.InstanceGroupManager, duration_sec: int) -> None:
        compute.ResizeRequest(
            f"{self._name}-{suffix}",
            project=self._args["project"],
            zone=self._plan.zones[0],
            instance_group_manager=group.name,
            resize_by=self._args["num_nodes_max"],
            requested_run_duration=compute.ResizeRequestRequestedRunDurationArgs(seconds=str(duration_sec)),
            opts=self._child,
        )


# Groups have no policies, and conditions on resource names do not cover them; conditions on tags do (IAM's "Attribute
# reference for IAM conditions": "any resource"). Compute Engine binds it only at creation, by the beta API.
class GroupTagArgs(TypedDict):
    """Inputs of GroupTag. `project_number`: with a project id the provider recreates the key at each `up`
    (hashicorp/terraform-provider-google#14792).
    """

    project_number: pulumi.Input[str]
    stack: str


def tag_condition(key_id: str, value_id: str) -> str:
    """IAM's condition for resources with the tag.

    >>> tag_condition("tagKeys/12", "tagValues/34")
    "resource.matchTagId('tagKeys/12', 'tagValues/34')"
    """
    return f"resource.matchTagId('{key_id}', '{value_id}')"


class GroupTag(pulumi.ComponentResource):
    """A key of the stack with one value. `bound`: for groups; `condition`: for IAM."""

    bound: pulumi.Output[dict[str, str]]
    condition: pulumi.Output[str]

    def __init__(self, name: str, args: GroupTagArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:GroupTag", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        key = tags.TagKey(
            f"{name}-groups",
            parent=pulumi.Output.concat("projects/", args["project_number"]),
            # Key names are per project, value names per key: no other stack can be meant.
            short_name=f"gangway-{args['stack']}",
            description="What a stack of Gangway's may resize and empty",
            opts=child,
        )
        value = tags.TagValue(f"{name}-groups", parent=key.id, short_name="groups", opts=child)
        both = pulumi.Output.all(key.id, value.id)
        self.bound = both.apply(lambda ids: {ids[0]: ids[1]})
        self.condition = both.apply(lambda ids: tag_condition(*ids))
        register_outputs(self)


# Configuration of the head node's ladder script, which fills groups with what those above them lack. No Google service
# fills a second group if the first lacks capacity, so a timer on the head node does, by `plan_fill` of
# `gangway.images.node.fill_order`. Each `period_sec` it counts each group's RUNNING instances
# (instanceGroupManagers.listManagedInstances), keeps the last `window` counts, and sets the groups below the first by
# `resize` or `resize-request` (undone by cancelling requests, then by resize). After a change it resets its counts;
# with fewer than `window` it does nothing. Its rights: `gangway.components.gcp.identity`, GROUP_PERMISSIONS; Google's
# agent creates the instances.


@dataclass(frozen=True)
class FallbackGroup:
    """A managed instance group. `kind`: the rung's, for messages; `run_duration_sec`: of resize requests, else None."""

    name: str
    zone: str
    kind: str
    fill: Literal["resize", "resize-request"]
    run_duration_sec: int | None


@dataclass(frozen=True)
class FallbackConfig:
    """The head's configuration, with the groups in ladder order."""

    project: str
    num_nodes_min: int
    groups: tuple[FallbackGroup, ...]
    period_sec: int = PERIOD_SEC
    window: int = WINDOW

    def to_json(self) -> dict[str, Any]:
        """The configuration as plain JSON data, with the version of this contract."""
        return {"version": CONTRACT_VERSION, **asdict(self), "groups": [asdict(group) for group in self.groups]}


def plan_fallback(
    project: str, zone: str, num_nodes_min: int, rungs: Sequence[RungPlan], names: Sequence[str]
) -> FallbackConfig:
    """The configuration of a pool's groups, `names` in the order of `rungs`."""
    groups = (
        FallbackGroup(
            name=name,
            zone=rung.zones[0] if rung.zones else zone,
            kind=rung.kind,
            fill="resize" if rung.max_hours is None else "resize-request",
            run_duration_sec=None if rung.max_hours is None else round(rung.max_hours * 3600),
        )
        for rung, name in zip(rungs, names, strict=True)
    )
    return FallbackConfig(project, num_nodes_min, tuple(groups))
