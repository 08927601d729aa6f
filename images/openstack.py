"""Cloud-init of GPU workers and the head node on OpenStack. Nova takes 64 KiB of base64, gzip and all: cloud-init
unpacks it, `images.render.base64gzip` packs, `components.openstack.launch.check_user_data` counts.
"""

from collections.abc import Mapping, Sequence

from images.observability import render_prometheus_static
from images.openstack_shell import openstack_credential_text, openstack_env_text, openstack_job_env_text
from images.openstack_specs import OpenstackHeadSpec, OpenstackMachineSpec, OpenstackNodeSpec
from images.render import (
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

__all__ = ["render_openstack_head", "render_openstack_node"]

CLOUD = "openstack"
_RUN = ("run-trainer.sh", "upload-record.sh", "leave-node.sh", "watch-node.sh")


def render_openstack_node(spec: OpenstackNodeSpec) -> str:
    """A GPU worker's `#cloud-config` document, plain ASCII, for an image with NVIDIA's driver and container toolkit."""
    steps = _node_steps(spec)
    started = ["gangway-trainer.service", "gangway-watch.timer"]
    units = ["gangway-prepare.service", "gangway-watch.service", *started]
    values = {
        **_values(spec, steps, "worker"),
        "results_sec": 0 if spec.file_system else RESULTS_SEC,
        "timeout_stop_sec": spec.job.shutdown_timeout_sec + short_stop_margin_sec(spec.job),
        "tries_again": False,
    }
    files = [
        NodeFile(f"{ETC_DIR}/job.json", "0600", job_json_text(spec.job)),
        NodeFile(f"{ETC_DIR}/job.env", "0600", openstack_job_env_text(spec)),
        *_common_files(spec),
        # Nothing is upgraded under a job: a new driver's libraries do not fit the module that is loaded.
        NodeFile("/etc/apt/apt.conf.d/99gangway", "0644", 'APT::Periodic::Unattended-Upgrade "0";\n'),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *_RUN]),
        *_units(units, values),
    ]
    return cloud_config(files, "worker on OpenStack", units=started)


def render_openstack_head(spec: OpenstackHeadSpec) -> str:
    """The head node's `#cloud-config` document, plain ASCII, for Ubuntu or Debian."""
    files_there = spec.file_system is not None
    services = ["gangway-rendezvous.service", *(["gangway-prometheus.service"] if spec.prometheus_image else [])]
    # When the job began stands on the file system.
    timers = ["gangway-record"] if files_there else []
    timers += ["gangway-watch"] if files_there and spec.max_hours is not None else []
    started = [*services, *(f"{name}.timer" for name in timers)]
    units = ["gangway-prepare.service", *started, *(f"{name}.service" for name in timers)]
    steps = ["install-docker.sh", "pull-image.sh"]
    helpers = [spec.file_system.script, "upload-record.sh", "watch-node.sh"] if spec.file_system else []
    values = {
        **_values(spec, steps, "head"),
        "log_options": lambda stream: " --log-driver none",
        "spec": {"image": spec.job.image, "port": spec.port, "prometheus_image": spec.prometheus_image},
        "tries_again": True,
    }
    files = [
        *_common_files(spec),
        *_prometheus(spec),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *helpers]),
        *_units(units, values),
    ]
    return cloud_config(files, "head node on OpenStack", units=started)


def _units(names: Sequence[str], values: Mapping[str, object]) -> list[NodeFile]:
    """Units, whose lines go to the console too: Nova keeps what it said, and nobody can log in to read a journal."""
    said = "[Service]\nStandardOutput=journal+console\nStandardError=journal+console\n"
    services = [name for name in names if name.endswith(".service")]
    return [
        *(unit(CLOUD, name, values) for name in names),
        *(NodeFile(f"/etc/systemd/system/{name}.d/console.conf", "0644", said) for name in services),
    ]


def _node_steps(spec: OpenstackNodeSpec) -> list[str]:
    """What needs no network first, the long download last."""
    planned = {
        "check-gpu.sh": spec.job.backend == "nccl",
        "check-rdma.sh": spec.fabric is not None,
        "install-docker.sh": True,
        (spec.file_system.script if spec.file_system else ""): spec.file_system is not None,
        "pull-image.sh": True,
    }
    return [name for name, wanted in planned.items() if wanted]


def _prometheus(spec: OpenstackHeadSpec) -> list[NodeFile]:
    if spec.prometheus_image is None:
        return []
    text = render_prometheus_static(spec.stack, spec.workers, port=spec.metrics_port)
    return [NodeFile(f"{ETC_DIR}/prometheus.yaml", "0644", text)]


def _common_files(spec: OpenstackMachineSpec) -> list[NodeFile]:
    key = [NodeFile(f"{ETC_DIR}/ceph.secret", "0600", f"{spec.mount_key}\n")] if spec.mount_key else []
    return [
        NodeFile(f"{ETC_DIR}/node.env", "0600", openstack_env_text(spec)),
        NodeFile(f"{ETC_DIR}/credential.json", "0600", openstack_credential_text(spec)),
        *key,
        NodeFile(f"{LIB_DIR}/images/__init__.py", "0644", "# The part of the package that this machine runs.\n"),
        *(python_file(name) for name in ("__init__.py", "web.py", "openstack.py")),
    ]


def _values(spec: OpenstackMachineSpec, steps: Sequence[str], role: str) -> dict[str, object]:
    return {
        "image_has_docker": False,
        "mount": spec.file_system.script if spec.file_system else None,
        "role": role,
        "steps": steps,
    }
