"""Settings of all machines: image, first-boot file, secure boot, SSH key; the GPU nodes' profiles."""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pulumi
from pulumi_azure_native import compute

from gangway.components.azure.capacity import ScaleSetFields
from gangway.components.catalog.schema import AzureMachineType
from gangway.components.core.findings import InputError

# RSA Laboratories, "The RSA Challenge Numbers": 617 digits, their sum 2738.
MODULUS = int(
    "25195908475657893494027183240048398571429282126204032027777137836043662020707595556264018525880784"
    "40691829064124951508218929855914917618450280848912007284499268739280728777673597141834727026189637"
    "50149718246911650776133798590957000973304597488084284017974291006424586918171951187461215151726546"
    "32282216869987549182422433637259085141865462043576798423387184774447920739934236584823824281198163"
    "81501067481045166037730605620161967625613384414360383390441495263443219011465754445417842402092461"
    "65157233507787077498171257724679629263863563732899121548314381678998850404453640235273819513786365"
    "64391212010397122822120720357"
)
EXPONENT = 65537
ADMIN = "gangway"  # required by Azure
HEALTH_PORT, HEALTH_PATH = 9401, "/health"
"""Where a node answers the Application Health extension, on loopback, HTTP 200 with `{"ApplicationHealthState":
"Healthy"}` or `"Unhealthy"`. Azure repairs nothing here (`gangway.components.azure.node_pool`).
"""
TERMINATE_NOTICE_MINUTES = 5
"""Azure allows 5 to 15 ("Terminate notification for Azure Virtual Machine Scale Set instances"); spot has only 30 s."""
MAX_CUSTOM_DATA_BYTES = 65535  # Microsoft.Compute's osProfile.customData, in decoded bytes
LATEST = "latest"
HPC_IMAGE = "microsoft-dsvm:ubuntu-hpc"  # publisher and offer of Azure's HPC images of Ubuntu
_SHARED = re.compile(
    r"/(CommunityGalleries|SharedGalleries)/[-\w.]{1,160}/images/[-\w.]{1,80}(/versions/(latest|\d+\.\d+\.\d+))?",
    re.IGNORECASE | re.ASCII,
)
_URN = re.compile(r"(?P<publisher>[\w.-]+):(?P<offer>[\w.-]+):(?P<sku>[\w.-]+)(?::(?P<version>latest|\d+\.\d+\.\d+))?")
ROOT_DISK_TYPE = "Premium_LRS"
# A node pulls its image and checks its fabric before its job answers; Azure allows up to four hours.
HEALTH_INTERVAL_SEC, HEALTH_PROBES, HEALTH_GRACE_SEC = 30, 3, 3600


def nobodys_key() -> str:
    """A key without a known private half as a line of `authorized_keys`: ssh-rsa of 2048 bits, Azure's minimum."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = RSAPublicNumbers(EXPONENT, MODULUS).public_key()
    return f"{key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()} nobody"


# The `id` in `az image list`, `az sig image-definition list` and `az sig image-version list`.
_RESOURCE = re.compile(
    r"/subscriptions/[0-9a-f-]{36}/resourceGroups/[-\w.()]{1,90}/providers/Microsoft\.Compute/"
    r"(images/[-\w.]{1,80}|galleries/[\w.]{1,80}/images/[-\w.]{1,80}(/versions/(latest|\d+\.\d+\.\d+))?)",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True)
class Extension:
    """An extension that the machine's agent installs."""

    name: str
    publisher: str
    type: str
    version: str


HEALTH = Extension("health", "Microsoft.ManagedServices", "ApplicationHealthLinux", "2.0")
"""Application Health extension with rich states: a node that does not answer yet is not unhealthy."""
ENTRA_LOGIN = Extension("entra-login", "Microsoft.Azure.ActiveDirectory", "AADSSHLoginForLinux", "1.0")
"""SSH for Entra ID accounts with the role Virtual Machine User Login. It needs the machine's own identity."""


@dataclass(frozen=True)
class Image:
    """An image in Azure's words: one of the ids, or the four parts of a Marketplace image."""

    id: str | None = None
    community_gallery_image_id: str | None = None
    shared_gallery_image_id: str | None = None
    publisher: str | None = None
    offer: str | None = None
    sku: str | None = None
    version: pulumi.Input[str] | None = None

    @property
    def floats(self) -> bool:
        """Whether it is the newest version of a Marketplace image."""
        return self.version == LATEST


@dataclass(frozen=True)
class Security:
    """Boot and disk protection. `trusted_launch`: UEFI with a virtual TPM; `why_no_secure_boot`: empty if it is on."""

    trusted_launch: bool
    secure_boot: bool
    encryption_at_host: bool
    why_no_secure_boot: str = ""


def plan_image(image: str, place: str = "image_id") -> Image:
    """Parse an image: a resource id of an image or of a gallery's, `/CommunityGalleries/...`, `/SharedGalleries/...`,
    or `publisher:offer:sku[:version]`. InputError: none of these.
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
    return Image(**found.groupdict(default=LATEST))


def with_version(image: Image, version: pulumi.Input[str] | None) -> Image:
    """The image at `version` if it has none; None leaves it open."""
    return replace(image, version=version) if image.floats and version is not None else image


def is_hpc_image(image: str | None) -> bool:
    """Whether nodes use Azure's HPC image: by default, or any version of it."""
    return image is None or image.lower().startswith(f"{HPC_IMAGE}:")


def node_image(machine: AzureMachineType, own: str | None, place: str = "image_id") -> Image:
    """The given image, or else the machine type's. InputError: none fits, or it is no image's name."""
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
    """The protection that machine type and image support; None means as much as possible. Secure Boot is off for
    unsigned modules: the HPC image builds NVIDIA's and InfiniBand's itself (Azure/azhpc-images), and a custom image
    with InfiniBand is assumed to, unless `secure_boot` is set. InputError at `place`: a wanted setting is not
    supported.
    """
    # If Microsoft documents nothing, newer sizes have encryption at host, but not all have Trusted Launch.
    trusted, encryption = machine.trusted_launch.value, machine.encryption_at_host.value
    guarded = _choose_setting(f"{place}trusted_launch", trusted_launch, trusted, machine.name, unknown=False)
    encrypted = _choose_setting(
        f"{place}encryption_at_host", encryption_at_host, encryption, machine.name, unknown=True
    )
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


def _choose_setting(what: str, wanted: bool | None, offered: bool | None, machine_type: str, *, unknown: bool) -> bool:
    if wanted and offered is False:
        fix = f"remove {what.rpartition('.')[2]}"
        raise InputError(what, f"{machine_type} does not have it", value=wanted, allowed="false", fix=fix)
    if wanted is None:
        return unknown if offered is None else offered
    return wanted


def check_custom_data(
    user_data: str,
    place: str = "user_data",
    fix: str = "compress it with gzip before encoding it; cloud-init unpacks it",
) -> str:
    """Check `user_data`, base64 in which cloud-init reads gzip. InputError at `place`: no base64, or too large."""
    try:
        size = len(base64.b64decode(user_data, validate=True))
    except binascii.Error:
        raise InputError(place, "no base64", value=f"{user_data[:20]}...", allowed="base64", fix="encode it") from None
    if size > MAX_CUSTOM_DATA_BYTES:
        raise InputError(
            place,
            "too long for Azure",
            value=f"{size} bytes",
            allowed=f"at most {MAX_CUSTOM_DATA_BYTES} bytes",
            fix=fix,
        )
    return user_data


def authorized_keys() -> tuple[str, str]:
    """The path of the administrator's keys, and its one unusable key."""
    return f"/home/{ADMIN}/.ssh/authorized_keys", nobodys_key()


@dataclass(frozen=True)
class NodeLaunch:
    """Settings of all nodes of a pool, for any rung. `computer_name_prefix`: of the host names, at most 15 characters;
    `built_image_id`: of a machine image, used instead of `image`, its base;
    `security_group_ids`: application security groups; `user_data`: base64 for cloud-init; `disk_encryption_set_id`:
    encrypts the disk; None for Azure's own key; `entra_login`: allow SSH by Entra ID.
    """

    computer_name_prefix: str
    image: Image
    built_image_id: pulumi.Input[str] | None
    security: Security
    subnet_id: pulumi.Input[str]
    security_group_ids: Sequence[pulumi.Input[str]]
    user_data: pulumi.Input[str]
    root_volume_gib: int
    disk_encryption_set_id: pulumi.Input[str] | None
    entra_login: bool


def vm_profile(launch: NodeLaunch, fields: ScaleSetFields) -> compute.VirtualMachineScaleSetVMProfileArgs:
    """The profile of a scale set's machines."""
    spot = fields.priority == "Spot"
    return compute.VirtualMachineScaleSetVMProfileArgs(
        **fields.profile(),
        storage_profile=_storage_profile(launch),
        os_profile=compute.VirtualMachineScaleSetOSProfileArgs(
            computer_name_prefix=launch.computer_name_prefix,
            admin_username=ADMIN,
            custom_data=custom_data(launch.user_data),
            linux_configuration=linux_configuration(),
        ),
        network_profile=_network_profile(launch),
        security_profile=security_profile(launch.security),
        diagnostics_profile=boot_diagnostics(),
        extension_profile=_extensions(entra_login=launch.entra_login),
        # Azure refuses the notice for spot, which has only the eviction event.
        scheduled_events_profile=None if spot else _terminate_notice(),
    )


def custom_data(user_data: pulumi.Input[str]) -> pulumi.Output[str]:
    """The first-boot file. Not Azure's `userData`, which any process on a machine may read, including containers."""
    return pulumi.Output.from_input(user_data).apply(check_custom_data)


def image_reference(image: Image) -> compute.ImageReferenceArgs:
    """An image as the provider's input."""
    return compute.ImageReferenceArgs(**{key: value for key, value in vars(image).items() if value is not None})


def linux_configuration() -> compute.LinuxConfigurationArgs:
    """No password, and an unusable key."""
    path, key = authorized_keys()
    return compute.LinuxConfigurationArgs(
        disable_password_authentication=True,
        provision_vm_agent=True,
        ssh=compute.SshConfigurationArgs(public_keys=[compute.SshPublicKeyArgs(path=path, key_data=key)]),
    )


def security_profile(security: Security) -> compute.SecurityProfileArgs:
    """Without Trusted Launch nothing is set: Azure's older, standard kind of machine."""
    if not security.trusted_launch:
        return compute.SecurityProfileArgs(encryption_at_host=security.encryption_at_host)
    return compute.SecurityProfileArgs(
        encryption_at_host=security.encryption_at_host,
        security_type=compute.SecurityTypes.TRUSTED_LAUNCH,
        uefi_settings=compute.UefiSettingsArgs(secure_boot_enabled=security.secure_boot, v_tpm_enabled=True),
    )


def boot_diagnostics() -> compute.DiagnosticsProfileArgs:
    """Serial output for boot failures, in Azure's own storage."""
    return compute.DiagnosticsProfileArgs(boot_diagnostics=compute.BootDiagnosticsArgs(enabled=True))


def _storage_profile(launch: NodeLaunch) -> compute.VirtualMachineScaleSetStorageProfileArgs:
    key, built = launch.disk_encryption_set_id, launch.built_image_id
    return compute.VirtualMachineScaleSetStorageProfileArgs(
        image_reference=compute.ImageReferenceArgs(id=built) if built else image_reference(launch.image),
        os_disk=compute.VirtualMachineScaleSetOSDiskArgs(
            create_option="FromImage",
            caching=compute.CachingTypes.READ_WRITE,
            disk_size_gb=launch.root_volume_gib,
            managed_disk=compute.VirtualMachineScaleSetManagedDiskParametersArgs(
                storage_account_type=ROOT_DISK_TYPE,
                disk_encryption_set=None if key is None else compute.DiskEncryptionSetParametersArgs(id=key),
            ),
        ),
    )


def _network_profile(launch: NodeLaunch) -> compute.VirtualMachineScaleSetNetworkProfileArgs:
    return compute.VirtualMachineScaleSetNetworkProfileArgs(
        network_interface_configurations=[
            compute.VirtualMachineScaleSetNetworkConfigurationArgs(
                name="ethernet",
                primary=True,
                enable_accelerated_networking=True,
                enable_ip_forwarding=False,
                ip_configurations=[
                    compute.VirtualMachineScaleSetIPConfigurationArgs(
                        name="private",
                        primary=True,
                        subnet=compute.ApiEntityReferenceArgs(id=launch.subnet_id),
                        application_security_groups=[
                            compute.SubResourceArgs(id=group) for group in launch.security_group_ids
                        ],
                    )
                ],
            )
        ]
    )


def _terminate_notice() -> compute.ScheduledEventsProfileArgs:
    return compute.ScheduledEventsProfileArgs(
        terminate_notification_profile=compute.TerminateNotificationProfileArgs(
            enable=True, not_before_timeout=f"PT{TERMINATE_NOTICE_MINUTES}M"
        )
    )


def identity_type(*, entra_login: bool) -> compute.ResourceIdentityType:
    """Ours, plus the machine's own if the login needs it: then tokens are requested by client id."""
    kinds = compute.ResourceIdentityType
    return kinds.SYSTEM_ASSIGNED_USER_ASSIGNED if entra_login else kinds.USER_ASSIGNED


def _extensions(*, entra_login: bool) -> compute.VirtualMachineScaleSetExtensionProfileArgs:
    probe = {
        "protocol": "http",
        "port": HEALTH_PORT,
        "requestPath": HEALTH_PATH,
        "intervalInSeconds": HEALTH_INTERVAL_SEC,
        "numberOfProbes": HEALTH_PROBES,
        "gracePeriod": HEALTH_GRACE_SEC,
    }
    login = [_extension(ENTRA_LOGIN)] if entra_login else []
    return compute.VirtualMachineScaleSetExtensionProfileArgs(extensions=[_extension(HEALTH, probe), *login])


def _extension(
    extension: Extension, settings: dict[str, object] | None = None
) -> compute.VirtualMachineScaleSetExtensionArgs:
    return compute.VirtualMachineScaleSetExtensionArgs(
        name=extension.name,
        publisher=extension.publisher,
        type=extension.type,
        type_handler_version=extension.version,
        auto_upgrade_minor_version=True,
        settings=settings,
    )
