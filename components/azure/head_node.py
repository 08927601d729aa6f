"""HeadNode: one small standard machine that outlives the workers, without a public address. Changing user data or image
replaces it: Azure and cloud-init read neither later. After a host failure it keeps its address: workers continue.
"""

from ipaddress import IPv4Network
from typing import NotRequired

import pulumi
from pulumi_azure_native import compute, network, privatedns

from gangway.components.azure.common import CommonArgs, replacing
from gangway.components.azure.launch import (
    ADMIN,
    ENTRA_LOGIN,
    ROOT_DISK_TYPE,
    Security,
    boot_diagnostics,
    custom_data,
    identity_type,
    image_reference,
    linux_configuration,
    plan_image,
    security_profile,
    with_version,
)
from gangway.components.core.outputs import after, register_outputs
from gangway.components.core.tags import shortened

# Canonical's documentation, "Find Ubuntu images on Microsoft Azure": generation 2, for Trusted Launch.
HEAD_IMAGE = "Canonical:ubuntu-24_04-lts:server:latest"
HEAD_MACHINE_TYPE = "Standard_D2s_v5"
HEAD_ROOT_GIB = 64
_DNS_TTL_SEC = 60
_MAX_COMPUTER_NAME = 64
# "Bv1 size series": accelerated networking only on B12ms, B16ms and B20ms.
_WITHOUT_ACCELERATED_NETWORKING = frozenset({"Standard_B2ms", "Standard_B2s"})


class HeadNodeArgs(CommonArgs):
    """Inputs of HeadNode. `user_data` is base64 (gzip is fine). `host_name` is the full name of the A record in the
    private DNS zone `zone_id` (its name; None for no record) of `zone_resource_group_name` (the machine's);
    `private_ip` is fixed (`head_address`). `security_group_ids` are application security
    groups. `root_volume_gib` (64) holds the trainer's image; `machine_type` defaults to Standard_D2s_v5, `image_id` to
    Ubuntu 24.04's newest image, or `image_version` of it. `secure_boot` (true) is off for unsigned modules, such as a
    Lustre client; `trusted_launch` and `encryption_at_host` (both true) for machine types without them;
    `accelerated_networking` defaults to on, except for Standard_B2s and B2ms. `disk_encryption_set_id` encrypts the
    disk with its key instead of Azure's. `entra_login` (false) allows SSH by Entra ID.
    """

    zone: str
    subnet_id: pulumi.Input[str]
    private_ip: str
    security_group_ids: list[pulumi.Input[str]]
    identity_id: pulumi.Input[str]
    user_data: pulumi.Input[str]
    host_name: str
    zone_id: pulumi.Input[str] | None
    zone_resource_group_name: NotRequired[str]
    machine_type: NotRequired[str]
    image_id: NotRequired[str]
    image_version: NotRequired[pulumi.Input[str]]
    root_volume_gib: NotRequired[int]
    trusted_launch: NotRequired[bool]
    secure_boot: NotRequired[bool]
    encryption_at_host: NotRequired[bool]
    accelerated_networking: NotRequired[bool]
    disk_encryption_set_id: NotRequired[pulumi.Input[str] | None]
    entra_login: NotRequired[bool]


def head_address(subnet_cidr: str) -> str:
    """The head's address: the last usable one of the subnet, since Azure assigns from the first.

    >>> head_address("10.20.0.0/18")
    '10.20.63.254'
    """
    return str(IPv4Network(subnet_cidr)[-2])


class HeadNode(pulumi.ComponentResource):
    """The machine with the rendezvous."""

    instance_id: pulumi.Output[str]
    private_ip: pulumi.Output[str]
    host: pulumi.Output[str]

    def __init__(self, name: str, args: HeadNodeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:HeadNode", name, None, replacing(opts))
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        # Distinguishes it from the workers, which have the same stack tags.
        self._tags = {**args["tags"], "gangway-role": "head"}
        machine = self._machine(self._nic())
        if args.get("entra_login", False):
            self._login(machine)
        zone = args["zone_id"]
        records = [] if zone is None else [self._record(zone)]
        self.instance_id = machine.id
        self.private_ip = pulumi.Output.from_input(args["private_ip"])
        # Consumers of the name are deleted before the machine.
        self.host = after(args["host_name"], machine, *records)
        register_outputs(self)

    def _record(self, zone: pulumi.Input[str]) -> privatedns.PrivateRecordSet:
        args = self._args
        return privatedns.PrivateRecordSet(
            f"{self._name}-head",
            resource_group_name=args.get("zone_resource_group_name", args["resource_group_name"]),
            private_zone_name=zone,
            relative_record_set_name=args["host_name"].partition(".")[0],
            record_type="A",
            ttl=_DNS_TTL_SEC,
            a_records=[privatedns.ARecordArgs(ipv4_address=args["private_ip"])],
            opts=self._child,
        )

    def _nic(self) -> network.NetworkInterface:
        """A separate resource, so that a replaced machine keeps the address."""
        args = self._args
        accelerated = args.get("machine_type", HEAD_MACHINE_TYPE) not in _WITHOUT_ACCELERATED_NETWORKING
        return network.NetworkInterface(
            f"{self._name}-head",
            resource_group_name=args["resource_group_name"],
            location=args["location"],
            enable_accelerated_networking=args.get("accelerated_networking", accelerated),
            enable_ip_forwarding=False,
            # No public address.
            ip_configurations=[
                network.NetworkInterfaceIPConfigurationArgs(
                    name="private",
                    primary=True,
                    subnet=network.SubnetArgs(id=args["subnet_id"]),
                    private_ip_allocation_method="Static",
                    private_ip_address=args["private_ip"],
                    application_security_groups=[
                        network.ApplicationSecurityGroupArgs(id=group) for group in args["security_group_ids"]
                    ],
                )
            ],
            tags=self._tags,
            opts=self._child,
        )

    def _machine(self, nic: network.NetworkInterface) -> compute.VirtualMachine:
        args = self._args
        return compute.VirtualMachine(
            f"{self._name}-head",
            resource_group_name=args["resource_group_name"],
            location=args["location"],
            zones=[args["zone"]] if args["zone"] else None,
            hardware_profile=compute.HardwareProfileArgs(vm_size=args.get("machine_type", HEAD_MACHINE_TYPE)),
            priority="Regular",
            identity=compute.VirtualMachineIdentityArgs(
                type=identity_type(entra_login=args.get("entra_login", False)),
                user_assigned_identities=[args["identity_id"]],
            ),
            storage_profile=self._storage_profile(),
            os_profile=compute.OSProfileArgs(
                computer_name=shortened(f"{self._name}-head", _MAX_COMPUTER_NAME),
                admin_username=ADMIN,
                custom_data=custom_data(args["user_data"]),
                linux_configuration=linux_configuration(),
            ),
            network_profile=compute.NetworkProfileArgs(
                network_interfaces=[
                    compute.NetworkInterfaceReferenceArgs(id=nic.id, primary=True, delete_option="Detach")
                ]
            ),
            security_profile=security_profile(
                Security(
                    trusted_launch=args.get("trusted_launch", True),
                    secure_boot=args.get("secure_boot", True),
                    encryption_at_host=args.get("encryption_at_host", True),
                )
            ),
            diagnostics_profile=boot_diagnostics(),
            tags=self._tags,
            # The old machine holds the NIC.
            opts=pulumi.ResourceOptions(
                parent=self,
                delete_before_replace=True,
            ),
        )

    def _storage_profile(self) -> compute.StorageProfileArgs:
        key = self._args.get("disk_encryption_set_id")
        return compute.StorageProfileArgs(
            image_reference=image_reference(
                with_version(plan_image(self._args.get("image_id", HEAD_IMAGE)), self._args.get("image_version"))
            ),
            os_disk=compute.OSDiskArgs(
                create_option="FromImage",
                delete_option="Delete",
                caching=compute.CachingTypes.READ_WRITE,
                disk_size_gb=self._args.get("root_volume_gib", HEAD_ROOT_GIB),
                managed_disk=compute.ManagedDiskParametersArgs(
                    storage_account_type=ROOT_DISK_TYPE,
                    disk_encryption_set=None if key is None else compute.DiskEncryptionSetParametersArgs(id=key),
                ),
            ),
        )

    def _login(self, machine: compute.VirtualMachine) -> None:
        compute.VirtualMachineExtension(
            f"{self._name}-head-login",
            resource_group_name=self._args["resource_group_name"],
            location=self._args["location"],
            vm_name=machine.name,
            vm_extension_name=ENTRA_LOGIN.name,
            publisher=ENTRA_LOGIN.publisher,
            type=ENTRA_LOGIN.type,
            type_handler_version=ENTRA_LOGIN.version,
            auto_upgrade_minor_version=True,
            tags=self._tags,
            opts=self._child,
        )
