"""IbNodePool: GPU nodes in one InfiniBand partition, one scale set per rung, filled by the head node
(`gangway.components.azure.capacity`). Azure's provider sends the last known size with any change: use `up --refresh`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict, cast

import pulumi
from pulumi_azure_native import compute

from gangway.components.azure.capacity import (
    ScaleSetFields,
    check_infiniband,
    check_ladder,
    check_proximity,
    plan_fallback,
    plan_scale_set,
    rung_zones,
)
from gangway.components.azure.common import CommonArgs, common_inputs, replacing
from gangway.components.azure.fabric import is_isolated_rung
from gangway.components.azure.launch import (
    Image,
    NodeLaunch,
    Security,
    identity_type,
    is_hpc_image,
    node_image,
    plan_security,
    vm_profile,
    with_version,
)
from gangway.components.azure.policies import ENDED_TAG, LEAST_NODES_TAG, NODES_TAG, RUNG_TAG
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import AzureMachineType
from gangway.components.core.capacity import RungPlan, plan_ladder, rung_from_args
from gangway.components.core.outputs import register_outputs
from gangway.components.core.tags import shortened

# A node is deleted once it has saved or its notice is over, and a destroy waits for all of them.
DELETE_TIMEOUT = "40m"
# osProfile.computerNamePrefix: 1 to 15 characters, to which Azure adds six.
_MAX_PREFIX = 12


class CapacityRungArgs(TypedDict):
    """One rung: `kind` is reservation, spot or on-demand; the rest as in `gangway.components.core.capacity`. `id` is
    the resource id of a capacity reservation group.
    """

    kind: str
    id: NotRequired[str]
    zone: NotRequired[str]
    max_usd_per_hour: NotRequired[float]
    zones: NotRequired[list[str]]


class IbNodePoolArgs(CommonArgs):
    """Inputs of IbNodePool. `user_data` is base64, `security_group_ids` are application security groups. `image_id` is
    a resource id or `publisher:offer:sku[:version]`, by default the HPC image for the machine type; `image_version`
    pins an open version; `built_image_id`, MachineImage's made from it, is used instead. `trusted_launch`,
    `secure_boot` and `encryption_at_host` default to what machine type and image support
    (`gangway.components.azure.launch.plan_security`). `disk_encryption_set_id` encrypts the disks with its key.
    `entra_login` (false) allows SSH by Entra ID; scripts must then request tokens by client id. `wait_for_nodes`
    (false), for a pool without a head: `up` requests the first rung's nodes, waits for all, and fails without capacity.
    `proximity` (false) keeps nodes without InfiniBand in one data centre, with more refusals; InfiniBand's single
    placement group is narrower anyway. `ended_object`, which a head requires: the blob that exists once the job has
    ended, in the stack's folder of the run container.
    """

    subscription_id: str
    zone: str
    machine_type: str
    num_nodes_min: int
    num_nodes_max: int
    capacity: list[CapacityRungArgs]
    subnet_ids: pulumi.Input[list[str]]
    security_group_ids: list[pulumi.Input[str]]
    image_id: NotRequired[str | None]
    image_version: NotRequired[pulumi.Input[str]]
    built_image_id: NotRequired[pulumi.Input[str] | None]
    identity_id: pulumi.Input[str]
    user_data: pulumi.Input[str]
    root_volume_gib: int
    trusted_launch: NotRequired[bool]
    secure_boot: NotRequired[bool]
    encryption_at_host: NotRequired[bool]
    disk_encryption_set_id: NotRequired[pulumi.Input[str] | None]
    entra_login: NotRequired[bool]
    wait_for_nodes: NotRequired[bool]
    proximity: NotRequired[bool]
    ended_object: NotRequired[pulumi.Input[str]]


@dataclass(frozen=True)
class NodePoolPlan:
    """The planned resources; `fields` and `zones` are by rung."""

    machine: AzureMachineType
    image: Image
    security: Security
    rungs: tuple[RungPlan, ...]
    fields: tuple[ScaleSetFields, ...]
    zones: tuple[tuple[str, ...], ...]
    proximity: bool

    @property
    def placed(self) -> tuple[bool, ...]:
        """By rung, whether it uses our proximity placement group, which reserved capacity cannot."""
        return tuple(self.proximity and rung.placement_group for rung in self.rungs)


def plan_node_pool(args: IbNodePoolArgs) -> NodePoolPlan:
    """Compile the arguments. InputError: unsupported machine type, rung, number of nodes or image."""
    machine = cast("AzureMachineType", load_provider("azure").machine(args["machine_type"], "machine_type"))
    rungs = tuple(rung_from_args(rung) for rung in args["capacity"])
    check_ladder(rungs, "capacity")
    check_infiniband(machine, rungs, args["num_nodes_max"])
    proximity = args.get("proximity", False)
    check_proximity(machine, proximity)
    own = args.get("image_id")
    ladder = plan_ladder(rungs)
    return NodePoolPlan(
        machine,
        node_image(machine, own),
        plan_security(
            machine,
            own_image=not is_hpc_image(own),
            trusted_launch=args.get("trusted_launch"),
            secure_boot=args.get("secure_boot"),
            encryption_at_host=args.get("encryption_at_host"),
        ),
        ladder,
        tuple(plan_scale_set(rung, machine) for rung in ladder),
        tuple(rung_zones(rung, args["zone"]) for rung in rungs),
        proximity,
    )


class IbNodePool(pulumi.ComponentResource):
    """GPU nodes with InfiniBand, filled from the capacity ladder in order. `launch_template_ids` are the scale sets'
    ids: a scale set is its own template. `interfaces_per_node` counts the Ethernet NIC and the InfiniBand adapters.
    `fallback_config` is JSON for the head node (`gangway.components.azure.capacity.FallbackConfig`).
    """

    group_names: pulumi.Output[list[str]]
    launch_template_ids: pulumi.Output[list[str]]
    interfaces_per_node: pulumi.Output[int]
    fallback_config: pulumi.Output[str]

    def __init__(self, name: str, args: IbNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:IbNodePool", name, None, replacing(opts))
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        self._plan = plan = plan_node_pool(args)
        placement = self._proximity_group() if any(plan.placed) else None
        sets = [
            self._scale_set(position, rung, placement if plan.placed[position] else None)
            for position, rung in enumerate(plan.rungs)
        ]
        infiniband = plan.machine.infiniband
        names = pulumi.Output.all(*[one.name for one in sets]).apply(list)
        self.group_names = names
        self.launch_template_ids = pulumi.Output.all(*[one.id for one in sets]).apply(list)
        self.interfaces_per_node = pulumi.Output.from_input(1 + (infiniband.num_hcas.value if infiniband else 0))
        known = pulumi.Output.all(group=args["resource_group_name"], names=names)
        self.fallback_config = pulumi.Output.json_dumps(
            known.apply(lambda values: self._fallback(values["group"], values["names"]))
        )
        register_outputs(self)

    def _fallback(self, resource_group_name: str, names: Sequence[str]) -> dict[str, object]:
        args = self._args
        return plan_fallback(
            args["subscription_id"],
            resource_group_name,
            args["machine_type"],
            self._plan.rungs,
            names,
            together=not is_isolated_rung(self._plan.machine),
        ).to_json()

    def _proximity_group(self) -> compute.ProximityPlacementGroup:
        return compute.ProximityPlacementGroup(
            f"{self._name}-near",
            **common_inputs(self._args),
            proximity_placement_group_type="Standard",
            opts=self._child,
        )

    def _scale_set(
        self, position: int, rung: RungPlan, placement: compute.ProximityPlacementGroup | None
    ) -> compute.VirtualMachineScaleSet:
        args, plan, fields = self._args, self._plan, self._plan.fields[position]
        is_requested = position == 0 and args.get("wait_for_nodes", False)
        return compute.VirtualMachineScaleSet(
            f"{self._name}-{position}-{rung.kind}",
            resource_group_name=args["resource_group_name"],
            location=args["location"],
            zones=list(plan.zones[position]) or None,
            sku=compute.SkuArgs(
                name=plan.machine.name, tier="Standard", capacity=args["num_nodes_max"] if is_requested else 0
            ),
            orchestration_mode="Uniform",
            # InfiniBand does not reach further ("Virtual Machine Scale Sets and placement groups").
            single_placement_group=fields.single_placement_group,
            # Azure would create extra machines and remove some again: ranks would change.
            overprovision=False,
            # As many as there are: a fixed number adds refusals. A GPU machine then only sees its own events
            # ("Scheduled Events for Linux VMs"). Microsoft's HPC engineers use it with a single placement group too
            # (jingchaozhang.github.io, "VMSS Uniform Settings for GPU HPC"), though the page on zones says otherwise.
            platform_fault_domain_count=1,
            proximity_placement_group=None if placement is None else compute.SubResourceArgs(id=placement.id),
            # `up` never changes a running worker: a new model is for new machines.
            upgrade_policy=compute.UpgradePolicyArgs(mode=compute.UpgradeMode.MANUAL),
            # A busy or saving node may look unhealthy: training continues without it or ends by itself.
            automatic_repairs_policy=compute.AutomaticRepairsPolicyArgs(enabled=False),
            scale_in_policy=compute.ScaleInPolicyArgs(rules=["NewestVM"]),
            identity=compute.VirtualMachineScaleSetIdentityArgs(
                type=identity_type(entra_login=args.get("entra_login", False)),
                user_assigned_identities=[args["identity_id"]],
            ),
            virtual_machine_profile=vm_profile(self._launch(position), fields),
            tags={
                **args["tags"],
                NODES_TAG: str(args["num_nodes_max"]),
                LEAST_NODES_TAG: str(args["num_nodes_min"]),
                RUNG_TAG: str(position),
                **({ENDED_TAG: args["ended_object"]} if "ended_object" in args else {}),
            },
            opts=pulumi.ResourceOptions(
                parent=self,
                ignore_changes=None if is_requested else ["sku.capacity"],
                custom_timeouts=pulumi.CustomTimeouts(delete=DELETE_TIMEOUT),
            ),
        )

    def _launch(self, position: int) -> NodeLaunch:
        args = self._args
        return NodeLaunch(
            computer_name_prefix=f"{shortened(self._name, _MAX_PREFIX)}-{position}",
            image=with_version(self._plan.image, args.get("image_version")),
            built_image_id=args.get("built_image_id"),
            security=self._plan.security,
            subnet_id=pulumi.Output.from_input(args["subnet_ids"]).apply(lambda ids: ids[0]),
            security_group_ids=args["security_group_ids"],
            user_data=args["user_data"],
            root_volume_gib=args["root_volume_gib"],
            disk_encryption_set_id=args.get("disk_encryption_set_id"),
            entra_login=args.get("entra_login", False),
        )
