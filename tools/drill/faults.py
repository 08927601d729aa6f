"""The faults: each is made once, in the middle of a run of two nodes, and says nothing of what should come of it."""

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

from tools.drill.cluster import Cluster, Node, cable

CUT_SEC = 5.0
LATE_SEC = 20.0
CLOCK_JUMP_SEC = 7200
_DISK_MIB = 64

_SHIFTED_CLOCK = """
import datetime, os, time

real_time = time.time

def now():
    with open(os.environ["GANGWAY_DRILL_CLOCK"], encoding="ascii") as file:
        return real_time() + float(file.read() or 0)

class Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(now(), tz)

    @classmethod
    def utcnow(cls):
        return cls.fromtimestamp(now(), datetime.UTC).replace(tzinfo=None)

time.time, datetime.datetime = now, Shifted
"""
"""For sitecustomize, which Python loads before anything else."""

Fault = Callable[[Cluster], None]


def _mid_training(cluster: Cluster) -> None:
    before = len(cluster.checkpoints())
    newest = before and cluster.checkpoints()[-1]
    cluster.until(lambda: bool(cluster.checkpoints()) and cluster.checkpoints()[-1] != newest, "a checkpoint")
    images = cluster.images()
    cluster.until(lambda: cluster.images() > images, "a line of statistics")


def _in_training(act: Fault) -> Fault:
    """Starts all, acts in the middle of training, and waits until both nodes have ended."""

    def fault(cluster: Cluster) -> None:
        cluster.start()
        _mid_training(cluster)
        act(cluster)
        cluster.until_ended()

    return fault


def nothing(cluster: Cluster) -> None:
    """No fault, for comparison."""
    cluster.start()
    cluster.until_ended()


def second_node_late(cluster: Cluster) -> None:
    """Later than a rendezvous has patience for (5 s here), four times over."""
    cluster.start_store()
    cluster.one.start()
    time.sleep(LATE_SEC)
    cluster.two.start()
    cluster.until_ended()


def killed_in_waiting(cluster: Cluster) -> None:
    """The first node is lost while it waits for the second, and comes back."""
    cluster.start_store()
    cluster.one.start()
    time.sleep(LATE_SEC / 2)
    cluster.one.lose()
    cluster.one.start()
    cluster.two.start()
    cluster.until_ended()


@_in_training
def killed_in_training(cluster: Cluster) -> None:
    """The second node loses its power between two checkpoints, and comes back."""
    cluster.two.lose()
    cluster.two.start()


@_in_training
def killed_in_saving(cluster: Cluster) -> None:
    """The node that writes the checkpoint loses its power while half of it is written."""
    cluster.until(cluster.is_saving, "a checkpoint is being written")
    _get_writer(cluster).lose()
    for node in cluster.nodes:
        if node.ended.is_set():
            node.start()


@_in_training
def store_killed(cluster: Cluster) -> None:
    """The head node's store is lost in training, and comes back empty."""
    cluster.lose_store()
    time.sleep(2)
    cluster.start_store()


@_in_training
def network_cut_short(cluster: Cluster) -> None:
    """For less than a step may take."""
    cable(cluster.two.host, connected=False)
    time.sleep(CUT_SEC)
    cable(cluster.two.host, connected=True)


@_in_training
def network_cut_for_good(cluster: Cluster) -> None:
    """The second node is never reached again; the job may go on with one."""
    cable(cluster.two.host, connected=False)
    cluster.until_ended(cluster.one)
    cluster.two.process.send(signal.SIGTERM)
    cluster.two.lose()


@_in_training
def worker_stopped(cluster: Cluster) -> None:
    """SIGSTOP, which no process can refuse or notice."""
    os.kill(cluster.two.workers()[-1], signal.SIGSTOP)


@_in_training
def node_stopped(cluster: Cluster) -> None:
    """Launcher and worker: a machine that hangs. The job may go on with one node."""
    for pid in (cluster.two.process.pid, *cluster.two.process.children()):
        os.kill(pid, signal.SIGSTOP)
    cluster.until_ended(cluster.one)
    cluster.two.lose()


def disk_full_at_save(cluster: Cluster) -> None:
    """No byte is free for the next checkpoint; then the user makes room, and starts both nodes again."""
    cluster.put_run_on_small_disk(_DISK_MIB)
    cluster.start()
    _mid_training(cluster)
    filler = cluster.run_dir / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    cluster.until_ended()
    filler.unlink()
    for node in cluster.nodes:
        node.start()
    cluster.until_ended()


def clock_jump(cluster: Cluster) -> None:
    """The second node's wall clock goes two hours ahead, and back again: of all its Python, torchrun's and ours."""
    offset, site = cluster.folder / "clock", cluster.folder / "site"
    offset.write_text("0", "ascii")
    site.mkdir()
    (site / "sitecustomize.py").write_text(_SHIFTED_CLOCK, "utf-8")
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    cluster.environments[cluster.two.host.name] = {"PYTHONPATH": path, "GANGWAY_DRILL_CLOCK": str(offset)}
    cluster.start()
    for shift_sec in (CLOCK_JUMP_SEC, 0):
        _mid_training(cluster)
        offset.write_text(str(shift_sec), "ascii")
        time.sleep(3)
    cluster.until_ended()


@_in_training
def notice_in_saving(cluster: Cluster) -> None:
    """Both nodes are signalled while a checkpoint is being written; they come back."""
    cluster.until(cluster.is_saving, "a checkpoint is being written")
    for node in cluster.nodes:
        node.process.send(signal.SIGTERM)


@_in_training
def two_notices_at_once(cluster: Cluster) -> None:
    """Each node is signalled twice within milliseconds: by its cloud, and by its service manager."""
    for _, node in itertools.product(range(2), cluster.nodes):
        node.process.send(signal.SIGTERM)


@_in_training
def all_lost_and_back(cluster: Cluster) -> None:
    """Head and nodes lose their power at once."""
    for node in cluster.nodes:
        node.process.lose()
    cluster.lose_store()
    for node in cluster.nodes:
        node.lose()
    cluster.start()


def newest_checkpoint_damaged(cluster: Cluster) -> None:
    """All are lost, and a page of the newest checkpoint is corrupt."""
    cluster.start()
    cluster.until(lambda: len(cluster.checkpoints()) > 1, "two checkpoints")
    for node in cluster.nodes:
        node.lose()
    newest = cluster.checkpoints()[-1]
    with newest.open("r+b") as file:
        file.seek(newest.stat().st_size // 2)
        file.write(os.urandom(4096))
    for node in cluster.nodes:
        node.start()
    cluster.until_ended()


FAULTS = MappingProxyType(
    {
        "second node late": (second_node_late, 2),
        "node killed in waiting": (killed_in_waiting, 2),
        "node killed in training": (killed_in_training, 2),
        "node killed in saving": (killed_in_saving, 2),
        "store killed": (store_killed, 2),
        "network cut for 5 s": (network_cut_short, 2),
        "network cut for good": (network_cut_for_good, 1),
        "worker stopped": (worker_stopped, 2),
        "whole node stopped": (node_stopped, 1),
        "disk full at save": (disk_full_at_save, 2),
        "clock jump": (clock_jump, 2),
        "notice in saving": (notice_in_saving, 2),
        "two notices at once": (two_notices_at_once, 2),
        "all nodes lost and back": (all_lost_and_back, 2),
        "newest checkpoint damaged": (newest_checkpoint_damaged, 2),
    }
)
"""By name: what is done, and how many nodes the job goes on with."""


def _get_writer(cluster: Cluster) -> Node:
    environments = {node: Path(f"/proc/{node.workers()[-1]}/environ").read_bytes() for node in cluster.nodes}
    return next(node for node, values in environments.items() if b"\0RANK=0\0" in values)
