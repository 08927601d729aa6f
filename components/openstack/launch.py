"""How a machine starts: a server's boot disk and ports, and the head node with the rendezvous."""

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_openstack import compute, networking

from gangway.components.core.findings import InputError
from gangway.components.core.outputs import after, register_outputs
from gangway.components.core.tags import ROLE_TAG, tag_words
from gangway.components.openstack.machine_secrets import SECRETS_TAG, SIGNATURE_TAG

HEAD_ROOT_GIB = 64  # size of a boot volume, which holds the trainer's image
# Nova documentation, "Provide user data to instances": maximum bytes of base64.
USER_DATA_LIMIT_BYTES = 65_535
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Nova waits a minute for a node to save before it is deleted, and a busy hypervisor cleans up slowly.
DELETE_TIMEOUT = "30m"
# GPU images are large, and are copied to a volume.
CREATE_TIMEOUT = "60m"


class HeadNodeArgs(TypedDict):
    """Inputs of HeadNode. `user_data` is base64 (gzip is fine), `image` an image's id or name, `machine_type` a
    flavour's name. `private_ip` is fixed (`gangway.components.openstack.network.NetworkPlan`). `boot_volume_gib` boots
    from a volume of `volume_type`, by default from the flavour's disk. `secrets_place` and `secrets_signature` are
    MachineSecrets'.
    """

    machine_type: str
    zone: str
    image: str
    boot_volume_gib: NotRequired[int | None]
    volume_type: NotRequired[str | None]
    network_id: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    private_ip: str
    security_group_ids: list[pulumi.Input[str]]
    user_data: pulumi.Input[str]
    secrets_place: pulumi.Input[str]
    secrets_signature: pulumi.Input[str]
    tags: dict[str, str]


class HeadNode(pulumi.ComponentResource):
    """The machine with the rendezvous. `host` is its address, known once it exists."""

    instance_id: pulumi.Output[str]
    private_ip: pulumi.Output[str]
    host: pulumi.Output[str]

    def __init__(self, name: str, args: HeadNodeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:openstack:HeadNode", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        port = declare_port(
            f"{name}-head",
            args["network_id"],
            args["subnet_id"],
            args["private_ip"],
            args["security_group_ids"],
            args["tags"],
            child,
        )
        machine = declare_instance(
            f"{name}-head",
            args["machine_type"],
            plan_boot_source(args["image"], args.get("boot_volume_gib"), args.get("volume_type")),
            args["user_data"],
            [port],
            {**args["tags"], ROLE_TAG: "head", **secrets_tags(args["secrets_place"], args["secrets_signature"])},
            child,
            availability_zone=args["zone"] or None,
        )
        self.instance_id = machine.id
        self.private_ip = pulumi.Output.from_input(args["private_ip"])
        # Its consumers are deleted before the machine.
        self.host = after(args["private_ip"], machine)
        register_outputs(self)


@dataclass(frozen=True)
class BootSource:
    """The boot disk of an instance. `image_id`: empty if the image is named, and vice versa; `volume_gib`: None for the
    flavour's disk; `volume_type`: None for the cloud's default.
    """

    image_id: str
    image_name: str
    volume_gib: int | None
    volume_type: str | None

    def inputs(self) -> dict[str, Any]:
        """The inputs of an instance."""
        if self.volume_gib is None:
            return {"image_id": self.image_id} if self.image_id else {"image_name": self.image_name}
        return {
            "block_devices": [
                compute.InstanceBlockDeviceArgs(
                    uuid=self.image_id,
                    source_type="image",
                    destination_type="volume",
                    boot_index=0,
                    volume_size=self.volume_gib,
                    volume_type=self.volume_type,
                    delete_on_termination=True,
                )
            ]
        }


def plan_boot_source(image: str, volume_gib: int | None, volume_type: str | None, place: str = "image") -> BootSource:
    """Choose the boot disk. InputError at `place`: a volume of a named image, since Nova copies images by id only."""
    is_id = _UUID.fullmatch(image) is not None
    if volume_gib is not None and not is_id:
        raise InputError(
            place,
            "a boot volume is made from an image by its id, and this is a name",
            value=image,
            allowed="a UUID",
            fix=f"write the id that `openstack image show -f value -c id '{image}'` prints",
        )
    return BootSource(image if is_id else "", "" if is_id else image, volume_gib, volume_type)


def check_user_data(user_data: str, place: str = "user_data") -> str:
    """Base64 user data. InputError at `place`: above Nova's limit."""
    if (size := len(user_data)) > USER_DATA_LIMIT_BYTES:
        raise InputError(
            place,
            "Nova takes no such user data",
            value=f"{size} bytes of base64, {len(b64decode(user_data))} before",
            allowed=f"at most {USER_DATA_LIMIT_BYTES} bytes of base64",
            fix="shorten the job's env and argv, for example by a file on the share",
        )
    return user_data


def secrets_tags(place: pulumi.Input[str], signature: pulumi.Input[str]) -> dict[str, pulumi.Input[str]]:
    """A machine's metadata items about its secrets, which change while it lives."""
    return {SECRETS_TAG: place, SIGNATURE_TAG: signature}


def declare_port(
    name: str,
    network_id: pulumi.Input[str],
    subnet_id: pulumi.Input[str],
    address: str,
    security_group_ids: Sequence[pulumi.Input[str]],
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> networking.Port:
    """A port with a fixed address, behind its security groups, without a floating address."""
    return networking.Port(
        name,
        network_id=network_id,
        fixed_ips=[networking.PortFixedIpArgs(subnet_id=subnet_id, ip_address=address)],
        security_group_ids=list(security_group_ids),
        port_security_enabled=True,
        admin_state_up=True,
        tags=tag_words(tags),
        opts=opts,
    )


def declare_instance(
    name: str,
    flavour: str,
    boot: BootSource,
    user_data: pulumi.Input[str],
    ports: Sequence[networking.Port],
    tags: Mapping[str, pulumi.Input[str]],
    opts: pulumi.ResourceOptions,
    **further: Any,
) -> compute.Instance:
    """An instance on these ports; the first has the default route. It is stopped before it is deleted, so that the job
    saves, and not started again after it has shut itself down. It is deleted before another takes its `ports`.
    """
    stays = pulumi.ResourceOptions(
        ignore_changes=["powerState"],
        delete_before_replace=True,
        custom_timeouts=pulumi.CustomTimeouts(create=CREATE_TIMEOUT, delete=DELETE_TIMEOUT),
    )
    return compute.Instance(
        name,
        flavor_name=flavour,
        networks=[compute.InstanceNetworkArgs(port=port.id) for port in ports],
        # User data on the drive needs no metadata service; cloud-init looks there first.
        config_drive=True,
        user_data=pulumi.Output.from_input(user_data).apply(check_user_data),
        stop_before_destroy=True,
        metadata=dict(tags),
        opts=pulumi.ResourceOptions.merge(opts, stays),
        **boot.inputs(),
        **further,
    )
