"""What a machine that exists already is given, as a frozen dataclass; `stacks` has checked the values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from images.machine_specs import MachineSpec, RdmaSetup
from images.specs import check_pinned

__all__ = ["HostSpec"]


@dataclass(frozen=True, kw_only=True)
class HostSpec(MachineSpec):
    """One machine of a stack.

    Attributes:
        fabric: adapters that it must have up; None checks nothing.
        shared_dir: must be on another file system than the machine's own disk; None where one machine trains alone.
        container_engine: behind /usr/bin/docker.
        labels: of the container.
        port: of the rendezvous store, where this machine holds it; None where another does, or none is needed.
        prometheus_image: with a fixed tag or a digest; None for no Prometheus on this machine.
        workers: addresses of all machines, for Prometheus.
        metrics_port: of the workers' metrics.
        keeps_record: uploads the run record every minute when it has changed, not only when its trainer ends.
    """

    fabric: RdmaSetup | None = None
    shared_dir: str | None = None
    container_engine: Literal["docker", "podman"] = "docker"
    labels: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    prometheus_image: str | None = None
    workers: tuple[str, ...] = ()
    metrics_port: int = 9400
    keeps_record: bool = False

    def __post_init__(self) -> None:
        """Refuse a job that would go on over TCP, in silence, where the fabric does not work."""
        super().__post_init__()
        if self.fabric is not None and "NCCL_NET" not in self.job.env:
            raise ValueError(
                "HostSpec.job.env: no NCCL_NET beside a fabric; allowed: with NCCL_NET=IB in it; "
                "fix: pass nccl_env of components.site_fabric.plan_site_fabric"
            )
        if self.prometheus_image is not None:
            check_pinned("HostSpec.prometheus_image", self.prometheus_image)
