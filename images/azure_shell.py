"""The bash files of machines on Azure: their settings, and the whole `docker run` argument list."""

import math

from images.azure_specs import AzureMachineSpec, AzureNodeSpec, FabricSetup
from images.shell import CONTAINER_NAME, RESULTS_SEC, bash_array, bash_assignments, container_argv, end_settings
from images.specs import TRAINER_UID, job_key

__all__ = ["azure_docker_argv", "azure_env_text", "azure_job_env_text", "fabric_env_text"]

WATCH = ("--watch", "azure")
# The journal has the lines, and images.on_node.azure_ship sends them on: docker need not keep them again.
NO_LOG = ("--log-driver", "none")


def azure_docker_argv(spec: AzureNodeSpec) -> list[str]:
    """Arguments of `docker` that run the job; run-job.sh adds the scale set to the rendezvous' id."""
    accelerators = ["--gpus", "all"] if spec.job.backend == "nccl" else []
    for device in spec.fabric.devices if spec.fabric else ():
        accelerators += ["--device", device]
    argv = container_argv(spec.job, accelerators, spec.scratch_mount_point, spec.labels)
    return [*argv, *NO_LOG, spec.job.image, *WATCH, *spec.job.torchrun_argv()]


def azure_job_env_text(spec: AzureNodeSpec, bin_dir: str) -> str:
    """`/etc/gangway/job.env`: the bash array DOCKER_ARGV, and RUN, what takes it."""
    return bash_array("DOCKER_ARGV", azure_docker_argv(spec)) + bash_array("RUN", [f"{bin_dir}/run-job.sh"])


def fabric_env_text(fabric: FabricSetup) -> str:
    """`/etc/gangway/fabric.env`: what check-ib.sh wants."""
    lines = [f"{name}={value}" for name, value in sorted(fabric.nccl_conf.items())]
    arrays = bash_array("KERNEL_MODULES", fabric.kernel_modules) + bash_array("NCCL_CONF", lines)
    return arrays + bash_assignments({"HCA_GBPS": str(fabric.gbps_each), "TOPOLOGY_FILE": fabric.topology_file})


def azure_env_text(spec: AzureMachineSpec) -> str:
    """`/etc/gangway/node.env`: what the scripts need to know of this stack, as bash assignments."""
    node = spec if isinstance(spec, AzureNodeSpec) else None
    files = spec.file_system
    settings = {
        **(end_settings(spec.job) if node else {}),
        "BUCKET_URI": spec.bucket_uri.rstrip("/"),
        "CLIENT_ID": spec.client_id,
        "CONTAINER_NAME": CONTAINER_NAME,
        "DATA_DIR": (node.data_dir if node else None) or "",
        "ENDED_OBJECT": spec.ended_object,
        "GPUS_PLANNED": str(spec.job.processes_per_node if node and spec.job.backend == "nccl" else 0),
        "HCAS_PLANNED": str(node.fabric.num_hcas if node and node.fabric else 0),
        "IMAGE": spec.job.image,
        "IMAGE_REGISTRY": spec.image_registry,
        "IN_GROUP": "yes" if node else "",
        "JOB_KEY": job_key(spec.job),
        "JOB_NAME": spec.job.name,
        "LOG_GROUP": spec.ingestion_url or "",
        "MAX_SEC": "" if spec.max_hours is None else str(math.ceil(spec.max_hours * 3600)),
        "MOUNT_POINT": files.mount_point if files else "",
        "MOUNT_SOURCE": files.source if files else "",
        "RESULTS_SEC": str(RESULTS_SEC) if node and not files else "",
        "ROLE": "worker" if node else "head",
        "RUN_DIR": spec.run_dir,
        "SCRATCH_MOUNT_POINT": (node.scratch_mount_point if node else None) or "",
        "SCRATCH_TEMPORARY": "yes" if node and node.scratch_is_temporary_disk else "",
        "STACK": spec.stack,
        "TERMINATE_WHEN_DONE": "yes" if node and node.terminate_when_done else "",
        "TRAINER_UID": str(TRAINER_UID),
    }
    return bash_assignments(settings)
