"""How a machine starts: the instance template of the nodes, and the head node with the rendezvous."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import pulumi
from pulumi_gcp import compute, dns

from gangway.components.catalog.schema import GcpMachineType, RoceFabric
from gangway.components.core.outputs import after, register_outputs
from gangway.components.gcp.capacity import Provisioning
from gangway.components.gcp.fabric import InterfacePlan, plan_interfaces

# Compute Engine documentation, "Operating system details": Canonical's image, with cloud-init.
HEAD_IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
MACHINE_TYPE = "e2-medium"
ROOT_VOLUME_GIB = 60
_DNS_TTL_SEC = 60
GPU_IMAGE = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580"
"""Canonical's image with NVIDIA's signed driver 580, without Docker, as in Google's cluster-toolkit of 2026-06-25."""
# Only IAM limits the service account; narrower scopes are the older way (Compute Engine documentation, "Service
# accounts": "set the full cloud-platform scope").
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


class HeadNodeArgs(TypedDict):
    """Inputs of HeadNode. `user_data` is base64 (gzip is fine). `host_name` is the full name of the A record in the
    private DNS zone `zone_id`; `security_group_ids` are network tags. `root_volume_gib` (60) holds the trainer's image;
    `machine_type` defaults to e2-medium, `image_id` to Ubuntu 24.04's newest image. `secure_boot` (true) is off for
    unsigned modules, such as a Lustre client. `kms_key_name` encrypts the disk instead of Google's own key. `tags` are
    labels.
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
    image_id: NotRequired[pulumi.Input[str]]
    root_volume_gib: NotRequired[int]
    secure_boot: NotRequired[bool]
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


class HeadNode(pulumi.ComponentResource):
    """The machine with the rendezvous."""

    instance_id: pulumi.Output[str]
    private_ip: pulumi.Output[str]
    host: pulumi.Output[str]

    def __init__(self, name: str, args: HeadNodeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:HeadNode", name, None, opts)
        self._name, self._args = name, args
        child = pulumi.ResourceOptions(parent=self)
        # Distinguishes it from the workers, which have the same stack labels.
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
        # Consumers of the name are deleted before the machine.
        self.host = after(args["host_name"], instance, record)
        register_outputs(self)

    def _instance(self, address: compute.Address, labels: dict[str, str]) -> compute.Instance:
        args = self._args
        return compute.Instance(
            f"{self._name}-head",
            project=args["project"],
            zone=args["zone"],
            machine_type=args.get("machine_type", MACHINE_TYPE),
            # The budget's stop turns it off: otherwise the next `up` would not start it.
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
            # No access configuration: no external address.
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
            # Another machine type needs a stop, in which the store is lost.
            allow_stopping_for_update=True,
            deletion_protection=False,
            # The old machine holds the address.
            opts=pulumi.ResourceOptions(
                parent=self,
                replace_on_changes=["metadata"],
                # Google applies them only at creation.
                ignore_changes=["bootDisk.initializeParams.labels"],
                delete_before_replace=True,
            ),
        )


@dataclass(frozen=True)
class NodeLaunch:
    """Settings of all nodes of a pool. `subnet_ids`: of the interfaces, in order; `kms_key_name`: of the disk."""

    project: str
    region: str
    image: pulumi.Input[str]
    service_account_email: pulumi.Input[str]
    subnet_ids: pulumi.Output[list[str]]
    network_tags: Sequence[pulumi.Input[str]]
    user_data: pulumi.Input[str]
    root_volume_gib: int
    secure_boot: bool
    kms_key_name: pulumi.Input[str] | None
    labels: Mapping[str, str]


def boot_disk_type(machine: GcpMachineType) -> str:
    """The boot disk's type: A3 Ultra and A4 take only Hyperdisk."""
    return "hyperdisk-balanced" if isinstance(machine.gpu_fabric, RoceFabric) else "pd-balanced"


def instance_metadata(user_data: pulumi.Input[str]) -> dict[str, pulumi.Input[str]]:
    """`user_data` is base64, gzipped or not: cloud-init decodes it. A start-up script would run on every boot."""
    return {
        "user-data": user_data,
        "user-data-encoding": "base64",
        # People log in with their own accounts, through IAP, not the project's keys.
        "enable-oslogin": "TRUE",
        "block-project-ssh-keys": "TRUE",
        # Output of a machine whose log agent does not run.
        "serial-port-logging-enable": "TRUE",
    }


def instance_template(
    name: str,
    launch: NodeLaunch,
    machine: GcpMachineType,
    provisioning: Provisioning,
    opts: pulumi.ResourceOptions,
) -> compute.InstanceTemplate:
    """A template for one machine type. Its labels are fixed: whatever launches from it sets the current ones."""
    first_labels = pulumi.ResourceOptions(ignore_changes=["labels", "disks[0].labels"])
    return compute.InstanceTemplate(
        name,
        project=launch.project,
        region=launch.region,
        machine_type=machine.name,
        can_ip_forward=False,
        disks=[_boot_disk(launch, machine)],
        network_interfaces=[_interface(interface, launch) for interface in plan_interfaces(machine)],
        tags=launch.network_tags,
        scheduling=_scheduling(provisioning),
        reservation_affinity=_reservation_affinity(provisioning),
        service_account=compute.InstanceTemplateServiceAccountArgs(email=launch.service_account_email, scopes=SCOPES),
        shielded_instance_config=compute.InstanceTemplateShieldedInstanceConfigArgs(
            enable_secure_boot=launch.secure_boot, enable_vtpm=True, enable_integrity_monitoring=True
        ),
        metadata=instance_metadata(launch.user_data),
        labels=launch.labels,
        opts=pulumi.ResourceOptions.merge(opts, first_labels),
    )


def _boot_disk(launch: NodeLaunch, machine: GcpMachineType) -> compute.InstanceTemplateDiskArgs:
    key = launch.kms_key_name
    return compute.InstanceTemplateDiskArgs(
        boot=True,
        auto_delete=True,
        source_image=launch.image,
        disk_type=boot_disk_type(machine),
        disk_size_gb=launch.root_volume_gib,
        disk_encryption_key=None
        if key is None
        else compute.InstanceTemplateDiskDiskEncryptionKeyArgs(kms_key_self_link=key),
        labels=launch.labels,
    )


def _interface(interface: InterfacePlan, launch: NodeLaunch) -> compute.InstanceTemplateNetworkInterfaceArgs:
    return compute.InstanceTemplateNetworkInterfaceArgs(
        subnetwork=launch.subnet_ids.apply(lambda ids: ids[interface.index]), nic_type=interface.nic_type
    )


def _scheduling(provisioning: Provisioning) -> compute.InstanceTemplateSchedulingArgs:
    duration = provisioning.run_duration_sec
    return compute.InstanceTemplateSchedulingArgs(
        provisioning_model=provisioning.model,
        # The older spelling of spot, which the provider requires too.
        preemptible=provisioning.model == "SPOT",
        automatic_restart=provisioning.automatic_restart,
        instance_termination_action=provisioning.termination_action,
        # GPU machines cannot live-migrate.
        on_host_maintenance="TERMINATE",
        max_run_duration=None
        if duration is None
        else compute.InstanceTemplateSchedulingMaxRunDurationArgs(seconds=duration),
    )


def _reservation_affinity(provisioning: Provisioning) -> compute.InstanceTemplateReservationAffinityArgs:
    if provisioning.reservation is None:
        return compute.InstanceTemplateReservationAffinityArgs(type="NO_RESERVATION")
    return compute.InstanceTemplateReservationAffinityArgs(
        type="SPECIFIC_RESERVATION",
        specific_reservation=compute.InstanceTemplateReservationAffinitySpecificReservationArgs(
            key="compute.googleapis.com/reservation-name", values=[provisioning.reservation]
        ),
    )
