"""The bash files a node reads: values quoted for bash, and the whole `docker run` argument list.

Everything is quoted into printable ASCII, so the same text survives YAML's literal blocks, gzip and any locale. Not
the scripts themselves: those are static files under `templates/`, so that they are checked as they run.
"""

import json
import math
import shlex
from collections.abc import Iterable, Mapping

from images.specs import TRAINER_UID, HeadInitSpec, NodeInitSpec

__all__ = [
    "CONTAINER_NAME",
    "bash_quote",
    "docker_argv",
    "head_env_text",
    "job_env_text",
    "job_json_text",
    "node_env_text",
]

CONTAINER_NAME = "gangway-trainer"


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
    """Arguments of `docker` that run the job: the container is as near to the host as a fabric needs it.

    Variables travel as `--env NAME=VALUE` arguments: `--env-file` has no way to write a newline, and `--env NAME`
    would put the job's variables into the docker client's own environment.
    """
    job = spec.job
    argv = ["run", "--rm", "--init", "--name", CONTAINER_NAME]
    # Host network for the rendezvous and EFA, host IPC for NCCL's and the loaders' shared memory.
    argv += ["--network", "host", "--ipc", "host", "--ulimit", "memlock=-1"]
    if job.backend == "nccl":
        argv += ["--gpus", "all"]
    if spec.efa_interfaces_planned:
        # NCCL_NET makes NCCL fail when the plugin does not load; without it NCCL would go on over TCP, in silence.
        argv += ["--device", "/dev/infiniband", "--env", "NCCL_NET=AWS Libfabric"]
    for name, value in sorted(job.env.items()):
        argv += ["--env", f"{name}={value}"]
    for volume in job.volumes:
        # --mount, unlike --volume, refuses a source that does not exist.
        readonly = ",readonly" if volume.read_only else ""
        argv += ["--mount", f"type=bind,source={volume.source},target={volume.target}{readonly}"]
    for key, value in sorted(spec.tags.items()):
        argv += ["--label", f"{key}={value}"]
    if spec.log_group is not None:
        # non-blocking: lines may be lost when CloudWatch is slow, but training never waits for it.
        options = {"awslogs-group": spec.log_group, "awslogs-region": spec.region, "mode": "non-blocking"}
        argv += ["--log-driver", "awslogs"]
        argv += [word for key, value in options.items() for word in ("--log-opt", f"{key}={value}")]
    return [*argv, job.image, "--watch", spec.cloud, *job.torchrun_argv()]


def job_env_text(spec: NodeInitSpec) -> str:
    """`/etc/gangway/job.env`: one bash array, DOCKER_ARGV."""
    return "DOCKER_ARGV=(\n" + _lines(f"    {bash_quote(word)}" for word in docker_argv(spec)) + ")\n"


def job_json_text(spec: NodeInitSpec) -> str:
    """`/etc/gangway/job.json`: the JobSpec, for people and for the record."""
    return json.dumps(spec.job.model_dump(mode="json"), indent=1) + "\n"


def node_env_text(spec: NodeInitSpec) -> str:
    """`/etc/gangway/node.env`: what the scripts need to know of this stack, as bash assignments."""
    settings: Mapping[str, str] = {
        "BUCKET_URI": spec.bucket_uri.rstrip("/"),
        "CONTAINER_NAME": CONTAINER_NAME,
        "EFA_INTERFACES_PLANNED": str(spec.efa_interfaces_planned),
        "GPUS_PLANNED": str(spec.job.processes_per_node if spec.job.backend == "nccl" else 0),
        "IMAGE": spec.job.image,
        "IMAGE_REGISTRY": spec.image_registry,
        "JOB_NAME": spec.job.name,
        "LIFECYCLE_HOOK": spec.lifecycle_hook or "",
        "LUSTRE_DNS_NAME": spec.lustre_dns_name or "",
        "LUSTRE_MOUNT_NAME": spec.lustre_mount_name or "",
        "LUSTRE_MOUNT_POINT": spec.lustre_mount_point,
        "MAX_SEC": "" if spec.max_hours is None else str(math.ceil(spec.max_hours * 3600)),
        "REGION": spec.region,
        "ROLE": "worker",
        "RUN_DIR": spec.run_dir,
        "SCRATCH_MOUNT_POINT": spec.scratch_mount_point or "",
        "STACK": spec.stack,
        "TERMINATE_WHEN_DONE": "yes" if spec.terminate_when_done else "",
        "TRAINER_UID": str(TRAINER_UID),
    }
    return _assignments(settings)


def head_env_text(spec: HeadInitSpec) -> str:
    """`/etc/gangway/node.env` of the head node: what the scripts it shares with the workers read."""
    settings: Mapping[str, str] = {
        "BUCKET_URI": spec.bucket_uri.rstrip("/"),
        "IMAGE": spec.image,
        "IMAGE_REGISTRY": spec.image_registry,
        "JOB_NAME": spec.job_name,
        "LUSTRE_DNS_NAME": spec.lustre_dns_name or "",
        "LUSTRE_MOUNT_NAME": spec.lustre_mount_name or "",
        "LUSTRE_MOUNT_POINT": spec.lustre_mount_point,
        "REGION": spec.region,
        "ROLE": "head",
        "RUN_DIR": spec.run_dir,
    }
    return _assignments(settings)


def _assignments(settings: Mapping[str, str]) -> str:
    return _lines(f"{name}={bash_quote(value)}" for name, value in settings.items())


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
