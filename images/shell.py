"""The bash files a node reads: values quoted for bash, and the whole `docker run` argument list.

Everything is printable ASCII: it survives YAML's literal blocks, gzip and any locale. The scripts are `templates/`.
"""

import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence

from components.core.job import OPEN_FILES, JobSpec
from images.pins import pinned_image
from images.specs import TRAINER_UID, FileSystem, MachineSpec, job_key

CONTAINER_NAME = "gangway-trainer"
MEMBER_FILE = "/run/gangway-member.pem"
"""Where `fetch-key.sh` puts the key of the job's nodes, in a container too."""
NOTICES_DIR = "/run/gangway-notices"
"""Where `gangway-notices.service` keeps what the cloud says of this machine's end, in a container too."""
NOTICES_MOUNT = ("--mount", f"type=bind,source={NOTICES_DIR},target={NOTICES_DIR},readonly")
"""The folder, for the file in it is made anew with each answer."""
WATCH = ("--watch", f"{NOTICES_DIR}/held")
OWN_NOTICES = "/tmp/gangway-notices.jsonl"
"""Where a command of the user's own reads what its node was told, in its container."""
CONTAINED = (
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only"),
    # torch.compile loads what it has compiled from there.
    *("--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777"),
)
"""Of every container but a privileged one, which has all capabilities whatever else is said: it can become nobody else,
and changes nothing of its image. Docker's own seccomp profile stays as it is.
"""
OWN_SCRIPTS = ("own-node.sh", "own-job.sh")
"""What runs a job's own command; the first begins the other, beside it."""
STORE_OF_A_COMMAND = (
    "import signal, sys; from torch.distributed import TCPStore; "
    "store = TCPStore('127.0.0.1', int(sys.argv[1]), is_master=True, wait_for_workers=False, multi_tenant=True); "
    "signal.pause()"
)
"""What the head runs of a command's own image, whose torchrun then speaks to a store of its own version. It listens on
all interfaces.
"""
_JOIN_SEC = 28 * 24 * 3600
"""How long torchrun waits for its peers: as long as a job may last, for what ends the wait is the job's end."""
OUTPUTS_SCRIPT = "with-outputs.sh"
"""What makes the folders of its outputs, where it has any."""
_PIDS = 32_768
"""Of a job: eight GPUs with their loaders and all threads of 200 cores are below 10,000."""
# For putting a run's results where they outlive the stack: gigabytes at 100 MB a second.
RESULTS_SEC = 300


def bash_quote(text: str) -> str:
    """`text` as one bash word in printable ASCII: plain where possible, else `$'...'` with octal UTF-8 bytes."""
    assert "\0" not in text, "no bash word can hold NUL; MachineSpec refuses it in what a user writes"
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
    """Arguments of `docker` up to the image: the container is as near to the host as a fabric needs it, and gains
    nothing there.

    Variables travel as `--env NAME=VALUE`: `--env-file` cannot write a newline, and `--env NAME` would put the job's
    variables into the docker client's own environment. `accelerators` are the arguments for GPUs or TPUs and what moves
    data between them; `scratch` is a folder of the node's own disks, None for none. `uid` is who the job is there, for
    an image may say anybody, root too; None where `accelerators` say it. `sets_limits`: False where whoever runs
    docker may not raise them.
    """
    argv = ["run", "--rm", "--init", "--name", name]
    # Host network for the rendezvous and EFA, host IPC for NCCL's and the loaders' shared memory.
    argv += ["--network", "host", "--ipc", "host"]
    argv += ["--ulimit", "memlock=-1", "--ulimit", f"nofile={OPEN_FILES}"] if sets_limits else []
    argv += ["--privileged"] if privileged else CONTAINED
    # Its user's home is part of the image.
    argv += ["--pids-limit", str(_PIDS), "--env", "HOME=/tmp"]
    # torch.compile names its cache after the user, who has no name in the image.
    argv += ["--user", f"{uid}:{uid}", "--env", f"USER={uid}"] if uid is not None else []
    argv += accelerators
    if scratch is not None:
        # Fast and of this node alone: for temporary files, torch.compile's cache among them. The job may say otherwise.
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


def run_array(job: JobSpec, bin_dir: str, own: str = "docker") -> str:
    """`RUN` of job.env: what takes docker's arguments; nothing where that is docker itself."""
    before = [*verify_scripts(job), *([OUTPUTS_SCRIPT] if get_outputs(job) else [])]
    words = [*(f"{bin_dir}/{script}" for script in before), own]
    return "" if words == ["docker"] else bash_array("RUN", words)


def get_outputs(job: JobSpec) -> tuple[str, ...]:
    """Folders of a command that are kept beside its run folder."""
    return () if job.command is None else job.command.outputs


def verify_scripts(job: JobSpec) -> list[str]:
    """What looks at the image's signature before the image is run, where the stack asks for one."""
    return ["verify-image.sh"] if job.image_signature else []


def signature_settings(job: JobSpec) -> dict[str, str]:
    """What that script wants to know, beside the image itself."""
    signed = job.image_signature
    if signed is None:
        return {}
    return {
        "IMAGE_KEY": signed.key,
        "IMAGE_NAME": signed.name,
        "IMAGE_REMARKS": signed.optional,
        "IMAGE_SIGNATURE": signed.signature,
    }


def bash_array(name: str, words: Iterable[str]) -> str:
    """A bash array, one word a line."""
    return f"{name}=(\n" + _lines(f"    {bash_quote(word)}" for word in words) + ")\n"


def job_json_text(job: JobSpec) -> str:
    """`/etc/gangway/job.json`: the JobSpec, for people. Not on AWS, where there is no room for what nothing reads."""
    return json.dumps(job.model_dump(mode="json"), indent=1) + "\n"


def worker_settings(
    job: JobSpec,
    steps: Sequence[str],
    files: FileSystem | None,
    *,
    puts_results: bool = True,
    tries_again: bool = False,
) -> dict[str, str]:
    """What a worker's scripts want to know of failures and of the job's end: the checks that are made again, whether
    somebody mends this node and nobody replaces it, when results are put, and whose record is waited for.
    """
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
    """How long results may be put; 0 where the run's folder is in the bucket already."""
    return 0 if files is not None and files.kind == "bucket" else RESULTS_SEC


def member_mount(member_key: str | None) -> list[str]:
    """Docker's arguments by which a container has the key of the job's nodes, and may read it alone."""
    return ["--mount", f"type=bind,source={MEMBER_FILE},target={MEMBER_FILE},readonly"] if member_key else []


def member_argv(member_key: str | None) -> list[str]:
    """The same of what runs in it: the launcher, or the store."""
    return ["--member-key", MEMBER_FILE] if member_key else []


def life_argv(job: JobSpec, run_dir: str, max_hours: float | None) -> list[str]:
    """The launcher's arguments by which a job's nodes know of each other, and of its hours."""
    hours = [] if max_hours is None else ["--max-hours", f"{max_hours:.10g}"]
    return ["--job-dir", f"{run_dir}/.launch/{job_key(job)}", *hours]


def workload_argv(spec: MachineSpec, bin_dir: str, watch: Sequence[str] = ()) -> list[str]:
    """What a container of the job's runs, behind its image: the job's own command, or the launcher. `watch`: where that
    looks for its machine's end.
    """
    if spec.job.command is not None:
        return own_argv(spec.job, bin_dir, spec.run_dir, spec.max_hours)
    life = life_argv(spec.job, spec.run_dir, spec.max_hours)
    return [*watch, *member_argv(spec.member_key), *life, *spec.job.torchrun_argv()]


def workload_mounts(job: JobSpec, bin_dir: str) -> list[str]:
    """Docker's arguments that give the container the files of its workload: the trainer's configuration, or the scripts
    that run a custom command, whatever its image holds, and the command's working directory.
    """
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


def own_argv(job: JobSpec, bin_dir: str, run_dir: str, max_hours: float | None) -> list[str]:
    """What that shell runs: own-node.sh, with what is left of the words for own-job.sh."""
    assert job.command is not None, "asked of a job's own command alone"
    return [
        f"{bin_dir}/{OWN_SCRIPTS[0]}",
        *(f"{NOTICES_DIR}/held", f"{run_dir}/.launch/{job_key(job)}", max_sec_text(max_hours)),
        *(str(job.max_restarts), str(job.shutdown_timeout_sec)),
        *(*_torchrun_argv(job), "--", *job.command.words),
    ]


def _torchrun_argv(job: JobSpec) -> list[str]:
    """Words of torchrun's own before a command's; none where each node runs it once. It restarts nothing by itself:
    what an end means is own-node.sh's to say, which knows by the first word that nodes meet.
    """
    assert job.command is not None, "asked of a job's own command alone"
    if not job.command.torchrun_processes:
        return []
    where = ["--standalone", "--nnodes=1"]
    if job.command_meets:
        where = [
            f"--rdzv-endpoint={job.rendezvous.host}:{job.rendezvous.port}",
            "--rdzv-backend=c10d",
            # The head holds the store. Nodes that begin again come one after the other.
            f"--rdzv-conf=is_host=0,join_timeout={_JOIN_SEC},last_call_timeout=30,keep_alive_interval=3",
            f"--nnodes={job.num_nodes_min}:{job.num_nodes_max}",
        ]
    return [*where, f"--nproc-per-node={job.command.torchrun_processes}", "--max-restarts=0"]


def max_sec_text(max_hours: float | None) -> str:
    """A job's hours in seconds; empty for no end."""
    return "" if max_hours is None else str(math.ceil(max_hours * 3600))


def store_values(
    spec: MachineSpec, port: int | None, prometheus_image: str | None, uid: int = TRAINER_UID
) -> dict[str, object]:
    """What the units of whoever holds the rendezvous store are told."""
    store_argv = ["-m", "trainer.launch.rendezvous", *member_argv(spec.member_key), "--port", str(port)]
    return {
        "image": spec.job.image,
        "store_argv": ["-c", STORE_OF_A_COMMAND, str(port)] if spec.job.command_meets else store_argv,
        "member_mount": member_mount(spec.member_key),
        "signed": spec.job.image_signature is not None,
        "prometheus_image": prometheus_image and pinned_image(prometheus_image),
        "user_argv": ["--user", f"{uid}:{uid}"],
    }


def metadata_settings(spec: MachineSpec) -> dict[str, str]:
    """Users besides root who may reach the metadata service, for close-metadata.sh: Prometheus, to discover workers."""
    return {"METADATA_USERS": "nobody"} if getattr(spec, "prometheus_image", None) else {}


def bash_assignments(settings: Mapping[str, str]) -> str:
    """Variables of bash, one a line, sorted."""
    return _lines(f"{name}={bash_quote(value)}" for name, value in sorted(settings.items()))


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
