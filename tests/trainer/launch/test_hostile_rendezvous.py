"""Whoever reaches the rendezvous without the job's key: no code of his runs anywhere, nothing of the meeting changes,
and a job that trains meanwhile does not notice.
"""

import base64
import pickle
import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch names it only in its __all__

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.rendezvous.tunnel import MemberKey, NearEnd
from tests.hostile import Attack

pytestmark = pytest.mark.attack("a network neighbour", "code in the rendezvous, and talk with its store")

KEY = "torch.rendezvous.job"
IDLE = 200
"""Connections of a stranger who says nothing, at once."""
WAITS = """
import os, sys, time
from pathlib import Path
from torch import distributed as dist

dist.init_process_group("gloo")
Path(sys.argv[1]).write_text(os.environ["MASTER_ADDR"])
while not Path(sys.argv[2]).exists():
    time.sleep(0.05)
dist.destroy_process_group()
"""
HELD = """
import sys, time
from pathlib import Path
from gangway.trainer.run import loop
from gangway.trainer.__main__ import run

batch_of, go = loop.Batch, Path(sys.argv.pop(1))

def held(config, world, data, *more):
    batch = batch_of(config, world, data, *more)
    reals = batch.reals
    def waiting(images):
        while images == 1600 and not world.agree(go.exists()):
            time.sleep(0.05)
        return reals(images)
    batch.reals = waiting
    return batch

loop.Batch = held
run(sys.argv[1:])
"""


def serve(start: Callable[..., Any], folder: Path, *argv: str) -> tuple[Any, int]:
    store = start("-m", "gangway.trainer.launch.rendezvous", "--port", "0", "--health-sec", "1", *argv)
    store.wait_for(lambda: "serving on port" in store.printed())
    return store, int(re.findall(r"serving on port (\d+)", store.printed())[0])


def client(port: int, timeout_sec: float = 20.0) -> TCPStore:
    return TCPStore("127.0.0.1", port, timeout=timedelta(seconds=timeout_sec), wait_for_workers=False)


def node(start: Callable[..., Any], port: int, nodes: str, *argv: str) -> Any:
    where = [f"--nnodes={nodes}", "--rdzv-backend=gangway", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=job"]
    where += ["--rdzv-conf=last_call_timeout=2,keep_alive_interval=2", "--local-addr=127.0.0.1", "--nproc-per-node=1"]
    own = argv[: argv.index("--")]
    return start("-m", "gangway.trainer.launch", *own, *where, *argv[len(own) + 1 :], PYTHONPATH=str(Path.cwd()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"pickle", id="pickle"),
        # test_elastic_rendezvous has their like without processes.
        pytest.param(b"[" * 100_000, id="deep", marks=pytest.mark.slow),
        pytest.param(b"{}", id="no state", marks=pytest.mark.slow),
        pytest.param(b"\xff", id="no text", marks=pytest.mark.slow),
    ],
)
def test_what_stands_in_an_open_store_runs_no_code(value: bytes, start: Callable[..., Any], tmp_path: Path) -> None:
    """The old attack: torchrun unpickles what whoever reaches the port has written."""
    _, port = serve(start, tmp_path, "--bind", "127.0.0.1")
    hostile = pickle.dumps(Attack(tmp_path / "run")) if value == b"pickle" else value
    store = client(port)
    store.set(KEY, base64.b64encode(hostile).decode())
    command = node(start, port, "1:1", "--", "-m", "gangway.trainer", "presets")
    command.wait_for(lambda: "no rendezvous store to meet at: waiting for peers" in command.printed())
    assert not (tmp_path / "run").exists()
    # Nor is it the end: once a state can stand there, the node meets.
    assert store.delete_key(KEY)
    code, text = command.finish()
    assert code == 0, text
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_stranger_cannot_speak_to_the_store(
    start: Callable[..., Any], tmp_path: Path, job_pem: Path, key: MemberKey, other_key: MemberKey
) -> None:
    _, port = serve(start, tmp_path, "--member-key", str(job_pem))
    with pytest.raises(RuntimeError):
        client(port, 2.0)
    ends = NearEnd(key, "127.0.0.1", port), NearEnd(other_key, "127.0.0.1", port)
    try:
        member = client(ends[0].port)
        member.set("a", "b")
        with pytest.raises(RuntimeError):
            client(ends[1].port, 2.0)
        assert member.get("a") == b"b"
    finally:
        for end in ends:
            end.close()


class Stranger:
    """Tries all there is at `ports`, over and over, and counts: `tried`, and how often he was let in."""

    def __init__(self, *ports: int) -> None:
        self.ports, self.tried, self.let_in = list(ports), Counter[int](), Counter[str]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._knock)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _knock(self) -> None:
        while not self._stop.wait(0.2):
            for port in self.ports:
                with suppress(ConnectionError), ExitStack() as stack:  # the workers' has gone when they are done
                    for _ in range(IDLE):
                        self._line(stack, port)
                    self._try(port)
                    self.tried[port] += 1

    def _line(self, stack: ExitStack, port: int) -> socket.socket:
        return stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))

    def _try(self, port: int) -> None:
        with suppress(RuntimeError):
            client(port, 1.0)
            self.let_in["store"] += 1
        for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode, context.maximum_version = False, ssl.CERT_NONE, newest
            with suppress(OSError), ExitStack() as stack:
                sealed = stack.enter_context(context.wrap_socket(self._line(stack, port)))
                self.let_in[newest.name] += bool(sealed.recv(1))
        for content in (b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 20):
            with suppress(OSError), ExitStack() as stack:
                line = self._line(stack, port)
                line.sendall(content)
                # An alert of TLS is all there is to hear.
                self.let_in["plain"] += line.recv(100)[:1] not in (b"", b"\x15")


def open_ports(command: Any) -> set[int]:
    """Ports at which a command's own process listens for others than this machine."""
    found = psutil.Process(command.process.pid).net_connections("tcp")
    return {
        each.laddr.port for each in found if each.status == psutil.CONN_LISTEN and not each.laddr.ip.startswith("127.")
    }


@pytest.mark.slow
def test_a_job_of_two_nodes_trains_while_strangers_knock(
    start: Callable[..., Any], tiny_config: TrainConfig, digits_dir: Path, tmp_path: Path, job_pem: Path, key: MemberKey
) -> None:
    store, port = serve(start, tmp_path, "--member-key", str(job_pem))
    config, run_dir = tmp_path / "config.json", tmp_path / "run"
    config.write_text(tiny_config.replace({"kimg": 3.2, "stats_kimg": 0.16, "sample_kimg": 100}).to_json())
    (tmp_path / "held.py").write_text(HELD)
    train = [
        str(tmp_path / "held.py"),
        str(tmp_path / "go"),
        "train",
        "--config",
        str(config),
        "--backend",
        "gloo",
        "--run-dir",
        str(run_dir),
    ]
    own = ("--member-key", str(job_pem), "--")
    with Stranger(port) as stranger:
        both = [node(start, port, "2:2", *own, *train, "--data", str(digits_dir)) for _ in range(2)]
        both[0].wait_for(lambda: (run_dir / "stats.jsonl").exists())
        (workers_store,) = open_ports(both[0]) | open_ports(both[1])
        stranger.ports.append(workers_store)
        both[0].wait_for(lambda: stranger.tried[workers_store] > 1)
        (tmp_path / "go").touch()
        for command in both:
            code, text = command.finish()
            assert code == 0, text
            assert "whoever reaches" not in text
    assert open_ports(store) == {port}
    assert stranger.tried[port] > 1
    assert not +stranger.let_in
    assert "127.0.0.1 joined, 1 host(s) connected" in store.printed()
    assert "sick" not in store.printed()


@pytest.mark.slow
def test_a_job_of_one_node_listens_to_this_machine_alone(torchrun: Callable[..., Any], tmp_path: Path) -> None:
    script, ready, go = tmp_path / "worker.py", tmp_path / "ready", tmp_path / "go"
    script.write_text(WAITS)
    command = torchrun(str(script), str(ready), str(go), workers=1)
    command.wait_for(ready.exists)
    assert open_ports(command) == set()
    assert ready.read_text() == "127.0.0.1"
    go.touch()
    code, text = command.finish()
    assert code == 0, text
