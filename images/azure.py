"""Cloud-init for GPU workers and head nodes on Azure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gangway.images.observability import render_prometheus_azure
from gangway.images.render import (
    BIN_DIR,
    ETC_DIR,
    NO_UPGRADES,
    PACKAGE_FILE,
    WORKER_SCRIPTS,
    NodeFile,
    bare_python_file,
    cloud_config,
    python_file,
    scripts,
    select_enabled,
    short_stop_margin_sec,
    unit,
)
from gangway.images.shell import (
    NO_LOG,
    NOTICES_MOUNT,
    WATCH,
    bash_array,
    bash_assignments,
    container_argv,
    job_env_text,
    job_json_text,
    machine_settings,
    member_mount,
    metadata_settings,
    results_sec,
    store_values,
    verify_scripts,
    worker_settings,
    workload_argv,
    workload_mounts,
)
from gangway.images.specs import HELD_OBJECT, TRAINER_UID, HeadSpec, MachineSpec, WorkerSpec

CLOUD = "azure"


@dataclass(frozen=True)
class FabricSetup:
    """What a worker needs to be ready; see `gangway.components.azure.fabric.FabricPlan`.

    Attributes:
        num_hcas: InfiniBand devices with their link up at `gbps_each`; 0 checks only the files.
        devices: device files passed to the job's container.
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


def azure_docker_argv(spec: AzureNodeSpec, bin_dir: str = BIN_DIR) -> list[str]:
    """Arguments of `docker` that run the job; run-job.sh adds the scale set to the rendezvous id."""
    accelerators = ["--gpus", "all"] if spec.job.backend == "nccl" else []
    for device in spec.fabric.devices if spec.fabric else ():
        accelerators += ["--device", device]
    argv = container_argv(spec.job, accelerators, spec.scratch_mount_point, spec.labels, uid=TRAINER_UID)
    argv += [*NOTICES_MOUNT, *member_mount(spec.member_key), *NO_LOG, *workload_mounts(spec.job, bin_dir)]
    return [*argv, spec.job.image, *workload_argv(spec, bin_dir, WATCH)]


def azure_job_env_text(spec: AzureNodeSpec, bin_dir: str) -> str:
    """`/etc/gangway/job.env`."""
    return job_env_text(azure_docker_argv(spec, bin_dir), spec.job, bin_dir, f"{bin_dir}/run-job.sh")


def fabric_env_text(fabric: FabricSetup) -> str:
    """`/etc/gangway/fabric.env`, for check-ib.sh."""
    lines = [f"{name}={value}" for name, value in sorted(fabric.nccl_conf.items())]
    arrays = bash_array("KERNEL_MODULES", fabric.kernel_modules) + bash_array("NCCL_CONF", lines)
    return arrays + bash_assignments({"HCA_GBPS": str(fabric.gbps_each), "TOPOLOGY_FILE": fabric.topology_file})


def azure_env_text(spec: AzureMachineSpec) -> str:
    """`/etc/gangway/node.env`."""
    node = spec if isinstance(spec, AzureNodeSpec) else None
    files = spec.file_system
    settings = {
        **(node.breaker.settings if node and node.breaker else {}),
        **machine_settings(spec, "worker" if node else "head"),
        **metadata_settings(spec),
        "CLIENT_ID": spec.client_id,
        "DATA_DIR": (node.data_dir if node else None) or "",
        "ENDED_OBJECT": spec.ended_object,
        "GPUS_PLANNED": str(spec.job.processes_per_node if node and spec.job.backend == "nccl" else 0),
        "HCAS_PLANNED": str(node.fabric.num_hcas if node and node.fabric else 0),
        "IN_GROUP": "yes" if node else "",
        "LOG_GROUP": spec.ingestion_url or "",
        "MOUNT_POINT": files.mount_point if files else "",
        "MOUNT_SOURCE": files.source if files else "",
        "SCRATCH_MOUNT_POINT": (node.scratch_mount_point if node else None) or "",
        "SCRATCH_TEMPORARY": "yes" if node and node.scratch_is_temporary_disk else "",
        "TERMINATE_WHEN_DONE": "yes" if node and node.terminate_when_done else "",
    }
    if node:
        settings |= worker_settings(spec.job, _node_steps(node), files)
    return bash_assignments(settings)


def render_azure_node(spec: AzureNodeSpec) -> str:
    """A GPU worker's `#cloud-config` for Azure's HPC images of Ubuntu."""
    steps = _node_steps(spec)
    started = ["gangway-trainer.service", "gangway-watch.timer", *_own_units(spec)]
    units = ["gangway-notices.service", "gangway-prepare.service", "gangway-watch.service", *started]
    values = {
        **_values(spec, steps, "worker"),
        "results_sec": results_sec(spec.file_system),
        "results_at_end": spec.file_system is not None,
        "shipped": ["gangway-prepare.service", "gangway-trainer.service"],
        "timeout_stop_sec": spec.job.shutdown_timeout_sec + short_stop_margin_sec(spec.job),
        "tries_again": False,
    }
    files = [
        NodeFile(f"{ETC_DIR}/job.json", "0600", job_json_text(spec.job)),
        NodeFile(f"{ETC_DIR}/job.env", "0600", azure_job_env_text(spec, BIN_DIR)),
        *([NodeFile(f"{ETC_DIR}/fabric.env", "0600", fabric_env_text(spec.fabric))] if spec.fabric else []),
        *_common_files(spec),
        NO_UPGRADES,
        *scripts(
            CLOUD, ["common.sh", "cloud.sh", *steps, *verify_scripts(spec.job), *WORKER_SCRIPTS, "run-job.sh"], spec.job
        ),
        *(python_file(name) for name in ("notices.py", "azure/notices.py")),
        *([bare_python_file("breaker.py")] if spec.breaker else []),
        *(unit(CLOUD, name, values) for name in units),
    ]
    return cloud_config(CLOUD, files, "worker on Azure's HPC image", units=started)


def render_azure_head(spec: AzureHeadSpec) -> str:
    """A custom command has no record; if its nodes need no rendezvous, the head runs no container."""
    trains = spec.job.command is None
    meets = trains or spec.job.command_meets
    puts_record = trains and spec.file_system is not None
    services = ["gangway-rendezvous.service"] if meets else []
    services += ["gangway-prometheus.service"] if spec.prometheus_image else []
    timers = ["gangway-record"] if puts_record else []
    timers += ["gangway-fill"] if spec.fallback is not None else []
    started = [*services, *_own_units(spec), *(f"{name}.timer" for name in timers)]
    prepares = ["gangway-prepare.service"] if meets else []
    units = [*prepares, *started, *(f"{name}.service" for name in timers)]
    steps = [*spec.key_steps, "install-docker.sh", "close-metadata.sh", "pull-image.sh"] if meets else []
    verify = verify_scripts(spec.job) if meets else []
    helpers = [spec.file_system.script, "upload-record.sh"] if spec.file_system and puts_record else []
    values = {
        **_values(spec, steps, "head"),
        "log_options": lambda stream: NO_LOG,
        # Prometheus logs much that no metric reads.
        "shipped": [*prepares, *(["gangway-rendezvous.service"] if meets else []), "gangway-fill.service"],
        "spec": store_values(spec, spec.port, spec.prometheus_image),
        "tries_again": True,
    }
    files = [
        *_common_files(spec),
        *_head_only(spec),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *verify, *helpers]),
        *(unit(CLOUD, name, values) for name in units),
    ]
    return cloud_config(CLOUD, files, "head node on Ubuntu", units=started)


def _node_steps(spec: AzureNodeSpec) -> list[str]:
    planned = {
        "check-gpu.sh": spec.job.backend == "nccl",
        "check-ib.sh": spec.fabric is not None,
        "mount-scratch.sh": spec.scratch_mount_point is not None,
        "fetch-key.sh": spec.member_key is not None,
        "install-docker.sh": True,
        "mount-lustre.sh": spec.file_system is not None,
        "pull-image.sh": True,
    }
    return select_enabled(planned)


def _own_units(spec: AzureMachineSpec) -> list[str]:
    return ["gangway-alive.service", *(["gangway-logs.service"] if spec.ingestion_url else [])]


def _head_only(spec: AzureHeadSpec) -> list[NodeFile]:
    files = []
    if spec.fallback is not None:
        text = json.dumps(dict(spec.fallback), indent=1, sort_keys=True) + "\n"
        files = [
            NodeFile(f"{ETC_DIR}/fallback.json", "0644", text),
            python_file("fill_order.py"),
            python_file("azure/fallback.py"),
        ]
    if spec.prometheus_image is not None:
        place = (spec.subscription_id, spec.resource_group_name)
        text = render_prometheus_azure(spec.stack, place, spec.client_id, port=spec.metrics_port)
        files.append(NodeFile(f"{ETC_DIR}/prometheus.yaml", "0644", text))
    return files


def _common_files(spec: AzureMachineSpec) -> list[NodeFile]:
    modules = ["__init__.py", "web.py", "azure/api.py", "azure/heartbeat.py"]
    modules += ["log_shipper.py", "azure/logs.py"] if spec.ingestion_url else []
    return [
        NodeFile(f"{ETC_DIR}/node.env", "0600", azure_env_text(spec)),
        PACKAGE_FILE,
        *(python_file(name) for name in modules),
    ]


def _values(spec: AzureMachineSpec, steps: Sequence[str], role: str) -> dict[str, object]:
    return {
        "client_id": spec.client_id,
        "ended_uri": f"{spec.bucket_uri.rstrip('/')}/{spec.ended_object}",
        "held_uri": f"{spec.bucket_uri.rstrip('/')}/{spec.job.name}/{HELD_OBJECT}",
        "image_has_docker": False,
        "ingestion_url": spec.ingestion_url,
        "mount": spec.file_system.script if spec.file_system else None,
        "role": role,
        "steps": steps,
    }
