"""A real Slurm on loopback: munged, slurmctld, slurmds of Debian's packages, in a folder of their own, ended whatever
happens. Root's alone, for slurmd starts jobs as their users.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_LIMIT_SEC = 60.0
_CONF = """ClusterName=gangway
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerNode=100
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_interval=1
PriorityType=priority/basic
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ReturnToService=2
KillWait=30
CompleteWait=0
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
{nodes}
PartitionName=gpu Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE
PartitionName=one Nodes=n1 MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE
PartitionName=short Nodes=n[1-{count}] MaxTime=30 State=UP OverSubscribe=EXCLUSIVE
PartitionName=h100 Nodes=g[1-2] MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE
"""
_GPU_NODES = ("g1", "g2")
_GRES = "NodeName=g[1-2] Name=gpu Type=h100 File=/dev/null,/dev/zero\n"
"""Two GPUs each: Slurm gives out any device as one."""


def why_not() -> str:
    """Why there can be none here; empty where there can."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"{', '.join(missing)} not installed (Debian: slurm-wlm, munge)"
    return "" if os.geteuid() == 0 else "slurmd is root's"


_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@dataclass
class SlurmCluster:
    """One that is up. `env`: with which Slurm's commands find it; `nodes`: how many; `gpu_nodes`: besides them."""

    folder: Path
    env: Mapping[str, str]
    nodes: int
    gpu_nodes: int = 0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self, *words: str) -> str:
        return subprocess.run(words, env=self.env, capture_output=True, text=True, check=True, timeout=60).stdout

    def begin(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self.processes[name] = subprocess.Popen(
                words, env=self.env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def begin_controller(self) -> None:
        self.begin("slurmctld", "slurmctld", "-D")

    def end_controller(self) -> None:
        """In order: killed, it forgets what came within the last seconds."""
        process = self.processes.pop("slurmctld")
        process.terminate()
        process.wait(_LIMIT_SEC)

    def until(self, words: tuple[str, ...], told: str) -> None:
        """Until a command says that."""
        limit = time.monotonic() + _LIMIT_SEC
        while True:
            done = subprocess.run(words, env=self.env, capture_output=True, text=True)
            if told in done.stdout:
                return
            assert time.monotonic() < limit, (done, self.written())
            time.sleep(0.1)

    def written(self) -> dict[str, str]:
        """By its daemons, the end of each."""
        return {path.name: path.read_text()[-2000:] for path in sorted(self.folder.glob("*.[lo][ou][gt]"))}

    def until_left(self, number: str) -> None:
        """Until a requeued job waits and its nodes have told all of its first start: begun at once, which Slurm itself
        never does, it would take that start's end for its own.
        """
        self.until(("squeue", "--noheader", f"--jobs={number}", "--format=%T"), "PENDING")
        self.until_idle()

    def until_idle(self) -> None:
        self.until(("sinfo", "--noheader", "--partition=gpu", "--format=%T %D"), f"idle {self.nodes}")
        if self.gpu_nodes:
            self.until(("sinfo", "--noheader", "--partition=h100", "--format=%T %D"), f"idle {self.gpu_nodes}")

    def reset(self) -> None:
        """No jobs, and all nodes fit again."""
        self.run("scancel", "--quiet", "--full", "--signal=KILL", "--me")
        self.run("scancel", "--quiet", "--me")
        for line in set(self.run("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()):
            name, state = line.split()[:2]
            if "drain" in state:
                self.run("scontrol", "update", f"nodename={name}", "state=resume")
        self.until_idle()


@contextmanager
def slurm(folder: Path, nodes: int = 3) -> Iterator[SlurmCluster]:
    """A cluster of so many nodes, n1 and so on, and of g1 and g2, which have GPUs."""
    folder.chmod(0o711)  # its jobs' users, too, find munged there
    for each in ("state", "spool"):
        (folder / each).mkdir()
    host = socket.gethostname().split(".")[0]
    names = [*(f"n{number}" for number in range(1, nodes + 1)), *_GPU_NODES]
    lines = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=1 RealMemory=500"
        f"{' Gres=gpu:h100:2' if name in _GPU_NODES else ''}"
        for name in names
    ]
    conf = _CONF.format(host=host, port=free_port(), folder=folder, nodes="\n".join(lines), count=nodes)
    (folder / "slurm.conf").write_text(conf)
    (folder / "gres.conf").write_text(_GRES)
    own = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _PATH}
    outer = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    cluster = SlurmCluster(folder, {**outer, **own}, nodes, len(_GPU_NODES))
    try:
        begin_munge(cluster)
        cluster.begin_controller()
        for name in names:
            cluster.begin(f"slurmd-{name}", "slurmd", "-D", "-N", name)
        cluster.until_idle()
        yield cluster
    finally:
        end_all(cluster)


def begin_munge(cluster: SlurmCluster) -> None:
    """With a key of its own."""
    folder = cluster.folder
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    munge = ("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.sock")
    cluster.begin("munged", *munge, f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munge.seed")
    while not (folder / "munge.sock").exists():
        assert cluster.processes["munged"].poll() is None, (folder / "munged.out").read_text()
        time.sleep(0.05)


def end_all(cluster: SlurmCluster) -> None:
    """Its jobs, then its daemons."""
    with suppress(subprocess.SubprocessError, OSError):
        subprocess.run(["scancel", "--quiet", "--me"], env=cluster.env, timeout=10)
        time.sleep(0.5)
    for process in reversed(list(cluster.processes.values())):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
