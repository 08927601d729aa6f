"""HeadNode: one small instance that outlives the workers, with an address of its own and no floating one.

It holds the rendezvous store, scrapes metrics and puts the run record; what runs on it is its user data, and a change
of that makes it anew at the same address. Not a bastion, and not highly available: when its hypervisor fails somebody
has to start it elsewhere; the workers train on, and only joining waits.
"""

from typing import NotRequired, TypedDict

import pulumi

from components.openstack.launch import ROLE_TAG, declare_instance, declare_port, plan_boot
from components.order import after

__all__ = ["HEAD_ROOT_GIB", "HeadNode", "HeadNodeArgs"]

HEAD_ROOT_GIB = 64
"""Of a boot volume: it holds the trainer's image."""


class HeadNodeArgs(TypedDict):
    """Inputs of HeadNode.

    `user_data` is base64 (gzip is fine), `image` an image's id or name, `machine_type` a flavour's name. `private_ip`
    is the machine's own for good (`components.openstack.network.NetworkPlan`). `boot_volume_gib` starts it from a
    volume, of `volume_type`; without it its disk is the flavour's.
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
    tags: dict[str, str]


class HeadNode(pulumi.ComponentResource):
    """The machine at which the workers meet. `host` is its address, known when it stands."""

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
            plan_boot(args["image"], args.get("boot_volume_gib"), args.get("volume_type")),
            args["user_data"],
            [port],
            {**args["tags"], ROLE_TAG: "head"},
            child,
            availability_zone=args["zone"] or None,
        )
        self.instance_id = machine.id
        self.private_ip = pulumi.Output.from_input(args["private_ip"])
        # Whoever takes it goes before the machine does.
        self.host = after(args["private_ip"], machine)
        self.register_outputs(
            {"instance_id": self.instance_id, "private_ip": self.private_ip, "host": self.host},
        )
