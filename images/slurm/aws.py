"""Cloud-init for Slurm's controller and nodes on AWS, with Ubuntu's images."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from gangway.components.core.hardware_alerts import MACHINE
from gangway.images import render
from gangway.images.exporters import render_exporters
from gangway.images.observability import prometheus_files, render_prometheus
from gangway.images.shell import NO_LOG, PROMETHEUS_USER, bash_assignments
from gangway.images.slurm.conf import (
    MACHINE_PACKAGES,
    NODE_PACKAGES,
    SlurmSpec,
    account_words,
    conf_files,
    fabric_files,
)
from gangway.images.specs import TRAINER_UID, Breaker, FileSystem, exporter_ports, pinned_image

CLOUD = "aws"
SLURM_DIR = "/etc/slurm"
_LUSTRE = "@tcp:/"


@dataclass(frozen=True, kw_only=True)
class AwsSlurmSpec:
    """A machine of the cluster. `munge_key`: SSM parameter; `log_group`: for events of nodes that give up."""

    stack: str
    region: str
    slurm: SlurmSpec
    munge_key: str
    file_system: FileSystem | None = None
    log_group: str = ""
    hardware_metrics: bool = False

    def __post_init__(self) -> None:
        files = self.file_system
        if files is not None and (files.kind != "lustre" or _LUSTRE not in files.source):
            raise ValueError(
                f"{type(self).__name__}.file_system: {files.kind!r} at {files.source!r}; "
                "allowed: 'lustre' at DNS_NAME@tcp:/MOUNT_NAME; fix: pass dns_name and mount_name of FSx for Lustre"
            )

    def settings(self, role: Literal["worker", "head"]) -> dict[str, str]:
        """Variables of the scripts."""
        files, slurm = self.file_system, self.slurm
        dns_name, _, mount_name = files.source.partition(_LUSTRE) if files else ("", "", "")
        return {
            "JOB_KEY": "slurm",
            "JOB_NAME": "slurm",
            "LIFECYCLE_HOOK": "",
            "LOG_GROUP": self.log_group if role == "worker" else "",
            "LUSTRE_DNS_NAME": dns_name,
            "LUSTRE_EFA": "",
            "LUSTRE_MOUNT_NAME": mount_name,
            "LUSTRE_MOUNT_POINT": files.mount_point if files else "/fsx",
            "MUNGE_KEY": self.munge_key,
            "REGION": self.region,
            "ROLE": role,
            "SLURM_HEAD": f"{slurm.head_host}:{slurm.controller_port}",
            "SLURM_USERS": " ".join(f"{name}:{uid}" for name, uid in slurm.users.items()),
            "STACK": self.stack,
            "TRAINER_UID": str(TRAINER_UID),
        }

    @property
    def exporters(self) -> Mapping[str, int]:
        """Ports of the exporters on nodes, by scrape job."""
        return exporter_ports(gpus=self.slurm.machine.gpus > 0) if self.hardware_metrics else {}

    @property
    def mount_steps(self) -> tuple[str, ...]:
        """The script that mounts the file system."""
        return (self.file_system.script,) if self.file_system else ()


@dataclass(frozen=True, kw_only=True)
class AwsSlurmNodeSpec(AwsSlurmSpec):
    """A node. `lustre_efa_interfaces`: 0 mounts over TCP; `job_fabric`: for its jobs on several nodes."""

    efa_interfaces_planned: int = 0
    lustre_efa_interfaces: int = 0
    lustre_efa_setup_sha256: str = ""
    scratch_mount_point: str | None = None
    lifecycle_hook: str = ""
    job_fabric: Mapping[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> list[str]:
        """Scripts that must succeed before the machine joins as a node."""
        planned = {
            "close-metadata.sh": True,
            "check-gpu.sh": self.slurm.machine.gpus > 0,
            "check-efa.sh": self.efa_interfaces_planned > 0,
            "mount-scratch.sh": self.scratch_mount_point is not None,
            **dict.fromkeys(self.mount_steps, True),
            "slurm-install.sh": True,
        }
        return render.select_enabled(planned)


@dataclass(frozen=True, kw_only=True)
class AwsSlurmHeadSpec(AwsSlurmSpec):
    """The controller. `most`: nodes over all rungs; `patience_sec`: a rung that starts no machine for so long is closed
    for `rest_sec`; `breaker`: limits machines that end before they join; `shared_dir`: for jobs; empty for none;
    `prometheus_image`: runs with hardware metrics.
    """

    groups: tuple[str, ...]
    most: int
    patience_sec: int = 300
    rest_sec: int = 900
    breaker: Breaker | None = None
    shared_dir: str = ""
    prometheus_image: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.groups) != len(self.slurm.rungs):
            raise ValueError(
                f"AwsSlurmHeadSpec.groups: {self.groups!r}; allowed: one for each of the {len(self.slurm.rungs)} "
                "rungs; fix: pass the groups of the node pool"
            )

    @property
    def accounting_dump(self) -> str:
        """Dump of the accounting database; empty without one, or without a file system that outlives the head."""
        files, slurm = self.file_system, self.slurm
        is_kept = files is not None and PurePosixPath(slurm.state_dir).is_relative_to(files.mount_point)
        return f"{slurm.state_dir}/accounting.sql.gz" if slurm.accounting and is_kept else ""

    @property
    def scaler(self) -> dict[str, object]:
        """Configuration of `gangway.images.node.aws.slurm_scaler`."""
        slurm = self.slurm
        return {
            "region": self.region,
            "most": self.most,
            "patience_sec": self.patience_sec,
            "rest_sec": self.rest_sec,
            "given_up": self.breaker.given_up if self.breaker else 0,
            "given_up_sec": self.breaker.minutes * 60 if self.breaker else 0,
            "rungs": [
                {
                    "name": rung.name,
                    "group": group,
                    "count": rung.count,
                    "nodes_up": 0 if position else slurm.nodes_up,
                }
                for position, (rung, group) in enumerate(zip(slurm.rungs, self.groups, strict=True))
            ],
        }


def render_slurm_node(spec: AwsSlurmNodeSpec) -> str:
    """A node's `#cloud-config` for AWS's Deep Learning AMI on Ubuntu. The controller assigns its name later."""
    # close-metadata.sh before each job too, since a firewall manager may remove its rules.
    checks = [step for step in spec.steps if step.startswith(("check-", "close-"))]
    settings = {
        **spec.settings("worker"),
        "EFA_INTERFACES_PLANNED": str(spec.efa_interfaces_planned),
        "GPUS_PLANNED": str(spec.slurm.machine.gpus),
        "HEALTH_CHECKS": " ".join(checks),
        "LIFECYCLE_HOOK": spec.lifecycle_hook,
        "LUSTRE_EFA": str(spec.lustre_efa_interfaces or ""),
        "LUSTRE_EFA_SHA256": spec.lustre_efa_setup_sha256,
        "SCRATCH_MOUNT_POINT": spec.scratch_mount_point or "",
        "SLURM_PACKAGES": " ".join(NODE_PACKAGES),
    }
    values = {"image_has_docker": False, "role": "worker", "steps": spec.steps, "tries_again": False}
    exporters = render_exporters(CLOUD, spec.exporters, image_has_docker=True)
    run = ["slurm-cloud.sh", "slurm-join.sh", "slurm-health.sh", "slurm-notice.sh"]
    started = ["gangway-slurmd.service", "gangway-slurm-notice.service"]
    files = [
        render.etc_file("node.env", "0600", bash_assignments(settings)),
        # For checks around jobs: a failure drains the node and does not replace it.
        render.NodeFile(
            f"{render.ETC_DIR}/check.env", "0600", bash_assignments({**settings, "ROLE": "head", "LOG_GROUP": ""})
        ),
        *fabric_files(spec.job_fabric),
        *render.scripts(CLOUD, ["common.sh", "cloud.sh", *spec.steps, *run]),
        *(render.bare_python_file(name) for name in ["notices.py", "aws/notices.py"]),
        *(
            render.unit(CLOUD, name, values)
            for name in ["gangway-prepare.service", "gangway-notices.service", *started]
        ),
        *exporters.files,
    ]
    started += exporters.units
    return render.cloud_config(CLOUD, files, "Slurm node on AWS's Deep Learning AMI (Ubuntu)", units=started)


def render_slurm_head(spec: AwsSlurmHeadSpec) -> str:
    """The controller's `#cloud-config` for Ubuntu."""
    slurm = spec.slurm
    accounting = ["slurmdbd", "mariadb-server"] if slurm.accounting else []
    settings = {
        **spec.settings("head"),
        "METADATA_USERS": f"slurm {PROMETHEUS_USER}" if spec.exporters else "slurm",
        "SLURM_ACCOUNTING_DUMP": spec.accounting_dump,
        "SLURM_ACCOUNTS": "yes" if slurm.accounting else "",
        "SLURM_HEAD_NAME": slurm.head_name,
        "SLURM_PACKAGES": " ".join([*MACHINE_PACKAGES, "slurmctld", *accounting]),
        "SLURM_SHARED_DIR": spec.shared_dir,
        "SLURM_STATE_DIR": slurm.state_dir,
    }
    # The last needs the user slurm, which the package creates.
    steps = [*spec.mount_steps, "slurm-install.sh", "slurm-head.sh", "close-metadata.sh"]
    steps += ["install-docker.sh"] if spec.exporters else []
    daemons = [*(["gangway-slurmdbd.service"] if slurm.accounting else []), "gangway-slurmctld.service"]
    saves = spec.accounting_dump != ""
    started = [*daemons, "gangway-fill.timer", *(["gangway-slurm-save.timer"] if saves else [])]
    started += ["gangway-prometheus.service"] if spec.exporters else []
    triggered = ["gangway-fill.service", *(["gangway-slurm-save.service"] if saves else [])]
    values = {
        "accounting": slurm.accounting,
        "accounting_dump": spec.accounting_dump,
        "image_has_docker": False,
        "log_options": lambda stream: NO_LOG,
        "role": "head",
        "spec": {"prometheus_image": pinned_image(spec.prometheus_image), "scrapes_exporters": True},
        "steps": steps,
        "tries_again": True,
    }
    run = [
        *["slurm-cloud.sh", "slurm-scale.sh"],
        *(["slurm-accounts.sh"] if slurm.accounting else []),
        *(["slurm-save.sh"] if saves else []),
    ]
    accounts = "".join(" ".join(words) + "\n" for words in account_words(slurm))
    files = [
        render.etc_file("node.env", "0600", bash_assignments(settings)),
        render.etc_file("slurm-scaler.json", "0644", json.dumps(spec.scaler, indent=1) + "\n"),
        *([render.etc_file("slurm-accounts", "0644", accounts)] if accounts else []),
        *(render.NodeFile(f"{SLURM_DIR}/{name}", "0644", text) for name, text in conf_files(slurm).items()),
        *render.scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *run]),
        *(render.bare_python_file(name) for name in ["slurm_plan.py", "aws/slurm_scaler.py"]),
        *(render.unit(CLOUD, name, values) for name in ["gangway-prepare.service", *triggered, *started]),
    ]
    if spec.exporters:
        text = render_prometheus(spec.stack, spec.region, port=None, exporters=spec.exporters)
        files += prometheus_files(spec.exporters, text, MACHINE)
    assert slurm.bin_dir == render.BIN_DIR, "slurm.conf names the programs there"
    return render.cloud_config(CLOUD, files, "Slurm controller on Ubuntu", units=started)
