"""Cloud-init for workers and head nodes on AWS's images."""

import base64
import gzip
from dataclasses import dataclass

from gangway.components.core.job import AWS_NCCL_NET
from gangway.images import render, shell
from gangway.images.exporters import render_exporters
from gangway.images.observability import prometheus_files, render_prometheus
from gangway.images.specs import TRAINER_UID, HeadSpec, MachineSpec, WorkerSpec

# Before base64 (EC2 User Guide, "Run commands when you launch an EC2 instance with user data").
USER_DATA_LIMIT_BYTES = 16_384
CLOUD = "aws"
# FSx for Lustre's addresses are HOST@tcp:/NAME.
_LUSTRE = "@tcp:/"
_MOUNT_POINT = "/fsx"  # placeholder for machines without a file system
EFA_SETUP_SHA256 = "ed421b0cd251f4dae78cc727f857937de345d7c67700cc240db5f6af7ba6ef49"
"""Of configure-efa-fsx-lustre-client.zip, for which AWS publishes no checksum: from a copy on GitHub of 2026-08-20. A
newer archive needs `storage.efa_setup_sha256`.
"""


@dataclass(frozen=True, kw_only=True)
class AwsMachineSpec(MachineSpec):
    """A machine on AWS. `log_group`: of output and events in CloudWatch; None leaves both in the journal."""

    region: str
    log_group: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        files = self.file_system
        if files is not None and (files.kind != "lustre" or _LUSTRE not in files.source):
            raise ValueError(
                f"{type(self).__name__}.file_system: {files.kind!r} at {files.source!r}; "
                "allowed: 'lustre' at DNS_NAME@tcp:/MOUNT_NAME; fix: pass dns_name and mount_name of FSx for Lustre"
            )


@dataclass(frozen=True, kw_only=True)
class AwsNodeSpec(AwsMachineSpec, WorkerSpec):
    """A worker. `lustre_efa`: over EFA; a node that cannot gives up; `lustre_efa_setup_sha256`: of AWS's archive that
    sets up LNet; `lifecycle_hook`: completed once the trainer has saved; None waits for the hook's timeout.
    """

    efa_interfaces_planned: int = 0
    lustre_efa: bool = False
    lustre_efa_interfaces: int = 1
    lustre_efa_setup_sha256: str = EFA_SETUP_SHA256
    lifecycle_hook: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lustre_efa and not (self.file_system and self.efa_interfaces_planned):
            raise ValueError(
                f"AwsNodeSpec.lustre_efa: True with {self.efa_interfaces_planned} EFA interfaces and file_system "
                f"{self.file_system!r}; allowed: with a file system and EFA interfaces; fix: lustre_efa=False"
            )
        if not self.stack and (self.terminate_when_done or self.idle_stop or self.lifecycle_hook):
            raise ValueError(
                "AwsNodeSpec.stack: '' with terminate_when_done, idle_stop or lifecycle_hook; allowed: the value of "
                "the tag gangway:stack, by which a node finds its groups; fix: pass the stack's name"
            )


@dataclass(frozen=True, kw_only=True)
class AwsHeadSpec(AwsMachineSpec, HeadSpec):
    """The head node. Without a file system, the workers upload the record."""


def aws_docker_argv(spec: AwsNodeSpec, bin_dir: str = render.BIN_DIR) -> list[str]:
    """Arguments of `docker` that run the job on AWS."""
    fabric = shell.accelerator_argv(spec.job)
    if spec.efa_interfaces_planned:
        # With NCCL_NET, NCCL fails if the plugin does not load, instead of falling back to TCP silently.
        fabric += ["--device", "/dev/infiniband", "--env", f"NCCL_NET={AWS_NCCL_NET}"]
    return [
        *shell.container_argv(spec.job, fabric, spec.scratch_mount_point, spec.labels, uid=TRAINER_UID),
        *shell.NOTICES_MOUNT,
        *shell.member_mount(spec.member_key),
        *log_argv(spec.log_group, spec.region),
        *shell.workload_mounts(spec.job, bin_dir),
        *(spec.job.image, *shell.workload_argv(spec, bin_dir, shell.WATCH)),
    ]


def log_argv(log_group: str | None, region: str, stream: str | None = None) -> list[str]:
    """Arguments of `docker run` that send a container's output to CloudWatch. `stream`: None for the container's id."""
    if log_group is None:
        return []
    # non-blocking: lines may be lost when CloudWatch is slow, but no process waits for it.
    options = {"awslogs-group": log_group, "awslogs-region": region, "mode": "non-blocking"}
    if stream is not None:
        options["awslogs-stream"] = stream
    return ["--log-driver", "awslogs", *(word for pair in options.items() for word in ("--log-opt", "=".join(pair)))]


def aws_job_env_text(spec: AwsNodeSpec, bin_dir: str = render.BIN_DIR) -> str:
    """`/etc/gangway/job.env`."""
    return shell.job_env_text(aws_docker_argv(spec, bin_dir), spec.job, bin_dir)


def aws_env_text(spec: AwsMachineSpec) -> str:
    """`/etc/gangway/node.env`. The head is in no Auto Scaling group: it has no hook and never leaves."""
    node = spec if isinstance(spec, AwsNodeSpec) else None
    files = spec.file_system
    dns_name, _, mount_name = files.source.partition(_LUSTRE) if files else ("", "", "")
    settings = {
        **shell.machine_settings(spec, "worker" if node else "head"),
        **shell.metadata_settings(spec),
        "LIFECYCLE_HOOK": (node.lifecycle_hook if node else None) or "",
        "LOG_GROUP": spec.log_group or "",
        "LUSTRE_DNS_NAME": dns_name,
        "LUSTRE_EFA": str(node.lustre_efa_interfaces) if node and node.lustre_efa else "",
        **({"LUSTRE_EFA_SHA256": node.lustre_efa_setup_sha256} if node and node.lustre_efa else {}),
        "LUSTRE_MOUNT_NAME": mount_name,
        "LUSTRE_MOUNT_POINT": files.mount_point if files else _MOUNT_POINT,
        "REGION": spec.region,
        "TERMINATE_WHEN_DONE": "yes" if node and node.terminate_when_done else "",
    }
    if node:
        settings |= {
            **shell.worker_settings(spec.job, _node_steps(node), files),
            **(node.breaker.settings if node.breaker else {}),
            **node.idle_settings,
            "DATA_DIR": node.data_dir or "",
            "EFA_INTERFACES_PLANNED": str(node.efa_interfaces_planned),
            "GPUS_PLANNED": shell.planned_gpus(spec.job),
            "SCRATCH_MOUNT_POINT": node.scratch_mount_point or "",
        }
    return shell.bash_assignments(settings)


def render_aws_node(spec: AwsNodeSpec) -> str:
    """A worker's `#cloud-config` for AWS's Deep Learning AMI."""
    steps = _node_steps(spec)
    values = {
        "image_has_docker": True,
        "role": "worker",
        "steps": steps,
        **render.worker_values(spec, render.STOP_MARGIN_SEC),
    }
    exporters = render_exporters(CLOUD, spec.exporters, image_has_docker=True)
    started = ["gangway-trainer.service", "gangway-watch.timer"]
    units = ["gangway-notices.service", "gangway-prepare.service", "gangway-watch.service", *started]
    files = [
        render.etc_file("job.env", "0600", aws_job_env_text(spec)),
        render.etc_file("node.env", "0600", aws_env_text(spec)),
        *render.scripts(
            CLOUD,
            ["common.sh", "cloud.sh", *steps, *shell.verify_scripts(spec.job), *render.worker_scripts(spec)],
            spec.job,
        ),
        *(render.bare_python_file(name) for name in ["notices.py", "aws/notices.py"]),
        *([render.bare_python_file("breaker.py")] if spec.breaker else []),
        *(render.unit(CLOUD, name, values) for name in units),
        *exporters.files,
    ]
    started += exporters.units
    return render.cloud_config(CLOUD, files, "worker on AWS's Deep Learning AMI", units=started, narrow=True)


def render_aws_head(spec: AwsHeadSpec) -> str:
    """The head node's `#cloud-config` document, plain ASCII, for Amazon Linux 2023."""
    with_files, with_prometheus = spec.file_system is not None, spec.prometheus_image is not None
    # The store only needs its image; gangway-record.service mounts the file system.
    steps = ["close-metadata.sh", *spec.key_steps, "pull-image.sh"]
    started, units = render.head_units(spec, timers=["gangway-record"] if with_files else [])
    helpers = ["mount-lustre.sh", "upload-record.sh"] if with_files else []
    values = {
        "image_has_docker": True,
        "log_options": lambda stream: log_argv(spec.log_group, spec.region, stream),
        "mount": "mount-lustre.sh",
        "role": "head",
        "spec": shell.store_values(spec, spec.port, spec.prometheus_image),
        "steps": steps,
        "tries_again": True,
    }
    files = [
        render.etc_file("node.env", "0600", aws_env_text(spec)),
        *render.scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *shell.verify_scripts(spec.job), *helpers]),
        *(render.unit(CLOUD, name, values) for name in units),
    ]
    if with_prometheus:
        text = render_prometheus(spec.stack, spec.region, port=spec.metrics_port, exporters=spec.exporters)
        files += prometheus_files(spec.exporters, text)
    return render.cloud_config(CLOUD, files, "head node on Amazon Linux 2023", packages=["docker"], units=started)


def _node_steps(spec: AwsNodeSpec) -> list[str]:
    """Scripts that must succeed before the trainer starts: those without network first, the long download last."""
    planned = {
        "check-gpu.sh": spec.job.backend == "nccl",
        "check-efa.sh": spec.efa_interfaces_planned > 0,
        "mount-scratch.sh": spec.scratch_mount_point is not None,
        "mount-lustre.sh": spec.file_system is not None,
        "fetch-key.sh": spec.member_key is not None,
        "pull-image.sh": True,
    }
    return render.select_enabled(planned)


def check_user_data_size(text: str) -> None:
    """Raises ValueError as `user_data_base64gzip` does, but usually in a hundredth of the time."""
    if len(gzip.compress(text.encode(), mtime=0)) > USER_DATA_LIMIT_BYTES:
        user_data_base64gzip(text)


def user_data_base64gzip(text: str) -> str:
    """EC2 user data. Zopfli's bytes are the same with any zlib, so no node is replaced. ValueError: above the limit."""
    from zopfli.gzip import compress

    packed = compress(text.encode(), numiterations=3)  # 15, the default, take twice as long for 4 bytes less
    if (size := len(packed)) > USER_DATA_LIMIT_BYTES:
        raise ValueError(
            f"user data: {size} bytes after gzip; allowed: at most {USER_DATA_LIMIT_BYTES} (EC2's limit); "
            "fix: shorten the job's env and arguments, or move them to a file on the parallel file system"
        )
    return base64.b64encode(packed).decode()
