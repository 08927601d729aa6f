"""Azure resource types by retention class."""

from collections.abc import Mapping
from typing import Any

from gangway.components.core.retention import Retention, get_types

IMPORT_LOG = "-lustre-log"
"""End of the name of the container for a stack's import log."""


def _is_import_log(inputs: Mapping[str, Any]) -> bool:
    """Managed Lustre's import log, in the data set's account. Outputs call its name `name`."""
    return str(inputs.get("containerName") or inputs.get("name", "")).endswith(IMPORT_LOG)


RETENTION = Retention(
    data={"azure-native:storage:BlobContainer": "run records; Azure would delete them with the container"},
    holders={
        "azure-native:resources:ResourceGroup": "Azure deletes everything in it",
        "azure-native:storage:StorageAccount": "its encryption, firewall and blobs go with it",
    },
    protections=get_types(
        "azure-native",
        {"versions, and how long deleted blobs are kept": "storage: BlobServiceProperties ManagementPolicy"},
    ),
    is_scratch=_is_import_log,
    # Flow logs expire, and other clouds' are in no bucket at all; machine images can be built again.
    scratch_components=frozenset({"gangway:azure:FlowLogStore", "gangway:azure:MachineImage"}),
    refuses=False,
    keys={"azure-native:keyvault:Key": "blobs under a deleted key cannot be read"},
    surroundings={
        "azure-native:authorization:RoleAssignment": "the account's identity may use the key",
        "azure-native:keyvault:Vault": "holds the key behind a firewall",
        "azure-native:managedidentity:UserAssignedIdentity": "the account reaches the key as this identity",
    },
    copies={"azure-native:storagecache:AmlFilesystem": "runs are exported, and machines put records in the container"},
    disposable=get_types(
        "azure-native",
        {
            "images can be built again from a commit and a lock": """
                compute: Gallery GalleryImage containerregistry: Registry virtualmachineimages:
                VirtualMachineImageTemplate
            """,
            "the link between file system and container": "storagecache: AutoExportJob",
            "keys between the machines of one stack, created again by `up`": "keyvault: Secret",
            "machines: their disks are scratch": """
                compute: CapacityReservationGroup DiskEncryptionSet ProximityPlacementGroup VirtualMachine
                VirtualMachineExtension VirtualMachineScaleSet containerservice: AgentPool ManagedCluster
            """,
            "the machines' network: the account's own firewall goes on refusing everybody else": """
                network: ApplicationSecurityGroup BastionHost FlowLog NatGateway NetworkInterface NetworkSecurityGroup
                PrivateDnsZoneGroup PrivateEndpoint PublicIPAddress Subnet VirtualNetwork privatedns: PrivateRecordSet
                PrivateZone VirtualNetworkLink
            """,
            "rights of the stack's machines: without them fewer can read the data": """
                authorization: RoleDefinition managedidentity: FederatedIdentityCredential
            """,
            "budget, its stop, logs, alarms and dashboards": """
                applicationinsights: Workbook consumption: Budget logic: Workflow monitor: ActionGroup
                DataCollectionEndpoint DataCollectionRule DiagnosticSetting ScheduledQueryRule operationalinsights:
                Table Workspace
            """,
        },
    ),
)
