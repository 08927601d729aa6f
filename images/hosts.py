"""Machines that are there already: what they are given, as one bash script each, which puts a stack's files and
services there or removes them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from images.observability import render_prometheus_static
from images.render import (
    BIN_DIR,
    ETC_DIR,
    METADATA_UNIT,
    STOP_MARGIN_SEC,
    NodeFile,
    check_heredoc,
    script_text,
    scripts,
    unit,
)
from images.shell import (
    CONTAINER_NAME,
    RESULTS_SEC,
    bash_array,
    bash_assignments,
    container_argv,
    job_json_text,
    max_sec_text,
    member_mount,
    run_array,
    signature_settings,
    store_values,
    worker_settings,
    workload_argv,
    workload_mounts,
)
from images.specs import TRAINER_UID, MachineSpec, RdmaSetup, check_pinned, job_key

CLOUD = "hosts"
_END = "GANGWAY_FILE"
_RUN = ("close-metadata.sh", "run-trainer.sh", "upload-record.sh", "leave-node.sh", "watch-node.sh")
_GPUS = {"docker": ("--gpus", "all"), "podman": ("--device", "nvidia.com/gpu=all")}
"""Of the command that starts a container: podman knows GPUs by CDI alone."""
_ENGINE_HINTS = {
    "docker": "install Docker Engine from docker.com or your distribution",
    "podman": "install podman and podman-docker, which puts podman there",
}


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
        allowed: machines, by name or address, and networks that reach the job's ports; None closes nothing.
        wireguard: interface of the tunnels to the other machines; None for none.
        keeps_record: uploads the run record every minute when it has changed, not only when its trainer ends.
        uid: who the job is on this machine; another stack's job that writes to the same file system is another.
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
        """Refuse a job that would go on over TCP, in silence, where the fabric does not work."""
        super().__post_init__()
        if self.fabric is not None and "NCCL_NET" not in self.job.env:
            raise ValueError(
                "HostSpec.job.env: no NCCL_NET beside a fabric; allowed: with NCCL_NET=IB in it; "
                "fix: pass nccl_env of components.catalog.site.plan_site_fabric"
            )
        if self.prometheus_image is not None:
            check_pinned("HostSpec.prometheus_image", self.prometheus_image)

    @property
    def results_sec(self) -> int:
        """How long a run's folder may be put once the job has ended; 0 for the trainer's, of which the record alone is:
        the folder stays where it is.
        """
        return 0 if self.job.command is None else RESULTS_SEC


_PROMETHEUS = (
    "--config.file=/etc/prometheus/prometheus.yml",
    "--storage.tsdb.path=/prometheus",
    "--web.listen-address=127.0.0.1:9090",
)
"""No firewall of ours is there, and Prometheus asks nobody who they are. The first two are its image's own."""
# By the scheme of the run store: what puts a file there, and how it comes to the machine.
_CLIENTS = {
    "s3": "aws: install AWS's command line, version 2, which puts records into the run store",
    "gs": "gcloud: install Google Cloud's command line, which puts records into the run store",
    "az": "az: install Azure's command line, which puts records into the run store",
}


def get_digest(installer: str) -> str:
    """The sum by which a machine knows that it has the whole script."""
    return hashlib.sha256(installer.encode()).hexdigest()


def render_host_installer(spec: HostSpec) -> str:
    """The machine's script, plain ASCII: `install` and `remove`."""
    hint = _ENGINE_HINTS[spec.container_engine]
    return installer_text(spec.stack, host_files(spec), _services(spec), _needs(spec), container_engine_hint=hint)


def installer_text(
    stack: str,
    files: Sequence[NodeFile],
    services: Sequence[str],
    needs: Sequence[str],
    *,
    refused: Sequence[str] = (),
    container_engine_hint: str = "",
) -> str:
    """The script of one machine. `needs`: `command: what to do` for each command that has to be there; `refused`:
    `path: why` for each file that must not be; `container_engine_hint`: how to come by a container engine, where one is
    needed.
    """
    check_heredoc(files, _END)
    settings = bash_assignments({"ENGINE_HINT": container_engine_hint, "STACK": stack})
    arrays = [
        bash_array("FILES", [file.path for file in files]),
        bash_array("NEEDS", needs),
        bash_array("REFUSED", refused),
        bash_array("SERVICES", services),
    ]
    body = "\n".join(f"put {file.path} {file.mode} <<'{_END}'\n{file.text.rstrip()}\n{_END}" for file in files)
    parts = [script_text(CLOUD, "installer.sh"), settings, *arrays, f"write_files() {{\n{body}\n}}\n"]
    return "\n".join([*parts, 'main "$@"\nexit\n'])


def host_files(spec: HostSpec) -> list[NodeFile]:
    """Everything that the script puts on the machine."""
    steps, services = _steps(spec), _services(spec)
    values = {
        "ended_uri": "",
        "image_has_docker": False,
        "log_options": lambda stream: ["--log-driver", "none"],
        "mount": "check-shared.sh",
        "prometheus_arguments": _PROMETHEUS,
        "results_at_end": spec.results_sec > 0,
        "results_sec": spec.results_sec,
        "role": "worker",
        "spec": store_values(spec, spec.port, spec.prometheus_image, spec.uid),
        "steps": steps,
        "timeout_stop_sec": spec.job.shutdown_timeout_sec + STOP_MARGIN_SEC,
        "tries_again": True,
    }
    timers = [name.removesuffix("timer") + "service" for name in services if name.endswith(".timer")]
    shell = ["common.sh", "cloud.sh", *steps, *(["check-shared.sh"] if "check-shared.sh" not in steps else []), *_RUN]
    files = [
        NodeFile(f"{ETC_DIR}/job.json", "0600", job_json_text(spec.job)),
        NodeFile(f"{ETC_DIR}/job.env", "0600", host_job_env_text(spec)),
        NodeFile(f"{ETC_DIR}/node.env", "0600", host_env_text(spec)),
        *scripts(CLOUD, shell, spec.job),
        *(unit(CLOUD, name, values) for name in ["gangway-prepare.service", *services, *timers]),
    ]
    if spec.prometheus_image is not None:
        text = render_prometheus_static(spec.stack, spec.workers, port=spec.metrics_port)
        files.append(NodeFile(f"{ETC_DIR}/prometheus.yaml", "0644", text))
    return files


def host_docker_argv(spec: HostSpec, bin_dir: str = BIN_DIR) -> list[str]:
    """Arguments of the container engine that run the job; nothing takes these machines back, so nobody looks out."""
    accelerators = [*_gpu_arguments(spec)]
    for device in spec.fabric.devices if spec.fabric else ():
        accelerators += ["--device", device]
    argv = [*container_argv(spec.job, accelerators, None, spec.labels, uid=spec.uid), *member_mount(spec.member_key)]
    argv += ["--log-driver", "none", *workload_mounts(spec.job, bin_dir)]
    return [*argv, spec.job.image, *workload_argv(spec, bin_dir)]


def host_job_env_text(spec: HostSpec, bin_dir: str = BIN_DIR) -> str:
    """`/etc/gangway/job.env`: the bash array DOCKER_ARGV, and RUN, what takes it."""
    return bash_array("DOCKER_ARGV", host_docker_argv(spec, bin_dir)) + run_array(spec.job, bin_dir)


def host_env_text(spec: HostSpec) -> str:
    """`/etc/gangway/node.env`: what the scripts need to know of this stack, as bash assignments."""
    fabric = spec.fabric.settings if spec.fabric else {}
    ports = [str(port) for port in (spec.metrics_port, spec.port) if port is not None]
    settings = {
        **fabric,
        **({"WIREGUARD": spec.wireguard} if spec.wireguard else {}),
        **(
            {"ALLOWED_SOURCES": " ".join(spec.allowed), "JOB_PORTS": ",".join(ports)}
            if spec.allowed is not None
            else {}
        ),
        **signature_settings(spec.job),
        **worker_settings(spec.job, _steps(spec), None, puts_results=False, tries_again=True),
        **({"RESULTS_AT_END": "yes", "RESULTS_SEC": str(spec.results_sec)} if spec.results_sec else {}),
        "BUCKET_URI": spec.bucket_uri.rstrip("/"),
        "CONTAINER_ENGINE": spec.container_engine,
        "CONTAINER_NAME": CONTAINER_NAME,
        # Somebody's own folder: the job reads it, and nothing here changes whose it is.
        "DATA_DIR": "",
        "GPUS_PLANNED": str(spec.job.processes_per_node if spec.job.backend == "nccl" else 0),
        "GPU_ARGUMENTS": " ".join(_gpu_arguments(spec)),
        "IMAGE": spec.job.image,
        "JOB_KEY": job_key(spec.job),
        "JOB_NAME": spec.job.name,
        "LOG_GROUP": "journal",
        "MEMBER_KEY": spec.member_key or "",
        "MAX_SEC": max_sec_text(spec.max_hours),
        "ROLE": "worker",
        "RUN_DIR": spec.run_dir,
        "SHARED_DIR": spec.shared_dir or "",
        "SIGNING_KEY": spec.signing_key or "",
        "STACK": spec.stack,
        "TERMINATE_WHEN_DONE": "",
        "TRAINER_UID": str(spec.uid),
    }
    return bash_assignments(settings)


def _gpu_arguments(spec: HostSpec) -> Sequence[str]:
    return _GPUS[spec.container_engine] if spec.job.backend == "nccl" else ()


def _steps(spec: HostSpec) -> list[str]:
    """What needs no network first, the long download last, and what needs the image after it."""
    gpus = spec.job.backend == "nccl"
    planned = {
        "check-gpu.sh": gpus,
        "check-rdma.sh": spec.fabric is not None,
        "check-shared.sh": spec.shared_dir is not None,
        "join-wireguard.sh": spec.wireguard is not None,
        "close-ports.sh": spec.allowed is not None,
        "fetch-key.sh": spec.member_key is not None,
        # It runs the image as well.
        "verify-image.sh": spec.job.image_signature is not None,
        "pull-image.sh": True,
        "check-container.sh": gpus,
    }
    return [name for name, wanted in planned.items() if wanted]


def _services(spec: HostSpec) -> list[str]:
    """What is enabled and started; the others are pulled in by them."""
    planned = {
        METADATA_UNIT: True,
        "gangway-rendezvous.service": spec.port is not None,
        "gangway-prometheus.service": spec.prometheus_image is not None,
        "gangway-trainer.service": True,
        "gangway-watch.timer": True,
        "gangway-record.timer": spec.keeps_record,
    }
    return [name for name, wanted in planned.items() if wanted]


def _needs(spec: HostSpec) -> list[str]:
    """`command: what to do` for each command without which nothing would work."""
    scheme = spec.bucket_uri.partition("://")[0]
    which = "580 or later, for the trainer's CUDA 13" if spec.job.command is None else "one for the CUDA of your image"
    gpu = f"nvidia-smi: install NVIDIA's driver, {which}"
    python = "python3: install Python 3.9 or later, with which the run's record is read"
    tunnels = "wg-quick: install wireguard-tools of your distribution, for hosts.wireguard"
    openssl = "openssl: install it from your distribution, for image.signature"
    return [
        python,
        *([openssl] if spec.job.image_signature else []),
        *([tunnels] if spec.wireguard else []),
        *([gpu] if spec.job.backend == "nccl" else []),
        *([_CLIENTS[scheme]] if scheme in _CLIENTS else []),
    ]
