"""What workers and the head have in common as instances: image, boot disk, user data, port.

A root disk is the flavour's own (on the hypervisor) or a volume made from the image. GPUs belong to the flavour and are
not declared.
"""

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_openstack import compute, networking

from components.findings import InputError
from components.openstack.names import tag_words

__all__ = [
    "ROLE_TAG",
    "USER_DATA_LIMIT_BYTES",
    "Boot",
    "check_user_data",
    "declare_instance",
    "declare_port",
    "plan_boot",
]

ROLE_TAG = "gangway:role"
"""Tells the head from the workers, which carry the same tags of the stack."""
# Nova documentation, "Provide user data to instances": so many bytes of base64.
USER_DATA_LIMIT_BYTES = 65_535
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A node leaves only when it has saved; Nova waits a minute for it, and a busy hypervisor takes longer to clean up.
DELETE_TIMEOUT = "30m"
# Images for GPUs are large, and a volume is made of the whole of one.
CREATE_TIMEOUT = "60m"


@dataclass(frozen=True)
class Boot:
    """What an instance starts from.

    Attributes:
        image_id: of the image; empty where it is named.
        image_name: of the image; empty where its id is known.
        volume_gib: of the volume that the image is copied to; None for the flavour's own disk.
        volume_type: of that volume; None for the cloud's usual one.
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


def plan_boot(image: str, volume_gib: int | None, volume_type: str | None, place: str = "image") -> Boot:
    """What an instance starts from.

    Args:
        image: id, or the name that one image has.
        volume_gib: size of a boot volume; None for the flavour's own disk.
        volume_type: of it.
        place: config path of the image.

    Raises:
        InputError: a volume is wanted of an image that is named: Nova copies images by their id.
    """
    is_id = _UUID.fullmatch(image) is not None
    if volume_gib is not None and not is_id:
        raise InputError(
            place,
            "a boot volume is made from an image by its id, and this is a name",
            value=image,
            allowed="a UUID",
            fix=f"write the id that `openstack image show -f value -c id '{image}'` prints",
        )
    return Boot(image if is_id else "", "" if is_id else image, volume_gib, volume_type)


def check_user_data(user_data: str) -> str:
    """Base64 user data, which Nova takes up to a limit.

    Raises:
        InputError: it is larger.
    """
    if (size := len(user_data)) > USER_DATA_LIMIT_BYTES:
        raise InputError(
            "user_data",
            "Nova takes no such user data",
            value=f"{size} bytes of base64, {len(b64decode(user_data))} before",
            allowed=f"at most {USER_DATA_LIMIT_BYTES} bytes of base64",
            fix="shorten the job's env and argv, for example by a file on the share",
        )
    return user_data


def declare_port(
    name: str,
    network_id: pulumi.Input[str],
    subnet_id: pulumi.Input[str],
    address: str,
    security_group_ids: Sequence[pulumi.Input[str]],
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> networking.Port:
    """A port with an address for good, behind its security groups, without a floating address."""
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
    boot: Boot,
    user_data: pulumi.Input[str],
    ports: Sequence[networking.Port],
    tags: Mapping[str, pulumi.Input[str]],
    opts: pulumi.ResourceOptions,
    **further: Any,
) -> compute.Instance:
    """An instance on these ports, the first being the one of its default route.

    Its user data holds a credential, so it is a secret in the state. An instance is stopped before it is deleted: that
    is when the job saves. One that has shut itself down is not started again by a later `up`.

    Args:
        name: of the instance.
        flavour: by name.
        boot: image and disk.
        user_data: base64.
        ports: of the instance, and of no other: it goes before another takes them.
        tags: as metadata.
        opts: of the resource.
        further: inputs of `compute.Instance` that only some have.
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
        # Read from the drive, user data need no metadata service; cloud-init looks there first.
        config_drive=True,
        user_data=_secret(user_data),
        stop_before_destroy=True,
        metadata=dict(tags),
        opts=pulumi.ResourceOptions.merge(opts, stays),
        **boot.inputs(),
        **further,
    )


def _secret(user_data: pulumi.Input[str]) -> pulumi.Output[str]:
    checked: pulumi.Output[str] = pulumi.Output.from_input(user_data).apply(check_user_data)
    return pulumi.Output.secret(checked)
