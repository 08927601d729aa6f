"""How machines are protected: disks encrypted, metadata only by IMDSv2, a start that is measured. Pure.

Google Cloud and Azure encrypt every disk by themselves, and FSx and S3 everything: what is asked for here is what a
declaration can still leave open. Whose key it is, is a choice (`gangway:encryption`) and no rule.

On AWS a launch template and an instance may say half of it each, and which belongs to which is not known before they
stand: whoever names the machine's type has to say it.
"""

from collections.abc import Iterable
from typing import Any

from components.cost import Declared
from components.findings import Severity
from stacks.rules.inputs import UNKNOWN, below, is_unknown, items, kind, named, says
from stacks.rules.rule import Limits, ResourceRule

__all__ = ["ENCRYPTED", "IMDS_V2", "SHIELDED"]

SCALE_SET = "azure-native:compute:VirtualMachineScaleSet"
AZURE_MACHINES = ("azure-native:compute:VirtualMachine", SCALE_SET)
INSTANCES = ("aws:ec2:Instance", "aws:ec2:SpotInstanceRequest")
IMDS = (*INSTANCES, "aws:ec2:LaunchTemplate", "aws:ec2:LaunchConfiguration")
# Disks and databases of AWS, and the input that encrypts them.
SWITCHES = {
    "aws:ebs:Volume": "encrypted",
    "aws:efs:FileSystem": "encrypted",
    "aws:rds:Instance": "storageEncrypted",
}
AT_HOST = ("securityProfile", "encryptionAtHost")
SHIELDS = ("enableVtpm", "enableIntegrityMonitoring")


def _unencrypted(resource: Declared, _: Limits) -> Iterable[str]:
    inputs, what = resource.inputs, kind(resource.type)
    if what in SWITCHES and not says(inputs.get(SWITCHES[what]), True):
        yield f"{named(resource)} is not encrypted: {SWITCHES[what]} is not true"
    elif what == "aws:ec2:LaunchTemplate":
        disks = inputs.get("blockDeviceMappings")
        own = [one.get("ebs") for one in items(disks) if one.get("ebs")]
        judged = (disks or "instanceType" in inputs) and not is_unknown(disks)
        if judged and not (own and all(says(below(one, "encrypted"), True) for one in own)):
            yield f"{named(resource)} starts machines with a disk for which encrypted is not true"
    elif what in INSTANCES:
        yield from _own_disks(resource)
    elif what in AZURE_MACHINES and not says(below(_azure_profile(resource), *AT_HOST), True):
        yield f"{named(resource)} leaves caches and local disks unencrypted: encryptionAtHost is not true"


def _own_disks(resource: Declared) -> Iterable[str]:
    """What an instance says of its disks itself; of what it does not say, its launch template decides."""
    inputs = resource.inputs
    disks = [*items(inputs.get("rootBlockDevice")), *items(inputs.get("ebsBlockDevices"))]
    unsaid = not inputs.get("rootBlockDevice") and not inputs.get("launchTemplate")
    if unsaid or not all(says(one.get("encrypted"), True) for one in disks):
        yield f"{named(resource)} has a disk for which encrypted is not true"


def _imds_v1(resource: Declared, _: Limits) -> Iterable[str]:
    inputs, what = resource.inputs, kind(resource.type)
    options = inputs.get("metadataOptions")
    if what not in IMDS or (options is None and "instanceType" not in inputs):
        return
    closed = below(options, "httpEndpoint") == "disabled"
    if not closed and not says(below(options, "httpTokens"), "required"):
        yield f"{named(resource)} answers IMDSv1: metadataOptions.httpTokens is not required"


def _unshielded(resource: Declared, _: Limits) -> Iterable[str]:
    what = kind(resource.type)
    if what in ("gcp:compute:Instance", "gcp:compute:InstanceTemplate", "gcp:compute:RegionInstanceTemplate"):
        shields = resource.inputs.get("shieldedInstanceConfig")
        if off := [name for name in SHIELDS if not says(below(shields, name), True)]:
            yield f"{named(resource)} is no Shielded VM: {' and '.join(off)} not true"
    elif what in AZURE_MACHINES:
        security = below(_azure_profile(resource), "securityProfile")
        trusted = any(says(below(security, "securityType"), one) for one in ("TrustedLaunch", "ConfidentialVM"))
        if not (trusted and says(below(security, "uefiSettings", "vTpmEnabled"), True)):
            yield f"{named(resource)} starts without Trusted Launch"


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
    fix="set encrypted: true on the disk, or encryptionAtHost: true on Azure",
    check=_unencrypted,
)
IMDS_V2 = ResourceRule(
    code="machine.imds-v1",
    severity=Severity.ERROR,
    holds="Machines of AWS answer metadata requests by IMDSv2 only",
    path="gangway:cluster",
    fix="set metadataOptions: {httpTokens: required}",
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
