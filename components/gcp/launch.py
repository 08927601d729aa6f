"""Instance templates of GPU nodes: one machine type, wired for its fabric, closed, labelled, with one way of being had.

What launches from a template, and how many, is the node pool's business. GPUs and the local SSDs that belong to a
machine type come with it and are not declared. Templates are immutable: any change makes a new one, which instances
take on only when they are made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_gcp import compute

from components.catalog import GcpMachineType, RoceFabric
from components.gcp.capacity import Provisioning
from components.gcp.fabric import InterfacePlan, plan_interfaces

__all__ = ["GPU_IMAGE", "NodeLaunch", "boot_disk_type", "instance_metadata", "instance_template"]

GPU_IMAGE = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580"
"""Canonical's image with NVIDIA's driver 580, which CUDA 13 needs, its modules signed. Docker is not in it.

Google's cluster-toolkit of 2026-06-25 builds on images of this family for A3 Mega, A3 Ultra and A4.
"""
# Access is granted to the service account by IAM alone; narrower scopes are the older, coarser way (Compute Engine
# documentation, "Service accounts": "set the full cloud-platform scope").
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


@dataclass(frozen=True)
class NodeLaunch:
    """What every node of a pool has in common, whichever rung it comes from.

    Attributes:
        image: an image or an image family.
        subnet_ids: of the machine's interfaces, in their order.
        network_tags: by which the firewall knows the node.
        user_data: base64 of what cloud-init takes.
        secure_boot: whether only signed kernels and modules are loaded.
        kms_key_name: of the key that encrypts the disk; None for Google's own.
    """

    project: str
    region: str
    image: str
    service_account_email: pulumi.Input[str]
    subnet_ids: pulumi.Output[list[str]]
    network_tags: Sequence[pulumi.Input[str]]
    user_data: pulumi.Input[str]
    root_volume_gib: int
    secure_boot: bool
    kms_key_name: pulumi.Input[str] | None
    labels: Mapping[str, str]


def boot_disk_type(machine: GcpMachineType) -> str:
    """The type of a machine's boot disk: A3 Ultra and A4 take nothing but Hyperdisk."""
    return "hyperdisk-balanced" if isinstance(machine.gpu_fabric, RoceFabric) else "pd-balanced"


def instance_metadata(user_data: pulumi.Input[str]) -> dict[str, pulumi.Input[str]]:
    """Metadata of every machine of ours.

    Args:
        user_data: base64; gzip inside it is fine. cloud-init's source for Compute Engine (`DataSourceGCE`) reads
            `user-data`, and decodes it when `user-data-encoding` says so; Ubuntu's images run cloud-init. A start-up
            script would run on every boot, and has no files, units or packages of its own.
    """
    return {
        "user-data": user_data,
        "user-data-encoding": "base64",
        # People come in with their own accounts, through IAP: no keys of the project's.
        "enable-oslogin": "TRUE",
        "block-project-ssh-keys": "TRUE",
        # What a machine says before its log agent runs, or when it cannot.
        "serial-port-logging-enable": "TRUE",
    }


def instance_template(
    name: str,
    launch: NodeLaunch,
    machine: GcpMachineType,
    provisioning: Provisioning,
    opts: pulumi.ResourceOptions,
) -> compute.InstanceTemplate:
    """A template for one machine type, had in one way."""
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
        opts=opts,
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
    """An interface without an external address: it has no access configuration."""
    return compute.InstanceTemplateNetworkInterfaceArgs(
        subnetwork=launch.subnet_ids.apply(lambda ids: ids[interface.index]), nic_type=interface.nic_type
    )


def _scheduling(provisioning: Provisioning) -> compute.InstanceTemplateSchedulingArgs:
    duration = provisioning.run_duration_sec
    return compute.InstanceTemplateSchedulingArgs(
        provisioning_model=provisioning.model,
        # The older spelling of spot, which the provider wants beside the newer one.
        preemptible=provisioning.model == "SPOT",
        automatic_restart=provisioning.automatic_restart,
        instance_termination_action=provisioning.termination_action,
        # Machines with GPUs cannot move to another host while they run.
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
