"""What the renderers of Azure, Google Cloud and OpenStack are told of any machine. AWS's nodes have `images.specs`."""

import math
from dataclasses import dataclass
from typing import Literal

from components.job import JobSpec
from images.specs import check_digest, check_env, check_hours, ended_object

__all__ = ["FileSystem", "MachineSpec", "RdmaSetup"]


@dataclass(frozen=True)
class FileSystem:
    """What every machine of a stack mounts.

    Attributes:
        kind: Managed Lustre; Filestore, or a Manila share over NFS; native CephFS; or a folder of the run bucket (for
            TPU slices without either).
        source: `IP@tcp:/NAME`, `IP:/SHARE`, `IP:6789,IP:6789:/SHARE`, `BUCKET/FOLDER`.
    """

    kind: Literal["lustre", "nfs", "ceph", "bucket"]
    source: str
    mount_point: str

    @property
    def script(self) -> str:
        """What mounts it."""
        return f"mount-{self.kind}.sh"


@dataclass(frozen=True)
class RdmaSetup:
    """Adapters that a machine must have up before it counts as one; `components.site_fabric` says what each is.

    Attributes:
        link_layer: as sysfs has it.
        num_devices: with their link up, at `gbps_each`.
        hcas: their names; empty for whichever are up.
        devices: of the host, passed to the job's container beside the GPUs.
    """

    link_layer: Literal["InfiniBand", "Ethernet"]
    num_devices: int
    gbps_each: float
    hcas: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, str]:
        """What check-rdma.sh wants to know."""
        return {
            "RDMA_DEVICES": str(self.num_devices),
            "RDMA_GBPS": str(math.floor(self.gbps_each)),
            "RDMA_HCAS": " ".join(self.hcas),
            "RDMA_LINK_LAYER": self.link_layer,
        }


@dataclass(frozen=True, kw_only=True)
class MachineSpec:
    """What all of a stack's machines are told.

    Attributes:
        job: what workers run; its image must be named by digest.
        image_registry: host to log in to, such as `us-central1-docker.pkg.dev` or `gangway.azurecr.io`.
        bucket_uri: `gs://...`, `https://ACCOUNT.blob...` or `swift://CONTAINER` prefix of `<job>/run.json`.
        run_dir: the run directory as the machine sees it.
        file_system: to be mounted; None for none.
        max_hours: of the job, counted from its first start on any node, also over restarts; None for no limit.
    """

    stack: str
    job: JobSpec
    image_registry: str
    bucket_uri: str
    run_dir: str
    file_system: FileSystem | None = None
    max_hours: float | None = None

    def __post_init__(self) -> None:
        """Refuse what a machine could only find out after it has begun to cost money."""
        place = type(self).__name__
        check_digest(f"{place}.job.image", self.job.image)
        check_hours(place, self.max_hours)
        check_env(place, self.job.env)

    @property
    def ended_object(self) -> str:
        """Below `bucket_uri`: there once this very job has ended, so that nobody fills groups for it any more."""
        return ended_object(self.job, self.max_hours)
