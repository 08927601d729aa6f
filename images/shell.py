"""Bash settings of a node: quoted values, and arguments of `docker run`, in printable ASCII for YAML and any locale."""

import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from gangway.components.core.job import OPEN_FILES, JobSpec
from gangway.images.specs import TRAINER_UID, FileSystem, JobLimit, MachineSpec, job_key, pinned_image

CONTAINER_NAME = "gangway-trainer"
MEMBER_FILE = "/run/gangway-member.pem"  # the member key of `fetch-key.sh`, on the node and in containers
NOTICES_DIR = "/run/gangway-notices"  # the cloud's interruption notices, on the node and in containers
NOTICES_MOUNT = ("--mount", f"type=bind,source={NOTICES_DIR},target={NOTICES_DIR},readonly")
"""The folder, since the file in it is replaced with each answer."""
PROMETHEUS_USER = "nobody"  # 65534, in its image
NO_LOG = ("--log-driver", "none")  # the journal has the lines
WATCH = ("--watch", f"{NOTICES_DIR}/held")
OWN_NOTICES = "/tmp/gangway-notices.jsonl"  # notices of a custom command, in its container
CONTAINED = (
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only"),
    # torch.compile loads its output from there.
    *("--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777"),
)  # for containers that are not privileged: no change of user, a read-only image, Docker's seccomp profile
OWN_SCRIPTS = ("own-node.sh", "own-job.sh")  # run a custom command; the first runs the second
STORE_OF_A_COMMAND = (
    "import signal, sys; from torch.distributed import TCPStore; "
    "store = TCPStore('127.0.0.1', int(sys.argv[1]), is_master=True, wait_for_workers=False, multi_tenant=True); "
    "signal.pause()"
)  # in the custom command's image: the same version as its torchrun; on all interfaces
_JOIN_SEC = 28 * 24 * 3600  # how long torchrun waits for its peers: as long as a job may last
OUTPUTS_SCRIPT = "with-outputs.sh"  # creates the folders of a custom command's outputs
_MAX_PIDS = 32_768  # eight GPUs with loaders and all threads of 200 cores are below 10,000
# Time to upload a run's results: gigabytes at 100 MB/s.
RESULTS_SEC = 300


def bash_quote(text: str) -> str:
    """`text` as one bash word in printable ASCII: plain where possible, else `$'...'` with octal UTF-8 bytes."""
    assert "\0" not in text, "MachineSpec rejects NUL in user values"
    if text.isascii() and text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_ansi_c(byte) for byte in text.encode()) + "'"


def _ansi_c(byte: int) -> str:
    character = chr(byte)
    if character in "'\\":
        return "\\" + character
    return character if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def container_argv(
    job: JobSpec,
    accelerators: Sequence[str],
    scratch: str | None,
    labels: Mapping[str, str],
    name: str = CONTAINER_NAME,
    *,
    uid: int | None,
    sets_limits: bool = True,
    privileged: bool = False,
) -> list[str]:
    """Arguments of `docker` up to the image. Variables are `--env NAME=VALUE`: `--env-file` cannot hold a newline, and
    `--env NAME` would set them for the docker client too. `accelerators`: for GPUs or TPUs and their fabric; `scratch`:
    on the node's disks; `uid`: None if `accelerators` set it; `sets_limits`: False if the user may not raise limits.
    """
    argv = ["run", "--rm", "--init", "--name", name]
    # Host network for the rendezvous and EFA, host IPC for NCCL's and the loaders' shared memory.
    argv += ["--network", "host", "--ipc", "host"]
    argv += ["--ulimit", "memlock=-1", "--ulimit", f"nofile={OPEN_FILES}"] if sets_limits else []
    argv += ["--privileged"] if privileged else CONTAINED
    # The image is read-only, with its home folders.
    argv += ["--pids-limit", str(_MAX_PIDS), "--env", "HOME=/tmp"]
    # torch.compile names its cache after the user, who is not in the image's passwd.
    argv += ["--user", f"{uid}:{uid}", "--env", f"USER={uid}"] if uid is not None else []
    argv += accelerators
    if scratch is not None:
        # For temporary files and torch.compile's cache; the job's env may override it.
        argv += ["--mount", f"type=bind,source={scratch},target={scratch}", "--env", f"TMPDIR={scratch}"]
    for name, value in sorted(job.env.items()):
        argv += ["--env", f"{name}={value}"]
    for volume in job.volumes:
        # --mount, unlike --volume, refuses a source that does not exist.
        readonly = ",readonly" if volume.read_only else ""
        argv += ["--mount", f"type=bind,source={volume.source},target={volume.target}{readonly}"]
    for key, value in sorted(labels.items()):
        argv += ["--label", f"{key}={value}"]
    return argv


def accelerator_argv(job: JobSpec, devices: Iterable[str] = ()) -> list[str]:
    """Docker's arguments for all GPUs and the device files of their fabric."""
    gpus = ["--gpus", "all"] if job.backend == "nccl" else []
    return [*gpus, *(word for device in devices for word in ("--device", device))]


def planned_gpus(job: JobSpec) -> str:
    """GPUS_PLANNED of a worker."""
    return str(job.processes_per_node if job.backend == "nccl" else 0)


def mount_settings(files: FileSystem | None) -> dict[str, str]:
    """Variables of the scripts that mount the file system."""
    return {"MOUNT_POINT": files.mount_point if files else "", "MOUNT_SOURCE": files.source if files else ""}


def job_env_text(argv: Sequence[str], job: JobSpec, bin_dir: str, program: str = "docker") -> str:
    """`/etc/gangway/job.env`: the bash arrays DOCKER_ARGV, and RUN, the command before it if it is not just docker."""
    scripts = [*verify_scripts(job), *([OUTPUTS_SCRIPT] if get_outputs(job) else [])]
    words = [*(f"{bin_dir}/{script}" for script in scripts), program]
    return bash_array("DOCKER_ARGV", argv) + ("" if words == ["docker"] else bash_array("RUN", words))


def get_outputs(job: JobSpec) -> tuple[str, ...]:
    """Output folders of a custom command."""
    return () if job.command is None else job.command.outputs


def verify_scripts(job: JobSpec) -> list[str]:
    """The script that verifies the image's signature, if the stack requires one."""
    return ["verify-image.sh"] if job.image_signature else []


def bash_array(name: str, words: Iterable[str]) -> str:
    """A bash array, one word per line."""
    return f"{name}=(\n" + _lines(f"    {bash_quote(word)}" for word in words) + ")\n"


def job_json_text(job: JobSpec) -> str:
    """`/etc/gangway/job.json`: the JobSpec, for people. Left out on AWS, where user data is limited."""
    return json.dumps(job.model_dump(mode="json"), indent=1) + "\n"


def worker_settings(
    job: JobSpec,
    steps: Sequence[str],
    files: FileSystem | None,
    *,
    puts_results: bool = True,
    tries_again: bool = False,
) -> dict[str, str]:
    """A worker's variables for failures and the job's end. `tries_again`: check a failed node again, not replace it."""
    seconds = results_sec(files) if puts_results else 0
    return {
        "HEALTH_CHECKS": " ".join(step for step in steps if step.startswith("check-")),
        **({"OUTPUTS": " ".join(get_outputs(job))} if get_outputs(job) else {}),
        "RESULTS_AT_END": "yes" if files and seconds else "",
        "RESULTS_SEC": str(seconds or ""),
        "RUN_ID": job.run_id,
        "TRIES_AGAIN": "yes" if tries_again else "",
    }


def results_sec(files: FileSystem | None) -> int:
    """Time to upload results; 0 if the run's folder is in the bucket."""
    return 0 if files is not None and files.kind == "bucket" else RESULTS_SEC


def member_mount(member_key: str | None) -> list[str]:
    """Docker's arguments that mount the member key."""
    return ["--mount", f"type=bind,source={MEMBER_FILE},target={MEMBER_FILE},readonly"] if member_key else []


def member_argv(member_key: str | None) -> list[str]:
    """Arguments of the launcher or the store that name the member key."""
    return ["--member-key", MEMBER_FILE] if member_key else []


def life_argv(job: JobSpec, run_dir: str, max_hours: float | None, limit: JobLimit | None = None) -> list[str]:
    """The launcher's arguments for the job's shared folder, its hours and its money."""
    hours = [] if max_hours is None else ["--max-hours", f"{max_hours:.10g}"]
    money = ["--max-usd", f"{limit.max_usd:.10g}"] if limit else []
    money += ["--usd-per-node-hour", f"{limit.usd_per_node_hour:.10g}"] if limit else []
    return ["--job-dir", f"{run_dir}/.launch/{job_key(job)}", *hours, *money]


def workload_argv(spec: MachineSpec, bin_dir: str, watch: Sequence[str] = ()) -> list[str]:
    """The job container's command: the custom one or the launcher. `watch`: the launcher's arguments for notices."""
    if spec.job.command is not None:
        return _custom_argv(spec.job, bin_dir, spec.run_dir, _command_hours(spec))
    life = life_argv(spec.job, spec.run_dir, spec.max_hours, spec.limit)
    return [*watch, *member_argv(spec.member_key), *life, *spec.job.torchrun_argv()]


def _command_hours(spec: MachineSpec) -> float | None:
    """A command's script counts hours, not money: those for which all nodes can be up."""
    most = spec.limit.hours(spec.job.num_nodes_max) if spec.limit else math.inf
    return spec.max_hours if most >= (spec.max_hours or math.inf) else most


def workload_mounts(job: JobSpec, bin_dir: str) -> list[str]:
    """Docker's arguments for the trainer's configuration, or a custom command's scripts, entry point and folder."""
    if job.training is not None:
        return _mount_file(job.training.config_file)
    if job.command is None:
        return []
    argv = ["--entrypoint", "/bin/sh"]
    for script in OWN_SCRIPTS:
        argv += _mount_file(f"{bin_dir}/{script}")
    return argv + (["--workdir", job.command.workdir] if job.command.workdir else [])


def _mount_file(path: str) -> list[str]:
    return ["--mount", f"type=bind,source={path},target={path},readonly"]


def _custom_argv(job: JobSpec, bin_dir: str, run_dir: str, max_hours: float | None) -> list[str]:
    assert job.command is not None
    return [
        f"{bin_dir}/{OWN_SCRIPTS[0]}",
        *(f"{NOTICES_DIR}/held", f"{run_dir}/.launch/{job_key(job)}", max_sec_text(max_hours)),
        *(str(job.max_restarts), str(job.shutdown_timeout_sec)),
        *(*_torchrun_argv(job), "--", *job.command.words),
    ]


def _torchrun_argv(job: JobSpec) -> list[str]:
    """Torchrun's arguments before a custom command; none if each node runs it once. own-node.sh handles restarts, and
    recognizes several nodes by the first argument.
    """
    assert job.command is not None
    if not job.command.torchrun_processes:
        return []
    where = ["--standalone", "--nnodes=1"]
    if job.command_meets:
        where = [
            f"--rdzv-endpoint={job.rendezvous.host}:{job.rendezvous.port}",
            "--rdzv-backend=c10d",
            # The head runs the store. Nodes restart one after the other.
            f"--rdzv-conf=is_host=0,join_timeout={_JOIN_SEC},last_call_timeout=30,keep_alive_interval=3",
            f"--nnodes={job.num_nodes_min}:{job.num_nodes_max}",
        ]
    return [*where, f"--nproc-per-node={job.command.torchrun_processes}", "--max-restarts=0"]


def max_sec_text(max_hours: float | None) -> str:
    """A job's hours in seconds; empty for no limit."""
    return "" if max_hours is None else str(math.ceil(max_hours * 3600))


def store_values(
    spec: MachineSpec, port: int | None, prometheus_image: str | None, uid: int = TRAINER_UID
) -> dict[str, object]:
    """Template values of the units on the machine that runs the rendezvous store."""
    store_argv = ["-m", "gangway.trainer.launch.rendezvous", *member_argv(spec.member_key), "--port", str(port)]
    return {
        "image": spec.job.image,
        "store_argv": ["-c", STORE_OF_A_COMMAND, str(port)] if spec.job.command_meets else store_argv,
        "member_mount": member_mount(spec.member_key),
        "signed": spec.job.image_signature is not None,
        "prometheus_image": prometheus_image and pinned_image(prometheus_image),
        "scrapes_exporters": bool(spec.exporters),
        "user_argv": ["--user", f"{uid}:{uid}"],
    }


def machine_settings(spec: MachineSpec, role: Literal["worker", "head"], uid: int = TRAINER_UID) -> dict[str, str]:
    """The variables of `/etc/gangway/node.env` that all clouds share."""
    return {
        **({"MEMBER_KEY": spec.member_key} if spec.member_key else {}),
        **({"SIGNING_KEY": spec.signing_key} if spec.signing_key else {}),
        **(
            {
                "IMAGE_KEY": signed.key,
                "IMAGE_NAME": signed.name,
                "IMAGE_REMARKS": signed.optional,
                "IMAGE_SIGNATURE": signed.signature,
            }
            if (signed := spec.job.image_signature)
            else {}
        ),
        "BUCKET_URI": spec.bucket_uri.rstrip("/"),
        "CONTAINER_NAME": CONTAINER_NAME,
        "IMAGE": spec.job.image,
        "IMAGE_REGISTRY": spec.image_registry,
        "JOB_KEY": job_key(spec.job),
        "JOB_NAME": spec.job.name,
        # A head would be replaced by another number of hours, and does not count them.
        **({"MAX_SEC": max_sec_text(spec.max_hours)} if role == "worker" else {}),
        "RESULTS_SEC": "",
        "ROLE": role,
        "RUN_DIR": spec.run_dir,
        "STACK": spec.stack,
        "TRAINER_UID": str(uid),
    }


def metadata_settings(spec: MachineSpec) -> dict[str, str]:
    """Users besides root who may reach the metadata service: Prometheus (65534), to discover workers."""
    return {"METADATA_USERS": PROMETHEUS_USER} if getattr(spec, "prometheus_image", None) else {}


def bash_assignments(settings: Mapping[str, str]) -> str:
    """Bash variables, one per line, sorted."""
    return _lines(f"{name}={bash_quote(value)}" for name, value in sorted(settings.items()))


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
