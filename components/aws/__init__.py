"""AWS: EFA clusters, FSx for Lustre, capacity, budgets, and what nodes need at boot."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pulumi

__all__ = ["component_classes"]


def component_classes() -> "list[type[pulumi.ComponentResource]]":
    """All component classes of this package, imported on call, since they load the whole SDK."""
    from gangway.components.aws.budget import Budget, CostTagActivation
    from gangway.components.aws.eks import EksCluster
    from gangway.components.aws.fleets import Ec2Fleet, SpotFleet
    from gangway.components.aws.identity import EncryptionKey, HeadIdentity, NodeIdentity
    from gangway.components.aws.launch import HeadNode
    from gangway.components.aws.monitoring import NodeLogs, Observability
    from gangway.components.aws.network import TrainingNetwork
    from gangway.components.aws.node_pool import EfaNodePool
    from gangway.components.aws.registry import ImageRegistry
    from gangway.components.aws.secret_parameter import SecretParameter
    from gangway.components.aws.slurm import SlurmIdentity
    from gangway.components.aws.storage import LustreFileSystem, RunBucket

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
