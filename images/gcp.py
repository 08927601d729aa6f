"""Cloud-init for GPU workers and head nodes on Google Cloud, and the startup script of TPU hosts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gangway.components.core.job import JobSpec
from gangway.images import render, shell
from gangway.images.exporters import render_exporters
from gangway.images.observability import prometheus_files, render_prometheus_gce
from gangway.images.specs import TRAINER_UID, HeadSpec, MachineSpec, WorkerSpec

# The image's entrypoint, repeated where a shell runs first.
LAUNCHER = ("python", "-m", "gangway.trainer.launch")
CLOUD = "gcp"
_RENDEZVOUS_PORT = 29400  # on the first host of all slices; run-tpu.sh has the same
_STARTED = (render.METADATA_UNIT, "gangway-trainer.service", "gangway-watch.timer")
_NOT_SHIPPED = ("gangway-logs.service", "gangway-prometheus.service")


@dataclass(frozen=True)
class DataSource:
    """Data that must be in the file system's `data` folder before training starts: `gs://BUCKET/PREFIX`. `by`: the head
    (others wait), this machine with an import of Managed Lustre, or the first machine that gets the lock, which copies
    it; `request`: the import's URL and body.
    """

    uri: str
    by: Literal["head", "import", "copy"]
    request: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.by == "import") != (self.request is not None):
            raise ValueError(
                f"DataSource.request: {self.request!r} with by={self.by!r}; allowed: a request only with by='import'; "
                "fix: use gangway.components.gcp.storage.import_request"
            )


@dataclass(frozen=True)
class NcclSetup:
    """The host's setup of NCCL's plug-in. `install_argv`: of `docker`; `devices`: of the job's container; `env_script`:
    sourced there first; `aperture_device`: PCI vendor:device; `side_ready`: a line of the daemon's log once it serves.
    Empty for none.
    """

    install_argv: tuple[str, ...]
    devices: tuple[str, ...] = ()
    env_script: str = ""
    kernel_modules: tuple[str, ...] = ()
    aperture_device: str = ""
    side_name: str = ""
    side_argv: tuple[str, ...] = ()
    side_ready: str = ""


@dataclass(frozen=True, kw_only=True)
class GcpMachineSpec(MachineSpec):
    """A machine on Google Cloud. `log_id`: of Cloud Logging; None leaves events and units' lines in the journal."""

    project: str
    region: str
    data: DataSource | None = None
    log_id: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data is not None and self.file_system is None:
            raise ValueError(
                f"{type(self).__name__}.data: {self.data.uri!r} without a file system; "
                "allowed: data only with a file system; fix: add file_system, or remove data"
            )


@dataclass(frozen=True, kw_only=True)
class GcpNodeSpec(GcpMachineSpec, WorkerSpec):
    """A GPU worker. `gvnics_planned`: network interfaces of Google's driver, the first among them."""

    nccl: NcclSetup | None = None
    gvnics_planned: int = 1
    rdma_nics_planned: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nccl is not None and self.job.command is not None:
            raise ValueError(
                "GcpNodeSpec.nccl: a plug-in with a custom command; allowed: None, since its profile is sourced "
                "in the trainer's image; fix: remove nccl"
            )
        if self.nccl is not None and "NCCL_NET" not in self.job.env:
            # Without it, NCCL falls back silently if the plug-in does not load.
            raise ValueError(
                "GcpNodeSpec.job.env: nccl without NCCL_NET; allowed: NCCL_NET with the plug-in's name; "
                "fix: pass gangway.components.gcp.fabric.nccl_env"
            )


@dataclass(frozen=True, kw_only=True)
class TpuHostSpec(GcpMachineSpec):
    """A host of a TPU slice. `num_slices`: in the request; they train as one job; `queued_resource`: deleted by the
    first host at the job's end, with all slices; None keeps them.
    """

    num_slices: int = 1
    queued_resource: str | None = None
    data_dir: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GcpHeadSpec(GcpMachineSpec, HeadSpec):
    """The head node. `fallback_uri`: `gs://...` of the object that names the groups to fill and the mark of the job's
    end; None for none.
    """

    zones: tuple[str, ...] = ()
    fallback_uri: str | None = None


def gcp_docker_argv(spec: GcpNodeSpec, bin_dir: str = render.BIN_DIR) -> list[str]:
    """Arguments of `docker` that run the job on a GPU worker."""
    accelerators = shell.accelerator_argv(spec.job, spec.nccl.devices if spec.nccl else ())
    argv = [
        *shell.container_argv(spec.job, accelerators, spec.scratch_mount_point, spec.labels, uid=TRAINER_UID),
        *shell.NO_LOG,
    ]
    argv += [*shell.NOTICES_MOUNT, *shell.member_mount(spec.member_key), *shell.workload_mounts(spec.job, bin_dir)]
    command = shell.workload_argv(spec, bin_dir, shell.WATCH)
    if spec.nccl is None or not spec.nccl.env_script:
        return [*argv, spec.job.image, *command]
    script = _profile_script(spec.job, spec.nccl)
    return [*argv, "--entrypoint", "bash", spec.job.image, "-c", script, "gangway", *LAUNCHER, *command]


def _profile_script(job: JobSpec, nccl: NcclSetup) -> str:
    """Bash that sources the plug-in's profile, whatever its status, and restores the job's variables."""
    names = [name for name in sorted(job.env) if name.startswith("NCCL_") or name == "LD_LIBRARY_PATH"]
    lines = [
        f"profile={shell.bash_quote(nccl.env_script)}",
        """[ -r "$profile" ] || { echo "gangway: NCCL's plug-in has no profile at $profile" >&2; exit 1; }""",
        "set -a",
        '. "$profile"',
        *(f"{name}={shell.bash_quote(job.env[name])}" for name in names),
        "set +a",
        'exec "$@"',
    ]
    return "\n".join(lines)


def tpu_docker_argv(spec: TpuHostSpec, bin_dir: str) -> list[str]:
    """Arguments of run-tpu.sh: docker's and the launcher's, `--`, then torchrun's last ones; the host inserts the
    rendezvous. torch_xla needs torch 2.9, whose torchrun has no --shutdown-timeout: workers get 30 s.
    """
    job = spec.job
    # libtpu opens the chips' devices, which belong to root; Google's guide does the same.
    accelerators = ["--user", "0:0", "--env", "PJRT_DEVICE=TPU"]
    return [
        *shell.container_argv(job, accelerators, None, spec.labels, uid=None, privileged=True),
        *(*shell.NO_LOG, *shell.NOTICES_MOUNT),
        *(*shell.member_mount(spec.member_key), *shell.workload_mounts(job, bin_dir)),
        *(
            job.image,
            *shell.WATCH,
            *shell.member_argv(spec.member_key),
            *shell.life_argv(job, spec.run_dir, spec.max_hours),
            "--",
        ),
        f"--nproc-per-node={job.processes_per_node}",
        f"--max-restarts={job.max_restarts}",
        *("-m", job.module, *job.argv),
    ]


def gcp_job_env_text(spec: GcpNodeSpec | TpuHostSpec, bin_dir: str) -> str:
    """`/etc/gangway/job.env`."""
    if isinstance(spec, TpuHostSpec):
        return shell.job_env_text(tpu_docker_argv(spec, bin_dir), spec.job, bin_dir, f"{bin_dir}/run-tpu.sh")
    return shell.job_env_text(gcp_docker_argv(spec, bin_dir), spec.job, bin_dir)


def nccl_env_text(nccl: NcclSetup) -> str:
    """`/etc/gangway/nccl.env`, for prepare-nccl.sh."""
    arrays: dict[str, Sequence[str]] = {
        "INSTALL_ARGV": nccl.install_argv,
        "KERNEL_MODULES": nccl.kernel_modules,
        "SIDE_ARGV": nccl.side_argv,
    }
    settings = {
        "APERTURE_DEVICE": nccl.aperture_device,
        "SIDE_NAME": nccl.side_name,
        "SIDE_READY": nccl.side_ready,
    }
    return "".join(shell.bash_array(name, words) for name, words in arrays.items()) + shell.bash_assignments(settings)


def gcp_env_text(spec: GcpMachineSpec) -> str:
    """`/etc/gangway/node.env`."""
    node = spec if isinstance(spec, GcpNodeSpec) else None
    host = spec if isinstance(spec, TpuHostSpec) else None
    worker = None if isinstance(spec, GcpHeadSpec) else spec
    files, data = spec.file_system, spec.data
    settings = {
        **(node.breaker.settings if node and node.breaker else {}),
        **(node.idle_settings if node else {}),
        # A TPU's container runs as root, who owns the devices.
        **shell.machine_settings(spec, "worker" if worker else "head", 0 if host else TRAINER_UID),
        **shell.metadata_settings(spec),
        "DATA_BY": data.by if data else "",
        "DATA_DIR": getattr(worker, "data_dir", None) or "",
        "DATA_SOURCE": data.uri if data else "",
        **({"ENDED_OBJECT": spec.ended_object} if worker else {}),
        "GPUS_PLANNED": shell.planned_gpus(spec.job) if node else "0",
        "GVNICS_PLANNED": str(node.gvnics_planned if node else 0),
        "IN_GROUP": "yes" if node else "",
        "LOG_GROUP": spec.log_id or "",
        **shell.mount_settings(files),
        "NUM_SLICES": str(host.num_slices) if host else "",
        "PROJECT": spec.project,
        "QUEUED_RESOURCE": (host.queued_resource if host else None) or "",
        "RDMA_NICS_PLANNED": str(node.rdma_nics_planned if node else 0),
        "REGION": spec.region,
        "SCRATCH_MOUNT_POINT": (node.scratch_mount_point if node else None) or "",
        "TERMINATE_WHEN_DONE": "yes" if (node and node.terminate_when_done) or (host and host.queued_resource) else "",
    }
    if isinstance(spec, TpuHostSpec):
        settings |= shell.worker_settings(spec.job, _tpu_steps(spec), files, tries_again=True)
    elif node:
        settings |= shell.worker_settings(spec.job, _node_steps(node), files)
    return shell.bash_assignments(settings)


def render_gcp_node(spec: GcpNodeSpec) -> str:
    """A GPU worker's `#cloud-config` for Canonical's images with NVIDIA's driver."""
    files, units = _worker_files(spec, _node_steps(spec), [])
    return render.cloud_config(CLOUD, files, "worker on Canonical's image with NVIDIA's driver", units=units)


def render_tpu_startup(spec: TpuHostSpec) -> str:
    """A startup script that writes files and units at each boot; run-tpu.sh starts the store on the first host."""
    files, units = _worker_files(spec, _tpu_steps(spec), ["run-tpu.sh"])
    if spec.member_key is not None:
        # The container runs as root, and root owns the key.
        values = {
            "image_has_docker": False,
            "log_options": lambda stream: shell.NO_LOG,
            "spec": shell.store_values(spec, _RENDEZVOUS_PORT, None, uid=0),
        }
        files.append(render.unit(CLOUD, "gangway-rendezvous.service", values))
    render.check_heredoc(files, "GANGWAY_END_OF_FILE")
    template = render.template_environment().get_template("tpu-startup.sh.j2")
    return template.render(files=files, units=units, what="host of a TPU slice")


def render_gcp_head(spec: GcpHeadSpec) -> str:
    """The head node's `#cloud-config` for Canonical's Ubuntu."""
    files, units = _head_files(spec)
    return render.cloud_config(CLOUD, files, "head node on Ubuntu", units=units)


def _node_steps(spec: GcpNodeSpec) -> list[str]:
    planned = {
        "check-gpu.sh": spec.job.backend == "nccl",
        "check-nics.sh": spec.gvnics_planned > 1 or spec.rdma_nics_planned > 0,
        "mount-scratch.sh": spec.scratch_mount_point is not None,
        "install-docker.sh": True,
        "prepare-nccl.sh": spec.nccl is not None,
    }
    return [*render.select_enabled(planned), *_shared_steps(spec), *spec.key_steps, "pull-image.sh"]


def _tpu_steps(spec: TpuHostSpec) -> list[str]:
    return ["install-docker.sh", *_shared_steps(spec), *spec.key_steps, "pull-image.sh"]


def _shared_steps(spec: GcpMachineSpec) -> list[str]:
    return [
        *([spec.file_system.script] if spec.file_system else []),
        *(["fill-data.sh"] if spec.data else []),
    ]


def _worker_files(
    spec: GcpNodeSpec | TpuHostSpec, steps: Sequence[str], more: Sequence[str]
) -> tuple[list[render.NodeFile], list[str]]:
    started, exporters = [*_STARTED, *_log_units(spec)], render_exporters(CLOUD, spec.exporters)
    units = ["gangway-notices.service", "gangway-prepare.service", "gangway-watch.service", *started]
    values = {
        **_values(spec, steps, "worker"),
        **render.worker_values(spec, render.short_stop_margin_sec(spec.job)),
        "shipped": ["gangway-prepare.service", "gangway-trainer.service"],
        # No group replaces a TPU host.
        "tries_again": isinstance(spec, TpuHostSpec),
    }
    files = [
        render.etc_file("job.json", "0600", shell.job_json_text(spec.job)),
        render.etc_file("job.env", "0600", gcp_job_env_text(spec, render.BIN_DIR)),
        *_common_files(spec),
        render.NO_UPGRADES,
        *(render.python_file(name) for name in ("notices.py", "gcp/notices.py")),
        *render.scripts(
            CLOUD,
            ["common.sh", "cloud.sh", *steps, *shell.verify_scripts(spec.job), *render.worker_scripts(spec), *more],
            spec.job,
        ),
        *(render.unit(CLOUD, name, values) for name in units),
        *exporters.files,
    ]
    if isinstance(spec, GcpNodeSpec) and spec.breaker is not None:
        files.append(render.bare_python_file("breaker.py"))
    if isinstance(spec, GcpNodeSpec) and spec.nccl is not None:
        files.append(render.etc_file("nccl.env", "0600", nccl_env_text(spec.nccl)))
    return files, [*started, *exporters.units]


def _head_files(spec: GcpHeadSpec) -> tuple[list[render.NodeFile], list[str]]:
    """A custom command has no record; if its nodes need no rendezvous, the head runs no container."""
    trains = spec.job.command is None
    meets = trains or spec.job.command_meets
    puts_record = trains and spec.file_system is not None
    timers = ["gangway-record"] if puts_record else []
    timers += ["gangway-fill"] if spec.fallback_uri else []
    data = ["gangway-data.service"] if spec.data else []
    started, units = render.head_units(spec, meets=meets, more=[*data, *_log_units(spec)], timers=timers)
    steps = ["install-docker.sh", "close-metadata.sh", *spec.key_steps, "pull-image.sh"] if meets else []
    helpers = [spec.file_system.script] if spec.file_system and (puts_record or spec.data) else []
    helpers += ["upload-record.sh"] if puts_record else []
    fills = ["fill-data.sh"] if spec.data else []
    verify = shell.verify_scripts(spec.job) if meets else []
    values = {
        **_values(spec, steps, "head"),
        "log_options": lambda stream: shell.NO_LOG,
        # Prometheus logs much that no metric reads.
        "shipped": [name for name in units if name.endswith(".service") and name not in _NOT_SHIPPED],
        "spec": shell.store_values(spec, spec.port, spec.prometheus_image),
        "tries_again": True,
    }
    files = [
        *_common_files(spec),
        *render.scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *verify, *helpers, *fills]),
        *(render.unit(CLOUD, name, values) for name in units),
    ]
    if spec.fallback_uri is not None:
        files += [render.python_file("fill_order.py"), render.python_file("gcp/fallback.py")]
    if spec.prometheus_image is not None:
        text = render_prometheus_gce(
            spec.stack, spec.project, spec.zones, port=spec.metrics_port, exporters=spec.exporters
        )
        files += prometheus_files(spec.exporters, text)
    return files, started


def _common_files(spec: GcpMachineSpec) -> list[render.NodeFile]:
    shipper = ["log_shipper.py", "gcp/logs.py"] if spec.log_id else []
    files = render.module_files(gcp_env_text(spec), ["safe_files.py", "gcp/api.py", *shipper])
    if spec.data is not None and spec.data.request is not None:
        text = json.dumps(dict(spec.data.request), indent=1, sort_keys=True)
        files.append(render.etc_file("import.json", "0600", text + "\n"))
    return files


def _values(spec: GcpMachineSpec, steps: Sequence[str], role: str) -> dict[str, object]:
    fallback_uri = getattr(spec, "fallback_uri", None)
    return render.unit_values(spec, steps, role, fallback_uri=fallback_uri, log_id=spec.log_id, project=spec.project)


def _log_units(spec: GcpMachineSpec) -> list[str]:
    return ["gangway-logs.service"] if spec.log_id else []
