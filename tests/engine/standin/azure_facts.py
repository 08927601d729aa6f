"""Facts about Azure that its SDK does not say: where a resource is, how it may be called, what of it stays as it is.

Kept by hand, for the types that the components declare. Types are written without `azure-native:`. Paths are those of
Azure's REST API, whose parts in braces are inputs of the provider: the last of them is the name. Names are from
Microsoft's "Naming rules and restrictions for Azure resources".
"""

from collections.abc import Mapping

# Below `/subscriptions/S/resourceGroups/G/providers/`, unless the path says itself where it begins.
PATHS: Mapping[str, str] = {
    "applicationinsights:Workbook": "Microsoft.Insights/workbooks/{resourceName}",
    "authorization:RoleAssignment": "/{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}",
    "authorization:RoleDefinition": "/{scope}/providers/Microsoft.Authorization/roleDefinitions/{roleDefinitionId}",
    "compute:CapacityReservationGroup": "Microsoft.Compute/capacityReservationGroups/{capacityReservationGroupName}",
    "compute:DiskEncryptionSet": "Microsoft.Compute/diskEncryptionSets/{diskEncryptionSetName}",
    "compute:Gallery": "Microsoft.Compute/galleries/{galleryName}",
    "compute:GalleryImage": "Microsoft.Compute/galleries/{galleryName}/images/{galleryImageName}",
    "compute:ProximityPlacementGroup": "Microsoft.Compute/proximityPlacementGroups/{proximityPlacementGroupName}",
    "compute:VirtualMachine": "Microsoft.Compute/virtualMachines/{vmName}",
    "compute:VirtualMachineExtension": "Microsoft.Compute/virtualMachines/{vmName}/extensions/{vmExtensionName}",
    "compute:VirtualMachineScaleSet": "Microsoft.Compute/virtualMachineScaleSets/{vmScaleSetName}",
    "consumption:Budget": "/{scope}/providers/Microsoft.Consumption/budgets/{budgetName}",
    "containerregistry:Registry": "Microsoft.ContainerRegistry/registries/{registryName}",
    "containerservice:AgentPool": (
        "Microsoft.ContainerService/managedClusters/{resourceName}/agentPools/{agentPoolName}"
    ),
    "containerservice:ManagedCluster": "Microsoft.ContainerService/managedClusters/{resourceName}",
    "keyvault:Key": "Microsoft.KeyVault/vaults/{vaultName}/keys/{keyName}",
    "keyvault:Secret": "Microsoft.KeyVault/vaults/{vaultName}/secrets/{secretName}",
    "keyvault:Vault": "Microsoft.KeyVault/vaults/{vaultName}",
    "logic:Workflow": "Microsoft.Logic/workflows/{workflowName}",
    "managedidentity:FederatedIdentityCredential": (
        "Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}/federatedIdentityCredentials/"
        "{federatedIdentityCredentialResourceName}"
    ),
    "managedidentity:UserAssignedIdentity": "Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}",
    "monitor:ActionGroup": "Microsoft.Insights/actionGroups/{actionGroupName}",
    "monitor:DataCollectionEndpoint": "Microsoft.Insights/dataCollectionEndpoints/{dataCollectionEndpointName}",
    "monitor:DataCollectionRule": "Microsoft.Insights/dataCollectionRules/{dataCollectionRuleName}",
    "monitor:DiagnosticSetting": "/{resourceUri}/providers/Microsoft.Insights/diagnosticSettings/{name}",
    "monitor:ScheduledQueryRule": "Microsoft.Insights/scheduledQueryRules/{ruleName}",
    "network:ApplicationSecurityGroup": "Microsoft.Network/applicationSecurityGroups/{applicationSecurityGroupName}",
    "network:BastionHost": "Microsoft.Network/bastionHosts/{bastionHostName}",
    "network:FlowLog": "Microsoft.Network/networkWatchers/{networkWatcherName}/flowLogs/{flowLogName}",
    "network:NatGateway": "Microsoft.Network/natGateways/{natGatewayName}",
    "network:NetworkInterface": "Microsoft.Network/networkInterfaces/{networkInterfaceName}",
    "network:NetworkSecurityGroup": "Microsoft.Network/networkSecurityGroups/{networkSecurityGroupName}",
    "network:PrivateDnsZoneGroup": (
        "Microsoft.Network/privateEndpoints/{privateEndpointName}/privateDnsZoneGroups/{privateDnsZoneGroupName}"
    ),
    "network:PrivateEndpoint": "Microsoft.Network/privateEndpoints/{privateEndpointName}",
    "network:PublicIPAddress": "Microsoft.Network/publicIPAddresses/{publicIpAddressName}",
    "network:Subnet": "Microsoft.Network/virtualNetworks/{virtualNetworkName}/subnets/{subnetName}",
    "network:VirtualNetwork": "Microsoft.Network/virtualNetworks/{virtualNetworkName}",
    "operationalinsights:Table": "Microsoft.OperationalInsights/workspaces/{workspaceName}/tables/{tableName}",
    "operationalinsights:Workspace": "Microsoft.OperationalInsights/workspaces/{workspaceName}",
    "privatedns:PrivateRecordSet": (
        "Microsoft.Network/privateDnsZones/{privateZoneName}/{recordType}/{relativeRecordSetName}"
    ),
    "privatedns:PrivateZone": "Microsoft.Network/privateDnsZones/{privateZoneName}",
    "privatedns:VirtualNetworkLink": (
        "Microsoft.Network/privateDnsZones/{privateZoneName}/virtualNetworkLinks/{virtualNetworkLinkName}"
    ),
    "resources:ResourceGroup": "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}",
    "storage:BlobContainer": (
        "Microsoft.Storage/storageAccounts/{accountName}/blobServices/default/containers/{containerName}"
    ),
    "storage:BlobServiceProperties": "Microsoft.Storage/storageAccounts/{accountName}/blobServices/{blobServicesName}",
    "storage:ManagementPolicy": (
        "Microsoft.Storage/storageAccounts/{accountName}/managementPolicies/{managementPolicyName}"
    ),
    "storage:StorageAccount": "Microsoft.Storage/storageAccounts/{accountName}",
    "storagecache:AmlFilesystem": "Microsoft.StorageCache/amlFilesystems/{amlFilesystemName}",
    "storagecache:AutoExportJob": (
        "Microsoft.StorageCache/amlFilesystems/{amlFilesystemName}/autoExportJobs/{autoExportJobName}"
    ),
    "storagecache:ImportJob": "Microsoft.StorageCache/amlFilesystems/{amlFilesystemName}/importJobs/{importJobName}",
    "virtualmachineimages:VirtualMachineImageTemplate": (
        "Microsoft.VirtualMachineImages/imageTemplates/{imageTemplateName}"
    ),
}

_GUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NETWORK = r"[A-Za-z0-9]([\w.-]{0,78}\w)?"

# A regular expression for the whole name; no type that is not here has a rule.
NAMES: Mapping[str, str] = {
    "applicationinsights:Workbook": _GUID,
    "authorization:RoleAssignment": _GUID,
    "authorization:RoleDefinition": _GUID,
    "compute:DiskEncryptionSet": r"[\w-]{1,80}",
    "compute:Gallery": r"[A-Za-z0-9]([\w.]{0,78}[A-Za-z0-9])?",
    "compute:GalleryImage": r"[A-Za-z0-9]([\w.-]{0,78}[A-Za-z0-9])?",
    "compute:ProximityPlacementGroup": _NETWORK,
    "compute:VirtualMachine": r"[A-Za-z0-9]([\w.-]{0,62}\w)?",
    "compute:VirtualMachineScaleSet": r"[A-Za-z0-9]([\w.-]{0,62}\w)?",
    "consumption:Budget": r"[\w-]{1,63}",
    "containerregistry:Registry": r"[A-Za-z0-9]{5,50}",
    "containerservice:AgentPool": r"[a-z][a-z0-9]{0,11}",
    "containerservice:ManagedCluster": r"[A-Za-z0-9]([\w-]{0,61}[A-Za-z0-9])?",
    "keyvault:Key": r"[A-Za-z0-9-]{1,127}",
    "keyvault:Secret": r"[A-Za-z0-9-]{1,127}",
    "keyvault:Vault": r"(?!.*--)[A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9]",
    "logic:Workflow": r"[\w().-]{1,43}",
    "managedidentity:FederatedIdentityCredential": r"[A-Za-z0-9][\w-]{2,119}",
    "managedidentity:UserAssignedIdentity": r"[A-Za-z0-9][\w-]{2,127}",
    "monitor:ActionGroup": r"[^/&%\\?]{0,259}[^/&%\\?. ]",
    "monitor:ScheduledQueryRule": r"[^*<>%{}&:\\?/#|]{0,259}[^*<>%{}&:\\?/#|. ]",
    "network:ApplicationSecurityGroup": _NETWORK,
    "network:BastionHost": _NETWORK,
    "network:FlowLog": _NETWORK,
    "network:NatGateway": _NETWORK,
    "network:NetworkInterface": _NETWORK,
    "network:NetworkSecurityGroup": _NETWORK,
    "network:PrivateDnsZoneGroup": _NETWORK,
    "network:PrivateEndpoint": _NETWORK,
    "network:PublicIPAddress": _NETWORK,
    "network:Subnet": _NETWORK,
    "network:VirtualNetwork": r"[A-Za-z0-9]([\w.-]{0,62}\w)",
    "operationalinsights:Table": r"[A-Za-z][A-Za-z0-9_]{0,58}_CL",
    "operationalinsights:Workspace": r"[A-Za-z0-9][A-Za-z0-9-]{2,61}[A-Za-z0-9]",
    "privatedns:PrivateZone": r"(?=.{1,253}$)([a-z0-9_-]{1,63}\.)+[a-z0-9-]{1,63}",
    "resources:ResourceGroup": r"[\w().-]{0,89}[\w()-]",
    "storage:BlobContainer": r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]",
    "storage:StorageAccount": "[a-z0-9]{3,24}",
    "storagecache:AmlFilesystem": r"[A-Za-z0-9][\w-]{0,78}[A-Za-z0-9]",
    "storagecache:AutoExportJob": r"[A-Za-z0-9][\w-]{0,78}[A-Za-z0-9]",
    "storagecache:ImportJob": r"[A-Za-z0-9][\w-]{0,78}[A-Za-z0-9]",
    "virtualmachineimages:VirtualMachineImageTemplate": r"[\w.-]{1,64}",
}

# Called by a GUID where they are called nothing; the rest after the logical name.
BY_GUID = frozenset({"authorization:RoleAssignment", "authorization:RoleDefinition"})

# Beside location and what the path names: the provider's own list ("forceNewMap").
REPLACING_INPUTS: Mapping[str, frozenset[str]] = {
    "authorization:RoleAssignment": frozenset({"principalId", "scope"}),
    "containerservice:AgentPool": frozenset({"gpuInstanceProfile", "vmSize"}),
    "containerservice:ManagedCluster": frozenset(
        {"diskEncryptionSetID", "dnsPrefix", "fqdnSubdomain", "linuxProfile", "networkProfile", "nodeResourceGroup"}
    ),
    "network:PublicIPAddress": frozenset({"publicIPAddressVersion", "publicIPPrefix", "sku"}),
    "storage:StorageAccount": frozenset({"isHnsEnabled"}),
}

# What is there from the beginning or never: disks of a running machine, and file systems, do not change between a key
# of Azure's and one of the customer's.
NEVER_SWITCHED: Mapping[str, str] = {
    "compute:VirtualMachine": "storageProfile.osDisk.managedDisk.diskEncryptionSet",
    "storagecache:AmlFilesystem": "encryptionSettings",
}

# What Azure does not delete while something else names it, and who may name it all the same.
HELD_BY_USERS = frozenset(
    {
        "compute:DiskEncryptionSet",
        "compute:ProximityPlacementGroup",
        "network:ApplicationSecurityGroup",
        "network:NatGateway",
        "network:NetworkInterface",
        "network:NetworkSecurityGroup",
        "network:PublicIPAddress",
        "network:Subnet",
    }
)
LOOSE_USERS = frozenset({"storage:StorageAccount"})

# Of these the SDK holds the words of another API ("ConditionOperator"), or of when it was made.
OPEN_ENUMS = frozenset({"ConditionOperator", "KnownDataFlowStreams", "VirtualMachineSizeTypes"})
