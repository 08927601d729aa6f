"""Rules about single resources: tags, public addresses, encryption, metadata, trusted launch, grid. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from gangway.components.core.findings import Severity
from gangway.components.estimate.cost import Declared
from gangway.stacks.base.provider import Provider
from gangway.stacks.base.registry import all_providers, provider_names
from gangway.stacks.base.rule import UNKNOWN, Limits, ResourceRule, get_path, is_unknown, items, kind, label, may_be
from gangway.stacks.base.shared import get_region
from gangway.stacks.config.stack_config import StackConfig


def types_with_tags() -> dict[str, str]:
    """By package, module and class (`aws:ec2:LaunchTemplate`), the input for tags."""
    return _types(provider_names())


@cache
def _types(_names: tuple[str, ...]) -> dict[str, str]:
    return {of_type: name for provider in all_providers() for of_type, name in provider.tags.inputs().items()}


def tags_field(type_token: str) -> str | None:
    """The input for tags of a type; None if it takes none, or is not listed."""
    return types_with_tags().get(kind(type_token))


def _check_tags(resource: Declared, limits: Limits) -> Iterable[str]:
    field = tags_field(resource.type)
    if field is None:
        return
    inputs = resource.inputs
    # tagsAll has the provider's default tags; an instance of OpenStack may also have words.
    labels = inputs.get("tags") if field == "metadata" else None
    given = [inputs.get(field), inputs.get("tagsAll"), labels]
    of_type, providers = kind(resource.type), all_providers()
    spelled = next((one.tags.spelled[of_type] for one in providers if of_type in one.tags.spelled), str)
    yield from _missing_tags(label(resource), given, limits, spelled)
    for provider in providers:
        for what, tags in provider.tags.started(resource):
            yield from _missing_tags(f"{label(resource)}: {what}", tags, limits)


def _missing_tags(
    whose: str, given: Sequence[Any], limits: Limits, spelled: Callable[[str], str] = str
) -> Iterable[str]:
    if any(is_unknown(tags) for tags in given):
        return
    carried = {key for tags in given for key, value in _pairs(tags).items() if value}
    if missing := [key for key in limits.required_tags if not carried & {key, spelled(key)}]:
        yield f"{whose}: no {' and no '.join(missing)} tag"


def _pairs(tags: Any) -> Mapping[str, Any]:
    """Tags as a mapping; an Auto Scaling group has a list of keys and values, OpenStack words such as `team=ml`."""
    if isinstance(tags, Mapping):
        return tags
    if isinstance(tags, Sequence) and not isinstance(tags, str):
        labels = [word.partition("=") for word in tags if isinstance(word, str)]
        if labels:
            return {key: value for key, _, value in labels}
    return {str(one["key"]): one.get("value") for one in items(tags) if "key" in one}


REQUIRED_TAGS = ResourceRule(
    code="tags.missing",
    severity=Severity.ERROR,
    holds="Every resource that takes tags has the required ones",
    path="gangway:tags",
    fix="add the tags; Gangway's components put their `tags` on all their resources",
    check=_check_tags,
    limits=("required_tags",),
)


Inputs = Mapping[str, Any]
SCALE_SET = "azure-native:compute:VirtualMachineScaleSet"
AZURE_MACHINES = ("azure-native:compute:VirtualMachine", SCALE_SET)
INSTANCES = ("aws:ec2:Instance", "aws:ec2:SpotInstanceRequest")
IMDS = (*INSTANCES, "aws:ec2:LaunchTemplate", "aws:ec2:LaunchConfiguration")
GOOGLE_MACHINES = ("gcp:compute:Instance", "gcp:compute:InstanceTemplate", "gcp:compute:RegionInstanceTemplate")
AT_HOST = ("securityProfile", "encryptionAtHost")
SHIELDS = ("enableVtpm", "enableIntegrityMonitoring")
_NAMED = 3
SITE = "gangway:site:Site"


def _is_on(value: Any) -> bool:
    return value is True or value == "true"


def _has_access_config(inputs: Inputs) -> bool:
    """Google: an access configuration gives an address, even an empty one."""
    return any(
        one.get("accessConfigs") or one.get("ipv6AccessConfigs") for one in items(inputs.get("networkInterfaces"))
    )


def _is_external_rule(inputs: Inputs) -> bool:
    """Google's load balancers: the default is external; Private Service Connect has an empty scheme."""
    return str(inputs.get("loadBalancingScheme", "EXTERNAL")).startswith("EXTERNAL")


def _has_external_ips(inputs: Inputs) -> bool:
    networks = [*items(inputs.get("networkConfig")), *items(inputs.get("networkConfigs"))]
    return any(_is_on(one.get("enableExternalIps")) for one in networks)


def _has_azure_address(field: str, *path: str) -> Callable[[Inputs], bool]:
    def check(inputs: Inputs) -> bool:
        interfaces = items(get_path(inputs, *path)) if path else [inputs]
        return any(one.get(field) for each in interfaces for one in items(each.get("ipConfigurations")))

    return check


_PUBLIC: Mapping[str, tuple[Callable[[Inputs], bool], str]] = {
    **dict.fromkeys(
        (*INSTANCES, "aws:ec2:LaunchConfiguration"),
        (lambda i: _is_on(i.get("associatePublicIpAddress")), "asks for a public address"),
    ),
    "aws:ec2:LaunchTemplate": (
        lambda i: any(_is_on(one.get("associatePublicIpAddress")) for one in items(i.get("networkInterfaces"))),
        "asks for a public address",
    ),
    "aws:ec2:Subnet": (
        lambda i: _is_on(i.get("mapPublicIpOnLaunch")),
        "gives a public address to whatever starts in it",
    ),
    # The address of a NAT gateway names neither: the gateway names the address.
    "aws:ec2:Eip": (
        lambda i: bool(i.get("instance") or i.get("networkInterface")),
        "is a public address of a machine",
    ),
    "aws:ec2:EipAssociation": (lambda _: True, "gives a machine a public address"),
    "aws:lb:LoadBalancer": (lambda i: not i.get("internal"), "is open to the internet: internal is not true"),
    **dict.fromkeys(GOOGLE_MACHINES, (_has_access_config, "has an access configuration, which is a public address")),
    **dict.fromkeys(
        ("gcp:compute:ForwardingRule", "gcp:compute:GlobalForwardingRule"),
        (_is_external_rule, "is an external load balancer"),
    ),
    "gcp:tpu:V2Vm": (_has_external_ips, "has external addresses"),
    # Without a port it is unused.
    "openstack:networking:FloatingIp": (lambda i: bool(i.get("portId")), "is a public address of a port"),
    "openstack:networking:FloatingIpAssociate": (lambda _: True, "gives a port a public address"),
    "openstack:compute:FloatingIpAssociate": (lambda _: True, "gives a machine a public address"),
    "azure-native:network:NetworkInterface": (_has_azure_address("publicIPAddress"), "has a public address"),
    "azure-native:network:LoadBalancer": (
        lambda i: any(one.get("publicIPAddress") for one in items(i.get("frontendIPConfigurations"))),
        "is open to the internet",
    ),
    "azure-native:compute:VirtualMachine": (
        _has_azure_address("publicIPAddressConfiguration", "networkProfile", "networkInterfaceConfigurations"),
        "asks for a public address",
    ),
    "azure-native:compute:VirtualMachineScaleSet": (
        _has_azure_address(
            "publicIPAddressConfiguration",
            "virtualMachineProfile",
            "networkProfile",
            "networkInterfaceConfigurations",
        ),
        "gives each machine a public address",
    ),
}


def _public_addresses(resource: Declared, _: Limits) -> Iterable[str]:
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
    check=_public_addresses,
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
        yield from _instance_disks(resource)
    elif what in AZURE_MACHINES and not may_be(get_path(_azure_profile(resource), *AT_HOST), True):
        yield f"{label(resource)} leaves caches and local disks unencrypted: encryptionAtHost is not true"


def _instance_disks(resource: Declared) -> Iterable[str]:
    inputs = resource.inputs
    disks = [*items(inputs.get("rootBlockDevice")), *items(inputs.get("ebsBlockDevices"))]
    is_missing = not inputs.get("rootBlockDevice") and not inputs.get("launchTemplate")
    if is_missing or not all(may_be(one.get("encrypted"), True) for one in disks):
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
    if what in GOOGLE_MACHINES:
        shields = resource.inputs.get("shieldedInstanceConfig")
        if off := [name for name in SHIELDS if not may_be(get_path(shields, name), True)]:
            yield f"{label(resource)} is not a Shielded VM: {' and '.join(off)} not true"
    elif what in AZURE_MACHINES:
        security = get_path(_azure_profile(resource), "securityProfile")
        trusted = any(may_be(get_path(security, "securityType"), one) for one in ("TrustedLaunch", "ConfidentialVM"))
        if not (trusted and may_be(get_path(security, "uefiSettings", "vTpmEnabled"), True)):
            yield f"{label(resource)} starts without Trusted Launch"


def _azure_profile(resource: Declared) -> Any:
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
    fix="switch on vTPM and integrity monitoring, or securityType: TrustedLaunch; Secure Boot is not required, since "
    "unsigned drivers would not load",
    check=_unshielded,
)


@dataclass(frozen=True)
class SiteGrid:
    """The grid of a site in the form of a resource, for rules; no program declares it."""

    name: str
    inputs: Mapping[str, Any]
    type: str = field(default=SITE, init=False)
    id: str = field(default=SITE, init=False)


def find_grid(config: StackConfig) -> SiteGrid | None:
    """The grid of the stack's site; None for a stack in a region of the catalogue."""
    if config.site is None:
        return None
    fact = get_region(config).intensity_g_per_kwh
    return SiteGrid(config.region, {"grams": fact.value, "source": f"{fact.source}, {fact.dated}, {fact.confidence}"})


def _region(resource: Declared) -> tuple[Provider, str] | None:
    what = kind(resource.type)
    provider = next((one for one in all_providers() if what in one.region_inputs), None)
    region = None if provider is None else resource.inputs.get(provider.region_inputs[what])
    if provider is None or not isinstance(region, str) or is_unknown(region):
        return None
    # Azure writes `East US 2` for `eastus2`.
    return provider, region.replace(" ", "").lower()


def _carbon_breaches(resource: Declared, limits: Limits) -> Iterable[str]:
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
        yield f"{region}: the carbon intensity of its grid is not in the catalogue"
        return
    fact = regions[region].intensity_g_per_kwh
    if fact.value is None:
        yield f"{region}: the carbon intensity of its grid is not published ({fact.source})"
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
    check=_carbon_breaches,
    limits=("max_g_per_kwh", "allowed_regions"),
)
