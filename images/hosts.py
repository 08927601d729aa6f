"""Existing machines: a bash script for each, which installs or removes a stack's files and services."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gangway.images import render, shell
from gangway.images.exporters import Exporters, render_exporters
from gangway.images.observability import prometheus_files, render_prometheus_static
from gangway.images.specs import TRAINER_UID, MachineSpec, RdmaSetup, check_pinned

CLOUD = "hosts"
_END = "GANGWAY_FILE"
_GPUS = {"docker": ("--gpus", "all"), "podman": ("--device", "nvidia.com/gpu=all")}  # podman supports only CDI
_ENGINE_HINTS = {
    "docker": "install Docker Engine from docker.com or your distribution",
    "podman": "install podman and podman-docker, which installs podman there",
}


@dataclass(frozen=True, kw_only=True)
class HostSpec(MachineSpec):
    """One machine of a stack. `shared_dir`: not on its own disk; None if it trains alone; `container_engine`: behind
    /usr/bin/docker; `port`: of the rendezvous store, if it runs here; `allowed`: who may reach the job's ports; None
    closes none; `keeps_record`: upload the run record every minute; `uid`: the job's, each stack's own on a shared file
    system.
    """

    fabric: RdmaSetup | None = None
    shared_dir: str | None = None
    container_engine: Literal["docker", "podman"] = "docker"
    labels: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    prometheus_image: str | None = None
    workers: tuple[str, ...] = ()
    metrics_port: int = 9400
    allowed: tuple[str, ...] | None = None
    wireguard: str | None = None
    keeps_record: bool = False
    uid: int = TRAINER_UID

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fabric is not None and "NCCL_NET" not in self.job.env:
            # Without it, NCCL falls back to TCP silently.
            raise ValueError(
                "HostSpec.job.env: a fabric without NCCL_NET; allowed: NCCL_NET=IB; "
                "fix: pass nccl_env of gangway.components.catalog.site.plan_site_fabric"
            )
        if self.prometheus_image is not None:
            check_pinned("HostSpec.prometheus_image", self.prometheus_image)

    @property
    def results_sec(self) -> int:
        """Time to upload a custom command's run folder; 0 for the trainer, which uploads only its record."""
        return 0 if self.job.command is None else shell.RESULTS_SEC


_PROMETHEUS = (
    "--config.file=/etc/prometheus/prometheus.yml",
    "--storage.tsdb.path=/prometheus",
    "--web.listen-address=127.0.0.1:9090",
)  # loopback only: Prometheus has no authentication; the first two are the image's defaults
# Commands that upload files, by the run store's scheme.
_CLIENTS = {
    "s3": "aws: install the AWS CLI, version 2, which uploads records to the run store",
    "gs": "gcloud: install the Google Cloud CLI, which uploads records to the run store",
    "az": "az: install the Azure CLI, which uploads records to the run store",
}


def render_host_installer(spec: HostSpec) -> str:
    """The machine's script, with the commands `install` and `remove`."""
    hint = _ENGINE_HINTS[spec.container_engine]
    services = [*_services(spec), *_exporters(spec).units]
    return installer_text(spec.stack, host_files(spec), services, _needs(spec), container_engine_hint=hint)


def installer_text(
    stack: str,
    files: Sequence[render.NodeFile],
    services: Sequence[str],
    needs: Sequence[str],
    *,
    refused: Sequence[str] = (),
    container_engine_hint: str = "",
) -> str:
    """`needs`: `COMMAND: FIX`; `refused`: `PATH: REASON` of files that must not exist; the hint only with an engine."""
    render.check_heredoc(files, _END)
    settings = shell.bash_assignments({"ENGINE_HINT": container_engine_hint, "STACK": stack})
    arrays = [
        shell.bash_array("FILES", [file.path for file in files]),
        shell.bash_array("NEEDS", needs),
        shell.bash_array("REFUSED", refused),
        shell.bash_array("SERVICES", services),
    ]
    body = "\n".join(f"put {file.path} {file.mode} <<'{_END}'\n{file.text.rstrip()}\n{_END}" for file in files)
    parts = [render.script_text(CLOUD, "installer.sh"), settings, *arrays, f"write_files() {{\n{body}\n}}\n"]
    return "\n".join([*parts, 'main "$@"\nexit\n'])


def host_files(spec: HostSpec) -> list[render.NodeFile]:
    """The files that the script installs."""
    steps, services = _steps(spec), _services(spec)
    values = {
        "image_has_docker": False,
        "log_options": lambda stream: shell.NO_LOG,
        "mount": "check-shared.sh",
        "prometheus_arguments": _PROMETHEUS,
        "idle_stop": False,
        "results_at_end": spec.results_sec > 0,
        "results_sec": spec.results_sec,
        "role": "worker",
        "spec": shell.store_values(spec, spec.port, spec.prometheus_image, spec.uid),
        "steps": steps,
        "timeout_stop_sec": spec.job.shutdown_timeout_sec + render.STOP_MARGIN_SEC,
        "tries_again": True,
    }
    timers = [name.removesuffix("timer") + "service" for name in services if name.endswith(".timer")]
    names = [
        "common.sh",
        "cloud.sh",
        *steps,
        *({"check-shared.sh"} - {*steps}),
        *render.WORKER_SCRIPTS,
    ]
    files = [
        render.etc_file("job.json", "0600", shell.job_json_text(spec.job)),
        render.etc_file("job.env", "0600", host_job_env_text(spec)),
        render.etc_file("node.env", "0600", host_env_text(spec)),
        *render.scripts(CLOUD, names, spec.job),
        *(render.unit(CLOUD, name, values) for name in ["gangway-prepare.service", *services, *timers]),
    ]
    if spec.prometheus_image is not None:
        text = render_prometheus_static(spec.stack, spec.workers, port=spec.metrics_port, exporters=spec.exporters)
        files += prometheus_files(spec.exporters, text)
    return files + _exporters(spec).files


def _exporters(spec: HostSpec) -> Exporters:
    return render_exporters(CLOUD, spec.exporters, _GPUS[spec.container_engine])


def host_docker_argv(spec: HostSpec, bin_dir: str = render.BIN_DIR) -> list[str]:
    """Arguments of the container engine that run the job; no watch, since these machines are never reclaimed."""
    accelerators = [*_gpu_arguments(spec)]
    for device in spec.fabric.devices if spec.fabric else ():
        accelerators += ["--device", device]
    argv = [
        *shell.container_argv(spec.job, accelerators, None, spec.labels, uid=spec.uid),
        *shell.member_mount(spec.member_key),
    ]
    argv += [*shell.NO_LOG, *shell.workload_mounts(spec.job, bin_dir)]
    return [*argv, spec.job.image, *shell.workload_argv(spec, bin_dir)]


def host_job_env_text(spec: HostSpec, bin_dir: str = render.BIN_DIR) -> str:
    """`/etc/gangway/job.env`."""
    return shell.job_env_text(host_docker_argv(spec, bin_dir), spec.job, bin_dir)


def host_env_text(spec: HostSpec) -> str:
    """`/etc/gangway/node.env`."""
    fabric = spec.fabric.settings if spec.fabric else {}
    ports = [str(port) for port in (spec.metrics_port, *spec.exporters.values(), spec.port) if port is not None]
    settings = {
        **fabric,
        **({"WIREGUARD": spec.wireguard} if spec.wireguard else {}),
        **(
            {"ALLOWED_SOURCES": " ".join(spec.allowed), "JOB_PORTS": ",".join(ports)}
            if spec.allowed is not None
            else {}
        ),
        **shell.machine_settings(spec, "worker", spec.uid),
        **shell.worker_settings(spec.job, _steps(spec), None, puts_results=False, tries_again=True),
        **({"RESULTS_AT_END": "yes", "RESULTS_SEC": str(spec.results_sec)} if spec.results_sec else {}),
        "CONTAINER_ENGINE": spec.container_engine,
        # The user's own folder, whose owner must not change.
        "DATA_DIR": "",
        "GPUS_PLANNED": shell.planned_gpus(spec.job),
        "GPU_ARGUMENTS": " ".join(_gpu_arguments(spec)),
        "LOG_GROUP": "journal",
        "SHARED_DIR": spec.shared_dir or "",
        "TERMINATE_WHEN_DONE": "",
    }
    return shell.bash_assignments(settings)


def _gpu_arguments(spec: HostSpec) -> Sequence[str]:
    return _GPUS[spec.container_engine] if spec.job.backend == "nccl" else ()


def _steps(spec: HostSpec) -> list[str]:
    """Those without network first, then the long download, then those that need the image."""
    gpus = spec.job.backend == "nccl"
    planned = {
        "check-gpu.sh": gpus,
        "check-rdma.sh": spec.fabric is not None,
        "check-shared.sh": spec.shared_dir is not None,
        "join-wireguard.sh": spec.wireguard is not None,
        "close-ports.sh": spec.allowed is not None,
        "fetch-key.sh": spec.member_key is not None,
        # Before check-container.sh, which runs the image.
        "verify-image.sh": spec.job.image_signature is not None,
        "pull-image.sh": True,
        "check-container.sh": gpus,
    }
    return render.select_enabled(planned)


def _services(spec: HostSpec) -> list[str]:
    planned = {
        render.METADATA_UNIT: True,
        "gangway-rendezvous.service": spec.port is not None,
        "gangway-prometheus.service": spec.prometheus_image is not None,
        "gangway-trainer.service": True,
        "gangway-watch.timer": True,
        "gangway-record.timer": spec.keeps_record,
    }
    return render.select_enabled(planned)


def _needs(spec: HostSpec) -> list[str]:
    scheme = spec.bucket_uri.partition("://")[0]
    which = "580 or later, for the trainer's CUDA 13" if spec.job.command is None else "a version for your image's CUDA"
    gpu = f"nvidia-smi: install NVIDIA's driver, {which}"
    python = "python3: install Python 3.9 or later, which reads the run's record"
    tunnels = "wg-quick: install your distribution's wireguard-tools, for hosts.wireguard"
    openssl = "openssl: install it from your distribution, for image.signature"
    return [
        python,
        *([openssl] if spec.job.image_signature else []),
        *([tunnels] if spec.wireguard else []),
        *([gpu] if spec.job.backend == "nccl" else []),
        *([_CLIENTS[scheme]] if scheme in _CLIENTS else []),
    ]
