"""Cloud-init for GPU workers and head nodes on Azure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gangway.images import render, shell
from gangway.images.exporters import render_exporters
from gangway.images.observability import prometheus_files, render_prometheus_azure
from gangway.images.specs import TRAINER_UID, HeadSpec, MachineSpec, RdmaSetup, WorkerSpec

CLOUD = "azure"


@dataclass(frozen=True)
class FabricSetup:
    """What a worker needs to be ready. `num_hcas`: devices with their link up at `gbps_each`; 0 checks only the files;
    `devices`: passed to the job's container; `topology_file`: must not be empty; `nccl_conf`: what /etc/nccl.conf must
    set.
    """

    num_hcas: int = 0
    gbps_each: int = 0
    devices: tuple[str, ...] = ()
    kernel_modules: tuple[str, ...] = ()
    topology_file: str = ""
    nccl_conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def rdma(self) -> RdmaSetup | None:
        """The adapters to check, if any."""
        return RdmaSetup("InfiniBand", self.num_hcas, self.gbps_each) if self.num_hcas else None


@dataclass(frozen=True, kw_only=True)
class AzureMachineSpec(MachineSpec):
    """A machine on Azure. `ingestion_url`: receives log rows and events; None leaves them in the journal."""

    client_id: str
    ingestion_url: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.file_system is not None and self.file_system.kind != "lustre":
            raise ValueError(
                f"{type(self).__name__}.file_system: {self.file_system.kind!r}; allowed: 'lustre'; "
                "fix: pass Managed Lustre's address"
            )


@dataclass(frozen=True, kw_only=True)
class AzureNodeSpec(AzureMachineSpec, WorkerSpec):
    """A GPU worker, in a scale set. `scratch_is_temporary_disk`: of Azure, not NVMe."""

    fabric: FabricSetup | None = None
    scratch_is_temporary_disk: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fabric is not None and self.fabric.num_hcas and "NCCL_NET" not in self.job.env:
            # Without it, NCCL falls back to TCP silently.
            raise ValueError(
                "AzureNodeSpec.job.env: InfiniBand without NCCL_NET; allowed: NCCL_NET=IB; "
                "fix: pass nccl_env of gangway.components.azure.fabric.plan_fabric"
            )


@dataclass(frozen=True, kw_only=True)
class AzureHeadSpec(AzureMachineSpec, HeadSpec):
    """The head node. `resource_group_name`: with only the stack's scale sets; `fallback`: a FallbackConfig as JSON."""

    subscription_id: str
    resource_group_name: str
    fallback: Mapping[str, Any] | None = None


def azure_docker_argv(spec: AzureNodeSpec, bin_dir: str = render.BIN_DIR) -> list[str]:
    """Arguments of `docker` that run the job; run-job.sh adds the scale set to the rendezvous id."""
    accelerators = shell.accelerator_argv(spec.job, spec.fabric.devices if spec.fabric else ())
    argv = shell.container_argv(spec.job, accelerators, spec.scratch_mount_point, spec.labels, uid=TRAINER_UID)
    argv += [
        *shell.NOTICES_MOUNT,
        *shell.member_mount(spec.member_key),
        *shell.NO_LOG,
        *shell.workload_mounts(spec.job, bin_dir),
    ]
    return [*argv, spec.job.image, *shell.workload_argv(spec, bin_dir, shell.WATCH)]


def azure_job_env_text(spec: AzureNodeSpec, bin_dir: str) -> str:
    """`/etc/gangway/job.env`."""
    return shell.job_env_text(azure_docker_argv(spec, bin_dir), spec.job, bin_dir, f"{bin_dir}/run-job.sh")


def fabric_env_text(fabric: FabricSetup) -> str:
    """`/etc/gangway/fabric.env`, for check-nccl.sh."""
    lines = [f"{name}={value}" for name, value in sorted(fabric.nccl_conf.items())]
    arrays = shell.bash_array("KERNEL_MODULES", fabric.kernel_modules) + shell.bash_array("NCCL_CONF", lines)
    return arrays + shell.bash_assignments({"TOPOLOGY_FILE": fabric.topology_file})


def azure_env_text(spec: AzureMachineSpec) -> str:
    """`/etc/gangway/node.env`."""
    node = spec if isinstance(spec, AzureNodeSpec) else None
    rdma = node.fabric.rdma if node and node.fabric else None
    settings = {
        **(node.breaker.settings if node and node.breaker else {}),
        **(node.idle_settings if node else {}),
        **(rdma.settings if rdma else {}),
        **shell.machine_settings(spec, "worker" if node else "head"),
        **shell.metadata_settings(spec),
        "CLIENT_ID": spec.client_id,
        "DATA_DIR": (node.data_dir if node else None) or "",
        **({"ENDED_OBJECT": spec.ended_object} if node else {}),
        "GPUS_PLANNED": shell.planned_gpus(spec.job) if node else "0",
        "IN_GROUP": "yes" if node else "",
        "LOG_GROUP": spec.ingestion_url or "",
        **shell.mount_settings(spec.file_system),
        "SCRATCH_MOUNT_POINT": (node.scratch_mount_point if node else None) or "",
        "SCRATCH_TEMPORARY": "yes" if node and node.scratch_is_temporary_disk else "",
        "TERMINATE_WHEN_DONE": "yes" if node and node.terminate_when_done else "",
    }
    if node:
        settings |= shell.worker_settings(spec.job, _node_steps(node), spec.file_system)
    return shell.bash_assignments(settings)


def render_azure_node(spec: AzureNodeSpec) -> str:
    """A GPU worker's `#cloud-config` for Azure's HPC images of Ubuntu."""
    steps, exporters = _node_steps(spec), render_exporters(CLOUD, spec.exporters)
    verify = shell.verify_scripts(spec.job)
    started = ["gangway-trainer.service", "gangway-watch.timer", *_own_units(spec)]
    units = ["gangway-notices.service", "gangway-prepare.service", "gangway-watch.service", *started]
    values = {
        **render.unit_values(spec, steps, "worker", client_id=spec.client_id, ingestion_url=spec.ingestion_url),
        **render.worker_values(spec, render.short_stop_margin_sec(spec.job)),
        "shipped": ["gangway-prepare.service", "gangway-trainer.service"],
    }
    files = [
        render.etc_file("job.json", "0600", shell.job_json_text(spec.job)),
        render.etc_file("job.env", "0600", azure_job_env_text(spec, render.BIN_DIR)),
        *([render.etc_file("fabric.env", "0600", fabric_env_text(spec.fabric))] if spec.fabric else []),
        *render.module_files(azure_env_text(spec), _modules(spec)),
        render.NO_UPGRADES,
        *render.scripts(
            CLOUD,
            ["common.sh", "cloud.sh", *steps, *verify, *render.worker_scripts(spec), "run-job.sh"],
            spec.job,
        ),
        *(render.python_file(name) for name in ("notices.py", "azure/notices.py")),
        *([render.bare_python_file("breaker.py")] if spec.breaker else []),
        *(render.unit(CLOUD, name, values) for name in units),
        *exporters.files,
    ]
    started += exporters.units
    return render.cloud_config(CLOUD, files, "worker on Azure's HPC image", units=started)


def render_azure_head(spec: AzureHeadSpec) -> str:
    """A custom command has no record; if its nodes need no rendezvous, the head runs no container."""
    trains = spec.job.command is None
    meets = trains or spec.job.command_meets
    puts_record = trains and spec.file_system is not None
    timers = ["gangway-record"] if puts_record else []
    timers += ["gangway-fill"] if spec.fallback is not None else []
    started, units = render.head_units(spec, meets=meets, more=_own_units(spec), timers=timers)
    steps = [*spec.key_steps, "install-docker.sh", "close-metadata.sh", "pull-image.sh"] if meets else []
    verify = shell.verify_scripts(spec.job) if meets else []
    helpers = [spec.file_system.script, "upload-record.sh"] if spec.file_system and puts_record else []
    values = {
        **render.unit_values(spec, steps, "head", client_id=spec.client_id, ingestion_url=spec.ingestion_url),
        "log_options": lambda stream: shell.NO_LOG,
        # Prometheus logs much that no metric reads.
        "shipped": [
            *(["gangway-prepare.service", "gangway-rendezvous.service"] if meets else []),
            "gangway-fill.service",
        ],
        "spec": shell.store_values(spec, spec.port, spec.prometheus_image),
        "tries_again": True,
    }
    files = [
        *render.module_files(azure_env_text(spec), _modules(spec)),
        *_head_only(spec),
        *render.scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *verify, *helpers]),
        *(render.unit(CLOUD, name, values) for name in units),
    ]
    return render.cloud_config(CLOUD, files, "head node on Ubuntu", units=started)


def _node_steps(spec: AzureNodeSpec) -> list[str]:
    planned = {
        "check-gpu.sh": spec.job.backend == "nccl",
        "check-rdma.sh": spec.fabric is not None and spec.fabric.rdma is not None,
        "check-nccl.sh": spec.fabric is not None,
        "mount-scratch.sh": spec.scratch_mount_point is not None,
        "fetch-key.sh": spec.member_key is not None,
        "install-docker.sh": True,
        "mount-lustre.sh": spec.file_system is not None,
        "pull-image.sh": True,
    }
    return render.select_enabled(planned)


def _own_units(spec: AzureMachineSpec) -> list[str]:
    return ["gangway-alive.service", *(["gangway-logs.service"] if spec.ingestion_url else [])]


def _modules(spec: AzureMachineSpec) -> list[str]:
    shipper = ["log_shipper.py", "azure/logs.py"] if spec.ingestion_url else []
    return ["azure/api.py", "azure/heartbeat.py", *shipper]


def _head_only(spec: AzureHeadSpec) -> list[render.NodeFile]:
    files = []
    if spec.fallback is not None:
        text = json.dumps(dict(spec.fallback), indent=1, sort_keys=True) + "\n"
        files = [
            render.etc_file("fallback.json", "0644", text),
            render.python_file("fill_order.py"),
            render.python_file("azure/fallback.py"),
        ]
    if spec.prometheus_image is not None:
        place = (spec.subscription_id, spec.resource_group_name)
        text = render_prometheus_azure(
            spec.stack, place, spec.client_id, port=spec.metrics_port, exporters=spec.exporters
        )
        files += prometheus_files(spec.exporters, text)
    return files
