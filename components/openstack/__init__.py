"""OpenStack: Pulumi components of a GPU cluster in a private cloud. There is no budget (CloudKitty only rates past
usage), registry, log service, or customer key for volumes (an encrypted volume type belongs to the administrator).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gangway.components import importer

if TYPE_CHECKING:
    from gangway.components.openstack.launch import HeadNode as HeadNode
    from gangway.components.openstack.machine_secrets import MachineSecrets as MachineSecrets
    from gangway.components.openstack.machine_secrets import NodeIdentity as NodeIdentity
    from gangway.components.openstack.network import ExistingNetwork as ExistingNetwork
    from gangway.components.openstack.network import TrainingNetwork as TrainingNetwork
    from gangway.components.openstack.node_pool import NodePool as NodePool
    from gangway.components.openstack.storage import ManilaShare as ManilaShare
    from gangway.components.openstack.storage import RunBucket as RunBucket

MODULES: Mapping[str, tuple[str, ...]] = {
    "launch": ("HeadNode",),
    "machine_secrets": ("MachineSecrets", "NodeIdentity"),
    "network": ("ExistingNetwork", "TrainingNetwork"),
    "node_pool": ("NodePool",),
    "storage": ("ManilaShare", "RunBucket"),
}  # the public components, by module
__all__ = [name for names in MODULES.values() for name in names]

if not TYPE_CHECKING:
    __getattr__ = importer(__name__, MODULES)
