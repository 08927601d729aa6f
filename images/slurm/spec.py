"""The specification of a Slurm cluster. Rejects values that Slurm accepts and fails on later."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gangway.images.specs import TRAINER_UID

Release = Literal["21.08", "22.05", "23.11"]
"""In Ubuntu 22.04, Debian 12 and Ubuntu 24.04."""
RungKind = Literal["capacity-block", "reservation", "flex-start", "spot", "on-demand"]

USER = "gangway"
"""Runs jobs if there are no teams."""
_PARTITION = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z])?(-[0-9]{1,2})?")
"""Also the prefix of its nodes' names."""
_CLUSTER_OR_TEAM = re.compile(r"[a-z][a-z0-9-]{0,39}")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_FOLDER = re.compile(r"(/[A-Za-z0-9_.-]+)+")
_GPU_TYPE = re.compile(r"[a-z0-9][a-z0-9_]{0,31}")
_RESERVED = ("all", "default")
_CGROUP_V2_SINCE = "22.05"
"""Ubuntu 22.04 has only cgroups v2, which Slurm 21.08 does not support (RELEASE_NOTES of 22.05)."""


@dataclass(frozen=True)
class SlurmHost:
    """An existing machine. `name`: its node's name."""

    name: str
    address: str


@dataclass(frozen=True)
class SlurmRung:
    """A rung of the capacity ladder: a partition with a group of machines. `count`: its most nodes; `machines`:
    existing ones; empty for a cloud's.
    """

    name: str
    kind: RungKind
    count: int
    machines: tuple[SlurmHost, ...] = ()

    def __post_init__(self) -> None:
        _check(
            "SlurmRung.name",
            self.name,
            _PARTITION.fullmatch(self.name) and self.name not in _RESERVED,
            "a name such as spot-2",
        )
        _check("SlurmRung.count", self.count, 1 <= self.count <= 10_000, "1 to 10000")
        _check("SlurmRung.machines", self.machines, len(self.machines) in (0, self.count), f"none, or {self.count}")

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes' names.

        >>> SlurmRung("spot", "spot", 2).nodes
        ('spot-n1', 'spot-n2')
        """
        if self.machines:
            return tuple(machine.name for machine in self.machines)
        return tuple(f"{self.name}-n{number}" for number in range(1, self.count + 1))

    @property
    def hosts(self) -> str:
        """The same in Slurm's notation.

        >>> SlurmRung("spot", "spot", 2).hosts
        'spot-n[1-2]'
        """
        return ",".join(self.nodes) if self.machines else self.first_hosts(self.count)

    def first_hosts(self, count: int) -> str:
        """The first `count` cloud nodes, in Slurm's notation."""
        return f"{self.name}-n1" if count == 1 else f"{self.name}-n[1-{count}]"


@dataclass(frozen=True)
class SlurmMachine:
    """The hardware of each node. `memory_gib`: nominal, slightly above what the machine reports. `fabric`: between the
    nodes of one rung; None for Ethernet only.
    """

    cpus: int
    memory_gib: float
    gpus: int = 0
    gpu_type: str = ""
    fabric: str | None = None

    def __post_init__(self) -> None:
        _check("SlurmMachine.cpus", self.cpus, self.cpus >= 1, "1 or more")
        _check("SlurmMachine.memory_gib", self.memory_gib, self.memory_gib > 0, "above 0")
        _check("SlurmMachine.gpus", self.gpus, 0 <= self.gpus <= 64, "0 to 64")
        is_typed = _GPU_TYPE.fullmatch(self.gpu_type) is not None
        _check(
            "SlurmMachine.gpu_type",
            self.gpu_type,
            is_typed == (self.gpus > 0),
            "a name such as h100 if there are GPUs, else empty",
        )

    @property
    def memory_mib(self) -> int:
        """Memory for jobs; Slurm drains a node that reports less."""
        return int(self.memory_gib * 1024 * 0.95)


@dataclass(frozen=True)
class SlurmTeam:
    """An account. `nodes`: its fair share; `max_nodes`: of its running jobs, None for no limit; `users`: members and
    their UIDs.
    """

    name: str
    nodes: int
    max_nodes: int | None = None
    users: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(
            "SlurmTeam.name",
            self.name,
            _CLUSTER_OR_TEAM.fullmatch(self.name) and self.name != "root",
            "a name such as vision",
        )
        _check("SlurmTeam.nodes", self.nodes, self.nodes >= 0, "0 or more")
        _check(
            "SlurmTeam.max_nodes", self.max_nodes, self.max_nodes is None or self.max_nodes >= 1, "1 or more, or None"
        )


@dataclass(frozen=True, kw_only=True)
class SlurmSpec:
    """One cluster.

    Attributes:
        release: of the packages on nodes and controller.
        head_host: the controller's full name, for nodes; `head_name`: its hostname.
        rungs: in the order in which they are tried.
        nodes_up: nodes of the first rung that are never released.
        idle_minutes: after which an idle node is released.
        resume_minutes: from a node's request until it must be up, with the wait for capacity.
        suspend_sec: from a node's end until it may start again; its machine must be terminating by then.
        accounting: slurmdbd and MariaDB on the controller, for accounts, shares and preemption by QOS.
        teams: only with accounting; empty for one account.
        user: of slurmctld.
        munge_socket: of the cluster's munged; empty for the machine's.
    """

    cluster: str
    release: Release
    head_host: str
    head_name: str
    machine: SlurmMachine
    rungs: tuple[SlurmRung, ...]
    nodes_up: int = 0
    idle_minutes: float = 15
    resume_minutes: float = 30
    suspend_sec: int = 120
    accounting: bool = False
    teams: tuple[SlurmTeam, ...] = ()
    controller_port: int = 6817
    node_port: int = 6818
    accounting_port: int = 6819
    state_dir: str = "/var/lib/gangway/slurm"
    log_dir: str = "/var/log/slurm"
    bin_dir: str = "/opt/gangway/bin"
    user: str = "slurm"
    munge_socket: str = ""

    def __post_init__(self) -> None:
        _check(
            "SlurmSpec.cluster",
            self.cluster,
            _CLUSTER_OR_TEAM.fullmatch(self.cluster) is not None,
            "a name such as gan-train",
        )
        for place in ("head_host", "head_name"):
            value = getattr(self, place)
            _check(f"SlurmSpec.{place}", value, _HOST.fullmatch(value) is not None, "a host name in lower case")
        names = [rung.name for rung in self.rungs]
        _check("SlurmSpec.rungs", names, names and len(set(names)) == len(names), "one or more, with different names")
        teams = [team.name for team in self.teams]
        has_accounts = len(set(teams)) == len(teams) and (self.accounting or not teams)
        _check("SlurmSpec.teams", teams, has_accounts, "different names, only with accounting: true")
        most_up = self.rungs[0].count
        _check("SlurmSpec.nodes_up", self.nodes_up, 0 <= self.nodes_up <= most_up, f"0 to the first rung's {most_up}")
        _check("SlurmSpec.idle_minutes", self.idle_minutes, self.idle_minutes > 0, "above 0")
        _check("SlurmSpec.resume_minutes", self.resume_minutes, self.resume_minutes > 0, "above 0")
        _check("SlurmSpec.suspend_sec", self.suspend_sec, self.suspend_sec >= 1, "1 or more")
        ports = (self.controller_port, self.node_port, self.accounting_port)
        is_valid = len(set(ports)) == len(ports) and all(1024 <= port <= 65535 for port in ports)
        _check("SlurmSpec ports", ports, is_valid, "three different ports, 1024 to 65535")
        for place in ("state_dir", "log_dir", "bin_dir"):
            value = getattr(self, place)
            _check(f"SlurmSpec.{place}", value, _FOLDER.fullmatch(value) is not None, "an absolute path without spaces")

    @property
    def users(self) -> Mapping[str, int]:
        """The users on each machine, with UIDs: the teams' members, or one for all jobs."""
        if not self.teams:
            return {USER: TRAINER_UID}
        return {name: uid for team in self.teams for name, uid in sorted(team.users.items())}

    @property
    def is_static(self) -> bool:
        """Whether all its machines exist already."""
        return all(rung.machines for rung in self.rungs)

    @property
    def has_cgroups(self) -> bool:
        """Whether Slurm can confine jobs with cgroups."""
        return self.release >= _CGROUP_V2_SINCE


def _check(place: str, value: object, is_valid: object, allowed: str) -> None:
    if not is_valid:
        raise ValueError(f"{place}: {value!r}; allowed: {allowed}; fix: change it")
