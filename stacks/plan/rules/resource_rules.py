"""Rules that one resource keeps or breaks: public addresses, guarded machines, regions whose power is clean enough.
Pure.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from components.core.findings import Severity
from components.estimate.cost import Declared
from stacks.base.provider import Provider
from stacks.base.registry import all_providers
from stacks.base.rule import UNKNOWN, Limits, ResourceRule, get_path, is_unknown, items, kind, label, may_be
from stacks.base.shared import get_region
from stacks.config.stack_config import StackConfig

Inputs = Mapping[str, Any]
SCALE_SET = "azure-native:compute:VirtualMachineScaleSet"
AZURE_MACHINES = ("azure-native:compute:VirtualMachine", SCALE_SET)
INSTANCES = ("aws:ec2:Instance", "aws:ec2:SpotInstanceRequest")
IMDS = (*INSTANCES, "aws:ec2:LaunchTemplate", "aws:ec2:LaunchConfiguration")
AT_HOST = ("securityProfile", "encryptionAtHost")
SHIELDS = ("enableVtpm", "enableIntegrityMonitoring")
_NAMED = 3
SITE = "gangway:site:Site"


def _on(value: Any) -> bool:
    """Switched on; what is not known yet is not."""
    return value is True or value == "true"


def _interfaces(*path: str) -> Callable[[Inputs], bool]:
    """Of AWS's machines: a network interface that asks for a public address."""
    return lambda inputs: any(_on(one.get("associatePublicIpAddress")) for one in items(get_path(inputs, *path)))


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
        interfaces = items(get_path(inputs, *path)) if path else [inputs]
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
    check, text = _PUBLIC.get(kind(resource.type), (None, ""))
    if check is not None and check(resource.inputs):
        yield f"{label(resource)} {text}"


NO_PUBLIC_ADDRESS = ResourceRule(
    code="address.public",
    severity=Severity.ERROR,
    holds="No machine, interface or load balancer has a public address",
    path="gangway:network",
    fix="declare none: machines reach the internet through a NAT gateway, people reach them through Session Manager, "
    "Identity-Aware Proxy or Bastion, on OpenStack from inside the network",
    check=_public,
)


# Disks and databases of AWS, and the input that encrypts them.
SWITCHES = {
    "aws:ebs:Volume": "encrypted",
    "aws:efs:FileSystem": "encrypted",
    "aws:rds:Instance": "storageEncrypted",
}


def _unencrypted(resource: Declared, _: Limits) -> Iterable[str]:
    inputs, what = resource.inputs, kind(resource.type)
    if what in SWITCHES and not may_be(inputs.get(SWITCHES[what]), True):
        yield f"{label(resource)} is not encrypted: {SWITCHES[what]} is not true"
    elif what == "aws:ec2:LaunchTemplate":
        disks = inputs.get("blockDeviceMappings")
        own = [one.get("ebs") for one in items(disks) if one.get("ebs")]
        judged = (disks or "instanceType" in inputs) and not is_unknown(disks)
        if judged and not (own and all(may_be(get_path(one, "encrypted"), True) for one in own)):
            yield f"{label(resource)} starts machines with a disk for which encrypted is not true"
    elif what in INSTANCES:
        yield from _own_disks(resource)
    elif what in AZURE_MACHINES and not may_be(get_path(_azure_profile(resource), *AT_HOST), True):
        yield f"{label(resource)} leaves caches and local disks unencrypted: encryptionAtHost is not true"


def _own_disks(resource: Declared) -> Iterable[str]:
    """What an instance says of its disks itself; of what it does not say, its launch template decides."""
    inputs = resource.inputs
    disks = [*items(inputs.get("rootBlockDevice")), *items(inputs.get("ebsBlockDevices"))]
    unsaid = not inputs.get("rootBlockDevice") and not inputs.get("launchTemplate")
    if unsaid or not all(may_be(one.get("encrypted"), True) for one in disks):
        yield f"{label(resource)} has a disk for which encrypted is not true"


def _imds_v1(resource: Declared, _: Limits) -> Iterable[str]:
    inputs, what = resource.inputs, kind(resource.type)
    options = inputs.get("metadataOptions")
    if what not in IMDS or (options is None and "instanceType" not in inputs):
        return
    closed = get_path(options, "httpEndpoint") == "disabled"
    if not closed and not may_be(get_path(options, "httpTokens"), "required"):
        yield f"{label(resource)} answers IMDSv1: metadataOptions.httpTokens is not required"


def _unshielded(resource: Declared, _: Limits) -> Iterable[str]:
    what = kind(resource.type)
    if what in ("gcp:compute:Instance", "gcp:compute:InstanceTemplate", "gcp:compute:RegionInstanceTemplate"):
        shields = resource.inputs.get("shieldedInstanceConfig")
        if off := [name for name in SHIELDS if not may_be(get_path(shields, name), True)]:
            yield f"{label(resource)} is no Shielded VM: {' and '.join(off)} not true"
    elif what in AZURE_MACHINES:
        security = get_path(_azure_profile(resource), "securityProfile")
        trusted = any(may_be(get_path(security, "securityType"), one) for one in ("TrustedLaunch", "ConfidentialVM"))
        if not (trusted and may_be(get_path(security, "uefiSettings", "vTpmEnabled"), True)):
            yield f"{label(resource)} starts without Trusted Launch"


def _azure_profile(resource: Declared) -> Any:
    """What a machine of Azure is like; a scale set says it of all of its machines, or starts none by itself."""
    if kind(resource.type) == SCALE_SET:
        return resource.inputs.get("virtualMachineProfile", UNKNOWN)
    return resource.inputs


ENCRYPTED = ResourceRule(
    code="encryption.missing",
    severity=Severity.ERROR,
    holds="Everything at rest is encrypted",
    path="gangway:encryption",
    fix="encrypted: true on the disk, or encryptionAtHost: true on Azure",
    check=_unencrypted,
)
IMDS_V2 = ResourceRule(
    code="machine.imds-v1",
    severity=Severity.ERROR,
    holds="Machines of AWS answer metadata requests by IMDSv2 only",
    path="gangway:cluster",
    fix="metadataOptions: {httpTokens: required} on the machine",
    check=_imds_v1,
)
SHIELDED = ResourceRule(
    code="machine.not-shielded",
    severity=Severity.WARNING,
    holds="Machines start measured: Shielded VM on Google Cloud, Trusted Launch on Azure",
    path="gangway:cluster",
    fix="switch on vTPM and integrity monitoring, or securityType: TrustedLaunch; Secure Boot is not asked for, since "
    "drivers that nobody signs would not load",
    check=_unshielded,
)


@dataclass(frozen=True)
class SiteGrid:
    """The grid of a site as rules read resources: no cloud has one, so no program declares it."""

    name: str
    inputs: Mapping[str, Any]
    type: str = field(default=SITE, init=False)
    id: str = field(default=SITE, init=False)


def find_grid(config: StackConfig) -> SiteGrid | None:
    """What the stack file says of its site's grid; None for a stack in a region of the catalogue."""
    if config.site is None:
        return None
    fact = get_region(config).intensity_g_per_kwh
    return SiteGrid(config.region, {"grams": fact.value, "source": f"{fact.source}, {fact.dated}, {fact.confidence}"})


def _region(resource: Declared) -> tuple[Provider, str] | None:
    """The provider and the region that a resource says its machines are in; None where it does not say, or not yet."""
    what = kind(resource.type)
    provider = next((one for one in all_providers() if what in one.region_inputs), None)
    region = None if provider is None else resource.inputs.get(provider.region_inputs[what])
    if provider is None or not isinstance(region, str) or is_unknown(region):
        return None
    # Azure writes `East US 2` for `eastus2`.
    return provider, region.replace(" ", "").lower()


def _dirty(resource: Declared, limits: Limits) -> Iterable[str]:
    if resource.type == SITE:
        grams, source = resource.inputs["grams"], resource.inputs["source"]
        if grams > limits.max_g_per_kwh and resource.name not in limits.allowed_regions:
            yield f"{resource.name}: {grams:.0f} gCO2e per kWh ({source}) is above {limits.max_g_per_kwh:g}"
        return
    found = _region(resource)
    if found is None:
        return
    provider, region = found
    if region in limits.allowed_regions:
        return
    regions = provider.catalog_here().regions
    if region not in regions:
        yield f"{region}: nobody here knows the carbon intensity of its grid"
        return
    fact = regions[region].intensity_g_per_kwh
    if fact.value is None:
        yield f"{region}: nobody publishes the carbon intensity of its grid ({fact.source})"
        return
    if fact.value <= limits.max_g_per_kwh:
        return
    known = ((one.intensity_g_per_kwh.value, one.name) for one in regions.values())
    cleaner = sorted((grams, name) for grams, name in known if grams is not None)[:_NAMED]
    named = ", ".join(f"{name} ({grams:.0f})" for grams, name in cleaner)
    yield (
        f"{region}: {fact.value:.0f} gCO2e per kWh ({fact.source}, {fact.dated}) is above {limits.max_g_per_kwh:g}; "
        f"the cleanest regions of {provider.name} are {named}"
    )


CLEAN_REGION = ResourceRule(
    code="region.carbon-intensity",
    severity=Severity.WARNING,
    holds="The region's power is below the allowed carbon intensity",
    path="gangway:region",
    fix="choose a cleaner region, or allow this one in the policy pack's configuration",
    check=_dirty,
    limits=("max_g_per_kwh", "allowed_regions"),
)
