"""The specification of a Slurm cluster, which rejects values that Slurm accepts and fails on later, and its
configuration files, as text. Slurm 21.08, 22.05 and 23.11 support every option, except where noted. Nodes in a cloud
fetch the files from the controller (slurm.conf(5), enable_configless).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gangway.images.render import ETC_DIR, NodeFile
from gangway.images.specs import TRAINER_UID

Release = Literal["21.08", "22.05", "23.11"]  # in Ubuntu 22.04, Debian 12 and Ubuntu 24.04
RungKind = Literal["capacity-block", "reservation", "flex-start", "spot", "on-demand"]

MACHINE_PACKAGES = ("munge", "python3-boto3", "slurm-client")  # of Ubuntu, on every machine in a cloud
NODE_PACKAGES = (*MACHINE_PACKAGES, "slurmd")
USER = "gangway"  # runs jobs if there are no teams
_PARTITION = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z])?(-[0-9]{1,2})?")  # also the prefix of its nodes' names
_CLUSTER_OR_TEAM = re.compile(r"[a-z][a-z0-9-]{0,39}")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_FOLDER = re.compile(r"(/[A-Za-z0-9_.-]+)+")
_GPU_TYPE = re.compile(r"[a-z0-9][a-z0-9_]{0,31}")
_RESERVED = ("all", "default")
_CGROUP_V2_SINCE = "22.05"  # on Ubuntu 22.04; 21.08 does not support it (RELEASE_NOTES of 22.05)


@dataclass(frozen=True)
class SlurmHost:
    """An existing machine. `name`: its node's name."""

    name: str
    address: str


@dataclass(frozen=True)
class SlurmRung:
    """A rung of the ladder: a partition of at most `count` nodes; `machines`: existing ones, none for a cloud's."""

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
    """Each node's hardware. `memory_gib`: nominal, above what it reports; `fabric`: between the nodes of one rung."""

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
    """An account. `nodes`: its fair share; `max_nodes`: of its running jobs; `users`: members and their UIDs."""

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
    """One cluster. `nodes_up`: of the first rung, never released; `idle_minutes`: until a node is released;
    `resume_minutes`: until a node must be up, with the wait for capacity; `suspend_sec`: from its end until it may
    start again: its machine must be terminating by then; `accounting`: slurmdbd and MariaDB on the controller; `teams`:
    only with accounting; `munge_socket`: empty for the machine's.
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


SRUN_PORTS = (60_001, 60_100)
QOS = {"high": 300, "normal": 200, "low": 100}  # priorities, with accounting; each QOS may preempt those below it


def slurm_conf(spec: SlurmSpec) -> str:
    """`slurm.conf`."""
    parts = [_controller(spec), _scheduling(spec), _execution(spec), _power(spec), _accounts(spec)]
    lines = [f"{name}={value}" for part in parts for name, value in part.items()]
    gres_types = ["GresTypes=gpu"] if spec.machine.gpus else []
    return _text([*lines, *gres_types, *_nodes(spec), *_partitions(spec)])


def _controller(spec: SlurmSpec) -> Mapping[str, object]:
    address = "" if spec.head_host == spec.head_name else f"({spec.head_host})"
    configuration = (
        # Each machine has its own copy, which may spell the controller's name differently.
        {"DebugFlags": "NO_CONF_HASH"}
        if spec.is_static
        else {"SlurmctldParameters": "enable_configless,idle_on_node_suspend"}
    )
    return {
        "ClusterName": spec.cluster,
        "SlurmctldHost": f"{spec.head_name}{address}",
        "SlurmctldPort": spec.controller_port,
        "SlurmdPort": spec.node_port,
        "SlurmUser": spec.user,
        "AuthType": "auth/munge",
        **({"AuthInfo": f"socket={spec.munge_socket}"} if spec.munge_socket else {}),
        "CredType": "cred/munge",
        **configuration,
        # Shows nodes without a machine; a job may not ask for more nodes than are visible.
        "PrivateData": "cloud",
        "StateSaveLocation": f"{spec.state_dir}/state",
        "SlurmdSpoolDir": "/var/spool/slurmd/%n",
        "SlurmctldPidFile": "/run/slurmctld.pid",
        "SlurmdPidFile": "/run/slurmd-%n.pid",
        "SlurmctldLogFile": f"{spec.log_dir}/slurmctld.log",
        "SlurmdLogFile": f"{spec.log_dir}/slurmd-%n.log",
        # Nodes connect to srun and salloc on the controller at these ports, which the network allows.
        "SrunPortRange": "{}-{}".format(*SRUN_PORTS),
        "MpiDefault": "none",
        # The default is the submitter's limits, with too little locked memory for a fabric.
        "PropagateResourceLimits": "NONE",
        # A node that returns is usable; its prolog checks it.
        "ReturnToService": 2,
    }


def _scheduling(spec: SlurmSpec) -> Mapping[str, object]:
    return {
        "SchedulerType": "sched/backfill",
        # A job whose node failed its prolog moves to another node without a release by hand.
        "SchedulerParameters": "nohold_on_prolog_fail",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "DefMemPerCPU": spec.machine.memory_mib // spec.machine.cpus,
        "PriorityType": "priority/multifactor" if spec.accounting else "priority/basic",
        **({"PriorityWeightQOS": 10_000, "PriorityWeightFairshare": 1000} if spec.accounting else {}),
        # A job without a partition is in all of them: it takes the first rung with nodes for it.
        "JobSubmitPlugins": "all_partitions",
        "JobRequeue": 1,
        # Preemption needs QOS, which needs accounting.
        "PreemptType": "preempt/qos" if spec.accounting else "preempt/none",
        "PreemptMode": "REQUEUE" if spec.accounting else "OFF",
        # A fabric covers one rung's placement group.
        "TopologyPlugin": "topology/tree" if spec.machine.fabric else "topology/none",
    }


def _execution(spec: SlurmSpec) -> Mapping[str, object]:
    return {
        "ProctrackType": "proctrack/cgroup" if spec.has_cgroups else "proctrack/linuxproc",
        "TaskPlugin": "task/cgroup,task/affinity" if spec.has_cgroups else "task/affinity",
        "Prolog": f"{spec.bin_dir}/slurm-health.sh",
        "Epilog": f"{spec.bin_dir}/slurm-health.sh",
        # At the job's start, not at its first step.
        "PrologFlags": "Alloc",
        "KillWait": 90,
        "BatchStartTimeout": 60,
        # A prolog checks eight GPUs.
        "MessageTimeout": 60,
        "PrologEpilogTimeout": 900,
    }


def _power(spec: SlurmSpec) -> Mapping[str, object]:
    if spec.is_static:
        return {}
    excluded = {"SuspendExcNodes": spec.rungs[0].first_hosts(spec.nodes_up)} if spec.nodes_up else {}
    return {
        "ResumeProgram": f"{spec.bin_dir}/slurm-scale.sh",
        "ResumeFailProgram": f"{spec.bin_dir}/slurm-scale.sh",
        "SuspendProgram": f"{spec.bin_dir}/slurm-scale.sh",
        "SuspendTime": math.ceil(spec.idle_minutes * 60),
        "SuspendTimeout": spec.suspend_sec,
        "ResumeTimeout": math.ceil(spec.resume_minutes * 60),
        # The program checks all nodes at each call.
        "ResumeRate": 0,
        "SuspendRate": 0,
        **excluded,
    }


def _accounts(spec: SlurmSpec) -> Mapping[str, object]:
    if not spec.accounting:
        return {"AccountingStorageType": "accounting_storage/none", "JobAcctGatherType": "jobacct_gather/none"}
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "localhost",
        "AccountingStoragePort": spec.accounting_port,
        # slurmdbd has its own option for the socket.
        **({"AccountingStoragePass": spec.munge_socket} if spec.munge_socket else {}),
        "AccountingStorageEnforce": "associations,limits,qos",
        **({"AccountingStorageTRES": "gres/gpu"} if spec.machine.gpus else {}),
        "JobAcctGatherType": "jobacct_gather/linux",
    }


def _nodes(spec: SlurmSpec) -> Iterable[str]:
    machine = spec.machine
    gres = f" Gres=gpu:{machine.gpu_type}:{machine.gpus}" if machine.gpus else ""
    for position, rung in enumerate(spec.rungs):
        for each in rung.machines:
            yield (
                f"NodeName={each.name} NodeAddr={each.address} CPUs={machine.cpus} RealMemory={machine.memory_mib}"
                f"{gres} Weight={(position + 1) * 10} State=UNKNOWN"
            )
        if rung.machines:
            continue
        yield (
            f"NodeName={rung.hosts} CPUs={machine.cpus} RealMemory={machine.memory_mib}{gres} "
            f"Weight={(position + 1) * 10} Feature={rung.kind} State=CLOUD"
        )


def _partitions(spec: SlurmSpec) -> Iterable[str]:
    """Priority tiers give the ladder's order to a job in several partitions."""
    tiers = len(spec.rungs)
    for position, rung in enumerate(spec.rungs):
        default = "YES" if position == 0 else "NO"
        yield (
            f"PartitionName={rung.name} Nodes={rung.hosts} Default={default} PriorityTier={(tiers - position) * 10} "
            "MaxTime=INFINITE State=UP OverSubscribe=NO"
        )


def gres_conf(spec: SlurmSpec) -> str:
    """`gres.conf`: NVIDIA's devices by number, since Ubuntu's Slurm has no NVML."""
    machine = spec.machine
    if not machine.gpus:
        return _text(["AutoDetect=off"])
    devices = "/dev/nvidia0" if machine.gpus == 1 else f"/dev/nvidia[0-{machine.gpus - 1}]"
    lines = [f"NodeName={rung.hosts} Name=gpu Type={machine.gpu_type} File={devices}" for rung in spec.rungs]
    return _text(["AutoDetect=off", *lines])


def topology_conf(spec: SlurmSpec) -> str:
    """`topology.conf`: a switch for each rung, unconnected; empty without a fabric."""
    if spec.machine.fabric is None:
        return ""
    return _text([f"# {spec.machine.fabric}"] + [f"SwitchName={rung.name} Nodes={rung.hosts}" for rung in spec.rungs])


def cgroup_conf(spec: SlurmSpec) -> str:
    """`cgroup.conf`: confines a job to its cores, memory and GPUs; empty if the release cannot."""
    if not spec.has_cgroups:
        return ""
    return _text(["ConstrainCores=yes", "ConstrainRAMSpace=yes", "ConstrainDevices=yes"])


def slurmdbd_conf(spec: SlurmSpec) -> str:
    """`slurmdbd.conf`, for the controller: MariaDB over its socket, without a password."""
    if not spec.accounting:
        return ""
    settings = {
        "AuthType": "auth/munge",
        **({"AuthInfo": f"socket={spec.munge_socket}"} if spec.munge_socket else {}),
        "DbdHost": "localhost",
        "DbdPort": spec.accounting_port,
        "SlurmUser": spec.user,
        "LogFile": f"{spec.log_dir}/slurmdbd.log",
        "PidFile": "/run/slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": spec.user,
        "StorageLoc": "slurm_acct_db",
        "PurgeEventAfter": "24months",
        "PurgeJobAfter": "24months",
        "PurgeStepAfter": "24months",
    }
    return _text(f"{name}={value}" for name, value in settings.items())


def conf_files(spec: SlurmSpec) -> dict[str, str]:
    """The controller's files in /etc/slurm, by name."""
    texts = {
        "slurm.conf": slurm_conf(spec),
        "gres.conf": gres_conf(spec),
        "topology.conf": topology_conf(spec),
        "cgroup.conf": cgroup_conf(spec),
        "slurmdbd.conf": slurmdbd_conf(spec),
    }
    return {name: text for name, text in texts.items() if text}


def fabric_files(variables: Mapping[str, str]) -> list[NodeFile]:
    """The variables that slurm-node.sh sets for jobs on several nodes; no file if there are none."""
    text = _text(f"{name}={value}" for name, value in variables.items())
    return [NodeFile(f"{ETC_DIR}/job-fabric", "0644", text)] if text else []


def account_words(spec: SlurmSpec) -> list[list[str]]:
    """Arguments of each sacctmgr call, in order; slurm-accounts.sh removes users from accounts not listed."""
    if not spec.accounting:
        return []
    words = []
    names = list(QOS)
    for position, name in reversed(list(enumerate(names))):
        words.append(["add", "qos", name])
        below = ",".join(names[position + 1 :])
        before = [f"preempt={below}"] if below else []
        # Rejects a job above its team's limit; without the flag it would wait forever.
        words.append(
            ["modify", "qos", name, "set", f"priority={QOS[name]}", "preemptmode=requeue", "flags=DenyOnLimit", *before]
        )
    every = ["qos=high,normal,low", "defaultqos=normal"]
    teams = spec.teams or (SlurmTeam("main", 1, users=spec.users),)
    for team in teams:
        limit = -1 if team.max_nodes is None else team.max_nodes  # -1 removes the limit
        shares = [f"fairshare={max(1, team.nodes)}", f"grptres=node={limit}"]
        words.append(["add", "account", team.name, f"cluster={spec.cluster}"])
        words.append(["modify", "account", team.name, f"cluster={spec.cluster}", "set", *shares, *every])
        words += [["add", "user", user, f"account={team.name}", f"cluster={spec.cluster}"] for user in team.users]
    for user in spec.users:
        first = next(team.name for team in teams if user in team.users)
        words.append(["modify", "user", user, f"cluster={spec.cluster}", "set", f"defaultaccount={first}"])
    return words


def rung_names(kinds: Iterable[str]) -> list[str]:
    """Partition names of a ladder: the kind, numbered from the second on.

    >>> rung_names(["spot", "on-demand", "spot"])
    ['spot', 'on-demand', 'spot-2']
    """
    counts: Counter[str] = Counter()
    names = []
    for kind in kinds:
        counts[kind] += 1
        names.append(kind if counts[kind] == 1 else f"{kind}-{counts[kind]}")
    return names


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
