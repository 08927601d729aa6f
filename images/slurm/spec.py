"""What a Slurm of one's own is: its ladder of partitions, its machine, its times. Refused where Slurm would take it and
fail later.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from images.specs import TRAINER_UID

Release = Literal["21.08", "22.05", "23.11"]
"""Of Ubuntu 22.04, Debian 12 and Ubuntu 24.04."""
RungKind = Literal["capacity-block", "reservation", "flex-start", "spot", "on-demand"]

USER = "gangway"
"""The user who runs jobs if there are no teams."""
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z])?(-[0-9]{1,2})?")
"""A partition's: its nodes' begin so, and end with a number of their own."""
_OWN_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
"""Of a cluster, or a team."""
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_FOLDER = re.compile(r"(/[A-Za-z0-9_.-]+)+")
_GPU_TYPE = re.compile(r"[a-z0-9][a-z0-9_]{0,31}")
_RESERVED = ("all", "default")
_CGROUP_V2_SINCE = "22.05"
"""Ubuntu 22.04 has version 2 of cgroups alone, which Slurm 21.08 does not know (Slurm's RELEASE_NOTES of 22.05)."""


@dataclass(frozen=True)
class SlurmHost:
    """A machine that is there already: its node's name, and where it is reached."""

    name: str
    address: str


@dataclass(frozen=True)
class SlurmRung:
    """A rung of the capacity ladder: one partition, one group of machines. `count`: the most nodes it may hold;
    `machines`: which, where they are there already; a cloud's come and go.
    """

    name: str
    kind: RungKind
    count: int
    machines: tuple[SlurmHost, ...] = ()

    def __post_init__(self) -> None:
        _check("SlurmRung.name", self.name, _NAME.fullmatch(self.name) and self.name not in _RESERVED, "such as spot-2")
        _check("SlurmRung.count", self.count, 1 <= self.count <= 10_000, "1 to 10000")
        _check("SlurmRung.machines", self.machines, len(self.machines) in (0, self.count), "none, or all of them")

    @property
    def nodes(self) -> tuple[str, ...]:
        """Their names.

        >>> SlurmRung("spot", "spot", 2).nodes
        ('spot-n1', 'spot-n2')
        """
        if self.machines:
            return tuple(machine.name for machine in self.machines)
        return tuple(f"{self.name}-n{number}" for number in range(1, self.count + 1))

    @property
    def hosts(self) -> str:
        """The same as Slurm writes many.

        >>> SlurmRung("spot", "spot", 2).hosts
        'spot-n[1-2]'
        """
        return ",".join(self.nodes) if self.machines else self.first(self.count)

    def first(self, count: int) -> str:
        """So many of them."""
        return f"{self.name}-n1" if count == 1 else f"{self.name}-n[1-{count}]"


@dataclass(frozen=True)
class SlurmMachine:
    """What each node has. `memory_gib`: as its maker says; a machine has a little less. `fabric`: what the nodes of one
    rung reach each other by, beside Ethernet; None for nothing.
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
        _check("SlurmMachine.gpu_type", self.gpu_type, is_typed == (self.gpus > 0), "such as h100, with GPUs alone")

    @property
    def memory_mib(self) -> int:
        """What a job may have: a node that has less than is said here is drained."""
        return int(self.memory_gib * 1024 * 0.95)


@dataclass(frozen=True)
class SlurmTeam:
    """An account: the more `nodes` are its share, the sooner its jobs begin while it uses less. `max_nodes`: that its
    jobs have at once; None for no limit. `users`: who may submit to it, with their numbers.
    """

    name: str
    nodes: int
    max_nodes: int | None = None
    users: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("SlurmTeam.name", self.name, _OWN_NAME.fullmatch(self.name) and self.name != "root", "such as vision")
        _check("SlurmTeam.nodes", self.nodes, self.nodes >= 0, "0 or more")
        _check("SlurmTeam.max_nodes", self.max_nodes, self.max_nodes is None or self.max_nodes >= 1, "None, 1 or more")


@dataclass(frozen=True, kw_only=True)
class SlurmSpec:
    """One cluster.

    Attributes:
        release: of the machines' own packages; nodes and controller have the same.
        head_host: the controller's full name, by which nodes reach it; `head_name`: what it calls itself.
        rungs: in the ladder's order: the first is tried first.
        nodes_up: of the first rung, which are never given back.
        idle_minutes: after which a node without work is given back.
        resume_minutes: within which a node has to be up from when it was wanted, capacity awaited included.
        suspend_sec: between a node's end and its next start, in which its machine has to be on its way out.
        accounting: slurmdbd and MariaDB on the controller: accounts, shares, preemption by QOS.
        teams: with accounting alone; without any there is one account for all.
        user: who slurmctld is.
        munge_socket: of the cluster's own munged; empty for the machine's.
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
        _check("SlurmSpec.cluster", self.cluster, _OWN_NAME.fullmatch(self.cluster) is not None, "such as gan-train")
        for place in ("head_host", "head_name"):
            value = getattr(self, place)
            _check(f"SlurmSpec.{place}", value, _HOST.fullmatch(value) is not None, "a host's name, in small letters")
        names = [rung.name for rung in self.rungs]
        _check("SlurmSpec.rungs", names, names and len(set(names)) == len(names), "one or more, each with its own name")
        teams = [team.name for team in self.teams]
        has_accounts = len(set(teams)) == len(teams) and (self.accounting or not teams)
        _check("SlurmSpec.teams", teams, has_accounts, "names that differ, with accounting: true")
        most_up = self.rungs[0].count
        _check("SlurmSpec.nodes_up", self.nodes_up, 0 <= self.nodes_up <= most_up, f"0 to the first rung's {most_up}")
        _check("SlurmSpec.idle_minutes", self.idle_minutes, self.idle_minutes > 0, "above 0")
        _check("SlurmSpec.resume_minutes", self.resume_minutes, self.resume_minutes > 0, "above 0")
        _check("SlurmSpec.suspend_sec", self.suspend_sec, self.suspend_sec >= 1, "1 or more")
        ports = (self.controller_port, self.node_port, self.accounting_port)
        is_own = len(set(ports)) == len(ports) and all(1024 <= port <= 65535 for port in ports)
        _check("SlurmSpec ports", ports, is_own, "three that differ, 1024 to 65535")
        for place in ("state_dir", "log_dir", "bin_dir"):
            value = getattr(self, place)
            _check(f"SlurmSpec.{place}", value, _FOLDER.fullmatch(value) is not None, "an absolute path without spaces")

    @property
    def users(self) -> Mapping[str, int]:
        """The users to create on each machine, with their UIDs: the teams' members, or one user for all jobs."""
        if not self.teams:
            return {USER: TRAINER_UID}
        return {name: uid for team in self.teams for name, uid in sorted(team.users.items())}

    @property
    def is_there(self) -> bool:
        """Whether its machines are, and stay."""
        return all(rung.machines for rung in self.rungs)

    @property
    def has_cgroups(self) -> bool:
        """Whether Slurm can hold a job's processes, devices and memory by the kernel's own means."""
        return self.release >= _CGROUP_V2_SINCE


def _check(place: str, value: object, holds: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{place}: {value!r}; allowed: {allowed}; fix: change it")
