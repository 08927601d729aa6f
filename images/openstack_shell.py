"""The bash and JSON files of machines on OpenStack: settings, credential, and `docker run`'s arguments."""

import json
import math

from images.openstack_specs import OpenstackMachineSpec, OpenstackNodeSpec
from images.shell import CONTAINER_NAME, RESULTS_SEC, bash_array, bash_assignments, container_argv, end_settings
from images.specs import TRAINER_UID, job_key

__all__ = [
    "openstack_credential_text",
    "openstack_docker_argv",
    "openstack_env_text",
    "openstack_job_env_text",
]

# The journal has the lines, and nothing sends them on: docker need not keep them again.
NO_LOG = ("--log-driver", "none")


def openstack_docker_argv(spec: OpenstackNodeSpec) -> list[str]:
    """Arguments of `docker` that run the job."""
    accelerators = ["--gpus", "all"] if spec.job.backend == "nccl" else []
    for device in spec.fabric.devices if spec.fabric else ():
        accelerators += ["--device", device]
    argv = container_argv(spec.job, accelerators, None, spec.labels)
    return [*argv, *NO_LOG, spec.job.image, *spec.job.torchrun_argv()]


def openstack_job_env_text(spec: OpenstackNodeSpec) -> str:
    """`/etc/gangway/job.env`: one bash array, DOCKER_ARGV."""
    return bash_array("DOCKER_ARGV", openstack_docker_argv(spec))


def openstack_credential_text(spec: OpenstackMachineSpec) -> str:
    """`/etc/gangway/credential.json`: what images.on_node.openstack logs in with. Root's alone."""
    store = spec.store
    content = {
        "auth_url": store.auth_url,
        "id": store.credential_id,
        "region": store.region,
        "secret": store.credential_secret,
    }
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def openstack_env_text(spec: OpenstackMachineSpec) -> str:
    """`/etc/gangway/node.env`: what the scripts need to know of this stack, as bash assignments."""
    node = spec if isinstance(spec, OpenstackNodeSpec) else None
    files = spec.file_system
    settings = {
        **(node.fabric.settings if node and node.fabric else {}),
        **(end_settings(spec.job) if node else {}),
        "BUCKET_URI": spec.bucket_uri.rstrip("/"),
        "CONTAINER_NAME": CONTAINER_NAME,
        "DATA_DIR": (node.data_dir if node else None) or "",
        "GPUS_PLANNED": str(spec.job.processes_per_node if node and spec.job.backend == "nccl" else 0),
        "IMAGE": spec.job.image,
        "IMAGE_REGISTRY": spec.image_registry,
        "JOB_KEY": job_key(spec.job),
        "JOB_NAME": spec.job.name,
        "LOG_GROUP": "",
        "MAX_SEC": "" if spec.max_hours is None else str(math.ceil(spec.max_hours * 3600)),
        "MOUNT_POINT": files.mount_point if files else "",
        "MOUNT_SOURCE": files.source if files else "",
        "MOUNT_USER": spec.mount_user,
        "RESULTS_SEC": str(RESULTS_SEC) if node and not files else "",
        "ROLE": "worker" if node else "head",
        "RUN_DIR": spec.run_dir,
        "STACK": spec.stack,
        "TERMINATE_WHEN_DONE": "yes" if spec.terminate_when_done else "",
        "TRAINER_UID": str(TRAINER_UID),
    }
    return bash_assignments(settings)
