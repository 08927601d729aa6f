"""Profiles of GPU nodes: one machine type, closed, with one way of being had; and what the head shares with them.

What launches from a profile, and how many, is the node pool's business. GPUs, InfiniBand adapters and local NVMe disks
belong to the machine type and are not declared: InfiniBand is wired by the scale set's single placement group, and the
one NIC here is Ethernet. The root disk is a managed one: an ephemeral one would take space that is scratch for data.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import compute

from components.azure.capacity import ScaleSetFields
from components.azure.machine import (
    ADMIN,
    ENTRA_LOGIN,
    HEALTH,
    HEALTH_PATH,
    HEALTH_PORT,
    TERMINATE_NOTICE_MINUTES,
    Extension,
    Image,
    Security,
    authorized_keys,
    check_custom_data,
)

__all__ = [
    "ROOT_DISK_TYPE",
    "NodeLaunch",
    "boot_diagnostics",
    "custom_data",
    "identity_type",
    "image_reference",
    "linux_configuration",
    "security_profile",
    "vm_profile",
]

ROOT_DISK_TYPE = "Premium_LRS"
# A node pulls its image and checks its fabric before its job answers; Azure takes up to four hours.
HEALTH_INTERVAL_SEC, HEALTH_PROBES, HEALTH_GRACE_SEC = 30, 3, 3600


@dataclass(frozen=True)
class NodeLaunch:
    """What every node of a pool has in common, whichever rung it comes from.

    Attributes:
        computer_name_prefix: of the host names, at most 15 characters.
        security_group_ids: application security groups.
        user_data: base64 of what cloud-init takes.
        disk_encryption_set_id: whose key encrypts the disk; None for Azure's own.
        entra_login: whether people may come in by SSH with their Entra ID account.
    """

    computer_name_prefix: str
    image: Image
    security: Security
    subnet_id: pulumi.Input[str]
    security_group_ids: Sequence[pulumi.Input[str]]
    user_data: pulumi.Input[str]
    root_volume_gib: int
    disk_encryption_set_id: pulumi.Input[str] | None
    entra_login: bool


def vm_profile(launch: NodeLaunch, fields: ScaleSetFields) -> compute.VirtualMachineScaleSetVMProfileArgs:
    """The profile of a scale set's machines, had in one way."""
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
        # Azure refuses the notice for spot: those hear of an eviction anyway, and of nothing else.
        scheduled_events_profile=None if spot else _terminate_notice(),
    )


def custom_data(user_data: pulumi.Input[str]) -> pulumi.Output[str]:
    """The first-boot file. Not Azure's `userData`, which any process on a machine may read, containers included."""
    return pulumi.Output.from_input(user_data).apply(check_custom_data)


def image_reference(image: Image) -> compute.ImageReferenceArgs:
    """An image in the provider's words."""
    return compute.ImageReferenceArgs(**{key: value for key, value in vars(image).items() if value is not None})


def linux_configuration() -> compute.LinuxConfigurationArgs:
    """No password, and a key that nobody has."""
    path, key = authorized_keys()
    return compute.LinuxConfigurationArgs(
        disable_password_authentication=True,
        provision_vm_agent=True,
        ssh=compute.SshConfigurationArgs(public_keys=[compute.SshPublicKeyArgs(path=path, key_data=key)]),
    )


def security_profile(security: Security) -> compute.SecurityProfileArgs:
    """Without Trusted Launch nothing is said of the boot: that is Azure's older, standard kind of machine."""
    if not security.trusted_launch:
        return compute.SecurityProfileArgs(encryption_at_host=security.encryption_at_host)
    return compute.SecurityProfileArgs(
        encryption_at_host=security.encryption_at_host,
        security_type=compute.SecurityTypes.TRUSTED_LAUNCH,
        uefi_settings=compute.UefiSettingsArgs(secure_boot_enabled=security.secure_boot, v_tpm_enabled=True),
    )


def boot_diagnostics() -> compute.DiagnosticsProfileArgs:
    """What a machine says before its log agent runs, or when it cannot: kept in storage of Azure's own."""
    return compute.DiagnosticsProfileArgs(boot_diagnostics=compute.BootDiagnosticsArgs(enabled=True))


def _storage_profile(launch: NodeLaunch) -> compute.VirtualMachineScaleSetStorageProfileArgs:
    key = launch.disk_encryption_set_id
    return compute.VirtualMachineScaleSetStorageProfileArgs(
        image_reference=image_reference(launch.image),
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
    """One Ethernet NIC without a public address: none is configured."""
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
    """Ours alone, or beside it the machine's own, which the login needs: then a token is asked for by its client id."""
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
