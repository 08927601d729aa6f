"""Azure Bastion: the way in for people to machines that have no public address. A part of TrainingNetwork.

Standard, because only that carries `az network bastion ssh`. It lets nobody in by itself: a person needs a role on the
machine, and its firewall opens only to the Bastion's subnet.
"""

import pulumi
from pulumi_azure_native import network

__all__ = ["BASTION_PREFIX", "BASTION_SUBNET", "declare_bastion"]

# Azure Bastion documentation, "Subnet": a /26 at least, and of this name.
BASTION_PREFIX, BASTION_SUBNET = 26, "AzureBastionSubnet"


def declare_bastion(
    name: str,
    subnet_id: pulumi.Input[str],
    address_id: pulumi.Input[str],
    resource_group_name: pulumi.Input[str],
    location: str,
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> network.BastionHost:
    """Declares a Bastion in its subnet, at its public address."""
    return network.BastionHost(
        f"{name}-bastion",
        resource_group_name=resource_group_name,
        location=location,
        sku=network.SkuArgs(name="Standard"),
        enable_tunneling=True,
        ip_configurations=[
            network.BastionHostIPConfigurationArgs(
                name="bastion",
                subnet=network.SubResourceArgs(id=subnet_id),
                public_ip_address=network.SubResourceArgs(id=address_id),
            )
        ],
        tags=tags,
        opts=opts,
    )
