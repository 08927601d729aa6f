"""What machines on Azure do at boot, as frozen dataclasses made in `Output.apply`; `stacks` has checked the values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from images.machine_specs import MachineSpec
from images.specs import check_pinned

__all__ = ["AzureHeadSpec", "AzureMachineSpec", "AzureNodeSpec", "FabricSetup"]


@dataclass(frozen=True)
class FabricSetup:
    """What a worker must have before it counts as one; `components.azure.fabric.FabricPlan` says what each is.

    Attributes:
        num_hcas: InfiniBand devices with their link up, at `gbps_each`; 0 checks the files alone.
        devices: of the host, passed to the job's container beside the GPUs.
        topology_file: must exist and not be empty; empty for none.
        nccl_conf: variables that /etc/nccl.conf must set.
    """

    num_hcas: int = 0
    gbps_each: int = 0
    devices: tuple[str, ...] = ()
    kernel_modules: tuple[str, ...] = ()
    topology_file: str = ""
    nccl_conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AzureMachineSpec(MachineSpec):
    """What machines on Azure are told besides. Data behind Managed Lustre comes by itself, as it is read.

    `client_id` is of the machine's managed identity; log rows and events are POSTed to `ingestion_url`, None leaves
    them in the machine's journal.
    """

    client_id: str
    ingestion_url: str | None = None

    def __post_init__(self) -> None:
        """The only file system there is Managed Lustre."""
        super().__post_init__()
        if self.file_system is not None and self.file_system.kind != "lustre":
            raise ValueError(
                f"{type(self).__name__}.file_system: {self.file_system.kind!r}; allowed: 'lustre'; "
                "fix: pass Managed Lustre's address"
            )


@dataclass(frozen=True, kw_only=True)
class AzureNodeSpec(AzureMachineSpec):
    """A GPU worker, in a scale set.

    Attributes:
        fabric: None checks nothing.
        data_dir: a folder outside the run directory that the job reads, and may have to fill; None for none.
        scratch_mount_point: of the machine's own disks; None leaves them alone.
        scratch_is_temporary_disk: they are Azure's one temporary disk, not NVMe.
        labels: of the container.
        terminate_when_done: when the job has ended for good the node deletes itself from its scale set.
    """

    fabric: FabricSetup | None = None
    data_dir: str | None = None
    scratch_mount_point: str | None = None
    scratch_is_temporary_disk: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    terminate_when_done: bool = False

    def __post_init__(self) -> None:
        """Refuse a job that would go on over TCP, in silence, where InfiniBand does not work."""
        super().__post_init__()
        if self.fabric is not None and self.fabric.num_hcas and "NCCL_NET" not in self.job.env:
            raise ValueError(
                "AzureNodeSpec.job.env: no NCCL_NET beside InfiniBand; allowed: with NCCL_NET=IB in it; "
                "fix: pass nccl_env of components.azure.fabric.plan_fabric"
            )


@dataclass(frozen=True, kw_only=True)
class AzureHeadSpec(AzureMachineSpec):
    """The head node.

    Attributes:
        resource_group_name: all scale sets in it are the stack's own.
        port: of the rendezvous store.
        metrics_port: of the workers' metrics.
        prometheus_image: with a fixed tag or a digest; None for no Prometheus.
        fallback: `components.azure.fallback.FallbackConfig` as JSON data; None where something else asks for nodes.
        plan_look_source: Python source of `plan_look` with all that it calls; with `fallback` alone.
    """

    subscription_id: str
    resource_group_name: str
    port: int = 29400
    metrics_port: int = 9400
    prometheus_image: str | None = None
    fallback: Mapping[str, Any] | None = None
    plan_look_source: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prometheus_image is not None:
            check_pinned("AzureHeadSpec.prometheus_image", self.prometheus_image)
        if (self.fallback is None) != (self.plan_look_source is None):
            raise ValueError(
                "AzureHeadSpec.fallback: given without plan_look_source, or the other way round; allowed: both or "
                "neither; fix: pass the source of components.azure.fallback.plan_look and of what it calls"
            )
