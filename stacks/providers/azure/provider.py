"""The provider Azure: facts that need no SDK."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gangway.components.azure.fabric import is_isolated_rung
from gangway.components.azure.retention import RETENTION
from gangway.components.catalog.loader import bundled_folder
from gangway.components.catalog.tables import taken_per_month
from gangway.components.core.findings import InputError
from gangway.components.estimate.cost import Declared
from gangway.stacks.base.provider import NodeTypes, Program, Provider, Start, TagRules
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.existing_mistakes import mistakes
from gangway.stacks.providers.azure.settings import SETTINGS, AzureConfig, provided

if TYPE_CHECKING:
    from gangway.stacks.providers.azure.plan import AzurePlan

# One line per module of the package: `module: Class Class`.
_TAGGABLE = """
    applicationinsights: Workbook
    cognitiveservices: Account
    compute: CapacityReservation CapacityReservationGroup Disk DiskEncryptionSet Gallery GalleryImage Image
        ProximityPlacementGroup SshPublicKey VirtualMachine VirtualMachineScaleSet
    containerregistry: Registry
    containerservice: AgentPool ManagedCluster
    keyvault: Key Secret Vault
    logic: Workflow
    machinelearningservices: Workspace
    managedidentity: UserAssignedIdentity
    monitor: ActionGroup DataCollectionEndpoint DataCollectionRule ScheduledQueryRule
    network: ApplicationSecurityGroup BastionHost FlowLog LoadBalancer NatGateway NetworkInterface
        NetworkSecurityGroup PrivateEndpoint PublicIPAddress RouteTable VirtualNetwork
    operationalinsights: Workspace
    privatedns: PrivateZone VirtualNetworkLink
    resources: ResourceGroup
    sql: Server
    storage: StorageAccount
    storagecache: AmlFilesystem
    virtualmachineimages: VirtualMachineImageTemplate
"""
# Managed Lustre's application, the same in every directory, and the ids in Azure's section.
_IMPORTER = "4392ab71-2ce2-4b0d-8770-b352745c73f5"
_AZURE_IDS = {
    "tenant_id": "the directory that the stack's vault trusts",
    "source_account_id": "the resource id of its storage account",
    "importer_principal_id": "the object id, in your directory, of HPC Cache Resource Provider, which imports it",
}
# The provider has no region: each resource has one, and machines draw the power.
_MACHINES = (
    "azure-native:compute:VirtualMachine",
    "azure-native:compute:VirtualMachineScaleSet",
    "azure-native:containerservice:ManagedCluster",
)


def _program() -> "Program[AzurePlan]":
    from gangway.stacks.providers.azure import program

    return program


def _dynamic(config: StackConfig, _planned: Any) -> str:
    section = config.find_section(AzureConfig)
    waits = section is not None and section.role_wait_sec > 0
    return "gangway:azure.role_wait_sec: the wait needs" if waits else ""


def _check_ids(config: StackConfig) -> Iterator[InputError]:
    section = config.find_section(AzureConfig)
    if section is None:
        return
    has_source = config.storage is not None and config.storage.source is not None
    ready, existing = config.ready_image is not None, section.existing
    makes_key = config.encryption == "customer-key" and existing.key is None
    logs_flows = config.network.flow_logs and existing.subnet_id is None
    # Name: whether it is required, by which setting, and the command that shows it.
    needed = {
        "tenant_id": (makes_key, "encryption: customer-key", "az account show --query tenantId"),
        "source_account_id": (has_source, "storage.source", "az storage account show --name ACCOUNT --query id"),
        "importer_principal_id": (has_source, "storage.source", f"az ad sp show --id {_IMPORTER} --query id"),
    }
    for name, (wanted, purpose, command) in needed.items():
        if wanted and getattr(section, name) is None:
            yield InputError(
                f"gangway:azure.{name}",
                "missing",
                allowed=f"required with {purpose}: {_AZURE_IDS[name]}",
                fix=f"copy it from `{command}`",
            )
    idle = {
        "tenant_id": (makes_key, "encryption: customer-key and a key of the stack"),
        "source_account_id": (has_source, "storage.source"),
        "importer_principal_id": (has_source, "storage.source"),
        "registry_id": (ready, "image.prebuilt" if config.own_command is None else "job.image"),
        "network_watcher": (logs_flows, "network.flow_logs and a network of the stack"),
    }
    for name, (used, beside) in idle.items():
        if getattr(section, name) is not None and not used:
            yield InputError(
                f"gangway:azure.{name}",
                f"no effect without {beside}",
                value=getattr(section, name),
                allowed=f"only with {beside}",
                fix=f"remove it, or add {beside}",
            )
    yield from mistakes(config)


def _bucket_service(resources: Sequence[Declared]) -> str:
    """By the redundancy of the run account; the account of flow logs never has zone redundancy."""
    accounts = [one.inputs["sku"]["name"] for one in resources if one.type == "azure-native:storage:StorageAccount"]
    return "blob-hot-zrs" if "Standard_ZRS" in accounts else "blob-hot-lrs"


PROVIDER = Provider(
    name="azure",
    sdk="pulumi-azure-native",
    program=_program,
    home_region="eastus",
    has_spot_notice=False,
    start=Start(
        "eastus",
        "Standard_NC24ads_A100_v4",
        sections={
            "azure": {"subscription_id": "11111111-0000-0000-0000-111111111111"},
            "network": {"egress": "nat"},
        },
        questions={"azure.subscription_id": "Subscription"},
        shared={"storage": {"kind": "lustre", "capacity_gib": 16384, "throughput_mbps_per_tib": 250}},
        refreshes=True,
    ),
    adapters={
        "audit": "gangway.finops.audit.azure",
        "image-build": "gangway.live.image_build.azure",
        "live": "gangway.live.clouds.azure",
        "permissions": "gangway.live.permissions.azure",
        "preflight": "gangway.live.preflight.azure",
        "prices": "gangway.finops.prices.azure",
        "scaling": "gangway.jobs.systemd.scaling.azure",
    },
    settings=SETTINGS,
    mistakes=_check_ids,
    existing=provided,
    catalog=bundled_folder("azure"),
    bucket_service=_bucket_service,
    spot_taken=partial(taken_per_month, "azure"),
    caps_spot=True,
    has_isolated_rungs=is_isolated_rung,
    retention=RETENTION,
    tags=TagRules(package="azure-native", types=_TAGGABLE),
    # A pool is in the region of its cluster.
    machine_types=frozenset({*_MACHINES, "azure-native:containerservice:AgentPool"}),
    nodes=NodeTypes(
        machines=frozenset(
            {
                "azure-native:compute:VirtualMachine",
                "azure-native:compute:VirtualMachineScaleSet",
                "azure-native:containerservice:AgentPool",
            }
        ),
        templates=frozenset({"azure-native:compute:VirtualMachineScaleSet"}),
        # Azure stops a machine to resize it; AKS replaces a pool's nodes for another version.
        restarting={
            "azure-native:compute:VirtualMachine": ("hardwareProfile",),
            "azure-native:containerservice:AgentPool": ("orchestratorVersion",),
        },
    ),
    budget_types=frozenset({"azure-native:consumption:Budget", "azure-native:costmanagement:Budget"}),
    region_inputs=dict.fromkeys(_MACHINES, "location"),
    dynamic=_dynamic,
)
