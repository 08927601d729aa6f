"""What machines on Google Cloud do at boot, all values known: GPU workers, the head node, hosts of TPU slices.

Frozen dataclasses of plain values, made inside `Output.apply`. They check only what a machine would find out too late;
what a person writes has been checked by `stacks`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from components.job import JobSpec
from images.specs import check_digest, check_env, check_hours, check_pinned, ended_object

__all__ = ["DataSource", "FileSystem", "GcpHeadSpec", "GcpMachineSpec", "GcpNodeSpec", "NcclSetup", "TpuHostSpec"]


@dataclass(frozen=True)
class FileSystem:
    """What every machine of a stack mounts.

    Attributes:
        kind: Managed Lustre, Filestore, or a folder of the run bucket (for TPU slices without either).
        source: `IP@tcp:/NAME`, `IP:/SHARE`, `BUCKET/FOLDER`.
        mount_point: where.
    """

    kind: Literal["lustre", "nfs", "bucket"]
    source: str
    mount_point: str

    @property
    def script(self) -> str:
        """What mounts it."""
        return f"mount-{self.kind}.sh"


@dataclass(frozen=True)
class DataSource:
    """The data that must be in the file system's `data` folder before anybody trains.

    Attributes:
        uri: `gs://BUCKET/PREFIX`.
        by: who brings it, as this machine is concerned: the head (others wait), this machine by an import of Managed
            Lustre, or whichever machine gets the lock, by copying.
        request: the import's URL and body; None where nothing is imported here.
    """

    uri: str
    by: Literal["head", "import", "copy"]
    request: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse an import of nothing."""
        if (self.by == "import") != (self.request is not None):
            raise ValueError(
                f"DataSource.request: {self.request!r} with by={self.by!r}; allowed: a request with by='import' alone; "
                "fix: components.gcp.lustre.import_request makes one"
            )


@dataclass(frozen=True)
class NcclSetup:
    """What the host does for NCCL's plug-in; the job's own variables and volumes are in its JobSpec.

    Attributes:
        install_argv: arguments of `docker` that install its libraries onto the host.
        devices: of the host, that the job's container gets beside the GPUs.
        env_script: is sourced in the job's container before the job; empty for none.
        kernel_modules: that have to be loaded.
        aperture_device: PCI vendor:device whose resources are mounted; empty for none.
        side_name: of the daemon beside the job; empty for none.
        side_argv: arguments of `docker` that start it.
        side_ready: appears in its log once it serves; empty where nothing says so.
    """

    install_argv: tuple[str, ...]
    devices: tuple[str, ...] = ()
    env_script: str = ""
    kernel_modules: tuple[str, ...] = ()
    aperture_device: str = ""
    side_name: str = ""
    side_argv: tuple[str, ...] = ()
    side_ready: str = ""


@dataclass(frozen=True, kw_only=True)
class GcpMachineSpec:
    """What all of a stack's machines are told.

    Attributes:
        stack: its name.
        project: id of the project.
        region: of the stack.
        job: what workers run; its image must be named by digest.
        image_registry: host to log in to, such as `us-central1-docker.pkg.dev`.
        bucket_uri: `gs://...` prefix under which `<job>/run.json` is put.
        run_dir: the run directory as the machine sees it.
        file_system: to be mounted; None for none.
        data: to be brought into it; None for none.
        log_id: log of Cloud Logging for the machine's events and our units' lines; None leaves both to its journal.
        max_hours: of the job, counted from its first start on any node, also over restarts; None for no limit.
    """

    stack: str
    project: str
    region: str
    job: JobSpec
    image_registry: str
    bucket_uri: str
    run_dir: str
    file_system: FileSystem | None = None
    data: DataSource | None = None
    log_id: str | None = None
    max_hours: float | None = None

    def __post_init__(self) -> None:
        """Refuse what a machine could only find out after it has begun to cost money."""
        place = type(self).__name__
        check_digest(f"{place}.job.image", self.job.image)
        check_hours(place, self.max_hours)
        check_env(place, self.job.env)
        if self.data is not None and self.file_system is None:
            raise ValueError(
                f"{place}.data: {self.data.uri!r} without a file system; allowed: with one; fix: leave data out"
            )

    @property
    def ended_object(self) -> str:
        """Below `bucket_uri`: there once this very job has ended, so that nobody fills groups for it any more."""
        return ended_object(self.job, self.max_hours)


@dataclass(frozen=True, kw_only=True)
class GcpNodeSpec(GcpMachineSpec):
    """A GPU worker.

    Attributes:
        nccl: what its GPU NICs need; None without any.
        gvnics_planned: network interfaces of Google's driver, the first among them.
        rdma_nics_planned: RDMA devices.
        data_dir: a folder outside the run directory that the job reads, and may have to fill; None for none.
        scratch_mount_point: where the machine's own disks go; None leaves them alone.
        labels: of the container.
        terminate_when_done: when the job has ended for good the node deletes itself from its group.
    """

    nccl: NcclSetup | None = None
    gvnics_planned: int = 1
    rdma_nics_planned: int = 0
    data_dir: str | None = None
    scratch_mount_point: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    terminate_when_done: bool = False

    def __post_init__(self) -> None:
        """Refuse a plug-in that NCCL would do without, in silence, where it does not load."""
        super().__post_init__()
        if self.nccl is not None and "NCCL_NET" not in self.job.env:
            raise ValueError(
                "GcpNodeSpec.job.env: no NCCL_NET beside nccl; allowed: with the plug-in's name in it; "
                "fix: pass what components.gcp.nccl.nccl_env says"
            )


@dataclass(frozen=True, kw_only=True)
class TpuHostSpec(GcpMachineSpec):
    """A host of a TPU slice. It cannot delete itself: a slice goes with its queued resource.

    Attributes:
        num_slices: of the job.
        data_dir: as of GcpNodeSpec.
        labels: of the container.
    """

    num_slices: int = 1
    data_dir: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GcpHeadSpec(GcpMachineSpec):
    """The head node.

    Attributes:
        zones: in which there may be workers.
        port: of the rendezvous store.
        metrics_port: of the workers' metrics.
        prometheus_image: with a fixed tag or a digest; None for no Prometheus.
        fallback_uri: `gs://...` of the object that tells which groups it fills; None for none.
        plan_fill_source: Python source of the function `plan_fill`, which decides; with a fallback_uri alone.
    """

    zones: tuple[str, ...] = ()
    port: int = 29400
    metrics_port: int = 9400
    prometheus_image: str | None = None
    fallback_uri: str | None = None
    plan_fill_source: str | None = None

    def __post_init__(self) -> None:
        """Refuse what the head could only find out at boot."""
        super().__post_init__()
        if self.prometheus_image is not None:
            check_pinned("GcpHeadSpec.prometheus_image", self.prometheus_image)
        if (self.fallback_uri is None) != (self.plan_fill_source is None):
            raise ValueError(
                f"GcpHeadSpec.fallback_uri: {self.fallback_uri!r}; allowed: with plan_fill_source, or neither; "
                "fix: pass the source of components.gcp.fallback.plan_fill"
            )
