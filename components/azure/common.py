"""What Azure's components share: common inputs, replacements for changes that Azure refuses, a wait for roles."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import pulumi
from pulumi_azure_native import authorization, managedidentity

from gangway.components.core.settling import Settling


class CommonArgs(TypedDict):
    """Inputs of most components, and of their resources."""

    resource_group_name: pulumi.Input[str]
    location: str
    tags: dict[str, str]


def common_inputs(args: CommonArgs) -> dict[str, Any]:
    """The common ones of `args`."""
    return {"resource_group_name": args["resource_group_name"], "location": args["location"], "tags": args["tags"]}


def declare_identity(name: str, args: CommonArgs, opts: pulumi.ResourceOptions) -> managedidentity.UserAssignedIdentity:
    """A managed identity."""
    return managedidentity.UserAssignedIdentity(name, **common_inputs(args), opts=opts)


IMMUTABLE: Mapping[str, Sequence[str]] = {
    "authorization:RoleAssignment": ("roleDefinitionId",),
    "consumption:Budget": ("timePeriod.startDate",),
    "compute:VirtualMachine": (
        "osProfile.adminUsername",
        "osProfile.computerName",
        "osProfile.customData",
        "storageProfile.imageReference",
        "zones",
    ),
    "compute:VirtualMachineScaleSet": (
        "orchestrationMode",
        "platformFaultDomainCount",
        "virtualMachineProfile.osProfile.adminUsername",
        "virtualMachineProfile.osProfile.computerNamePrefix",
        "virtualMachineProfile.priority",
        "virtualMachineProfile.storageProfile.imageReference.offer",
        "virtualMachineProfile.storageProfile.imageReference.publisher",
        "zones",
    ),
    "containerservice:AgentPool": (
        "availabilityZones",
        "maxPods",
        "osDiskSizeGB",
        "osType",
        "scaleSetPriority",
        "vnetSubnetID",
    ),
    "containerservice:ManagedCluster": ("apiServerAccessProfile.enablePrivateCluster",),
    "network:BastionHost": ("ipConfigurations",),
    "network:NatGateway": ("zones",),
    "network:PrivateEndpoint": ("subnet",),
    "network:PublicIPAddress": ("zones",),
    "privatedns:VirtualNetworkLink": ("virtualNetwork",),
    # An update can only change the key, the maintenance window and root squash.
    "storagecache:AmlFilesystem": ("filesystemSubnet", "hsm", "sku", "storageCapacityTiB", "zones"),
    # "Update/Upgrade of image templates is currently not supported."
    "virtualmachineimages:VirtualMachineImageTemplate": (
        "buildTimeoutInMinutes",
        "customize",
        "distribute",
        "source",
        "vmProfile",
    ),
}
"""Properties that Azure refuses to change although the provider sends the change, by type. Source: Azure's REST
reference and its errors (PropertyChangeNotAllowed, ResourceAvailabilityZonesCannotBeModified).
"""


def replacing(opts: pulumi.ResourceOptions | None) -> pulumi.ResourceOptions:
    """Options that replace a child with a changed immutable property, which Azure would refuse during `up`."""
    return pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(transformations=[_replace_immutable]))


def _replace_immutable(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
    paths = IMMUTABLE.get(args.type_.removeprefix("azure-native:"))
    if paths is None:
        return None
    options = pulumi.ResourceOptions(replace_on_changes=list(paths))
    return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, options))


# Azure applies role assignments everywhere only after minutes (Managed Lustre's prerequisites say five;
# Azure/bicep#16601, pulumi/pulumi#16893).
def heeded(
    name: str,
    what: str,
    grants: Sequence[authorization.RoleAssignment],
    seconds: float,
    opts: pulumi.ResourceOptions,
) -> list[pulumi.CustomResource]:
    """Role assignments and a wait for them, for `depends_on`; without `seconds` no wait. `opts`: parent of the wait."""
    if not seconds:
        return list(grants)
    # Ours keep their ids when replaced: principal and scope tell them apart.
    awaited = [pulumi.Output.concat(grant.id, " for ", grant.principal_id, " on ", grant.scope) for grant in grants]
    return [*grants, Settling(name, f"Azure heeds the roles of {what}", awaited, seconds, opts)]
