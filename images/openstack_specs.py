"""What machines on OpenStack do at boot, as frozen dataclasses made in `Output.apply`; `stacks` has checked them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from images.machine_specs import MachineSpec, RdmaSetup
from images.specs import check_pinned

__all__ = ["ObjectStore", "OpenstackHeadSpec", "OpenstackMachineSpec", "OpenstackNodeSpec"]


@dataclass(frozen=True)
class ObjectStore:
    """How a machine uploads runs: by an application credential that may do nothing else; `auth_url` is Keystone's,
    version 3, and `credential_secret` lies in a file that root alone reads.
    """

    auth_url: str
    region: str
    credential_id: str
    credential_secret: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class OpenstackMachineSpec(MachineSpec):
    """What machines on OpenStack are told besides; `bucket_uri` is `swift://CONTAINER/PREFIX`.

    Attributes:
        store: where runs go.
        mount_user: of a native CephFS share; empty with NFS. `mount_key` lies in a file that root alone reads.
        terminate_when_done: when the job has ended for good the machine shuts itself down. It stays allocated: only its
            owner could delete it.
    """

    store: ObjectStore
    mount_user: str = ""
    mount_key: str = field(default="", repr=False)
    terminate_when_done: bool = False

    def __post_init__(self) -> None:
        """Refuse a file system that no machine here can mount."""
        super().__post_init__()
        place = type(self).__name__
        if self.file_system is not None and self.file_system.kind not in ("nfs", "ceph"):
            raise ValueError(
                f"{place}.file_system: {self.file_system.kind!r}; allowed: 'nfs', 'ceph'; fix: pass a Manila share's "
                "export location"
            )
        native = self.file_system is not None and self.file_system.kind == "ceph"
        if native != bool(self.mount_user and self.mount_key):
            raise ValueError(
                f"{place}.mount_user: {self.mount_user!r} with file_system {self.file_system!r}; allowed: a user and "
                "its key with 'ceph', neither otherwise; fix: pass both of the share's access rule"
            )


@dataclass(frozen=True, kw_only=True)
class OpenstackNodeSpec(OpenstackMachineSpec):
    """A GPU worker. `fabric` None checks nothing; `data_dir` is a folder outside the run directory that the job reads,
    and may have to fill, None for none; `labels` are the container's.
    """

    fabric: RdmaSetup | None = None
    data_dir: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a job that would go on over TCP, in silence, where RDMA does not work."""
        super().__post_init__()
        if self.fabric is not None and "NCCL_NET" not in self.job.env:
            raise ValueError(
                "OpenstackNodeSpec.job.env: no NCCL_NET beside a fabric; allowed: with NCCL_NET=IB in it; "
                "fix: pass nccl_env of components.site_fabric.plan_site_fabric"
            )


@dataclass(frozen=True, kw_only=True)
class OpenstackHeadSpec(OpenstackMachineSpec):
    """The head node; Prometheus scrapes the addresses in `workers` at `metrics_port`; `port` is the rendezvous store's.
    `prometheus_image` has a fixed tag or a digest; None for no Prometheus.
    """

    port: int = 29400
    metrics_port: int = 9400
    workers: tuple[str, ...] = ()
    prometheus_image: str | None = None

    def __post_init__(self) -> None:
        """Refuse an image that moves."""
        super().__post_init__()
        if self.prometheus_image is not None:
            check_pinned("OpenstackHeadSpec.prometheus_image", self.prometheus_image)
