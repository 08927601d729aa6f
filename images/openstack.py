"""Cloud-init for GPU workers and head nodes on OpenStack."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gangway.images import render, shell
from gangway.images.exporters import render_exporters
from gangway.images.observability import prometheus_files, render_prometheus_static
from gangway.images.specs import TRAINER_UID, HeadSpec, MachineSpec, RdmaSetup

CLOUD = "openstack"
SECRETS_FILE = f"{render.ETC_DIR}/secrets.json"  # readable by root alone; updated at each boot


@dataclass(frozen=True)
class OpenstackSecrets:
    """Secrets that a machine fetches at boot, since user data is not secret. `auth_url`: of Keystone, version 3;
    `region`: of the object store; `credential_id`: may only upload runs; `mount_key`: of native CephFS; empty with NFS.
    """

    auth_url: str
    region: str
    credential_id: str
    credential_secret: str = field(repr=False)
    member_key: str | None = field(default=None, repr=False)
    signing_key: str = field(default="", repr=False)
    mount_key: str = field(default="", repr=False)

    def text(self) -> str:
        """JSON for gangway.images.node.openstack.api."""
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
    """`bucket_uri` is `swift://CONTAINER/PREFIX`. `terminate_when_done`: shut down, though still allocated."""

    mount_user: str = ""
    terminate_when_done: bool = False

    def __post_init__(self) -> None:
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
                "with 'ceph' only; fix: pass the user of the share's access rule"
            )


@dataclass(frozen=True, kw_only=True)
class OpenstackNodeSpec(OpenstackMachineSpec):
    """A GPU worker. `data_dir`: a folder outside the run directory that the job reads and may fill."""

    fabric: RdmaSetup | None = None
    data_dir: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fabric is not None and "NCCL_NET" not in self.job.env:
            # Without it, NCCL falls back to TCP silently.
            raise ValueError(
                "OpenstackNodeSpec.job.env: a fabric without NCCL_NET; allowed: NCCL_NET=IB; "
                "fix: pass nccl_env of gangway.components.catalog.site.plan_site_fabric"
            )


@dataclass(frozen=True, kw_only=True)
class OpenstackHeadSpec(OpenstackMachineSpec, HeadSpec):
    """The head node. `workers`: what Prometheus scrapes."""

    workers: tuple[str, ...] = ()


def openstack_docker_argv(spec: OpenstackNodeSpec, bin_dir: str = render.BIN_DIR) -> list[str]:
    """Arguments of `docker` that run the job."""
    accelerators = shell.accelerator_argv(spec.job, spec.fabric.devices if spec.fabric else ())
    argv = [
        *shell.container_argv(spec.job, accelerators, None, spec.labels, uid=TRAINER_UID),
        *shell.member_mount(spec.member_key),
    ]
    return [
        *argv,
        *shell.NO_LOG,
        *shell.workload_mounts(spec.job, bin_dir),
        spec.job.image,
        *shell.workload_argv(spec, bin_dir),
    ]


def openstack_job_env_text(spec: OpenstackNodeSpec, bin_dir: str = render.BIN_DIR) -> str:
    """`/etc/gangway/job.env`."""
    return shell.job_env_text(openstack_docker_argv(spec, bin_dir), spec.job, bin_dir)


def openstack_env_text(spec: OpenstackMachineSpec) -> str:
    """`/etc/gangway/node.env`."""
    node = spec if isinstance(spec, OpenstackNodeSpec) else None
    settings = {
        **(node.fabric.settings if node and node.fabric else {}),
        **shell.machine_settings(spec, "worker" if node else "head"),
        "DATA_DIR": (node.data_dir if node else None) or "",
        "GPUS_PLANNED": shell.planned_gpus(spec.job) if node else "0",
        "LOG_GROUP": "",
        **shell.mount_settings(spec.file_system),
        "MOUNT_USER": spec.mount_user,
        "TERMINATE_WHEN_DONE": "yes" if node and spec.terminate_when_done else "",
    }
    if node:
        settings |= shell.worker_settings(spec.job, _node_steps(node), spec.file_system)
    return shell.bash_assignments(settings)


def render_openstack_node(spec: OpenstackNodeSpec) -> str:
    """A GPU worker's `#cloud-config` for an image with NVIDIA's driver and container toolkit."""
    steps, exporters = _node_steps(spec), render_exporters(CLOUD, spec.exporters)
    started = ["gangway-trainer.service", "gangway-watch.timer"]
    units = [render.METADATA_UNIT, "gangway-prepare.service", "gangway-watch.service", *started]
    values = {
        **render.unit_values(spec, steps, "worker"),
        **render.worker_values(spec, render.short_stop_margin_sec(spec.job)),
    }
    files = [
        render.etc_file("job.json", "0600", shell.job_json_text(spec.job)),
        render.etc_file("job.env", "0600", openstack_job_env_text(spec)),
        *render.module_files(openstack_env_text(spec), ["openstack/api.py"]),
        render.NO_UPGRADES,
        *render.scripts(
            CLOUD, ["common.sh", "cloud.sh", *steps, *shell.verify_scripts(spec.job), *render.WORKER_SCRIPTS], spec.job
        ),
        *_units(units, values),
        *exporters.files,
    ]
    started += exporters.units
    return render.cloud_config(CLOUD, files, "worker on OpenStack", units=started, narrow=True)


def render_openstack_head(spec: OpenstackHeadSpec) -> str:
    """The head node's `#cloud-config` for Ubuntu or Debian."""
    started, units = render.head_units(spec, timers=["gangway-record"] if spec.file_system else [])
    steps = [*_first_steps(spec), "close-metadata.sh", "pull-image.sh"]
    helpers = [spec.file_system.script, "upload-record.sh"] if spec.file_system else []
    values = {
        **render.unit_values(spec, steps, "head"),
        "log_options": lambda stream: shell.NO_LOG,
        "spec": shell.store_values(spec, spec.port, spec.prometheus_image),
        "tries_again": True,
    }
    scrape = render_prometheus_static(spec.stack, spec.workers, port=spec.metrics_port, exporters=spec.exporters)
    prometheus = prometheus_files(spec.exporters, scrape) if spec.prometheus_image else []
    files = [
        *render.module_files(openstack_env_text(spec), ["openstack/api.py"]),
        *prometheus,
        *render.scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *shell.verify_scripts(spec.job), *helpers]),
        *_units([render.METADATA_UNIT, *units], values),
    ]
    return render.cloud_config(CLOUD, files, "head node on OpenStack", units=started)


def _units(names: Sequence[str], values: Mapping[str, object]) -> list[render.NodeFile]:
    """Units that log to the console too, which Nova keeps: the journal cannot be read without a login."""
    drop_in = "[Service]\nStandardOutput=journal+console\nStandardError=journal+console\n"
    services = [name for name in names if name.endswith(".service")]
    return [
        *(render.unit(CLOUD, name, values) for name in names),
        *(render.NodeFile(f"/etc/systemd/system/{name}.d/console.conf", "0644", drop_in) for name in services),
    ]


def _node_steps(spec: OpenstackNodeSpec) -> list[str]:
    """Those without network first, the long download last."""
    checks = {"check-gpu.sh": spec.job.backend == "nccl", "check-rdma.sh": spec.fabric is not None}
    mount = [spec.file_system.script] if spec.file_system else []
    return [*render.select_enabled(checks), *_first_steps(spec), *mount, "pull-image.sh"]


def _first_steps(spec: OpenstackMachineSpec) -> list[str]:
    return ["fetch-secrets.sh", *spec.key_steps, "install-docker.sh"]
