"""What a person should know of a stack with `engine: kubernetes` on Azure before `up`. Pure."""

from collections.abc import Iterable

from components.azure.capacity import LADDER
from components.core.findings import Finding
from components.kubernetes.spec import INFINIBAND
from stacks.base.cluster_queues import get_engine, get_version
from stacks.config.stack_config import StackConfig
from stacks.estimates.provider_findings import CLUSTER
from stacks.providers.azure.kubernetes_plan import has_infiniband
from stacks.providers.azure.plan import AzurePlan
from stacks.providers.azure.settings import AzureConfig


def cluster_findings(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """What is to be known of such a cluster beside what is of every stack."""
    yield from _control_plane(config)
    yield from _fabric(config, planned)
    yield Finding.warning(
        "kubernetes.no-run-folders",
        "gangway:engine",
        "jobs have nowhere to keep anything: AKS mounts no Managed Lustre, so no namespace has the volume claim "
        "gangway-runs",
        "make a claim of that name in each team's namespace, such as one of the storage class azurefile-csi-premium",
    )
    yield Finding.info(
        "kubernetes.budget-scope",
        "gangway:budget",
        "AKS puts its machines into a resource group of its own: the budget and its stop count the stack's tag in the "
        "whole subscription",
        "let whoever runs `up` make budgets and role assignments on the subscription",
    )
    yield Finding.info(
        "kubernetes.not-tried",
        "gangway:engine",
        "every request is of the shape that Pulumi's provider of Azure has, and none was sent to AKS",
        "begin with one small node, and run a job on it",
    )


def _control_plane(config: StackConfig) -> Iterable[Finding]:
    ranges = get_engine(config).api_cidrs
    where = f"from {', '.join(ranges)}" if ranges else "inside the network alone: `up` and `gangway job` need a way in"
    yield Finding.info(
        "kubernetes.api",
        "gangway:engine.api_cidrs",
        f"Kubernetes {get_version(config)} answers {where}; whoever runs `up` needs the role Azure Kubernetes Service "
        "RBAC Cluster Admin, and kubelogin on the path",
        "" if ranges else "a VPN, a machine inside, or api_cidrs with your own network's addresses",
    )
    if not config.section(AzureConfig).admin_group_ids:
        yield Finding.warning(
            "kubernetes.no-admins",
            "gangway:azure.admin_group_ids",
            "no group of the directory may do everything in the cluster, and it has no account of its own: Azure's "
            "roles alone let somebody in",
            "write the object id of your platform team's group",
        )


def _fabric(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    machine = planned.machine
    if not has_infiniband(config, machine):
        return
    yield Finding.info(
        "fabric.aks-feature",
        CLUSTER,
        f"{machine.name}: AKS lays a pool into one InfiniBand partition where the subscription has the feature "
        "Microsoft.ContainerService/AKSInfinibandSupport",
        "az feature register --namespace Microsoft.ContainerService --name AKSInfinibandSupport",
    )
    yield Finding.info(
        "fabric.infiniband-in-pods",
        CLUSTER,
        f"{machine.name}: a job's pods have its adapters where their resources ask for {INFINIBAND}; without it they "
        "talk over Ethernet by TCP",
        f'resources: {{nvidia.com/gpu: "{machine.num_accelerators.value}", {INFINIBAND}: "1", ...}}, and libibverbs in '
        "the job's image",
    )
    if (rungs := len(config.cluster.capacity)) > 1:
        yield Finding.warning(
            "fabric.rungs-apart",
            LADDER,
            f"each of the {rungs} rungs is a pool, and no InfiniBand connects two: a job that asks for {INFINIBAND} "
            "has all of its nodes of one rung, and may wait beside free ones of another",
            "keep one rung, or have all nodes of a rung up while such jobs run",
        )
