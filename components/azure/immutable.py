"""Properties that Azure refuses to change although the provider sends the change: they replace the resource."""

from collections.abc import Mapping, Sequence

import pulumi

__all__ = ["IMMUTABLE", "replacing"]

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
}
"""Type -> paths of inputs. Source: Azure's REST reference and its errors (PropertyChangeNotAllowed,
ResourceAvailabilityZonesCannotBeModified).
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
