"""Cloud-init of GPU workers and the head node on Azure, which gives 64 KiB of custom data, gzip and all: cloud-init
unpacks it, `images.render.base64gzip` packs, `components.azure.machine.check_custom_data` counts.
"""

import json
from collections.abc import Sequence

from images.azure_shell import azure_env_text, azure_job_env_text, fabric_env_text
from images.azure_specs import AzureHeadSpec, AzureMachineSpec, AzureNodeSpec
from images.observability import render_prometheus_azure
from images.render import (
    BIN_DIR,
    ETC_DIR,
    LIB_DIR,
    NodeFile,
    cloud_config,
    python_file,
    scripts,
    short_stop_margin_sec,
    unit,
)
from images.shell import RESULTS_SEC, job_json_text

__all__ = ["render_azure_head", "render_azure_node"]

CLOUD = "azure"
_RUN = ("run-trainer.sh", "run-job.sh", "upload-record.sh", "leave-node.sh", "watch-node.sh")


def render_azure_node(spec: AzureNodeSpec) -> str:
    """A GPU worker's `#cloud-config` document, plain ASCII, for Azure's HPC images of Ubuntu."""
    steps = _node_steps(spec)
    started = ["gangway-trainer.service", "gangway-watch.timer", *_own_units(spec)]
    units = ["gangway-prepare.service", "gangway-watch.service", *started]
    values = {
        **_values(spec, steps, "worker"),
        "results_sec": 0 if spec.file_system else RESULTS_SEC,
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
        *scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *_RUN]),
        *(unit(CLOUD, name, values) for name in units),
    ]
    return cloud_config(files, "worker on Azure's HPC image", units=started)


def render_azure_head(spec: AzureHeadSpec) -> str:
    """The head node's `#cloud-config` document, plain ASCII, for Canonical's Ubuntu."""
    files_there = spec.file_system is not None
    services = ["gangway-rendezvous.service", *(["gangway-prometheus.service"] if spec.prometheus_image else [])]
    # When the job began stands on the file system.
    timers = ["gangway-record"] if files_there else []
    timers += ["gangway-watch"] if files_there and spec.max_hours is not None else []
    timers += ["gangway-fill"] if spec.fallback is not None else []
    started = [*services, *_own_units(spec), *(f"{name}.timer" for name in timers)]
    units = ["gangway-prepare.service", *started, *(f"{name}.service" for name in timers)]
    steps = ["install-docker.sh", "pull-image.sh"]
    helpers = [spec.file_system.script, "upload-record.sh", "watch-node.sh"] if spec.file_system else []
    values = {
        **_values(spec, steps, "head"),
        "log_options": lambda stream: " --log-driver none",
        # Prometheus says much, and nothing that a metric reads.
        "shipped": ["gangway-prepare.service", "gangway-rendezvous.service", "gangway-fill.service"],
        "spec": {"image": spec.job.image, "port": spec.port, "prometheus_image": spec.prometheus_image},
        "tries_again": True,
    }
    files = [
        *_common_files(spec),
        *_head_only(spec),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *helpers]),
        *(unit(CLOUD, name, values) for name in units),
    ]
    return cloud_config(files, "head node on Ubuntu", units=started)


def _node_steps(spec: AzureNodeSpec) -> list[str]:
    """What needs no network first, the long download last."""
    planned = {
        "check-gpu.sh": spec.job.backend == "nccl",
        "check-ib.sh": spec.fabric is not None,
        "mount-scratch.sh": spec.scratch_mount_point is not None,
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
    if spec.fallback is not None and spec.plan_look_source is not None:
        text = json.dumps(dict(spec.fallback), indent=1, sort_keys=True) + "\n"
        files = [
            NodeFile(f"{ETC_DIR}/fallback.json", "0644", text),
            NodeFile(f"{LIB_DIR}/images/on_node/plan_look.py", "0644", spec.plan_look_source),
            python_file("azure_fill.py"),
        ]
    if spec.prometheus_image is not None:
        place = (spec.subscription_id, spec.resource_group_name)
        text = render_prometheus_azure(spec.stack, place, spec.client_id, port=spec.metrics_port)
        files.append(NodeFile(f"{ETC_DIR}/prometheus.yaml", "0644", text))
    return files


def _common_files(spec: AzureMachineSpec) -> list[NodeFile]:
    modules = ["__init__.py", "web.py", "azure.py", "azure_alive.py", "azure_blobs.py", "azure_commands.py"]
    modules += ["lines.py", "azure_ship.py"] if spec.ingestion_url else []
    return [
        NodeFile(f"{ETC_DIR}/node.env", "0600", azure_env_text(spec)),
        NodeFile(f"{LIB_DIR}/images/__init__.py", "0644", "# The part of the package that this machine runs.\n"),
        *(python_file(name) for name in modules),
    ]


def _values(spec: AzureMachineSpec, steps: Sequence[str], role: str) -> dict[str, object]:
    return {
        "client_id": spec.client_id,
        "ended_uri": f"{spec.bucket_uri.rstrip('/')}/{spec.ended_object}",
        "image_has_docker": False,
        "ingestion_url": spec.ingestion_url,
        "lib_dir": LIB_DIR,
        "mount": spec.file_system.script if spec.file_system else None,
        "role": role,
        "steps": steps,
    }
