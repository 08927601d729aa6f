"""What machines on Google Cloud do at boot, as frozen dataclasses made in `Output.apply`; `stacks` has checked them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from images.machine_specs import MachineSpec
from images.specs import check_pinned

__all__ = ["DataSource", "GcpHeadSpec", "GcpMachineSpec", "GcpNodeSpec", "NcclSetup", "TpuHostSpec"]


@dataclass(frozen=True)
class DataSource:
    """The data that must be in the file system's `data` folder before training starts.

    Attributes:
        uri: `gs://BUCKET/PREFIX`.
        by: who brings it: the head (others wait), this machine by an import of Managed Lustre, or whichever machine
            gets the lock, by copying.
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
        devices: of the host, passed to the job's container beside the GPUs.
        env_script: sourced in the job's container before the job; empty for none.
        aperture_device: PCI vendor:device whose resources are mounted; empty for none.
        side_name: of the daemon beside the job; empty for none. `side_argv` starts it.
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
class GcpMachineSpec(MachineSpec):
    """What machines on Google Cloud are told besides. `data` is brought into the file system, None for none; `log_id`
    is the Cloud Logging log of events and our units' lines, None leaves both in the machine's journal.
    """

    project: str
    region: str
    data: DataSource | None = None
    log_id: str | None = None

    def __post_init__(self) -> None:
        """Data needs somewhere to be."""
        super().__post_init__()
        if self.data is not None and self.file_system is None:
            raise ValueError(
                f"{type(self).__name__}.data: {self.data.uri!r} without a file system; "
                "allowed: with one; fix: leave data out"
            )


@dataclass(frozen=True, kw_only=True)
class GcpNodeSpec(GcpMachineSpec):
    """A GPU worker.

    Attributes:
        nccl: what its GPU NICs need; None without any.
        gvnics_planned: network interfaces of Google's driver, the first among them.
        data_dir: a folder outside the run directory that the job reads, and may have to fill; None for none.
        scratch_mount_point: of the machine's own disks; None leaves them alone.
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
    """A host of a TPU slice. It cannot delete itself: a slice goes with its queued resource."""

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
        plan_fill_source: Python source of `plan_fill`; with a fallback_uri alone.
    """

    zones: tuple[str, ...] = ()
    port: int = 29400
    metrics_port: int = 9400
    prometheus_image: str | None = None
    fallback_uri: str | None = None
    plan_fill_source: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prometheus_image is not None:
            check_pinned("GcpHeadSpec.prometheus_image", self.prometheus_image)
        if (self.fallback_uri is None) != (self.plan_fill_source is None):
            raise ValueError(
                f"GcpHeadSpec.fallback_uri: {self.fallback_uri!r}; allowed: with plan_fill_source, or neither; "
                "fix: pass the source of components.gcp.fallback.plan_fill"
            )
