"""What every machine of ours is made with, as data: its image, its first-boot file, how far its boot is guarded.

Pure, without the SDK, so that a stack file is checked in no time. What Azure would say about each of them only after
minutes, `InputError` says at once.
"""

import base64
import binascii
import re
from dataclasses import dataclass

from components.azure.ssh_key import nobodys_key
from components.catalog import AzureMachineType
from components.findings import InputError

__all__ = [
    "ADMIN",
    "ENTRA_LOGIN",
    "HEALTH",
    "HEALTH_PATH",
    "HEALTH_PORT",
    "HPC_IMAGE",
    "LEAST_NODES_TAG",
    "MAX_CUSTOM_DATA_BYTES",
    "NODES_TAG",
    "RUNG_TAG",
    "TERMINATE_NOTICE_MINUTES",
    "Extension",
    "Image",
    "Security",
    "authorized_keys",
    "check_custom_data",
    "is_hpc_image",
    "node_image",
    "plan_image",
    "plan_security",
]

ADMIN = "gangway"
"""The account that Azure insists on; see `components.azure.ssh_key`."""
NODES_TAG, LEAST_NODES_TAG, RUNG_TAG = "gangway-nodes", "gangway-nodes-min", "gangway-rung"
"""Tags by which a scale set says what its size does not, for the head sets that: how many nodes it may come to hold,
how many the job needs at least, and the set's place in the ladder, 0 for the first.
"""
HEALTH_PORT, HEALTH_PATH = 9401, "/health"
"""Where a node answers the Application Health extension, on its own loopback, by HTTP with status 200 and
`{"ApplicationHealthState": "Healthy"}` or `"Unhealthy"`. No answer is Unknown, for which Azure would repair a machine,
too; but nothing is repaired by Azure here, whatever it is told (`components.azure.node_pool`).
"""
TERMINATE_NOTICE_MINUTES = 5
"""How long a node that is deleted may save its last checkpoint: Azure takes 5 to 15, the node says when it is done.

"Terminate notification for Azure Virtual Machine Scale Set instances". Spot has none: only the 30 s of an eviction.
"""
MAX_CUSTOM_DATA_BYTES = 65535
"""Microsoft.Compute's osProfile.customData: of the decoded bytes."""

HPC_IMAGE = "microsoft-dsvm:ubuntu-hpc"
"""Publisher and offer of Azure's HPC images of Ubuntu, whatever their version."""

# What `az image list`, `az sig image-definition list` and `az sig image-version list` call `id`.
_RESOURCE = re.compile(
    r"/subscriptions/[0-9a-f-]{36}/resourceGroups/[-\w.()]{1,90}/providers/Microsoft\.Compute/"
    r"(images/[-\w.]{1,80}|galleries/[\w.]{1,80}/images/[-\w.]{1,80}(/versions/(latest|\d+\.\d+\.\d+))?)",
    re.IGNORECASE | re.ASCII,
)
_SHARED = re.compile(
    r"/(CommunityGalleries|SharedGalleries)/[-\w.]{1,160}/images/[-\w.]{1,80}(/versions/(latest|\d+\.\d+\.\d+))?",
    re.IGNORECASE | re.ASCII,
)
_URN = re.compile(r"(?P<publisher>[\w.-]+):(?P<offer>[\w.-]+):(?P<sku>[\w.-]+)(?::(?P<version>latest|\d+\.\d+\.\d+))?")


@dataclass(frozen=True)
class Extension:
    """Software of Azure's that a machine's agent installs."""

    name: str
    publisher: str
    type: str
    version: str


HEALTH = Extension("health", "Microsoft.ManagedServices", "ApplicationHealthLinux", "2.0")
"""Application Health extension with rich states: a node that does not answer yet is not called unhealthy."""
ENTRA_LOGIN = Extension("entra-login", "Microsoft.Azure.ActiveDirectory", "AADSSHLoginForLinux", "1.0")
"""SSH by Entra ID accounts that have the role Virtual Machine User Login. It needs the machine's own identity."""


@dataclass(frozen=True)
class Image:
    """An image by Azure's words for it: one of the ids, or the four parts of a Marketplace image."""

    id: str | None = None
    community_gallery_image_id: str | None = None
    shared_gallery_image_id: str | None = None
    publisher: str | None = None
    offer: str | None = None
    sku: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class Security:
    """How far a machine's boot and its disks are guarded.

    Attributes:
        trusted_launch: UEFI with a virtual TPM, which measures the boot.
        secure_boot: whether only signed kernels and modules are loaded.
        encryption_at_host: whether also caches and local disks are encrypted.
        why_no_secure_boot: in words; empty where it is on.
    """

    trusted_launch: bool
    secure_boot: bool
    encryption_at_host: bool
    why_no_secure_boot: str = ""


def plan_image(image: str, place: str = "image_id") -> Image:
    """An image as it is written.

    Args:
        image: a resource id of an image or of a gallery's, `/CommunityGalleries/...`, `/SharedGalleries/...`, or
            `publisher:offer:sku`, with `:version` where it is not to be the newest.
        place: the argument, for messages.

    Raises:
        InputError: it is none of these.
    """
    if _RESOURCE.fullmatch(image):
        return Image(id=image)
    if shared := _SHARED.fullmatch(image):
        community = shared[1].lower() == "communitygalleries"
        return Image(community_gallery_image_id=image) if community else Image(shared_gallery_image_id=image)
    found = _URN.fullmatch(image)
    if found is None:
        raise InputError(
            place,
            "no image of Azure's can be called so",
            value=image,
            allowed="/subscriptions/.../providers/Microsoft.Compute/images/NAME, or galleries/G/images/NAME there; "
            "/CommunityGalleries/G/images/NAME; or publisher:offer:sku[:version]",
            fix=f"write it like {HPC_IMAGE}:2204, or copy an id of `az image list` or `az sig image-version list`",
        )
    return Image(**found.groupdict(default="latest"))


def is_hpc_image(image: str | None) -> bool:
    """Whether nodes start from Azure's HPC image: where nothing is written, or what is written is a version of it."""
    return image is None or image.lower().startswith(f"{HPC_IMAGE}:")


def node_image(machine: AzureMachineType, own: str | None, place: str = "image_id") -> Image:
    """The nodes' image: the one that is written, or else the one for the machine type.

    Raises:
        InputError: none is written and none is known to fit, or what is written is no image's name.
    """
    image = own or machine.image.value
    if image is None:
        raise InputError(
            place,
            f"missing: no public image is known to fit {machine.name}",
            allowed="a resource id, or publisher:offer:sku:version",
            fix="name one with the drivers of its GPUs and of InfiniBand",
        )
    return plan_image(image, place)


def plan_security(
    machine: AzureMachineType,
    *,
    own_image: bool,
    trusted_launch: bool | None = None,
    secure_boot: bool | None = None,
    encryption_at_host: bool | None = None,
    place: str = "",
) -> Security:
    """What a machine type and its image allow, of what is wanted; None wants what there is.

    Secure Boot is off where modules are loaded that nobody signs: the HPC image builds NVIDIA's and
    InfiniBand's itself (Azure/azhpc-images). An own image with InfiniBand is taken for such a one too, until
    `secure_boot` says otherwise.

    Args:
        machine: the size.
        own_image: whether the nodes' image is somebody's own: not `is_hpc_image`.
        trusted_launch: what is wanted.
        secure_boot: what is wanted.
        encryption_at_host: what is wanted.
        place: config path of these three, put before their names.

    Raises:
        InputError: something is wanted that the machine type or the image does not have.
    """
    # Of sizes that Microsoft says nothing about, newer ones have encryption at host; the other kind of boot not all.
    trusted, encryption = machine.trusted_launch.value, machine.encryption_at_host.value
    guarded = _wanted(f"{place}trusted_launch", trusted_launch, trusted, machine.name, unknown=False)
    encrypted = _wanted(f"{place}encryption_at_host", encryption_at_host, encryption, machine.name, unknown=True)
    why = ""
    if not guarded:
        why = "only with Trusted Launch"
    elif not own_image:
        why = "the HPC image's NVIDIA and InfiniBand modules are signed by nobody"
    if secure_boot and why:
        raise InputError(
            f"{place}secure_boot", f"not here: {why}", value=True, allowed="false", fix="remove secure_boot"
        )
    if not why and secure_boot is None and machine.infiniband is not None:
        why = "the modules of an own image for InfiniBand are taken to be unsigned, until secure_boot says otherwise"
    if secure_boot is False and not why:
        why = "as written"
    return Security(guarded, not why, encrypted, why)


def _wanted(what: str, wanted: bool | None, offered: bool | None, machine_type: str, *, unknown: bool) -> bool:
    """What is wanted where it may be; what is offered, or else `unknown`, where nothing is said."""
    if wanted and offered is False:
        fix = f"remove {what.rpartition('.')[2]}"
        raise InputError(what, f"{machine_type} does not have it", value=wanted, allowed="false", fix=fix)
    if wanted is None:
        return unknown if offered is None else offered
    return wanted


def check_custom_data(user_data: str) -> str:
    """`user_data`, base64 of what cloud-init takes, where it fits; cloud-init reads gzip inside it.

    Raises:
        InputError: it is no base64, or more than Azure takes.
    """
    try:
        size = len(base64.b64decode(user_data, validate=True))
    except binascii.Error:
        raise InputError(
            "user_data", "no base64", value=f"{user_data[:20]}...", allowed="base64", fix="encode it"
        ) from None
    if size > MAX_CUSTOM_DATA_BYTES:
        raise InputError(
            "user_data",
            "too long for Azure",
            value=f"{size} bytes",
            allowed=f"at most {MAX_CUSTOM_DATA_BYTES} bytes",
            fix="compress it with gzip before encoding it; cloud-init unpacks it",
        )
    return user_data


def authorized_keys() -> tuple[str, str]:
    """The path of the administrator's keys, and the one key in it, which is of no use."""
    return f"/home/{ADMIN}/.ssh/authorized_keys", nobodys_key()
