"""Machines on Azure: what they are told, their bash files with the whole `docker run` argument list, and the
cloud-init of GPU workers and of the head node.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from images.observability import render_prometheus_azure
from images.render import (
    BIN_DIR,
    ETC_DIR,
    LIB_DIR,
    NodeFile,
    bare_python_file,
    cloud_config,
    python_file,
    scripts,
    short_stop_margin_sec,
    unit,
)
from images.shell import (
    CONTAINER_NAME,
    NOTICES_MOUNT,
    WATCH,
    bash_array,
    bash_assignments,
    container_argv,
    job_json_text,
    max_sec_text,
    member_mount,
    metadata_settings,
    results_sec,
    run_array,
    signature_settings,
    store_values,
    verify_scripts,
    worker_settings,
    workload_argv,
    workload_mounts,
)
from images.specs import HELD_OBJECT, TRAINER_UID, Breaker, MachineSpec, check_pinned, job_key

# The journal has the lines, and images.node.azure.logs sends them on: docker need not keep them again.
NO_LOG = ("--log-driver", "none")
CLOUD = "azure"
_RUN = ("close-metadata.sh", "run-trainer.sh", "run-job.sh", "upload-record.sh", "leave-node.sh", "watch-node.sh")


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
        breaker: None has every node that gives itself up replaced.
    """

    fabric: FabricSetup | None = None
    data_dir: str | None = None
    scratch_mount_point: str | None = None
    scratch_is_temporary_disk: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    terminate_when_done: bool = False
    breaker: Breaker | None = None

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
    """

    subscription_id: str
    resource_group_name: str
    port: int = 29400
    metrics_port: int = 9400
    prometheus_image: str | None = None
    fallback: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prometheus_image is not None:
            check_pinned("AzureHeadSpec.prometheus_image", self.prometheus_image)


def azure_docker_argv(spec: AzureNodeSpec, bin_dir: str = BIN_DIR) -> list[str]:
    """Arguments of `docker` that run the job; run-job.sh adds the scale set to the rendezvous' id."""
    accelerators = ["--gpus", "all"] if spec.job.backend == "nccl" else []
    for device in spec.fabric.devices if spec.fabric else ():
        accelerators += ["--device", device]
    argv = container_argv(spec.job, accelerators, spec.scratch_mount_point, spec.labels, uid=TRAINER_UID)
    argv += [*NOTICES_MOUNT, *member_mount(spec.member_key), *NO_LOG, *workload_mounts(spec.job, bin_dir)]
    return [*argv, spec.job.image, *workload_argv(spec, bin_dir, WATCH)]


def azure_job_env_text(spec: AzureNodeSpec, bin_dir: str) -> str:
    """`/etc/gangway/job.env`: the bash array DOCKER_ARGV, and RUN, what takes it."""
    argv = azure_docker_argv(spec, bin_dir)
    return bash_array("DOCKER_ARGV", argv) + run_array(spec.job, bin_dir, f"{bin_dir}/run-job.sh")


def fabric_env_text(fabric: FabricSetup) -> str:
    """`/etc/gangway/fabric.env`: what check-ib.sh wants."""
    lines = [f"{name}={value}" for name, value in sorted(fabric.nccl_conf.items())]
    arrays = bash_array("KERNEL_MODULES", fabric.kernel_modules) + bash_array("NCCL_CONF", lines)
    return arrays + bash_assignments({"HCA_GBPS": str(fabric.gbps_each), "TOPOLOGY_FILE": fabric.topology_file})


def azure_env_text(spec: AzureMachineSpec) -> str:
    """`/etc/gangway/node.env`: what the scripts need to know of this stack, as bash assignments."""
    node = spec if isinstance(spec, AzureNodeSpec) else None
    files = spec.file_system
    settings = {
        **(node.breaker.settings if node and node.breaker else {}),
        "BUCKET_URI": spec.bucket_uri.rstrip("/"),
        "CLIENT_ID": spec.client_id,
        "CONTAINER_NAME": CONTAINER_NAME,
        "DATA_DIR": (node.data_dir if node else None) or "",
        "ENDED_OBJECT": spec.ended_object,
        "GPUS_PLANNED": str(spec.job.processes_per_node if node and spec.job.backend == "nccl" else 0),
        "HCAS_PLANNED": str(node.fabric.num_hcas if node and node.fabric else 0),
        "IMAGE": spec.job.image,
        "IMAGE_REGISTRY": spec.image_registry,
        "IN_GROUP": "yes" if node else "",
        "JOB_KEY": job_key(spec.job),
        "JOB_NAME": spec.job.name,
        "LOG_GROUP": spec.ingestion_url or "",
        **({"MEMBER_KEY": spec.member_key} if spec.member_key else {}),
        **({"SIGNING_KEY": spec.signing_key} if spec.signing_key else {}),
        **signature_settings(spec.job),
        "MAX_SEC": max_sec_text(spec.max_hours),
        "MOUNT_POINT": files.mount_point if files else "",
        "MOUNT_SOURCE": files.source if files else "",
        "RESULTS_SEC": "",
        **metadata_settings(spec),
        "ROLE": "worker" if node else "head",
        "RUN_DIR": spec.run_dir,
        "SCRATCH_MOUNT_POINT": (node.scratch_mount_point if node else None) or "",
        "SCRATCH_TEMPORARY": "yes" if node and node.scratch_is_temporary_disk else "",
        "STACK": spec.stack,
        "TERMINATE_WHEN_DONE": "yes" if node and node.terminate_when_done else "",
        "TRAINER_UID": str(TRAINER_UID),
    }
    if node:
        settings |= worker_settings(spec.job, _node_steps(node), files)
    return bash_assignments(settings)


def render_azure_node(spec: AzureNodeSpec) -> str:
    """A GPU worker's `#cloud-config` document, plain ASCII, for Azure's HPC images of Ubuntu."""
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
        # A worker lives for days and is made anew from a newer image: nothing is upgraded under its job.
        NodeFile("/etc/apt/apt.conf.d/99gangway", "0644", 'APT::Periodic::Unattended-Upgrade "0";\n'),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *verify_scripts(spec.job), *_RUN], spec.job),
        *(python_file(name) for name in ("notices.py", "azure/notices.py")),
        *([bare_python_file("breaker.py")] if spec.breaker else []),
        *(unit(CLOUD, name, values) for name in units),
    ]
    return cloud_config(CLOUD, files, "worker on Azure's HPC image", units=started)


def render_azure_head(spec: AzureHeadSpec) -> str:
    """The head node's `#cloud-config` document, plain ASCII, for Canonical's Ubuntu. Of a command of one's own no
    record is put; where its nodes do not meet such a head runs no container.
    """
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
        "log_options": lambda stream: ["--log-driver", "none"],
        # Prometheus says much, and nothing that a metric reads.
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
    """What needs no network first, the long download last."""
    planned = {
        "check-gpu.sh": spec.job.backend == "nccl",
        "check-ib.sh": spec.fabric is not None,
        "mount-scratch.sh": spec.scratch_mount_point is not None,
        "fetch-key.sh": spec.member_key is not None,
        "install-docker.sh": True,
        "mount-lustre.sh": spec.file_system is not None,
        "pull-image.sh": True,
    }
    return [name for name, wanted in planned.items() if wanted]


def _own_units(spec: AzureMachineSpec) -> list[str]:
    return ["gangway-alive.service", *(["gangway-logs.service"] if spec.ingestion_url else [])]


def _head_only(spec: AzureHeadSpec) -> list[NodeFile]:
    """The ladder and who fills it; Prometheus' configuration."""
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
        NodeFile(f"{LIB_DIR}/images/__init__.py", "0644", "# The part of the package that this machine runs.\n"),
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
