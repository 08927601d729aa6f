"""HeadNode: one small standard machine that outlives the workers, without an external address, with a name of its own.

It holds the rendezvous store, fills the capacity ladder and puts the run record; what runs on it is its user data. A
newer image alone does not replace the machine, a change of its user data does: cloud-init acts on the first boot only.
Not a bastion: people come in through IAP. Not highly available either: when its host fails Compute Engine starts it on
another, with the same address; the workers train on, and only joining waits.
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_gcp import compute, dns

from components.gcp.launch import SCOPES, instance_metadata
from components.order import after

__all__ = ["HEAD_IMAGE", "HeadNode", "HeadNodeArgs"]

# Compute Engine documentation, "Operating system details": Canonical's image, with cloud-init.
HEAD_IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
MACHINE_TYPE = "e2-medium"
ROOT_VOLUME_GIB = 60
_DNS_TTL_SEC = 60


class HeadNodeArgs(TypedDict):
    """Inputs of HeadNode.

    `user_data` is base64 (gzip is fine). `host_name` is the full name of the A record, `zone_id` the private DNS zone's
    name; `security_group_ids` are network tags. `root_volume_gib` (60) holds the trainer's image,
    `machine_type` is e2-medium unless given, and `image_id` is Ubuntu 24.04's newest image unless given. `secure_boot`
    (true) is turned off where the head loads unsigned modules, such as a Lustre client. `kms_key_name` encrypts the
    disk instead of Google's own key. `tags` are labels.
    """

    project: str
    region: str
    zone: str
    subnet_id: pulumi.Input[str]
    security_group_ids: list[pulumi.Input[str]]
    service_account_email: pulumi.Input[str]
    user_data: pulumi.Input[str]
    host_name: str
    zone_id: pulumi.Input[str]
    machine_type: NotRequired[str]
    image_id: NotRequired[str]
    root_volume_gib: NotRequired[int]
    secure_boot: NotRequired[bool]
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


class HeadNode(pulumi.ComponentResource):
    """The machine at which the workers meet."""

    instance_id: pulumi.Output[str]
    private_ip: pulumi.Output[str]
    host: pulumi.Output[str]

    def __init__(self, name: str, args: HeadNodeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:HeadNode", name, None, opts)
        self._name, self._args = name, args
        child = pulumi.ResourceOptions(parent=self)
        # Tells it from the workers, which carry the same labels of the stack.
        labels = {**args["tags"], "gangway-role": "head"}
        address = compute.Address(
            f"{name}-head",
            project=args["project"],
            region=args["region"],
            address_type="INTERNAL",
            subnetwork=args["subnet_id"],
            labels=labels,
            opts=child,
        )
        instance = self._instance(address, labels)
        record = dns.RecordSet(
            f"{name}-head",
            project=args["project"],
            managed_zone=args["zone_id"],
            name=f"{args['host_name']}.",
            type="A",
            ttl=_DNS_TTL_SEC,
            rrdatas=[address.address],
            opts=child,
        )
        self.instance_id = instance.id
        self.private_ip = address.address
        # Whoever takes the name goes before the machine does.
        self.host = after(args["host_name"], instance, record)
        self.register_outputs(
            {"instance_id": self.instance_id, "private_ip": self.private_ip, "host": self.host},
        )

    def _instance(self, address: compute.Address, labels: dict[str, str]) -> compute.Instance:
        args = self._args
        return compute.Instance(
            f"{self._name}-head",
            project=args["project"],
            zone=args["zone"],
            machine_type=args.get("machine_type", MACHINE_TYPE),
            # The budget's stop turns it off: without this it would be as declared, and stay so.
            desired_status="RUNNING",
            can_ip_forward=False,
            boot_disk=compute.InstanceBootDiskArgs(
                auto_delete=True,
                kms_key_self_link=args.get("kms_key_name"),
                initialize_params=compute.InstanceBootDiskInitializeParamsArgs(
                    image=args.get("image_id", HEAD_IMAGE),
                    size=args.get("root_volume_gib", ROOT_VOLUME_GIB),
                    type="pd-balanced",
                    labels=labels,
                ),
            ),
            # Without an access configuration it has no external address.
            network_interfaces=[
                compute.InstanceNetworkInterfaceArgs(
                    subnetwork=args["subnet_id"], network_ip=address.address, nic_type="GVNIC"
                )
            ],
            tags=args["security_group_ids"],
            service_account=compute.InstanceServiceAccountArgs(email=args["service_account_email"], scopes=SCOPES),
            scheduling=compute.InstanceSchedulingArgs(
                provisioning_model="STANDARD", automatic_restart=True, on_host_maintenance="MIGRATE"
            ),
            shielded_instance_config=compute.InstanceShieldedInstanceConfigArgs(
                enable_secure_boot=args.get("secure_boot", True), enable_vtpm=True, enable_integrity_monitoring=True
            ),
            metadata=instance_metadata(args["user_data"]),
            labels=labels,
            # Another machine type needs a stop; losing the store for that minute is what its user asked for.
            allow_stopping_for_update=True,
            deletion_protection=False,
            # The address is one machine's at a time, so the old machine goes first.
            opts=pulumi.ResourceOptions(parent=self, replace_on_changes=["metadata"], delete_before_replace=True),
        )
