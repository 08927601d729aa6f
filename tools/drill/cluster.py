"""Two nodes and a head with the rendezvous store, as real processes.

As root each has its own network namespace and host name, else all share the loopback. A node restarts its launcher as
systemd does. They meet with a job's key (gangway.trainer.rendezvous.tunnel).
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gangway.trainer.records.stats_log import Line, read_stats_log

NOT_AGAIN = (0, 2, 3, 4, 5, 6)
"""Exit codes after which gangway-trainer.service starts no trainer."""
_BRIDGE = "gangway-drill"
HEAD, NODES = "head", ("one", "two")
PORT = 29400
_PARTS = ((("netns", "del"), "gangway"), (("link", "del"), "gw"))
_LIMIT_SEC = 240.0
_RENDEZVOUS = (
    "is_host=0,last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=5,read_timeout=3"
)
"""torchrun's patience in seconds, compressed: where the defaults are 30, 5, 3 times, 600 and 60."""


class DrillError(Exception):
    """A fault that the job did not survive, or that could not be caused."""


@dataclass(frozen=True)
class Host:
    """Where processes of one host run: words before each command, and its address."""

    name: str
    prefix: tuple[str, ...]
    address: str
    interface: str
    link: str
    """The bridge's end of its cable; empty on the loopback."""


@contextlib.contextmanager
def hosts() -> Iterator[dict[str, Host]]:
    """The three hosts, and their network for as long as the block lasts."""
    names = (HEAD, *NODES)
    if os.geteuid() != 0 or shutil.which("ip") is None:
        yield {name: Host(name, (), "127.0.0.1", "lo", "") for name in names}
        return
    _remove_network(names)  # of a drill that was killed
    _ip("link", "add", _BRIDGE, "type", "bridge")
    try:
        _ip("link", "set", _BRIDGE, "up")
        yield {name: _host(name, number) for number, name in enumerate(names, 2)}
    finally:
        _remove_network(names)


def _remove_network(names: Sequence[str]) -> None:
    # A cable goes with its namespace, but that one stays for as long as a process is in it.
    spaces, cables = ([(*words, f"{prefix}-{name}") for name in names] for words, prefix in _PARTS)
    for words in (*cables, *spaces, ("link", "del", _BRIDGE)):
        with contextlib.suppress(DrillError):  # it is not there
            _ip(*words)


def _host(name: str, number: int) -> Host:
    space, link, address = f"gangway-{name}", f"gw-{name}", f"10.255.77.{number}"
    inside = ("-n", space)
    _ip("netns", "add", space)
    _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
    _ip("link", "set", link, "master", _BRIDGE, "up")
    _ip(*inside, "address", "add", f"{address}/24", "dev", "eth0")
    _ip(*inside, "link", "set", "eth0", "up")
    _ip(*inside, "link", "set", "lo", "up")
    named = ("unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh")
    return Host(name, ("ip", "netns", "exec", space, *named), address, "eth0", link)


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        raise DrillError(f"{' '.join(argv)}: {done.stderr.strip()}")


def make_key(path: Path) -> None:
    """A new job's key (DrillError: no openssl)."""
    made = path.with_suffix(".made")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=drill -days 1"
    _run("openssl", *words.split(), "-keyout", str(path), "-out", str(made))
    with path.open("ab") as file:
        file.write(made.read_bytes())
    made.unlink()


def cable(host: Host, *, connected: bool) -> None:
    """Cuts or restores a host's connection to all others (DrillError on the loopback)."""
    if not host.link:
        raise DrillError("needs root, for network namespaces")
    _ip("link", "set", host.link, "up" if connected else "down")


class Process:
    """A command on a host, with all that it starts; its output is appended to `log`."""

    def __init__(self, host: Host, argv: list[str], log: Path, environment: Mapping[str, str]) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*host.prefix, sys.executable, *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": host.interface},
                start_new_session=True,
            )
        self.pid = self._process.pid

    def wait(self) -> int:
        """Its exit code; a signal's number is negative."""
        return self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Signals the command itself."""
        self._process.send_signal(number)

    def lose(self) -> None:
        """Kills it and its children at once, like a power loss."""
        for pid in (self.pid, *self.children()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def children(self) -> list[int]:
        """Returns it and all processes that it has started."""
        found = [self.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                found += [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
        return found[1:]


class Node:
    """A node whose launcher is restarted until it has ended for good."""

    def __init__(self, host: Host, begin: Callable[[], Process]) -> None:
        self.host, self._begin = host, begin
        self.codes: list[int] = []
        self.ended = threading.Event()
        self._wanted = threading.Event()
        self._process: Process | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Boots it, for the first time or after it was lost."""
        self._wanted.set()
        self.ended.clear()
        self._process = self._begin()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def _supervise(self) -> None:
        while self._process is not None:
            self.codes.append(code := self._process.wait())
            if code in NOT_AGAIN or not self._wanted.is_set():
                break
            time.sleep(1.0)
            if not self._wanted.is_set():
                break
            self._process = self._begin()
        self.ended.set()

    @property
    def process(self) -> Process:
        """Its launcher."""
        assert self._process is not None
        return self._process

    def workers(self) -> list[int]:
        """Processes of the trainer's."""
        return [pid for pid in self.process.children() if "trainer\0train" in _command_line(pid)]

    def lose(self) -> None:
        """Cuts its power, and waits until it is gone."""
        self._wanted.clear()
        if self._process is not None:
            self._process.lose()
            self.ended.wait()


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    except OSError:
        return ""


@dataclass
class Cluster:
    """One run of the drill. `nodes_min`: with so few the job goes on; `environments`: additions by a host's name."""

    folder: Path
    hosts: Mapping[str, Host]
    data: Path
    nodes_min: int = 2
    environments: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.run_dir, self.key = self.folder / "run", self.folder / "job.pem"
        make_key(self.key)
        self._mounted = False
        self.store: Process | None = None
        self.one, self.two = (Node(self.hosts[name], self._launcher(self.hosts[name])) for name in NODES)

    @property
    def nodes(self) -> tuple[Node, Node]:
        """Both."""
        return self.one, self.two

    def start_store(self) -> None:
        """Starts the rendezvous store on the head."""
        argv = ["-m", "gangway.trainer.launch.rendezvous", "--port", str(PORT), "--member-key", str(self.key)]
        self.store = self._process(HEAD, argv)

    def lose_store(self) -> None:
        """Ends it at once."""
        assert self.store is not None
        self.store.lose()
        self.store.wait()

    def start(self) -> None:
        """Starts everything."""
        self.start_store()
        for node in self.nodes:
            node.start()

    def _launcher(self, host: Host) -> Callable[[], Process]:
        argv = ["-m", "gangway.trainer.launch", "--hang-after", "6", "--job-dir", str(self.folder / "job")]
        argv += ["--node", host.name, "--member-key", str(self.key)]
        argv += [f"--nnodes={self.nodes_min}:2", "--nproc-per-node=1"]
        argv += ["--rdzv-backend=gangway", f"--rdzv-endpoint={self.hosts[HEAD].address}:{PORT}", "--rdzv-id=drill"]
        argv += [f"--rdzv-conf={_RENDEZVOUS}", f"--local-addr={host.address}", "--shutdown-timeout=20"]
        argv += ["-m", "gangway.trainer", "train", "--config", str(self.folder / "config.json")]
        argv += ["--run-dir", str(self.run_dir), "--data", str(self.data)]
        return lambda: self._process(host.name, argv)

    def _process(self, host: str, argv: list[str]) -> Process:
        return Process(self.hosts[host], argv, self.folder / f"{host}.log", self.environments.get(host, {}))

    def put_run_on_small_disk(self, mib: int) -> None:
        """Puts the run's folder on a separate disk (DrillError: not permitted)."""
        self.run_dir.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(self.run_dir))
        self._mounted = True

    def until(self, condition: Callable[[], bool], what: str, limit_sec: float = _LIMIT_SEC) -> None:
        """Waits until it holds (DrillError, naming `what`: it does not)."""
        deadline = time.monotonic() + limit_sec
        while not condition():
            if time.monotonic() > deadline:
                raise DrillError(f"{what}: not within {limit_sec:g} s")
            time.sleep(0.002)

    def until_ended(self, *nodes: Node) -> None:
        """Waits until the job has ended for good on these nodes, by default on all."""
        for node in nodes or self.nodes:
            self.until(node.ended.is_set, f"node {node.host.name} has ended")

    def lines(self) -> list[Line]:
        """The run's statistics so far, whole lines alone."""
        return list(read_stats_log(self.run_dir).lines)

    def images(self) -> int:
        """Images of the newest line."""
        return max((line["images"] for line in self.lines()), default=0)

    def checkpoints(self) -> list[Path]:
        """Whole ones, oldest first."""
        return sorted((self.run_dir / "checkpoints").glob("[0-9]*.pt"))

    def is_saving(self) -> bool:
        """Whether a checkpoint is being written at this moment."""
        return any((self.run_dir / "checkpoints").glob(".*.pt"))

    def get_output(self, node: Node) -> str:
        """Returns what a node has printed so far."""
        path = self.folder / f"{node.host.name}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def close(self) -> None:
        """Ends whatever still runs."""
        for node in self.nodes:
            node.lose()
        if self.store is not None:
            self.lose_store()
        if self._mounted:
            _run("umount", str(self.run_dir))
