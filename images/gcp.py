"""Cloud-init of GPU workers and the head node on Google Cloud, and the start-up script of TPU hosts.

Google takes 256 KiB of metadata a value, so nothing needs counting.
"""

import json
from collections.abc import Sequence

from images.gcp_shell import gcp_env_text, gcp_job_env_text, nccl_env_text
from images.gcp_specs import GcpHeadSpec, GcpMachineSpec, GcpNodeSpec, TpuHostSpec
from images.observability import render_prometheus_gce
from images.render import (
    BIN_DIR,
    ETC_DIR,
    LIB_DIR,
    NodeFile,
    cloud_config,
    python_file,
    scripts,
    short_stop_margin_sec,
    template_environment,
    unit,
)
from images.shell import RESULTS_SEC, job_json_text

__all__ = ["LIB_DIR", "render_gcp_head", "render_gcp_node", "render_tpu_startup"]

CLOUD = "gcp"
_RUN = ("run-trainer.sh", "upload-record.sh", "leave-node.sh", "watch-node.sh")
_STARTED = ("gangway-trainer.service", "gangway-watch.timer")
_NOT_SHIPPED = ("gangway-logs.service", "gangway-prometheus.service", "gangway-watch.service")


def render_gcp_node(spec: GcpNodeSpec) -> str:
    """A GPU worker's `#cloud-config` document, plain ASCII, for Canonical's images with NVIDIA's driver."""
    files, units = _worker_files(spec, _node_steps(spec), [])
    return cloud_config(files, "worker on Canonical's image with NVIDIA's driver", units=units)


def render_tpu_startup(spec: TpuHostSpec) -> str:
    """A TPU host's start-up script, plain ASCII: the same files and units, written anew at each boot."""
    files, units = _worker_files(spec, _tpu_steps(spec), ["run-tpu.sh"])
    template = template_environment().get_template("tpu-startup.sh.j2")
    return template.render(files=files, units=units, what="host of a TPU slice")


def render_gcp_head(spec: GcpHeadSpec) -> str:
    """The head node's `#cloud-config` document, plain ASCII, for Canonical's Ubuntu."""
    files, units = _head_files(spec)
    return cloud_config(files, "head node on Ubuntu", units=units)


def _node_steps(spec: GcpNodeSpec) -> list[str]:
    """What needs no network first, the long download last."""
    planned = {
        "check-gpu.sh": spec.job.backend == "nccl",
        "check-nics.sh": spec.gvnics_planned > 1 or spec.rdma_nics_planned > 0,
        "mount-scratch.sh": spec.scratch_mount_point is not None,
        "install-docker.sh": True,
        "prepare-nccl.sh": spec.nccl is not None,
    }
    return [*(name for name, wanted in planned.items() if wanted), *_shared_steps(spec), "pull-image.sh"]


def _tpu_steps(spec: TpuHostSpec) -> list[str]:
    return ["install-docker.sh", *_shared_steps(spec), "pull-image.sh"]


def _shared_steps(spec: GcpMachineSpec) -> list[str]:
    """The file system, and the data in it."""
    return [
        *([spec.file_system.script] if spec.file_system else []),
        *(["fill-data.sh"] if spec.data else []),
    ]


def _worker_files(
    spec: GcpNodeSpec | TpuHostSpec, steps: Sequence[str], more: Sequence[str]
) -> tuple[list[NodeFile], list[str]]:
    """What a worker is given, and the units that it starts."""
    started = [*_STARTED, *_log_units(spec)]
    units = ["gangway-prepare.service", "gangway-watch.service", *started]
    values = {
        **_values(spec, steps),
        "role": "worker",
        "results_sec": 0 if spec.file_system else RESULTS_SEC,
        "shipped": ["gangway-prepare.service", "gangway-trainer.service"],
        "timeout_stop_sec": spec.job.shutdown_timeout_sec + short_stop_margin_sec(spec.job),
        # Nothing replaces a TPU host that is given up.
        "tries_again": isinstance(spec, TpuHostSpec),
    }
    files = [
        NodeFile(f"{ETC_DIR}/job.json", "0600", job_json_text(spec.job)),
        NodeFile(f"{ETC_DIR}/job.env", "0600", gcp_job_env_text(spec, BIN_DIR)),
        *_common_files(spec),
        # A worker lives for days and is made anew from a newer image: nothing is upgraded under its job.
        NodeFile("/etc/apt/apt.conf.d/99gangway", "0644", 'APT::Periodic::Unattended-Upgrade "0";\n'),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *_RUN, *more]),
        *(unit(CLOUD, name, values) for name in units),
    ]
    if isinstance(spec, GcpNodeSpec) and spec.nccl is not None:
        files.append(NodeFile(f"{ETC_DIR}/nccl.env", "0600", nccl_env_text(spec.nccl)))
    return files, started


def _head_files(spec: GcpHeadSpec) -> tuple[list[NodeFile], list[str]]:
    files_there = spec.file_system is not None
    services = ["gangway-rendezvous.service"]
    services += ["gangway-prometheus.service"] if spec.prometheus_image else []
    services += ["gangway-data.service"] if spec.data else []
    # When the job began stands on the file system.
    timers = ["gangway-record"] if files_there else []
    timers += ["gangway-watch"] if files_there and spec.max_hours is not None else []
    timers += ["gangway-fill"] if spec.fallback_uri else []
    started = [*services, *_log_units(spec), *(f"{name}.timer" for name in timers)]
    units = ["gangway-prepare.service", *started, *(f"{name}.service" for name in timers)]
    steps = ["install-docker.sh", "pull-image.sh"]
    helpers = [spec.file_system.script, "upload-record.sh", "watch-node.sh"] if spec.file_system else []
    values = {
        **_values(spec, steps),
        "log_options": lambda stream: " --log-driver none",
        "role": "head",
        # Prometheus says much, and nothing that a metric reads; the watch sends its events itself.
        "shipped": [name for name in units if name.endswith(".service") and name not in _NOT_SHIPPED],
        "spec": {"image": spec.job.image, "port": spec.port, "prometheus_image": spec.prometheus_image},
        "tries_again": True,
    }
    files = [
        *_common_files(spec),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *helpers, *(["fill-data.sh"] if spec.data else [])]),
        *(unit(CLOUD, name, values) for name in units),
    ]
    if spec.plan_fill_source is not None:
        files.append(NodeFile(f"{LIB_DIR}/images/on_node/plan_fill.py", "0644", spec.plan_fill_source))
        files.append(python_file("fill.py"))
    if spec.prometheus_image is not None:
        text = render_prometheus_gce(spec.stack, spec.project, spec.zones, port=spec.metrics_port)
        files.append(NodeFile(f"{ETC_DIR}/prometheus.yaml", "0644", text))
    return files, started


def _common_files(spec: GcpMachineSpec) -> list[NodeFile]:
    modules = ["__init__.py", "web.py", "gce.py", *(["lines.py", "ship.py"] if spec.log_id else [])]
    files = [
        NodeFile(f"{ETC_DIR}/node.env", "0600", gcp_env_text(spec)),
        NodeFile(f"{LIB_DIR}/images/__init__.py", "0644", "# The part of the package that this machine runs.\n"),
        *(python_file(name) for name in modules),
    ]
    if spec.data is not None and spec.data.request is not None:
        text = json.dumps(dict(spec.data.request), indent=1, sort_keys=True)
        files.append(NodeFile(f"{ETC_DIR}/import.json", "0600", text + "\n"))
    return files


def _values(spec: GcpMachineSpec, steps: Sequence[str]) -> dict[str, object]:
    return {
        "ended_uri": f"{spec.bucket_uri.rstrip('/')}/{spec.ended_object}",
        "fallback_uri": getattr(spec, "fallback_uri", None),
        "image_has_docker": False,
        "lib_dir": LIB_DIR,
        "log_id": spec.log_id,
        "mount": spec.file_system.script if spec.file_system else None,
        "project": spec.project,
        "steps": steps,
    }


def _log_units(spec: GcpMachineSpec) -> list[str]:
    return ["gangway-logs.service"] if spec.log_id else []
