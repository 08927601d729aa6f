"""Machines on OpenStack: what they are told, their bash and JSON files with `docker run`'s arguments, and the
cloud-init of GPU workers and of the head node.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from images.observability import render_prometheus_static
from images.render import (
    BIN_DIR,
    ETC_DIR,
    LIB_DIR,
    METADATA_UNIT,
    NodeFile,
    cloud_config,
    python_file,
    scripts,
    short_stop_margin_sec,
    unit,
)
from images.shell import (
    CONTAINER_NAME,
    bash_array,
    bash_assignments,
    container_argv,
    job_json_text,
    max_sec_text,
    member_mount,
    results_sec,
    run_array,
    signature_settings,
    store_values,
    verify_scripts,
    worker_settings,
    workload_argv,
    workload_mounts,
)
from images.specs import TRAINER_UID, MachineSpec, RdmaSetup, check_pinned, job_key

# The journal has the lines, and nothing sends them on: docker need not keep them again.
NO_LOG = ("--log-driver", "none")
CLOUD = "openstack"
SECRETS_FILE = f"{ETC_DIR}/secrets.json"
"""Root's own: what the machine has fetched. Each boot looks whether there is newer."""
_RUN = ("close-metadata.sh", "run-trainer.sh", "upload-record.sh", "leave-node.sh", "watch-node.sh")


@dataclass(frozen=True)
class OpenstackSecrets:
    """What a machine fetches when it boots, and its user data must not say.

    Attributes:
        auth_url: Keystone's, version 3, where the credential logs in.
        region: of the object store.
        credential_id: of an application credential that puts runs and may do nothing else.
        credential_secret: the other half.
        member_key: the key by which the job's nodes know each other; None for one node alone.
        signing_key: the key by which run records are signed.
        mount_key: of a native CephFS share's user; empty with NFS.
    """

    auth_url: str
    region: str
    credential_id: str
    credential_secret: str = field(repr=False)
    member_key: str | None = field(default=None, repr=False)
    signing_key: str = field(default="", repr=False)
    mount_key: str = field(default="", repr=False)

    def text(self) -> str:
        """As images.node.openstack.api reads it."""
        credential = {
            "auth_url": self.auth_url,
            "id": self.credential_id,
            "region": self.region,
            "secret": self.credential_secret,
        }
        content = {
            "credential": credential,
            "member_key": self.member_key or "",
            "mount_key": self.mount_key,
            "signing_key": self.signing_key,
        }
        return json.dumps(content, sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class OpenstackMachineSpec(MachineSpec):
    """What machines on OpenStack are told besides; `bucket_uri` is `swift://CONTAINER/PREFIX`.

    Attributes:
        mount_user: of a native CephFS share, whose key is among OpenstackSecrets; empty with NFS.
        terminate_when_done: when the job has ended for good the machine shuts itself down. It stays allocated: only its
            owner could delete it.
    """

    mount_user: str = ""
    terminate_when_done: bool = False

    def __post_init__(self) -> None:
        """Refuse a file system that no machine here can mount."""
        super().__post_init__()
        place = type(self).__name__
        if self.file_system is not None and self.file_system.kind not in ("nfs", "ceph"):
            raise ValueError(
                f"{place}.file_system: {self.file_system.kind!r}; allowed: 'nfs', 'ceph'; fix: pass a Manila share's "
                "export location"
            )
        native = self.file_system is not None and self.file_system.kind == "ceph"
        if native != bool(self.mount_user):
            raise ValueError(
                f"{place}.mount_user: {self.mount_user!r} with file_system {self.file_system!r}; allowed: a user "
                "with 'ceph', none otherwise; fix: pass the one of the share's access rule"
            )


@dataclass(frozen=True, kw_only=True)
class OpenstackNodeSpec(OpenstackMachineSpec):
    """A GPU worker. `fabric` None checks nothing; `data_dir` is a folder outside the run directory that the job reads,
    and may have to fill, None for none; `labels` are the container's.
    """

    fabric: RdmaSetup | None = None
    data_dir: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a job that would go on over TCP, in silence, where RDMA does not work."""
        super().__post_init__()
        if self.fabric is not None and "NCCL_NET" not in self.job.env:
            raise ValueError(
                "OpenstackNodeSpec.job.env: no NCCL_NET beside a fabric; allowed: with NCCL_NET=IB in it; "
                "fix: pass nccl_env of components.catalog.site.plan_site_fabric"
            )


@dataclass(frozen=True, kw_only=True)
class OpenstackHeadSpec(OpenstackMachineSpec):
    """The head node; Prometheus scrapes the addresses in `workers` at `metrics_port`; `port` is the rendezvous store's.
    `prometheus_image` has a fixed tag or a digest; None for no Prometheus.
    """

    port: int = 29400
    metrics_port: int = 9400
    workers: tuple[str, ...] = ()
    prometheus_image: str | None = None

    def __post_init__(self) -> None:
        """Refuse an image that moves."""
        super().__post_init__()
        if self.prometheus_image is not None:
            check_pinned("OpenstackHeadSpec.prometheus_image", self.prometheus_image)


def openstack_docker_argv(spec: OpenstackNodeSpec, bin_dir: str = BIN_DIR) -> list[str]:
    """Arguments of `docker` that run the job."""
    accelerators = ["--gpus", "all"] if spec.job.backend == "nccl" else []
    for device in spec.fabric.devices if spec.fabric else ():
        accelerators += ["--device", device]
    argv = [*container_argv(spec.job, accelerators, None, spec.labels, uid=TRAINER_UID), *member_mount(spec.member_key)]
    return [*argv, *NO_LOG, *workload_mounts(spec.job, bin_dir), spec.job.image, *workload_argv(spec, bin_dir)]


def openstack_job_env_text(spec: OpenstackNodeSpec, bin_dir: str = BIN_DIR) -> str:
    """`/etc/gangway/job.env`: the bash array DOCKER_ARGV, and RUN, what takes it."""
    return bash_array("DOCKER_ARGV", openstack_docker_argv(spec, bin_dir)) + run_array(spec.job, bin_dir)


def openstack_env_text(spec: OpenstackMachineSpec) -> str:
    """`/etc/gangway/node.env`: what the scripts need to know of this stack, as bash assignments."""
    node = spec if isinstance(spec, OpenstackNodeSpec) else None
    files = spec.file_system
    settings = {
        **(node.fabric.settings if node and node.fabric else {}),
        **signature_settings(spec.job),
        "BUCKET_URI": spec.bucket_uri.rstrip("/"),
        "CONTAINER_NAME": CONTAINER_NAME,
        "DATA_DIR": (node.data_dir if node else None) or "",
        "GPUS_PLANNED": str(spec.job.processes_per_node if node and spec.job.backend == "nccl" else 0),
        "IMAGE": spec.job.image,
        "IMAGE_REGISTRY": spec.image_registry,
        "JOB_KEY": job_key(spec.job),
        "JOB_NAME": spec.job.name,
        "LOG_GROUP": "",
        "MEMBER_KEY": spec.member_key or "",
        **({"SIGNING_KEY": spec.signing_key} if spec.signing_key else {}),
        "MAX_SEC": max_sec_text(spec.max_hours),
        "MOUNT_POINT": files.mount_point if files else "",
        "MOUNT_SOURCE": files.source if files else "",
        "MOUNT_USER": spec.mount_user,
        "RESULTS_SEC": "",
        "ROLE": "worker" if node else "head",
        "RUN_DIR": spec.run_dir,
        "STACK": spec.stack,
        "TERMINATE_WHEN_DONE": "yes" if node and spec.terminate_when_done else "",
        "TRAINER_UID": str(TRAINER_UID),
    }
    if node:
        settings |= worker_settings(spec.job, _node_steps(node), files)
    return bash_assignments(settings)


def render_openstack_node(spec: OpenstackNodeSpec) -> str:
    """A GPU worker's `#cloud-config` document, plain ASCII, for an image with NVIDIA's driver and container toolkit."""
    steps = _node_steps(spec)
    started = ["gangway-trainer.service", "gangway-watch.timer"]
    units = [METADATA_UNIT, "gangway-prepare.service", "gangway-watch.service", *started]
    values = {
        **_values(spec, steps, "worker"),
        "results_sec": results_sec(spec.file_system),
        "results_at_end": spec.file_system is not None,
        "timeout_stop_sec": spec.job.shutdown_timeout_sec + short_stop_margin_sec(spec.job),
        "tries_again": False,
    }
    files = [
        NodeFile(f"{ETC_DIR}/job.json", "0600", job_json_text(spec.job)),
        NodeFile(f"{ETC_DIR}/job.env", "0600", openstack_job_env_text(spec)),
        *_common_files(spec),
        # Nothing is upgraded under a job: a new driver's libraries do not fit the module that is loaded.
        NodeFile("/etc/apt/apt.conf.d/99gangway", "0644", 'APT::Periodic::Unattended-Upgrade "0";\n'),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *verify_scripts(spec.job), *_RUN], spec.job),
        *_units(units, values),
    ]
    return cloud_config(CLOUD, files, "worker on OpenStack", units=started, narrow=True)


def render_openstack_head(spec: OpenstackHeadSpec) -> str:
    """The head node's `#cloud-config` document, plain ASCII, for Ubuntu or Debian."""
    files_there = spec.file_system is not None
    services = ["gangway-rendezvous.service", *(["gangway-prometheus.service"] if spec.prometheus_image else [])]
    timers = ["gangway-record"] if files_there else []
    started = [*services, *(f"{name}.timer" for name in timers)]
    units = [METADATA_UNIT, "gangway-prepare.service", *started, *(f"{name}.service" for name in timers)]
    steps = [*_first_steps(spec), "close-metadata.sh", "pull-image.sh"]
    helpers = [spec.file_system.script, "upload-record.sh"] if spec.file_system else []
    values = {
        **_values(spec, steps, "head"),
        "log_options": lambda stream: ["--log-driver", "none"],
        "spec": store_values(spec, spec.port, spec.prometheus_image),
        "tries_again": True,
    }
    files = [
        *_common_files(spec),
        *_prometheus(spec),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *verify_scripts(spec.job), *helpers]),
        *_units(units, values),
    ]
    return cloud_config(CLOUD, files, "head node on OpenStack", units=started)


def _units(names: Sequence[str], values: Mapping[str, object]) -> list[NodeFile]:
    """Units, whose lines go to the console too: Nova keeps what it said, and nobody can log in to read a journal."""
    said = "[Service]\nStandardOutput=journal+console\nStandardError=journal+console\n"
    services = [name for name in names if name.endswith(".service")]
    return [
        *(unit(CLOUD, name, values) for name in names),
        *(NodeFile(f"/etc/systemd/system/{name}.d/console.conf", "0644", said) for name in services),
    ]


def _node_steps(spec: OpenstackNodeSpec) -> list[str]:
    """What needs no network first, the long download last."""
    checks = {"check-gpu.sh": spec.job.backend == "nccl", "check-rdma.sh": spec.fabric is not None}
    mount = [spec.file_system.script] if spec.file_system else []
    return [*(name for name, wanted in checks.items() if wanted), *_first_steps(spec), *mount, "pull-image.sh"]


def _first_steps(spec: OpenstackMachineSpec) -> list[str]:
    """What every machine does."""
    return ["fetch-secrets.sh", *spec.key_steps, "install-docker.sh"]


def _prometheus(spec: OpenstackHeadSpec) -> list[NodeFile]:
    if spec.prometheus_image is None:
        return []
    text = render_prometheus_static(spec.stack, spec.workers, port=spec.metrics_port)
    return [NodeFile(f"{ETC_DIR}/prometheus.yaml", "0644", text)]


def _common_files(spec: OpenstackMachineSpec) -> list[NodeFile]:
    return [
        NodeFile(f"{ETC_DIR}/node.env", "0600", openstack_env_text(spec)),
        NodeFile(f"{LIB_DIR}/images/__init__.py", "0644", "# The part of the package that this machine runs.\n"),
        *(python_file(name) for name in ("__init__.py", "web.py", "openstack/api.py")),
    ]


def _values(spec: OpenstackMachineSpec, steps: Sequence[str], role: str) -> dict[str, object]:
    return {
        "image_has_docker": False,
        "mount": spec.file_system.script if spec.file_system else None,
        "role": role,
        "steps": steps,
    }
