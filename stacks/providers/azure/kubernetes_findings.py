"""Findings of stacks with `engine: kubernetes` on Azure."""

from collections.abc import Iterable

from gangway.components.core.capacity import LADDER
from gangway.components.core.findings import Finding
from gangway.components.kubernetes.spec import INFINIBAND
from gangway.stacks.base.cluster_queues import get_engine, get_version
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.provider_findings import CLUSTER
from gangway.stacks.providers.azure.kubernetes_plan import has_infiniband
from gangway.stacks.providers.azure.plan import AzurePlan
from gangway.stacks.providers.azure.settings import AzureConfig


def cluster_findings(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """The findings of AKS clusters only."""
    yield from _control_plane(config)
    yield from _fabric(config, planned)
    yield Finding.warning(
        "kubernetes.no-run-folders",
        "gangway:engine",
        "jobs have no persistent storage: AKS cannot mount Managed Lustre, so no namespace has the volume claim "
        "gangway-runs",
        "create a claim of that name in each team's namespace, for example with the storage class "
        "azurefile-csi-premium",
    )
    yield Finding.info(
        "kubernetes.budget-scope",
        "gangway:budget",
        "AKS puts its machines into a separate resource group: the budget and its stop count the stack's tag in the "
        "whole subscription",
        "to run `up` you need permission to create budgets and role assignments on the subscription",
    )
    yield Finding.info(
        "kubernetes.not-tried",
        "gangway:engine",
        "requests were tested against the schema of Pulumi's Azure provider, never against AKS",
        "start with one small node, and run a job on it",
    )


def _control_plane(config: StackConfig) -> Iterable[Finding]:
    ranges = get_engine(config).api_cidrs
    where = (
        f"from {', '.join(ranges)}" if ranges else ("only inside the network: `up` and `gangway job` need access to it")
    )
    yield Finding.info(
        "kubernetes.api",
        "gangway:engine.api_cidrs",
        f"Kubernetes {get_version(config)} answers {where}; to run `up` you need the role Azure Kubernetes Service "
        "RBAC Cluster Admin, and kubelogin on the path",
        "" if ranges else "use a VPN, a machine inside, or api_cidrs with the addresses of your network",
    )
    if not config.section(AzureConfig).admin_group_ids:
        yield Finding.warning(
            "kubernetes.no-admins",
            "gangway:azure.admin_group_ids",
            "no directory group administers the cluster, and it has no local accounts: only Azure's roles give access",
            "add the object id of your platform team's group",
        )


def _fabric(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    machine = planned.machine
    if not has_infiniband(config, machine):
        return
    yield Finding.info(
        "fabric.aks-feature",
        CLUSTER,
        f"{machine.name}: AKS puts a pool into one InfiniBand partition only if the subscription has the feature "
        "Microsoft.ContainerService/AKSInfinibandSupport",
        "run `az feature register --namespace Microsoft.ContainerService --name AKSInfinibandSupport`",
    )
    yield Finding.info(
        "fabric.infiniband-in-pods",
        CLUSTER,
        f"{machine.name}: pods get the InfiniBand adapters if they request {INFINIBAND}; otherwise they use TCP over "
        "Ethernet",
        f'request resources: {{nvidia.com/gpu: "{machine.num_accelerators.value}", {INFINIBAND}: "1", ...}}, and '
        "install libibverbs in the job's image",
    )
    if (rungs := len(config.cluster.capacity)) > 1:
        yield Finding.warning(
            "fabric.rungs-apart",
            LADDER,
            f"each of the {rungs} rungs is a pool, and InfiniBand does not connect pools: a job with {INFINIBAND} "
            "gets all nodes from one rung, and may wait while another has free ones",
            "keep one rung, or keep all nodes of a rung running for such jobs",
        )
