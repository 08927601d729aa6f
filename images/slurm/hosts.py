"""Slurm on existing machines: a script that installs or removes it on each. The first one is controller and node."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gangway.images.hosts import CLOUD, installer_text
from gangway.images.render import BIN_DIR, ETC_DIR, METADATA_UNIT, NodeFile, scripts, select_enabled, unit
from gangway.images.shell import bash_assignments
from gangway.images.slurm.conf import SRUN_PORTS, SlurmSpec, conf_files, fabric_files
from gangway.images.specs import RdmaSetup

CONF_DIR = f"{ETC_DIR}/slurm"
HEAD_MARK = "@HEAD@"  # placeholder for the controller's hostname, which the machine fills in at start
_HEAD = re.compile(r"^SlurmctldHost=[^(\n]*", re.MULTILINE)
MUNGE_SOCKET = "/run/gangway-munge/socket"
"""Of the cluster's munged. Nodes that fetch their configuration could not find it, so each machine has all files."""
RUN_CONF_DIR = "/run/slurm/conf"  # where Slurm's commands look if /etc/slurm has no configuration
_NEEDS = "install your distribution's Slurm (22.05 or later) and munge (Debian, Ubuntu: slurm-wlm munge)"
_OTHER_SLURM = (
    "/etc/slurm/slurm.conf: this machine already has Slurm; submit to it: gangway job submit --on slurm:FOLDER"
)


@dataclass(frozen=True, kw_only=True)
class SlurmHostSpec:
    """One machine. `fabric`: adapters that must be up; None checks nothing; `allowed`: who may reach Slurm's ports;
    None closes no port; `wireguard`: interface of the tunnels; `job_fabric`: `fabric_variables` of jobs on several
    nodes.
    """

    stack: str
    slurm: SlurmSpec
    node: str
    is_head: bool
    fabric: RdmaSetup | None = None
    allowed: tuple[str, ...] | None = None
    wireguard: str | None = None
    job_fabric: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [name for rung in self.slurm.rungs for name in rung.nodes]
        if self.node not in names:
            raise ValueError(f"SlurmHostSpec.node: {self.node!r}; allowed: {', '.join(names)}; fix: use one of them")
        if self.slurm.munge_socket != MUNGE_SOCKET or self.slurm.bin_dir != BIN_DIR:
            raise ValueError(
                f"SlurmHostSpec.slurm: munge_socket {self.slurm.munge_socket!r}, bin_dir {self.slurm.bin_dir!r}; "
                f"allowed: {MUNGE_SOCKET} and {BIN_DIR}; fix: use these"
            )

    @property
    def checks(self) -> list[str]:
        """The checks at boot and around each job."""
        planned = {"check-gpu.sh": self.slurm.machine.gpus > 0, "check-rdma.sh": self.fabric is not None}
        return ["close-metadata.sh", *select_enabled(planned)]

    @property
    def steps(self) -> list[str]:
        """The scripts before its daemons start."""
        planned = {
            **dict.fromkeys(self.checks, True),
            "join-wireguard.sh": self.wireguard is not None,
            "close-ports.sh": self.allowed is not None,
            "slurm-ready.sh": True,
        }
        return select_enabled(planned)

    @property
    def services(self) -> list[str]:
        """The units to enable and start."""
        head = ["gangway-slurmctld.service"] if self.is_head else []
        return [METADATA_UNIT, "gangway-munged.service", *head, "gangway-slurmd.service"]


def render_slurm_host_installer(spec: SlurmHostSpec) -> str:
    """The machine's script, with the commands `install` and `remove`."""
    gpu = ["nvidia-smi: install NVIDIA's driver"] if spec.slurm.machine.gpus else []
    daemons = ["munged", "slurmd", *(["slurmctld"] if spec.is_head else [])]
    tunnels = ["wg-quick: install your distribution's wireguard-tools, for hosts.wireguard"] if spec.wireguard else []
    needs = [*(f"{name}: {_NEEDS}" for name in daemons), *gpu, *tunnels]
    return installer_text(spec.stack, slurm_host_files(spec), spec.services, needs, refused=[_OTHER_SLURM])


def slurm_host_files(spec: SlurmHostSpec) -> list[NodeFile]:
    """The files that the script installs."""
    slurm = spec.slurm
    ports = (slurm.controller_port, slurm.node_port, "{}:{}".format(*SRUN_PORTS))
    closed = (
        {}
        if spec.allowed is None
        else {"ALLOWED_SOURCES": " ".join(spec.allowed), "JOB_PORTS": ",".join(map(str, ports))}
    )
    settings = {
        **(spec.fabric.settings if spec.fabric else {}),
        **({"WIREGUARD": spec.wireguard} if spec.wireguard else {}),
        **closed,
        "GPUS_PLANNED": str(slurm.machine.gpus),
        "HEALTH_CHECKS": " ".join(spec.checks),
        "JOB_KEY": "slurm",
        "JOB_NAME": "slurm",
        "LOG_GROUP": "journal",
        "ROLE": "head",
        "SLURM_HEAD_NAME": "" if spec.is_head else slurm.head_name,
        "SLURM_NODE": spec.node,
        "SLURM_STATE_DIR": slurm.state_dir if spec.is_head else "",
        "STACK": spec.stack,
    }
    values = {
        "accounting": False,
        "conf": f"{RUN_CONF_DIR}/slurm.conf",
        "image_has_docker": False,
        # A machine that fails a check is not replaced, but checked again.
        "role": "head",
        "steps": spec.steps,
        "tries_again": True,
    }
    # The controller compares this name with its hostname, which is unknown here.
    conf = {name: _HEAD.sub(f"SlurmctldHost={HEAD_MARK}", text) for name, text in conf_files(slurm).items()}
    env = bash_assignments(settings)
    return [
        NodeFile(f"{ETC_DIR}/node.env", "0600", env),
        NodeFile(f"{ETC_DIR}/check.env", "0600", env),
        NodeFile(f"{ETC_DIR}/slurmd.env", "0644", f"SLURM_NODE={spec.node}\n"),
        *(NodeFile(f"{CONF_DIR}/{name}", "0644", text) for name, text in conf.items()),
        *fabric_files(spec.job_fabric),
        *scripts(CLOUD, ["common.sh", "cloud.sh", *spec.steps, "slurm-health.sh"]),
        *(unit(CLOUD, name, values) for name in ["gangway-prepare.service", *spec.services]),
    ]
