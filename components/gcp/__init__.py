"""Google Cloud components.

>>> from gangway.components.gcp.slices import plan_slice
>>> plan_slice("v5p", chips=256).accelerator_type
'v5p-512'
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gangway.components import importer

if TYPE_CHECKING:
    from gangway.components.gcp.budget import Budget as Budget
    from gangway.components.gcp.existing import ExistingNetwork as ExistingNetwork
    from gangway.components.gcp.gke import ClusterIdentity as ClusterIdentity
    from gangway.components.gcp.gke import GkeCluster as GkeCluster
    from gangway.components.gcp.gke_pools import GkeNodePools as GkeNodePools
    from gangway.components.gcp.identity import EncryptionKey as EncryptionKey
    from gangway.components.gcp.identity import ExistingIdentity as ExistingIdentity
    from gangway.components.gcp.identity import HeadIdentity as HeadIdentity
    from gangway.components.gcp.identity import NodeIdentity as NodeIdentity
    from gangway.components.gcp.identity import ProjectServices as ProjectServices
    from gangway.components.gcp.identity import StackSecret as StackSecret
    from gangway.components.gcp.launch import HeadNode as HeadNode
    from gangway.components.gcp.machine_image import MachineImage as MachineImage
    from gangway.components.gcp.monitoring import NodeLogs as NodeLogs
    from gangway.components.gcp.monitoring import Observability as Observability
    from gangway.components.gcp.network import ServicePerimeter as ServicePerimeter
    from gangway.components.gcp.network import TrainingNetwork as TrainingNetwork
    from gangway.components.gcp.node_pool import GpuNodePool as GpuNodePool
    from gangway.components.gcp.node_pool import GroupTag as GroupTag
    from gangway.components.gcp.storage import Filestore as Filestore
    from gangway.components.gcp.storage import HeadFiles as HeadFiles
    from gangway.components.gcp.storage import ImageRegistry as ImageRegistry
    from gangway.components.gcp.storage import LustreFileSystem as LustreFileSystem
    from gangway.components.gcp.storage import RunBucket as RunBucket
    from gangway.components.gcp.tpu.queued_tpu import QueuedTpu as QueuedTpu
    from gangway.components.gcp.tpu.queued_tpu import TpuVm as TpuVm
    from gangway.components.gcp.tpu.reconciler import TpuReconciler as TpuReconciler

MODULES: Mapping[str, tuple[str, ...]] = {
    "budget": ("Budget",),
    "existing": ("ExistingNetwork",),
    "gke": ("ClusterIdentity", "GkeCluster"),
    "gke_pools": ("GkeNodePools",),
    "identity": ("EncryptionKey", "ExistingIdentity", "HeadIdentity", "NodeIdentity", "ProjectServices", "StackSecret"),
    "launch": ("HeadNode",),
    "machine_image": ("MachineImage",),
    "monitoring": ("NodeLogs", "Observability"),
    "network": ("ServicePerimeter", "TrainingNetwork"),
    "node_pool": ("GpuNodePool", "GroupTag"),
    "storage": ("Filestore", "HeadFiles", "ImageRegistry", "LustreFileSystem", "RunBucket"),
    "tpu.queued_tpu": ("QueuedTpu", "TpuVm"),
    "tpu.reconciler": ("TpuReconciler",),
}  # the public components, by module
__all__ = [name for names in MODULES.values() for name in names]

if not TYPE_CHECKING:
    __getattr__ = importer(__name__, MODULES)
