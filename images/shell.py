"""The bash files a node reads: values quoted for bash, and the whole `docker run` argument list.

Everything is printable ASCII: it survives YAML's literal blocks, gzip and any locale. The scripts are `templates/`.
"""

import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence

from components.core.job import JobSpec
from images.specs import TRAINER_UID, HeadInitSpec, NodeInitSpec, job_key

__all__ = [
    "CONTAINER_NAME",
    "RESULTS_SEC",
    "bash_array",
    "bash_assignments",
    "bash_quote",
    "container_argv",
    "docker_argv",
    "end_settings",
    "head_env_text",
    "job_env_text",
    "job_json_text",
    "log_argv",
    "node_env_text",
]

CONTAINER_NAME = "gangway-trainer"
# For putting a run's results where its folder goes with the node's disk: gigabytes at 100 MB a second.
RESULTS_SEC = 300


def bash_quote(text: str) -> str:
    """`text` as one bash word in printable ASCII: plain where possible, else `$'...'` with octal UTF-8 bytes."""
    assert "\0" not in text, "no bash word can hold NUL; NodeInitSpec refuses it in what a user writes"
    if text.isascii() and text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_ansi_c(byte) for byte in text.encode()) + "'"


def _ansi_c(byte: int) -> str:
    character = chr(byte)
    if character in "'\\":
        return "\\" + character
    return character if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def docker_argv(spec: NodeInitSpec) -> list[str]:
    """Arguments of `docker` that run the job on AWS."""
    fabric = ["--gpus", "all"] if spec.job.backend == "nccl" else []
    if spec.efa_interfaces_planned:
        # NCCL_NET makes NCCL fail when the plugin does not load; without it NCCL would go on over TCP, in silence.
        fabric += ["--device", "/dev/infiniband", "--env", "NCCL_NET=AWS Libfabric"]
    return [
        *container_argv(spec.job, fabric, spec.scratch_mount_point, spec.tags),
        *log_argv(spec.log_group, spec.region),
        *(spec.job.image, "--watch", spec.cloud, *spec.job.torchrun_argv()),
    ]


def container_argv(
    job: JobSpec,
    accelerators: Sequence[str],
    scratch: str | None,
    labels: Mapping[str, str],
    name: str = CONTAINER_NAME,
    *,
    locks_memory: bool = True,
) -> list[str]:
    """Arguments of `docker` up to the image: the container is as near to the host as a fabric needs it.

    Variables travel as `--env NAME=VALUE`: `--env-file` cannot write a newline, and `--env NAME` would put the job's
    variables into the docker client's own environment. `accelerators` are the arguments for GPUs or TPUs and what moves
    data between them; `scratch` is a folder of the node's own disks, None for none.
    """
    argv = ["run", "--rm", "--init", "--name", name]
    # Host network for the rendezvous and EFA, host IPC for NCCL's and the loaders' shared memory.
    argv += ["--network", "host", "--ipc", "host"]
    argv += ["--ulimit", "memlock=-1"] if locks_memory else []
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


def log_argv(log_group: str | None, region: str, stream: str | None = None) -> list[str]:
    """Arguments of `docker run` that send a container's lines to CloudWatch; none without a group. `stream` None names
    it by the container's id.
    """
    if log_group is None:
        return []
    # non-blocking: lines may be lost when CloudWatch is slow, but no process ever waits for it.
    options = {"awslogs-group": log_group, "awslogs-region": region, "mode": "non-blocking"}
    if stream is not None:
        options["awslogs-stream"] = stream
    return ["--log-driver", "awslogs", *(word for pair in options.items() for word in ("--log-opt", "=".join(pair)))]


def job_env_text(spec: NodeInitSpec) -> str:
    """`/etc/gangway/job.env`: one bash array, DOCKER_ARGV."""
    return bash_array("DOCKER_ARGV", docker_argv(spec))


def bash_array(name: str, words: Iterable[str]) -> str:
    """A bash array, one word a line."""
    return f"{name}=(\n" + _lines(f"    {bash_quote(word)}" for word in words) + ")\n"


def job_json_text(job: JobSpec) -> str:
    """`/etc/gangway/job.json`: the JobSpec, for people and for the record."""
    return json.dumps(job.model_dump(mode="json"), indent=1) + "\n"


def end_settings(job: JobSpec) -> dict[str, str]:
    """What a worker's scripts want to know to tell of a job's end: whose it is, and the fewest and the most nodes."""
    return {"NODES_MAX": str(job.num_nodes_max), "NODES_MIN": str(job.num_nodes_min), "RUN_ID": job.run_id}


def node_env_text(spec: NodeInitSpec) -> str:
    """`/etc/gangway/node.env`: what the scripts need to know of this stack, as bash assignments."""
    settings = {
        **_common_settings(spec),
        **end_settings(spec.job),
        "CONTAINER_NAME": CONTAINER_NAME,
        "DATA_DIR": spec.data_dir or "",
        "EFA_INTERFACES_PLANNED": str(spec.efa_interfaces_planned),
        "GPUS_PLANNED": str(spec.job.processes_per_node if spec.job.backend == "nccl" else 0),
        "IMAGE": spec.job.image,
        "JOB_KEY": job_key(spec.job),
        "JOB_NAME": spec.job.name,
        "LIFECYCLE_HOOK": spec.lifecycle_hook or "",
        "LUSTRE_EFA": str(spec.lustre_efa_interfaces) if spec.lustre_efa else "",
        "RESULTS_SEC": "" if spec.lustre_dns_name else str(RESULTS_SEC),
        "ROLE": "worker",
        "SCRATCH_MOUNT_POINT": spec.scratch_mount_point or "",
        "TERMINATE_WHEN_DONE": "yes" if spec.terminate_when_done else "",
        "TRAINER_UID": str(TRAINER_UID),
    }
    return bash_assignments(settings)


def head_env_text(spec: HeadInitSpec) -> str:
    """`/etc/gangway/node.env` of the head node, for the scripts it shares with the workers. It is in no Auto Scaling
    group, so it has no hook and never leaves; nor is it an EFA client of the file system.
    """
    settings = {
        **_common_settings(spec),
        "IMAGE": spec.image,
        "JOB_KEY": spec.job_key,
        "JOB_NAME": spec.job_name,
        "LIFECYCLE_HOOK": "",
        "LUSTRE_EFA": "",
        "RESULTS_SEC": "",
        "ROLE": "head",
        "TERMINATE_WHEN_DONE": "",
    }
    return bash_assignments(settings)


def _common_settings(spec: NodeInitSpec | HeadInitSpec) -> dict[str, str]:
    return {
        "BUCKET_URI": spec.bucket_uri.rstrip("/"),
        "IMAGE_REGISTRY": spec.image_registry,
        "LOG_GROUP": spec.log_group or "",
        "LUSTRE_DNS_NAME": spec.lustre_dns_name or "",
        "LUSTRE_MOUNT_NAME": spec.lustre_mount_name or "",
        "LUSTRE_MOUNT_POINT": spec.lustre_mount_point,
        "MAX_SEC": "" if spec.max_hours is None else str(math.ceil(spec.max_hours * 3600)),
        "REGION": spec.region,
        "RUN_DIR": spec.run_dir,
        "STACK": spec.stack,
    }


def bash_assignments(settings: Mapping[str, str]) -> str:
    """Variables of bash, one a line, sorted."""
    return _lines(f"{name}={bash_quote(value)}" for name, value in sorted(settings.items()))


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
