"""AWS: EFA clusters, FSx for Lustre, capacity, budgets, and what nodes need at boot."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gangway.components import importer

if TYPE_CHECKING:
    from gangway.components.aws.access import HeadZone as HeadZone
    from gangway.components.aws.access import SecurityGroups as SecurityGroups
    from gangway.components.aws.budget import Budget as Budget
    from gangway.components.aws.budget import CostTagActivation as CostTagActivation
    from gangway.components.aws.eks import EksCluster as EksCluster
    from gangway.components.aws.fleets import Ec2Fleet as Ec2Fleet
    from gangway.components.aws.fleets import SpotFleet as SpotFleet
    from gangway.components.aws.identity import EncryptionKey as EncryptionKey
    from gangway.components.aws.identity import HeadIdentity as HeadIdentity
    from gangway.components.aws.identity import NodeIdentity as NodeIdentity
    from gangway.components.aws.identity import SecretParameter as SecretParameter
    from gangway.components.aws.image_builder import ImageBuilder as ImageBuilder
    from gangway.components.aws.launch import HeadNode as HeadNode
    from gangway.components.aws.machine_image import MachineImage as MachineImage
    from gangway.components.aws.monitoring import NodeLogs as NodeLogs
    from gangway.components.aws.monitoring import Observability as Observability
    from gangway.components.aws.network import TrainingNetwork as TrainingNetwork
    from gangway.components.aws.node_pool import EfaNodePool as EfaNodePool
    from gangway.components.aws.slurm import SlurmIdentity as SlurmIdentity
    from gangway.components.aws.storage import ImageRegistry as ImageRegistry
    from gangway.components.aws.storage import LustreFileSystem as LustreFileSystem
    from gangway.components.aws.storage import RunBucket as RunBucket

MODULES: Mapping[str, tuple[str, ...]] = {
    "access": ("HeadZone", "SecurityGroups"),
    "budget": ("Budget", "CostTagActivation"),
    "eks": ("EksCluster",),
    "fleets": ("Ec2Fleet", "SpotFleet"),
    "identity": ("EncryptionKey", "HeadIdentity", "NodeIdentity", "SecretParameter"),
    "image_builder": ("ImageBuilder",),
    "launch": ("HeadNode",),
    "machine_image": ("MachineImage",),
    "monitoring": ("NodeLogs", "Observability"),
    "network": ("TrainingNetwork",),
    "node_pool": ("EfaNodePool",),
    "slurm": ("SlurmIdentity",),
    "storage": ("ImageRegistry", "LustreFileSystem", "RunBucket"),
}  # the public components, by module
__all__ = [name for names in MODULES.values() for name in names]

if not TYPE_CHECKING:
    __getattr__ = importer(__name__, MODULES)
