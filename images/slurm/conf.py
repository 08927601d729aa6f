"""The files that a Slurm reads, as text: pure. Each option is known to 21.08, 22.05 and 23.11 alike, but where it says
so. A cloud's nodes have none of them: they ask the controller (slurm.conf(5), enable_configless).
"""

import math
from collections.abc import Iterable, Mapping

from images.render import ETC_DIR, NodeFile
from images.slurm.spec import SlurmSpec, SlurmTeam

SRUN_PORTS = (60_001, 60_100)
QOS = {"high": 300, "normal": 200, "low": 100}
"""With accounting: their priorities; each may requeue those below it."""


def slurm_conf(spec: SlurmSpec) -> str:
    """`slurm.conf`."""
    parts = [_controller(spec), _scheduling(spec), _nodes_run(spec), _power(spec), _accounts(spec)]
    lines = [f"{name}={value}" for part in parts for name, value in part.items()]
    return _text([*lines, *_gres_types(spec), *_nodes(spec), *_partitions(spec)])


def _controller(spec: SlurmSpec) -> Mapping[str, object]:
    address = "" if spec.head_host == spec.head_name else f"({spec.head_host})"
    return {
        "ClusterName": spec.cluster,
        "SlurmctldHost": f"{spec.head_name}{address}",
        "SlurmctldPort": spec.controller_port,
        "SlurmdPort": spec.node_port,
        "SlurmUser": spec.user,
        "AuthType": "auth/munge",
        **({"AuthInfo": f"socket={spec.munge_socket}"} if spec.munge_socket else {}),
        "CredType": "cred/munge",
        **_where_nodes_read(spec),
        # Also while they have no machine: a job is refused that asks for more nodes than can be seen.
        "PrivateData": "cloud",
        "StateSaveLocation": f"{spec.state_dir}/state",
        "SlurmdSpoolDir": "/var/spool/slurmd/%n",
        "SlurmctldPidFile": "/run/slurmctld.pid",
        "SlurmdPidFile": "/run/slurmd-%n.pid",
        "SlurmctldLogFile": f"{spec.log_dir}/slurmctld.log",
        "SlurmdLogFile": f"{spec.log_dir}/slurmd-%n.log",
        # Of srun and salloc beside the controller, to which nodes connect: a network lets these pass.
        "SrunPortRange": "{}-{}".format(*SRUN_PORTS),
        "MpiDefault": "none",
        # Slurm's default is the submitter's limits, and a login shell may lock too little memory for a fabric.
        "PropagateResourceLimits": "NONE",
        # A node that comes back with its machine is fit again; its prolog says where it is not.
        "ReturnToService": 2,
    }


def _where_nodes_read(spec: SlurmSpec) -> Mapping[str, object]:
    if spec.is_there:
        # Each machine has its own copy, with the controller's name alone in another form.
        return {"DebugFlags": "NO_CONF_HASH"}
    # A machine that was given back comes again with nothing but its name.
    return {"SlurmctldParameters": "enable_configless,idle_on_node_suspend"}


def _scheduling(spec: SlurmSpec) -> Mapping[str, object]:
    return {
        "SchedulerType": "sched/backfill",
        # A job whose node was not fit goes to another one, and waits for nobody's release.
        "SchedulerParameters": "nohold_on_prolog_fail",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "DefMemPerCPU": spec.machine.memory_mib // spec.machine.cpus,
        "PriorityType": "priority/multifactor" if spec.accounting else "priority/basic",
        **({"PriorityWeightQOS": 10_000, "PriorityWeightFairshare": 1000} if spec.accounting else {}),
        # Who names no partition is in all of them: the job takes the first rung that has nodes for it.
        "JobSubmitPlugins": "all_partitions",
        "JobRequeue": 1,
        # Without accounts nobody could say who may requeue whom.
        "PreemptType": "preempt/qos" if spec.accounting else "preempt/none",
        "PreemptMode": "REQUEUE" if spec.accounting else "OFF",
        # A fabric ends at its rung's placement group.
        "TopologyPlugin": "topology/tree" if spec.machine.fabric else "topology/none",
    }


def _nodes_run(spec: SlurmSpec) -> Mapping[str, object]:
    held = spec.has_cgroups
    return {
        "ProctrackType": "proctrack/cgroup" if held else "proctrack/linuxproc",
        "TaskPlugin": "task/cgroup,task/affinity" if held else "task/affinity",
        "Prolog": f"{spec.bin_dir}/slurm-health.sh",
        "Epilog": f"{spec.bin_dir}/slurm-health.sh",
        # Before a job's first second, not at its first step.
        "PrologFlags": "Alloc",
        "KillWait": 90,
        "BatchStartTimeout": 60,
        # Of a prolog that looks at eight GPUs.
        "MessageTimeout": 60,
        "PrologEpilogTimeout": 900,
    }


def _power(spec: SlurmSpec) -> Mapping[str, object]:
    if spec.is_there:
        return {}
    excluded = {"SuspendExcNodes": spec.rungs[0].first(spec.nodes_up)} if spec.nodes_up else {}
    return {
        "ResumeProgram": f"{spec.bin_dir}/slurm-scale.sh",
        "ResumeFailProgram": f"{spec.bin_dir}/slurm-scale.sh",
        "SuspendProgram": f"{spec.bin_dir}/slurm-scale.sh",
        "SuspendTime": math.ceil(spec.idle_minutes * 60),
        "SuspendTimeout": spec.suspend_sec,
        "ResumeTimeout": math.ceil(spec.resume_minutes * 60),
        # The program looks at all nodes, however many Slurm names.
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
        # To slurmdbd the socket has another name than to all others.
        **({"AccountingStoragePass": spec.munge_socket} if spec.munge_socket else {}),
        "AccountingStorageEnforce": "associations,limits,qos",
        **({"AccountingStorageTRES": "gres/gpu"} if spec.machine.gpus else {}),
        "JobAcctGatherType": "jobacct_gather/linux",
    }


def _gres_types(spec: SlurmSpec) -> list[str]:
    return ["GresTypes=gpu"] if spec.machine.gpus else []


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
    """In the ladder's order, which a job in several keeps by their tiers."""
    tiers = len(spec.rungs)
    for position, rung in enumerate(spec.rungs):
        default = "YES" if position == 0 else "NO"
        yield (
            f"PartitionName={rung.name} Nodes={rung.hosts} Default={default} PriorityTier={(tiers - position) * 10} "
            "MaxTime=INFINITE State=UP OverSubscribe=NO"
        )


def gres_conf(spec: SlurmSpec) -> str:
    """`gres.conf`: NVIDIA's devices by their numbers, for Ubuntu's Slurm is built without NVML."""
    machine = spec.machine
    if not machine.gpus:
        return _text(["AutoDetect=off"])
    devices = "/dev/nvidia0" if machine.gpus == 1 else f"/dev/nvidia[0-{machine.gpus - 1}]"
    lines = [f"NodeName={rung.hosts} Name=gpu Type={machine.gpu_type} File={devices}" for rung in spec.rungs]
    return _text(["AutoDetect=off", *lines])


def topology_conf(spec: SlurmSpec) -> str:
    """`topology.conf`: a switch for each rung, and none above them, for nothing fast connects two; empty where there is
    no fabric.
    """
    if spec.machine.fabric is None:
        return ""
    return _text([f"# {spec.machine.fabric}"] + [f"SwitchName={rung.name} Nodes={rung.hosts}" for rung in spec.rungs])


def cgroup_conf(spec: SlurmSpec) -> str:
    """`cgroup.conf`: a job has its own processors, memory and GPUs; empty where this release has none."""
    if not spec.has_cgroups:
        return ""
    return _text(["ConstrainCores=yes", "ConstrainRAMSpace=yes", "ConstrainDevices=yes"])


def slurmdbd_conf(spec: SlurmSpec) -> str:
    """`slurmdbd.conf`, on the controller alone: MariaDB by its socket, whose user the machine's own is; no password."""
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
    """Those that the controller has in /etc/slurm, by name."""
    texts = {
        "slurm.conf": slurm_conf(spec),
        "gres.conf": gres_conf(spec),
        "topology.conf": topology_conf(spec),
        "cgroup.conf": cgroup_conf(spec),
        "slurmdbd.conf": slurmdbd_conf(spec),
    }
    return {name: text for name, text in texts.items() if text}


def fabric_files(variables: Mapping[str, str]) -> list[NodeFile]:
    """What slurm-node.sh gives to jobs on several nodes, NAME=VALUE a line; none where there is nothing."""
    text = _text(f"{name}={value}" for name, value in variables.items())
    return [NodeFile(f"{ETC_DIR}/job-fabric", "0644", text)] if text else []


def account_words(spec: SlurmSpec) -> list[list[str]]:
    """The arguments of each sacctmgr call, in order: QOS priorities, each team's share and limit, its users, and their
    default accounts. slurm-accounts.sh removes users from accounts that are not listed here.
    """
    if not spec.accounting:
        return []
    words = []
    names = list(QOS)
    for position, name in reversed(list(enumerate(names))):
        words.append(["add", "qos", name])
        below = ",".join(names[position + 1 :])
        before = [f"preempt={below}"] if below else []
        # A job that is larger than its team's limit is refused; without the flag it would wait for ever.
        words.append(
            ["modify", "qos", name, "set", f"priority={QOS[name]}", "preemptmode=requeue", "flags=DenyOnLimit", *before]
        )
    every = ["qos=high,normal,low", "defaultqos=normal"]
    teams = spec.teams or (SlurmTeam("main", 1, users=spec.users),)
    for team in teams:
        limit = -1 if team.max_nodes is None else team.max_nodes  # -1 takes an earlier one away
        shares = [f"fairshare={max(1, team.nodes)}", f"grptres=node={limit}"]
        words.append(["add", "account", team.name, f"cluster={spec.cluster}"])
        words.append(["modify", "account", team.name, f"cluster={spec.cluster}", "set", *shares, *every])
        words += [["add", "user", user, f"account={team.name}", f"cluster={spec.cluster}"] for user in team.users]
    for user in spec.users:
        first = next(team.name for team in teams if user in team.users)
        words.append(["modify", "user", user, f"cluster={spec.cluster}", "set", f"defaultaccount={first}"])
    return words


def rung_names(kinds: Iterable[str]) -> list[str]:
    """Partitions' names for a ladder of these kinds: the kind, numbered from its second on.

    >>> rung_names(["spot", "on-demand", "spot"])
    ['spot', 'on-demand', 'spot-2']
    """
    seen: dict[str, int] = {}
    names = []
    for kind in kinds:
        seen[kind] = seen.get(kind, 0) + 1
        names.append(kind if seen[kind] == 1 else f"{kind}-{seen[kind]}")
    return names


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
