"""Slurm's configuration files, as text. Slurm 21.08, 22.05 and 23.11 support every option, except where noted. Nodes in
a cloud fetch them from the controller (slurm.conf(5), enable_configless).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from gangway.images.render import ETC_DIR, NodeFile
from gangway.images.slurm.spec import SlurmSpec, SlurmTeam

SRUN_PORTS = (60_001, 60_100)
QOS = {"high": 300, "normal": 200, "low": 100}
"""Priorities, with accounting; each QOS may preempt those below it."""


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
    """The arguments of each sacctmgr call, in order: QOS priorities, teams' shares and limits, users, default accounts.
    slurm-accounts.sh removes users from accounts that are not listed.
    """
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
