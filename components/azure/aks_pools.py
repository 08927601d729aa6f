"""AksNodePools: job nodes of an AKS cluster, one pool per rung of the ladder, scaled from zero by AKS's autoscaler."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict, cast

import pulumi
from pulumi_azure_native import containerservice

from gangway.components.azure.aks_fabric import autoscaler_tags
from gangway.components.azure.capacity import (
    ScaleSetFields,
    check_infiniband,
    check_ladder,
    plan_scale_set,
    rung_from_args,
    rung_zones,
)
from gangway.components.azure.immutable import replacing
from gangway.components.azure.node_pool import CapacityRungArgs
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import AzureMachineType
from gangway.components.core.capacity import plan_ladder
from gangway.components.kubernetes.spec import RUNG_LABEL

__all__ = ["SPOT_TAINT", "AksNodePools", "AksNodePoolsArgs", "PoolPlan", "plan_node_pools", "pool_name"]

SPOT_TAINT = "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"
"""AKS's taint on spot pools ("Add an Azure Spot node pool")."""
# AKS documentation, "Resource naming": lowercase letters and digits, at most twelve for Linux.
MAX_POOL_NAME = 12
MAX_PODS = 64
# Draining a node waits for its pods' grace period.
DELETE_TIMEOUT = "60m"


class AksNodePoolsArgs(TypedDict):
    """Inputs of AksNodePools. `num_nodes_min` are always up, in the first rung; each rung grows to `num_nodes_max`.
    `version` such as 1.36 is the cluster's. `node_labels` are by rung, besides `gangway.dev/rung`; `node_taints` of
    all, as `key=value:Effect`; `node_devices`: devices per node, for the autoscaler. `gpu_driver`: Install (default:
    AKS's) or None, for NVIDIA's GPU operator. `encryption_at_host` defaults to what the machine type supports.
    """

    resource_group_name: pulumi.Input[str]
    cluster_name: pulumi.Input[str]
    zone: str
    version: NotRequired[str]
    machine_type: str
    num_nodes_min: int
    num_nodes_max: int
    capacity: list[CapacityRungArgs]
    subnet_id: pulumi.Input[str]
    root_volume_gib: int
    gpu_driver: NotRequired[str]
    encryption_at_host: NotRequired[bool]
    node_labels: NotRequired[list[dict[str, str]]]
    node_taints: NotRequired[list[str]]
    node_devices: NotRequired[dict[str, int]]
    tags: dict[str, str]


@dataclass(frozen=True)
class PoolPlan:
    """One agent pool. `suffix`: of its logical name, as `0-spot`; `zones`: empty for any; `least`: nodes that are
    always up; `most`: maximum nodes; `fields`: of its scale set.
    """

    name: str
    suffix: str
    zones: tuple[str, ...]
    least: int
    most: int
    fields: ScaleSetFields

    @property
    def spot(self) -> bool:
        """Whether Azure may take nodes back."""
        return self.fields.priority == "Spot"


def pool_name(position: int, kind: str) -> str:
    """A pool's name.

    >>> pool_name(1, "on-demand")
    'r1ondemand'
    """
    return f"r{position}{re.sub(r'[^a-z0-9]', '', kind)}"[:MAX_POOL_NAME]


def plan_node_pools(args: AksNodePoolsArgs) -> tuple[AzureMachineType, tuple[PoolPlan, ...]]:
    """Compile the arguments. InputError: unsupported machine type, rung or number of nodes."""
    machine = cast("AzureMachineType", load_provider("azure").machine(args["machine_type"], "machine_type"))
    rungs = tuple(rung_from_args(rung) for rung in args["capacity"])
    check_infiniband(machine, rungs, args["num_nodes_max"])
    check_ladder(rungs, "capacity")
    pools = (
        PoolPlan(
            name=pool_name(position, rung.kind),
            suffix=f"{position}-{rung.kind}",
            zones=rung_zones(rung, args["zone"]),
            least=args["num_nodes_min"] if position == 0 else 0,
            most=args["num_nodes_max"],
            fields=plan_scale_set(plan, machine),
        )
        for position, (rung, plan) in enumerate(zip(rungs, plan_ladder(rungs), strict=True))
    )
    return machine, tuple(pools)


class AksNodePools(pulumi.ComponentResource):
    """An agent pool per rung. Only nodes of one pool share an InfiniBand partition, and only if the subscription has
    the feature Microsoft.ContainerService/AKSInfinibandSupport, which puts a pool into one placement group.
    """

    pool_names: pulumi.Output[list[str]]

    def __init__(self, name: str, args: AksNodePoolsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:AksNodePools", name, None, replacing(opts))
        self._name, self._args = name, args
        self._machine, plans = plan_node_pools(args)
        pools: list[containerservice.AgentPool] = []
        for position, plan in enumerate(plans):
            # A cluster accepts one change at a time ("Manage node pools": limitations).
            pools.append(self._pool(position, plan, pools[-1:]))
        self.pool_names = pulumi.Output.all(*[pool.name for pool in pools]).apply(list)
        self.register_outputs({"pool_names": self.pool_names})

    def _pool(
        self, position: int, plan: PoolPlan, before: Sequence[containerservice.AgentPool]
    ) -> containerservice.AgentPool:
        args, fields = self._args, plan.fields
        labels = args.get("node_labels")
        return containerservice.AgentPool(
            f"{self._name}-{plan.suffix}",
            agent_pool_name=plan.name,
            resource_group_name=args["resource_group_name"],
            resource_name_=args["cluster_name"],
            orchestrator_version=args.get("version"),
            mode=containerservice.AgentPoolMode.USER,
            type=containerservice.AgentPoolType.VIRTUAL_MACHINE_SCALE_SETS,
            vm_size=self._machine.name,
            os_type=containerservice.OSType.LINUX,
            os_sku=containerservice.OSSKU.UBUNTU,
            os_disk_type=containerservice.OSDiskType.MANAGED,
            os_disk_size_gb=args["root_volume_gib"],
            enable_encryption_at_host=args.get("encryption_at_host", self._machine.encryption_at_host.value),
            enable_node_public_ip=False,
            security_profile=containerservice.AgentPoolSecurityProfileArgs(
                ssh_access=containerservice.AgentPoolSSHAccess.DISABLED
            ),
            vnet_subnet_id=args["subnet_id"],
            availability_zones=list(plan.zones) or None,
            count=plan.least,
            enable_auto_scaling=True,
            min_count=plan.least,
            max_count=plan.most,
            max_pods=MAX_PODS,
            scale_down_mode=containerservice.ScaleDownMode.DELETE,
            scale_set_priority=fields.priority,
            scale_set_eviction_policy=fields.eviction_policy,
            spot_max_price=fields.max_price,
            capacity_reservation_group_id=fields.capacity_reservation_group,
            gpu_profile=containerservice.GPUProfileArgs(driver=args.get("gpu_driver", "Install")),
            # There is no spare machine for upgrades; spot pools refuse the setting.
            upgrade_settings=None
            if plan.spot
            else containerservice.AgentPoolUpgradeSettingsArgs(max_surge="0", max_unavailable="1"),
            node_labels={RUNG_LABEL: plan.suffix, **(labels[position] if labels else {})},
            node_taints=[*args.get("node_taints", []), *([SPOT_TAINT] if plan.spot else [])] or None,
            tags={**args["tags"], **autoscaler_tags(args.get("node_devices", {}))},
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(before),
                # AKS's autoscaler owns the size.
                ignore_changes=["count"],
                # The old pool holds the name and the GPU quota.
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(delete=DELETE_TIMEOUT),
            ),
        )
