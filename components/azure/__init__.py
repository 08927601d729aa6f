"""Azure components, named as on AWS and Google Cloud."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gangway.components import importer

if TYPE_CHECKING:
    from gangway.components.azure.aks import AksCluster as AksCluster
    from gangway.components.azure.aks import AksIdentity as AksIdentity
    from gangway.components.azure.aks import AksNodePools as AksNodePools
    from gangway.components.azure.budget import Budget as Budget
    from gangway.components.azure.file_system import LustreFileSystem as LustreFileSystem
    from gangway.components.azure.head_node import HeadNode as HeadNode
    from gangway.components.azure.identity import EncryptionKey as EncryptionKey
    from gangway.components.azure.identity import HeadIdentity as HeadIdentity
    from gangway.components.azure.identity import MemberKeyVault as MemberKeyVault
    from gangway.components.azure.identity import NodeIdentity as NodeIdentity
    from gangway.components.azure.identity import ResourceGroup as ResourceGroup
    from gangway.components.azure.machine_image import ImageBuilderIdentity as ImageBuilderIdentity
    from gangway.components.azure.machine_image import MachineImage as MachineImage
    from gangway.components.azure.monitoring import NodeLogs as NodeLogs
    from gangway.components.azure.monitoring import Observability as Observability
    from gangway.components.azure.network import PrivateEndpoints as PrivateEndpoints
    from gangway.components.azure.network import TrainingNetwork as TrainingNetwork
    from gangway.components.azure.node_pool import IbNodePool as IbNodePool
    from gangway.components.azure.storage import FlowLogStore as FlowLogStore
    from gangway.components.azure.storage import ImageRegistry as ImageRegistry
    from gangway.components.azure.storage import RunBucket as RunBucket

MODULES: Mapping[str, tuple[str, ...]] = {
    "aks": ("AksCluster", "AksIdentity", "AksNodePools"),
    "budget": ("Budget",),
    "file_system": ("LustreFileSystem",),
    "head_node": ("HeadNode",),
    "identity": ("EncryptionKey", "HeadIdentity", "MemberKeyVault", "NodeIdentity", "ResourceGroup"),
    "machine_image": ("ImageBuilderIdentity", "MachineImage"),
    "monitoring": ("NodeLogs", "Observability"),
    "network": ("PrivateEndpoints", "TrainingNetwork"),
    "node_pool": ("IbNodePool",),
    "storage": ("FlowLogStore", "ImageRegistry", "RunBucket"),
}  # the public components, by module
__all__ = [name for names in MODULES.values() for name in names]

if not TYPE_CHECKING:
    __getattr__ = importer(__name__, MODULES)
