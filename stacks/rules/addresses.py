"""No public address: nothing of a stack can be reached from the internet. Pure.

Ways out are allowed: the addresses of NAT gateways and of Bastion belong to these and to no machine.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from components.cost import Declared
from components.findings import Severity
from stacks.rules.inputs import below, items, kind, named
from stacks.rules.rule import Limits, ResourceRule

__all__ = ["NO_PUBLIC_ADDRESS"]

Inputs = Mapping[str, Any]


def _on(value: Any) -> bool:
    """Switched on; what is not known yet is not."""
    return value is True or value == "true"


def _interfaces(*path: str) -> Callable[[Inputs], bool]:
    """Of AWS's machines: a network interface that asks for a public address."""
    return lambda inputs: any(_on(one.get("associatePublicIpAddress")) for one in items(below(inputs, *path)))


def _access_configs(inputs: Inputs) -> bool:
    """Of Google's machines: an access configuration gives an address, also an empty one."""
    return any(
        one.get("accessConfigs") or one.get("ipv6AccessConfigs") for one in items(inputs.get("networkInterfaces"))
    )


def _external_rule(inputs: Inputs) -> bool:
    """Of Google's load balancers: a rule that says nothing is external; Private Service Connect has an empty word."""
    return str(inputs.get("loadBalancingScheme", "EXTERNAL")).startswith("EXTERNAL")


def _external_tpu(inputs: Inputs) -> bool:
    networks = [*items(inputs.get("networkConfig")), *items(inputs.get("networkConfigs"))]
    return any(_on(one.get("enableExternalIps")) for one in networks)


def _azure_configurations(field: str, *path: str) -> Callable[[Inputs], bool]:
    """Of Azure's interfaces, below `path`: an IP configuration with a public address of its own."""

    def check(inputs: Inputs) -> bool:
        interfaces = items(below(inputs, *path)) if path else [inputs]
        return any(one.get(field) for each in interfaces for one in items(each.get("ipConfigurations")))

    return check


_PUBLIC: Mapping[str, tuple[Callable[[Inputs], bool], str]] = MappingProxyType(
    {
        "aws:ec2:Instance": (lambda i: _on(i.get("associatePublicIpAddress")), "asks for a public address"),
        "aws:ec2:SpotInstanceRequest": (lambda i: _on(i.get("associatePublicIpAddress")), "asks for a public address"),
        "aws:ec2:LaunchConfiguration": (lambda i: _on(i.get("associatePublicIpAddress")), "asks for a public address"),
        "aws:ec2:LaunchTemplate": (_interfaces("networkInterfaces"), "asks for a public address"),
        "aws:ec2:Subnet": (
            lambda i: _on(i.get("mapPublicIpOnLaunch")),
            "gives a public address to whatever starts in it",
        ),
        # An address of a NAT gateway names neither: the gateway names the address.
        "aws:ec2:Eip": (
            lambda i: bool(i.get("instance") or i.get("networkInterface")),
            "is a public address of a machine",
        ),
        "aws:ec2:EipAssociation": (lambda _: True, "gives a machine a public address"),
        "aws:lb:LoadBalancer": (lambda i: not i.get("internal"), "is open to the internet: internal is not true"),
        "gcp:compute:Instance": (_access_configs, "has an access configuration, which is a public address"),
        "gcp:compute:InstanceTemplate": (_access_configs, "has an access configuration, which is a public address"),
        "gcp:compute:RegionInstanceTemplate": (
            _access_configs,
            "has an access configuration, which is a public address",
        ),
        "gcp:compute:ForwardingRule": (_external_rule, "is an external load balancer"),
        "gcp:compute:GlobalForwardingRule": (_external_rule, "is an external load balancer"),
        "gcp:tpu:V2Vm": (_external_tpu, "has external addresses"),
        # One without a port is nobody's yet.
        "openstack:networking:FloatingIp": (lambda i: bool(i.get("portId")), "is a public address of a port"),
        "openstack:networking:FloatingIpAssociate": (lambda _: True, "gives a port a public address"),
        "openstack:compute:FloatingIpAssociate": (lambda _: True, "gives a machine a public address"),
        "azure-native:network:NetworkInterface": (_azure_configurations("publicIPAddress"), "has a public address"),
        "azure-native:network:LoadBalancer": (
            lambda i: any(one.get("publicIPAddress") for one in items(i.get("frontendIPConfigurations"))),
            "is open to the internet",
        ),
        "azure-native:compute:VirtualMachine": (
            _azure_configurations("publicIPAddressConfiguration", "networkProfile", "networkInterfaceConfigurations"),
            "asks for a public address",
        ),
        "azure-native:compute:VirtualMachineScaleSet": (
            _azure_configurations(
                "publicIPAddressConfiguration",
                "virtualMachineProfile",
                "networkProfile",
                "networkInterfaceConfigurations",
            ),
            "gives each machine a public address",
        ),
    }
)


def _public(resource: Declared, _: Limits) -> Iterable[str]:
    check, words = _PUBLIC.get(kind(resource.type), (None, ""))
    if check is not None and check(resource.inputs):
        yield f"{named(resource)} {words}"


NO_PUBLIC_ADDRESS = ResourceRule(
    code="address.public",
    severity=Severity.ERROR,
    holds="No machine, interface or load balancer has a public address",
    path="gangway:network",
    fix="remove it: machines reach the internet through a NAT gateway, people reach them through Session Manager, "
    "Identity-Aware Proxy or Bastion, on OpenStack from inside the network",
    check=_public,
)
