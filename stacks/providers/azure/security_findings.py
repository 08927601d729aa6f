"""What a person should know before `up` on Azure about the guards of machines: their boot, their disks. Pure.

Which of them a machine type and an image have is `components.azure.machine`; findings about the rest are `findings`.
"""

from collections.abc import Iterable

from components.azure.machine import Security
from components.findings import Finding, Severity
from stacks.providers.azure.plan import AzurePlan
from stacks.providers.shared_findings import CLUSTER
from stacks.settings.config import StackConfig

__all__ = ["security"]


def security(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """Which protections are off, and what those that are on ask for."""
    own, guards = config.azure, planned.security
    assert own is not None, "stacks.providers.settings has seen to it"
    if not own.trusted_launch:
        yield Finding(
            Severity.WARNING,
            "machine.trusted-launch-off",
            "gangway:azure.trusted_launch",
            "nodes and head start without a virtual TPM and without Secure Boot, as written: nothing measures or "
            "checks what they boot",
            "leave trusted_launch out where machine types and images take it",
        )
    elif not guards.trusted_launch:
        yield Finding(
            Severity.INFO,
            "machine.trusted-launch-off",
            CLUSTER,
            f"{planned.machine.name} is not known to take Trusted Launch: nodes start without a virtual TPM and "
            "without Secure Boot",
        )
    else:
        yield from _secure_boot(guards, own.secure_boot)
    if guards.trusted_launch and planned.image.publisher is not None:
        image = planned.image
        yield Finding(
            Severity.INFO,
            "machine.trusted-launch",
            "gangway:azure.trusted_launch",
            "nodes start with a virtual TPM, for which Azure wants an image that is made for Trusted Launch",
            f"`az vm image show --urn {image.publisher}:{image.offer}:{image.sku}:{image.version} --query features` "
            "tells: where it lists no SecurityType of TrustedLaunch, set trusted_launch: false",
        )
    yield from _encryption_at_host(planned, own.encryption_at_host)


def _secure_boot(guards: Security, written: bool | None) -> Iterable[Finding]:
    """It is off where modules are taken to be unsigned; where an own image has it nobody has looked at them."""
    path = "gangway:azure.secure_boot"
    if not guards.secure_boot:
        yield Finding(
            Severity.INFO,
            "machine.secure-boot-off",
            CLUSTER,
            f"nodes start without Secure Boot: {guards.why_no_secure_boot}",
        )
    elif written is None:
        yield Finding(
            Severity.WARNING,
            "machine.secure-boot",
            path,
            "nodes start with Secure Boot, and load no module of your image that is unsigned: without NVIDIA's every "
            "node gives itself up, and another comes in its place",
            "`modinfo -F signer nvidia` on a machine of that image tells: set secure_boot: false where it names "
            "nobody, true where it does",
        )


def _encryption_at_host(planned: AzurePlan, wanted: bool) -> Iterable[Finding]:
    """The head has it as well, whatever the nodes have."""
    path, size = "gangway:azure.encryption_at_host", planned.machine.name
    if not wanted:
        yield Finding(
            Severity.WARNING,
            "machine.encryption-at-host-off",
            path,
            "caches and local disks of nodes and head are not encrypted, as written, and what passes between them and "
            "their disks is not, either; the disks themselves are, where they are kept",
            "leave encryption_at_host out where machine types and subscription take it",
        )
        return
    yield Finding(
        Severity.INFO,
        "machine.encryption-at-host",
        path,
        "machines encrypt their caches and local disks at the host, for which a subscription is registered once; "
        f"`az vm list-skus --location {planned.region.name} --size {size} --query "
        "\"[].capabilities[?name=='EncryptionAtHostSupported'].value\"` tells whether the nodes' type takes it",
        "run `az feature register --namespace Microsoft.Compute --name EncryptionAtHost`, wait until `az feature show` "
        "says Registered, then `az provider register --namespace Microsoft.Compute`; or set encryption_at_host: false",
    )
