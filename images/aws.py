"""Machines on AWS: what a worker or the head node does at boot, as cloud-init for AWS's own images."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from components.core.queue_fabric import AWS_NCCL_NET
from images.observability import render_prometheus
from images.render import (
    BIN_DIR,
    ETC_DIR,
    STOP_MARGIN_SEC,
    NodeFile,
    bare_python_file,
    cloud_config,
    scripts,
    unit,
)
from images.shell import (
    CONTAINER_NAME,
    NOTICES_MOUNT,
    WATCH,
    bash_array,
    bash_assignments,
    container_argv,
    life_argv,
    max_sec_text,
    member_argv,
    member_mount,
    metadata_settings,
    own_argv,
    results_sec,
    run_array,
    signature_settings,
    store_values,
    verify_scripts,
    worker_settings,
    workload_mounts,
)
from images.specs import TRAINER_UID, Breaker, MachineSpec, check_pinned, job_key

# EC2 counts the bytes before base64 (EC2 User Guide, "Run commands when you launch an EC2 instance with user data").
USER_DATA_LIMIT_BYTES = 16_384


CLOUD = "aws"
# FSx for Lustre's own words for where it is: HOST@tcp:/NAME.
_LUSTRE = "@tcp:/"
# What a machine without one is told, whose scripts look at nothing there.
_MOUNT_POINT = "/fsx"
EFA_SETUP_SHA256 = "ed421b0cd251f4dae78cc727f857937de345d7c67700cc240db5f6af7ba6ef49"
"""Of configure-efa-fsx-lustre-client.zip, which AWS publishes without a sum: as somebody on GitHub fetched it on
2026-08-20. Another one needs `storage.efa_setup_sha256`.
"""


@dataclass(frozen=True, kw_only=True)
class AwsMachineSpec(MachineSpec):
    """What machines on AWS are told besides. The only file system there is FSx for Lustre. `log_group`: CloudWatch log
    group of output and events; None leaves both in the machine's journal.
    """

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
class AwsNodeSpec(AwsMachineSpec):
    """A worker.

    Attributes:
        efa_interfaces_planned: of the launch template; 0 asks for none and checks none.
        lustre_efa: reach the file system over EFA; a node that cannot is given up.
        lustre_efa_interfaces: how many of them LNet must have up for that.
        lustre_efa_setup_sha256: of AWS's archive that sets LNet up.
        data_dir: a folder outside the run directory that the job reads, and may have to fill; None for none.
        scratch_mount_point: of instance-store NVMe, on the node and in the container, whose TMPDIR it is; None leaves
            it alone.
        labels: of the container: the stack's tags.
        lifecycle_hook: of the groups on termination, completed as soon as the trainer has saved; None lets AWS wait for
            the hook's own timeout.
        terminate_when_done: when the job has ended for good (done, bad input, a fabric too slow, too many failures, its
            hours over), the node takes itself out of its group; else it stays, with the trainer stopped.
        breaker: None has every node that gives itself up replaced.
    """

    efa_interfaces_planned: int = 0
    lustre_efa: bool = False
    lustre_efa_interfaces: int = 1
    lustre_efa_setup_sha256: str = EFA_SETUP_SHA256
    data_dir: str | None = None
    scratch_mount_point: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    lifecycle_hook: str | None = None
    terminate_when_done: bool = False
    breaker: Breaker | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lustre_efa and not (self.file_system and self.efa_interfaces_planned):
            raise ValueError(
                f"AwsNodeSpec.lustre_efa: True with {self.efa_interfaces_planned} EFA interfaces and file_system "
                f"{self.file_system!r}; allowed: with a file system and EFA interfaces; fix: lustre_efa=False"
            )
        if not self.stack and (self.terminate_when_done or self.lifecycle_hook):
            raise ValueError(
                "AwsNodeSpec.stack: '' with terminate_when_done or lifecycle_hook; allowed: the value of the tag "
                "gangway:stack, by which a node finds its groups; fix: pass the stack's name"
            )


@dataclass(frozen=True, kw_only=True)
class AwsHeadSpec(AwsMachineSpec):
    """The head node. Without a file system putting the record is left to the workers.

    Attributes:
        port: of the rendezvous store.
        metrics_port: of the workers' metrics.
        prometheus_image: with a fixed tag or a digest; None for no Prometheus.
    """

    port: int = 29400
    metrics_port: int = 9400
    prometheus_image: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prometheus_image is not None:
            check_pinned("AwsHeadSpec.prometheus_image", self.prometheus_image)


def aws_docker_argv(spec: AwsNodeSpec, bin_dir: str = BIN_DIR) -> list[str]:
    """Arguments of `docker` that run the job on AWS."""
    fabric = ["--gpus", "all"] if spec.job.backend == "nccl" else []
    if spec.efa_interfaces_planned:
        # NCCL_NET makes NCCL fail when the plugin does not load; without it NCCL would go on over TCP, in silence.
        fabric += ["--device", "/dev/infiniband", "--env", f"NCCL_NET={AWS_NCCL_NET}"]
    if spec.job.command is not None:
        workload = own_argv(spec.job, bin_dir, spec.run_dir, spec.max_hours)
    else:
        life = life_argv(spec.job, spec.run_dir, spec.max_hours)
        workload = [*WATCH, *member_argv(spec.member_key), *life, *spec.job.torchrun_argv()]
    return [
        *container_argv(spec.job, fabric, spec.scratch_mount_point, spec.labels, uid=TRAINER_UID),
        *NOTICES_MOUNT,
        *member_mount(spec.member_key),
        *log_argv(spec.log_group, spec.region),
        *workload_mounts(spec.job, bin_dir),
        *(spec.job.image, *workload),
    ]


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


def aws_job_env_text(spec: AwsNodeSpec, bin_dir: str = BIN_DIR) -> str:
    """`/etc/gangway/job.env`: the bash array DOCKER_ARGV, and RUN, what takes it."""
    return bash_array("DOCKER_ARGV", aws_docker_argv(spec, bin_dir)) + run_array(spec.job, bin_dir)


def aws_env_text(spec: AwsMachineSpec) -> str:
    """`/etc/gangway/node.env`: what the scripts need to know of this stack, as bash assignments. The head node is in no
    Auto Scaling group, so it has no hook and never leaves; nor is it an EFA client of the file system.
    """
    node = spec if isinstance(spec, AwsNodeSpec) else None
    files = spec.file_system
    dns_name, _, mount_name = files.source.partition(_LUSTRE) if files else ("", "", "")
    settings = {
        "BUCKET_URI": spec.bucket_uri.rstrip("/"),
        "IMAGE": spec.job.image,
        "IMAGE_REGISTRY": spec.image_registry,
        "JOB_KEY": job_key(spec.job),
        "JOB_NAME": spec.job.name,
        "LIFECYCLE_HOOK": (node.lifecycle_hook if node else None) or "",
        "LOG_GROUP": spec.log_group or "",
        "LUSTRE_DNS_NAME": dns_name,
        "LUSTRE_EFA": str(node.lustre_efa_interfaces) if node and node.lustre_efa else "",
        **({"LUSTRE_EFA_SHA256": node.lustre_efa_setup_sha256} if node and node.lustre_efa else {}),
        "LUSTRE_MOUNT_NAME": mount_name,
        "LUSTRE_MOUNT_POINT": files.mount_point if files else _MOUNT_POINT,
        **({"MEMBER_KEY": spec.member_key} if spec.member_key else {}),
        **({"SIGNING_KEY": spec.signing_key} if spec.signing_key else {}),
        **signature_settings(spec.job),
        "MAX_SEC": max_sec_text(spec.max_hours),
        "REGION": spec.region,
        "RESULTS_SEC": "",
        **metadata_settings(spec),
        "ROLE": "worker" if node else "head",
        "RUN_DIR": spec.run_dir,
        "STACK": spec.stack,
        "TERMINATE_WHEN_DONE": "yes" if node and node.terminate_when_done else "",
        "TRAINER_UID": str(TRAINER_UID),
    }
    if node:
        settings |= {
            **worker_settings(spec.job, _node_steps(node), files),
            **(node.breaker.settings if node.breaker else {}),
            "CONTAINER_NAME": CONTAINER_NAME,
            "DATA_DIR": node.data_dir or "",
            "EFA_INTERFACES_PLANNED": str(node.efa_interfaces_planned),
            "GPUS_PLANNED": str(spec.job.processes_per_node if spec.job.backend == "nccl" else 0),
            "SCRATCH_MOUNT_POINT": node.scratch_mount_point or "",
        }
    return bash_assignments(settings)


def render_aws_node(spec: AwsNodeSpec) -> str:
    """A worker's `#cloud-config` for AWS's Deep Learning AMI. Preparation is a systemd unit, no runcmd:
    a reboot mounts and checks again.
    """
    steps = _node_steps(spec)
    values = {
        "image_has_docker": True,
        "role": "worker",
        "steps": steps,
        "tries_again": False,
        "results_sec": results_sec(spec.file_system),
        "results_at_end": spec.file_system is not None,
        "timeout_stop_sec": spec.job.shutdown_timeout_sec + STOP_MARGIN_SEC,
    }
    started = ["gangway-trainer.service", "gangway-watch.timer"]
    units = ["gangway-notices.service", "gangway-prepare.service", "gangway-watch.service", *started]
    run = ["close-metadata.sh", "run-trainer.sh", "upload-record.sh", "leave-node.sh", "watch-node.sh"]
    files = [
        NodeFile(f"{ETC_DIR}/job.env", "0600", aws_job_env_text(spec)),
        NodeFile(f"{ETC_DIR}/node.env", "0600", aws_env_text(spec)),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *verify_scripts(spec.job), *run], spec.job),
        *(bare_python_file(name) for name in ["notices.py", "aws/notices.py"]),
        *([bare_python_file("breaker.py")] if spec.breaker else []),
        *(unit(CLOUD, name, values) for name in units),
    ]
    return cloud_config(
        CLOUD,
        files,
        "worker on AWS's Deep Learning AMI (GPU driver, EFA driver and docker present)",
        units=started,
        narrow=True,
    )


def render_aws_head(spec: AwsHeadSpec) -> str:
    """The head node's `#cloud-config` document, plain ASCII, for Amazon Linux 2023."""
    with_files, with_prometheus = spec.file_system is not None, spec.prometheus_image is not None
    # The store waits for its image alone: the file system is mounted by whoever puts the record.
    steps = ["close-metadata.sh", *spec.key_steps, "pull-image.sh"]
    timers = ["gangway-record"] if with_files else []
    services = ["gangway-rendezvous.service", *(["gangway-prometheus.service"] if with_prometheus else [])]
    started = [*services, *(f"{name}.timer" for name in timers)]
    units = ["gangway-prepare.service", *started, *(f"{name}.service" for name in timers)]
    helpers = ["mount-lustre.sh", "upload-record.sh"] if with_files else []
    values = {
        "image_has_docker": True,
        "log_options": lambda stream: log_argv(spec.log_group, spec.region, stream),
        "mount": "mount-lustre.sh",
        "role": "head",
        "spec": store_values(spec, spec.port, spec.prometheus_image),
        "steps": steps,
        "tries_again": True,
    }
    files = [
        NodeFile(f"{ETC_DIR}/node.env", "0600", aws_env_text(spec)),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *verify_scripts(spec.job), *helpers]),
        *(unit(CLOUD, name, values) for name in units),
    ]
    if with_prometheus:
        text = render_prometheus(spec.stack, spec.region, port=spec.metrics_port)
        files.append(NodeFile(f"{ETC_DIR}/prometheus.yaml", "0644", text))
    return cloud_config(CLOUD, files, "head node on Amazon Linux 2023", packages=["docker"], units=started)


def _node_steps(spec: AwsNodeSpec) -> list[str]:
    """Scripts that must succeed before the trainer starts: what needs no network first, the long download last."""
    planned = {
        "check-gpu.sh": spec.job.backend == "nccl",
        "check-efa.sh": spec.efa_interfaces_planned > 0,
        "mount-scratch.sh": spec.scratch_mount_point is not None,
        "mount-lustre.sh": spec.file_system is not None,
        "fetch-key.sh": spec.member_key is not None,
        "pull-image.sh": True,
    }
    return [name for name, wanted in planned.items() if wanted]


def user_data_base64gzip(text: str) -> str:
    """EC2 user data. Zopfli compresses 3 % better than zlib, and gives the same bytes on every machine, so that a new
    zlib replaces no node. ValueError: above EC2's limit after compression.
    """
    from zopfli import gzip

    packed = gzip.compress(text.encode())
    if (size := len(packed)) > USER_DATA_LIMIT_BYTES:
        raise ValueError(
            f"user data: {size} bytes after gzip; allowed: at most {USER_DATA_LIMIT_BYTES} (EC2's limit); "
            "fix: shorten the job's env and argv, for example by a file on the parallel file system"
        )
    return base64.b64encode(packed).decode()
