"""Machines of a Slurm on AWS: what its nodes and its controller do at boot, as cloud-init for Ubuntu's images."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from images.render import BIN_DIR, ETC_DIR, NodeFile, bare_python_file, cloud_config, scripts, unit
from images.shell import bash_assignments
from images.slurm.conf import account_words, conf_files, fabric_files
from images.slurm.spec import SlurmSpec
from images.specs import TRAINER_UID, Breaker, FileSystem

CLOUD = "aws"
SLURM_DIR = "/etc/slurm"
_LUSTRE = "@tcp:/"
_PACKAGES = ("munge", "python3-boto3", "slurm-client")


@dataclass(frozen=True, kw_only=True)
class AwsSlurmSpec:
    """What both are told. `munge_key`: the parameter that has the key of the cluster. `file_system`: Lustre, where the
    cluster has one; `log_group`: whose events' stream nodes write to that give themselves up.
    """

    stack: str
    region: str
    slurm: SlurmSpec
    munge_key: str
    file_system: FileSystem | None = None
    log_group: str = ""

    def __post_init__(self) -> None:
        files = self.file_system
        if files is not None and (files.kind != "lustre" or _LUSTRE not in files.source):
            raise ValueError(
                f"{type(self).__name__}.file_system: {files.kind!r} at {files.source!r}; "
                "allowed: 'lustre' at DNS_NAME@tcp:/MOUNT_NAME; fix: pass dns_name and mount_name of FSx for Lustre"
            )

    def settings(self, role: Literal["worker", "head"]) -> dict[str, str]:
        """What common.sh and the scripts of both want to know."""
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
    def mount_steps(self) -> tuple[str, ...]:
        """What mounts the file system."""
        return (self.file_system.script,) if self.file_system else ()


@dataclass(frozen=True, kw_only=True)
class AwsSlurmNodeSpec(AwsSlurmSpec):
    """A node. `efa_interfaces_planned`: 0 asks for none; `lustre_efa_interfaces`: with 0 it mounts over TCP;
    `job_fabric`: `components.core.queue_fabric.fabric_variables` of its jobs on several nodes.
    """

    efa_interfaces_planned: int = 0
    lustre_efa_interfaces: int = 0
    lustre_efa_setup_sha256: str = ""
    scratch_mount_point: str | None = None
    lifecycle_hook: str = ""
    job_fabric: Mapping[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> list[str]:
        """Scripts that must succeed before the machine becomes a node."""
        planned = {
            "close-metadata.sh": True,
            "check-gpu.sh": self.slurm.machine.gpus > 0,
            "check-efa.sh": self.efa_interfaces_planned > 0,
            "mount-scratch.sh": self.scratch_mount_point is not None,
            **dict.fromkeys(self.mount_steps, True),
            "slurm-install.sh": True,
        }
        return [name for name, wanted in planned.items() if wanted]


@dataclass(frozen=True, kw_only=True)
class AwsSlurmHeadSpec(AwsSlurmSpec):
    """The controller.

    Attributes:
        groups: the Auto Scaling groups of the rungs, in their order.
        most: nodes up at once, over all rungs.
        patience_sec: how long a rung may bring no machine before it is left for `rest_sec`.
        breaker: how many machines of a rung may end before they become nodes; None for any number.
        shared_dir: made for jobs on the file system; empty for none.
    """

    groups: tuple[str, ...]
    most: int
    patience_sec: int = 300
    rest_sec: int = 900
    breaker: Breaker | None = None
    shared_dir: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.groups) != len(self.slurm.rungs):
            raise ValueError(
                f"AwsSlurmHeadSpec.groups: {self.groups!r}; allowed: one for each of the {len(self.slurm.rungs)} "
                "rungs; fix: pass the groups of the node pool"
            )

    @property
    def accounting_dump(self) -> str:
        """Where the accounting database is saved; empty if there is none, or no file system that outlives the head."""
        files, slurm = self.file_system, self.slurm
        is_kept = files is not None and PurePosixPath(slurm.state_dir).is_relative_to(files.mount_point)
        return f"{slurm.state_dir}/accounting.sql.gz" if slurm.accounting and is_kept else ""

    @property
    def scaler(self) -> dict[str, object]:
        """What `images.node.aws.slurm_scaler` reads."""
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
    """A node's `#cloud-config` for AWS's Deep Learning AMI on Ubuntu. Which node it is, its controller says later."""
    # Before each job as well: whoever manages a firewall may have emptied it.
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
        "SLURM_PACKAGES": " ".join([*_PACKAGES, "slurmd"]),
    }
    values = {"image_has_docker": False, "role": "worker", "steps": spec.steps, "tries_again": False}
    run = ["slurm-cloud.sh", "slurm-join.sh", "slurm-health.sh", "slurm-notice.sh"]
    started = ["gangway-slurmd.service", "gangway-slurm-notice.service"]
    files = [
        NodeFile(f"{ETC_DIR}/node.env", "0600", bash_assignments(settings)),
        # Where a check only says what it finds: the node is drained, and its group replaces nothing.
        NodeFile(f"{ETC_DIR}/check.env", "0600", bash_assignments({**settings, "ROLE": "head", "LOG_GROUP": ""})),
        *fabric_files(spec.job_fabric),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *spec.steps, *run]),
        *(bare_python_file(name) for name in ["notices.py", "aws/notices.py"]),
        *(unit(CLOUD, name, values) for name in ["gangway-prepare.service", "gangway-notices.service", *started]),
    ]
    return cloud_config(CLOUD, files, "node of Slurm's on AWS's Deep Learning AMI (Ubuntu)", units=started)


def render_slurm_head(spec: AwsSlurmHeadSpec) -> str:
    """The controller's `#cloud-config` for Ubuntu."""
    slurm = spec.slurm
    accounting = ["slurmdbd", "mariadb-server"] if slurm.accounting else []
    settings = {
        **spec.settings("head"),
        "METADATA_USERS": "slurm",
        "SLURM_ACCOUNTING_DUMP": spec.accounting_dump,
        "SLURM_ACCOUNTS": "yes" if slurm.accounting else "",
        "SLURM_HEAD_NAME": slurm.head_name,
        "SLURM_PACKAGES": " ".join([*_PACKAGES, "slurmctld", *accounting]),
        "SLURM_SHARED_DIR": spec.shared_dir,
        "SLURM_STATE_DIR": slurm.state_dir,
    }
    # The last one knows the user slurm, which sizes groups, once its package is there.
    steps = [*spec.mount_steps, "slurm-install.sh", "slurm-head.sh", "close-metadata.sh"]
    daemons = [*(["gangway-slurmdbd.service"] if slurm.accounting else []), "gangway-slurmctld.service"]
    saves = spec.accounting_dump != ""
    started = [*daemons, "gangway-fill.timer", *(["gangway-slurm-save.timer"] if saves else [])]
    triggered = ["gangway-fill.service", *(["gangway-slurm-save.service"] if saves else [])]
    values = {
        "accounting": slurm.accounting,
        "accounting_dump": spec.accounting_dump,
        "image_has_docker": False,
        "role": "head",
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
        NodeFile(f"{ETC_DIR}/node.env", "0600", bash_assignments(settings)),
        NodeFile(f"{ETC_DIR}/slurm-scaler.json", "0644", json.dumps(spec.scaler, indent=1) + "\n"),
        *([NodeFile(f"{ETC_DIR}/slurm-accounts", "0644", accounts)] if accounts else []),
        *(NodeFile(f"{SLURM_DIR}/{name}", "0644", text) for name, text in conf_files(slurm).items()),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *steps, *run]),
        *(bare_python_file(name) for name in ["slurm_plan.py", "aws/slurm_scaler.py"]),
        *(unit(CLOUD, name, values) for name in ["gangway-prepare.service", *triggered, *started]),
    ]
    assert slurm.bin_dir == BIN_DIR, "where slurm.conf looks for the programs"
    return cloud_config(CLOUD, files, "controller of Slurm's on Ubuntu", units=started)
