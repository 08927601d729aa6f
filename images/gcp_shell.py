"""The bash files of machines on Google Cloud: their settings, and the whole `docker run` argument list."""

import math
from collections.abc import Sequence

from components.job import JobSpec
from images.gcp_specs import GcpHeadSpec, GcpMachineSpec, GcpNodeSpec, NcclSetup, TpuHostSpec
from images.shell import (
    CONTAINER_NAME,
    RESULTS_SEC,
    bash_array,
    bash_assignments,
    bash_quote,
    container_argv,
    end_settings,
)
from images.specs import TRAINER_UID, job_key

__all__ = ["gcp_docker_argv", "gcp_env_text", "gcp_job_env_text", "nccl_env_text", "tpu_docker_argv"]

# The image's own entrypoint, where a shell has to come before it.
LAUNCHER = ("python", "-m", "trainer.launch")
WATCH = ("--watch", "gcp")
# The journal has the lines, and images.on_node.ship sends them on: docker need not keep them again.
NO_LOG = ("--log-driver", "none")


def gcp_docker_argv(spec: GcpNodeSpec) -> list[str]:
    """Arguments of `docker` that run the job on a GPU worker."""
    accelerators = ["--gpus", "all"] if spec.job.backend == "nccl" else []
    for device in spec.nccl.devices if spec.nccl else ():
        accelerators += ["--device", device]
    argv = [*container_argv(spec.job, accelerators, spec.scratch_mount_point, spec.labels), *NO_LOG]
    command = [*WATCH, *spec.job.torchrun_argv()]
    if spec.nccl is None or not spec.nccl.env_script:
        return [*argv, spec.job.image, *command]
    script = _with_profile(spec.job, spec.nccl)
    return [*argv, "--entrypoint", "bash", spec.job.image, "-c", script, "gangway", *LAUNCHER, *command]


def _with_profile(job: JobSpec, nccl: NcclSetup) -> str:
    """Bash that sources the plug-in's profile, sets what the job says otherwise, then runs its arguments. The job's
    environment sets NCCL_NET, as not every profile does. The profile's exit status says nothing.
    """
    ours = {name: value for name, value in job.env.items() if name.startswith("NCCL_") or name == "LD_LIBRARY_PATH"}
    lines = [
        f"profile={bash_quote(nccl.env_script)}",
        """[ -r "$profile" ] || { echo "gangway: no profile of NCCL's plug-in at $profile" >&2; exit 1; }""",
        "set -a",
        '. "$profile"',
        *(f"{name}={bash_quote(value)}" for name, value in sorted(ours.items())),
        "set +a",
        'exec "$@"',
    ]
    return "\n".join(lines)


def tpu_docker_argv(spec: TpuHostSpec) -> list[str]:
    """Arguments of run-tpu.sh: docker's up to the launcher's own, `--`, then torchrun's last ones; only the host knows
    the rendezvous, which goes between.

    torch_xla stops at torch 2.9, whose torchrun lacks --shutdown-timeout: workers get 30 s, all a preempted machine
    has.
    """
    job = spec.job
    # libtpu opens the chips' devices, which belong to root; Google's guide runs its containers so as well.
    accelerators = ["--privileged", "--user", "0:0", "--env", "PJRT_DEVICE=TPU"]
    return [
        *container_argv(job, accelerators, None, spec.labels),
        *NO_LOG,
        *(job.image, *WATCH, "--"),
        f"--nproc-per-node={job.processes_per_node}",
        f"--max-restarts={job.max_restarts}",
        *("-m", job.module, *job.argv),
    ]


def gcp_job_env_text(spec: GcpNodeSpec | TpuHostSpec, bin_dir: str) -> str:
    """`/etc/gangway/job.env`: the bash array DOCKER_ARGV, and RUN, what takes it."""
    if isinstance(spec, TpuHostSpec):
        return bash_array("DOCKER_ARGV", tpu_docker_argv(spec)) + bash_array("RUN", [f"{bin_dir}/run-tpu.sh"])
    return bash_array("DOCKER_ARGV", gcp_docker_argv(spec))


def nccl_env_text(nccl: NcclSetup) -> str:
    """`/etc/gangway/nccl.env`: what prepare-nccl.sh does."""
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
    return "".join(bash_array(name, words) for name, words in arrays.items()) + bash_assignments(settings)


def gcp_env_text(spec: GcpMachineSpec) -> str:
    """`/etc/gangway/node.env`: what the scripts need to know of this stack, as bash assignments."""
    node = spec if isinstance(spec, GcpNodeSpec) else None
    worker = None if isinstance(spec, GcpHeadSpec) else spec
    files, data = spec.file_system, spec.data
    settings = {
        **(end_settings(spec.job) if worker else {}),
        "BUCKET_URI": spec.bucket_uri.rstrip("/"),
        "CONTAINER_NAME": CONTAINER_NAME,
        "DATA_BY": data.by if data else "",
        "DATA_DIR": getattr(worker, "data_dir", None) or "",
        "DATA_SOURCE": data.uri if data else "",
        "ENDED_OBJECT": spec.ended_object,
        "GPUS_PLANNED": str(spec.job.processes_per_node if node and spec.job.backend == "nccl" else 0),
        "GVNICS_PLANNED": str(node.gvnics_planned if node else 0),
        "IMAGE": spec.job.image,
        "IMAGE_REGISTRY": spec.image_registry,
        "IN_GROUP": "yes" if node else "",
        "JOB_KEY": job_key(spec.job),
        "JOB_NAME": spec.job.name,
        "LOG_GROUP": spec.log_id or "",
        "MAX_SEC": "" if spec.max_hours is None else str(math.ceil(spec.max_hours * 3600)),
        "MOUNT_POINT": files.mount_point if files else "",
        "MOUNT_SOURCE": files.source if files else "",
        "NUM_SLICES": str(spec.num_slices) if isinstance(spec, TpuHostSpec) else "",
        "PROJECT": spec.project,
        "RDMA_NICS_PLANNED": str(node.rdma_nics_planned if node else 0),
        "REGION": spec.region,
        "RESULTS_SEC": str(RESULTS_SEC) if worker and not files else "",
        "ROLE": "worker" if worker else "head",
        "RUN_DIR": spec.run_dir,
        "SCRATCH_MOUNT_POINT": (node.scratch_mount_point if node else None) or "",
        "STACK": spec.stack,
        "TERMINATE_WHEN_DONE": "yes" if node and node.terminate_when_done else "",
        "TRAINER_UID": str(TRAINER_UID),
    }
    return bash_assignments(settings)
