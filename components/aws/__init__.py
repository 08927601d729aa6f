"""AWS: EFA clusters, FSx for Lustre, capacity, budgets, and what nodes need at boot."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pulumi

__all__ = ["component_classes"]


def component_classes() -> "list[type[pulumi.ComponentResource]]":
    """All component classes of this package, imported on call, since they load the whole SDK."""
    from components.aws.budget import Budget, CostTagActivation
    from components.aws.eks import EksCluster
    from components.aws.fleets import Ec2Fleet, SpotFleet
    from components.aws.identity import EncryptionKey, HeadIdentity, NodeIdentity
    from components.aws.launch import HeadNode
    from components.aws.monitoring import NodeLogs, Observability
    from components.aws.network import TrainingNetwork
    from components.aws.node_pool import EfaNodePool
    from components.aws.registry import ImageRegistry
    from components.aws.secret_parameter import SecretParameter
    from components.aws.slurm import SlurmIdentity
    from components.aws.storage import LustreFileSystem, RunBucket

    return [
        Budget,
        CostTagActivation,
        Ec2Fleet,
        EfaNodePool,
        EksCluster,
        EncryptionKey,
        HeadIdentity,
        HeadNode,
        ImageRegistry,
        LustreFileSystem,
        SecretParameter,
        NodeIdentity,
        NodeLogs,
        Observability,
        RunBucket,
        SlurmIdentity,
        SpotFleet,
        TrainingNetwork,
    ]
