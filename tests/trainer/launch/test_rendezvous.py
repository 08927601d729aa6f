"""The store off the workers: a real one, real nodes that join and leave it, and the kernel's table of who is there."""

import json
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.launch import rendezvous
from gangway.trainer.launch.rendezvous import _find_fault, _listen, connected_hosts
from gangway.trainer.rendezvous.elastic_rendezvous import ElasticRendezvous, wait_for_store, why_no_answer

# Lines as in proc(5): local address, remote address, state (01 established, 0A listening).
TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:72D8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:72D8 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 2
   2: 0B002A0A:72D8 0C002A0A:9C41 01 00000000:00000000 00:00000000 00000000     0        0 3
   3: 0B002A0A:72D8 0C002A0A:9C42 01 00000000:00000000 00:00000000 00000000     0        0 4
   4: 0B002A0A:0016 0D002A0A:9C43 01 00000000:00000000 00:00000000 00000000     0        0 5
   5: 0B002A0A:72D8 0E002A0A:9C44 06 00000000:00000000 00:00000000 00000000     0        0 6
"""
TCP6 = """  sl  local_address                         remote_address                        st
   0: 0000000000000000FFFF00000B002A0A:72D8 0000000000000000FFFF00000F002A0A:9C45 01
   1: B80D0120000000000000000001000000:72D8 B80D0120000000000000000002000000:9C46 01
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the example was taken on a little-endian machine")
def test_the_kernel_says_which_hosts_are_connected() -> None:
    assert connected_hosts([TCP, TCP6], 29400) == {"10.42.0.12", "10.42.0.15", "2001:db8::2"}
    assert connected_hosts([TCP], 22) == {"10.42.0.13"}
    assert connected_hosts([], 29400) == set()


def test_a_worker_on_the_stores_own_machine_is_seen_beside_its_client() -> None:
    own = TCP.splitlines(keepends=True)
    assert connected_hosts(["".join([*own[:3], own[2]])], 29400) == {"127.0.0.1"}
    assert connected_hosts(["".join(own[:3])], 29400) == set()


def test_a_taken_port_is_told_with_the_way_out() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TrainerError, match=rf"--port: cannot listen there: Address already in use[\s\S]*:{port}'"):
            _listen(port)
    with pytest.raises(TrainerError, match="--port: not a port"):
        _listen(70000)


def test_an_address_of_another_machine_is_told() -> None:
    for address in ("192.0.2.1", "2001:db8::1", "no such name"):
        with pytest.raises(TrainerError, match=r"--bind: no address of this machine[\s\S]*leave it out"):
            _listen(0, address)
    with _listen(0, "127.0.0.2") as listening:
        assert listening.getsockname()[0] == "127.0.0.2"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bind", "with_key", "warned"), [("", False, True), ("", True, False), ("127.0.0.2", False, False)]
)
def test_a_store_that_anybody_may_write_to_says_so(
    start: Callable[..., Any], job_pem: Path, bind: str, *, with_key: bool, warned: bool
) -> None:
    argv = ["--bind", bind] if bind else []
    argv += ["--member-key", str(job_pem)] if with_key else []
    store = start("-m", "gangway.trainer.launch.rendezvous", "--port", "0", "--health-sec", "1", *argv)
    store.wait_for(lambda: "healthy" in store.printed())
    store.process.send_signal(signal.SIGTERM)
    code, text = store.finish()
    assert code == 0, text
    assert ("without --member-key whoever reaches the port is a member of its jobs" in text) is warned, text
    assert "joined" not in text, "its own client is no host"
    assert "healthy: 0 host(s)" in text


@pytest.mark.parametrize(
    ("answers", "code", "told"),
    [
        (["reset", "reset", "", "reset", "reset", "", ""], 0, "crowded"),
        (["reset", "reset", "reset"], 1, "sick: reset"),
    ],
)
def test_a_crowd_at_the_door_ends_no_store_that_is_well(
    answers: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Store:
        def set(self, key: str, value: str) -> None:
            self.kept = value.encode()

        def get(self, key: str) -> bytes:
            return self.kept

        def num_keys(self) -> int:
            return 1

    stop, left = threading.Event(), list(answers)

    def refused() -> str:
        answer = left.pop(0)
        if not left and code == 0:
            stop.set()
        return answer

    monkeypatch.setattr(rendezvous, "_LOOK_SEC", 0.0)
    served = rendezvous._RunningStore(Store(), 29400, set, refused)  # type: ignore[arg-type]
    assert rendezvous._serve(served, 0.0, stop) == code
    assert told in capsys.readouterr().out
    assert left == []


def test_a_store_that_does_not_answer_is_sick() -> None:
    class Sick:
        def set(self, key: str, value: str) -> None:
            raise RuntimeError("connection reset\nlong trace")

    class Forgetful:
        def set(self, key: str, value: str) -> None:
            """Forgets."""

        def get(self, key: str) -> bytes:
            return b""

    assert _find_fault(Sick()) == "connection reset"  # type: ignore[arg-type]  # a fake
    assert _find_fault(Forgetful()) == "it gives back another value"  # type: ignore[arg-type]  # a fake


def test_a_store_that_never_comes_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        wait_for_store(f"127.0.0.1:{port}")
    assert why_no_answer(f"127.0.0.1:{port}")


def test_who_never_joined_cannot_leave() -> None:
    assert not ElasticRendezvous(lambda event: None, lambda: False).leave()


def events(run_dir: Path) -> list[dict[str, Any]]:
    path = run_dir / "stats.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if "event" in line]


@pytest.mark.slow
@pytest.mark.parametrize("with_key", [False, True])
def test_one_node_leaves_the_other_goes_on_and_the_job_can_be_started_again(
    start: Callable[..., Any],
    tiny_config: TrainConfig,
    digits_dir: Path,
    tmp_path: Path,
    job_pem: Path,
    *,
    with_key: bool,
) -> None:
    own = ["--member-key", str(job_pem)] if with_key else []
    store = start("-m", "gangway.trainer.launch.rendezvous", "--port", "0", "--health-sec", "1", *own)
    log = tmp_path / "command-0.log"
    store.wait_for(lambda: "serving on port" in log.read_text())
    port = re.findall(r"serving on port (\d+)", log.read_text())[0]
    run_dir, config = tmp_path / "run", tmp_path / "config.json"
    config.write_text(tiny_config.replace({"kimg": 12, "stats_kimg": 0.5, "sample_kimg": 100}).to_json())

    def node() -> Any:
        where = ["--nnodes=1:2", "--rdzv-backend=gangway", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=job"]
        where += ["--rdzv-conf=is_host=0,last_call_timeout=3,keep_alive_interval=3", "--nproc-per-node=1"]
        where += ["--max-restarts=3", "-m", "gangway.trainer", "train", "--config", str(config), "--backend", "gloo"]
        return start("-m", "gangway.trainer.launch", *own, *where, "--run-dir", str(run_dir), "--data", str(digits_dir))

    leaving, staying = node(), node()
    leaving.wait_for(lambda: any(event["event"] == "start" for event in events(run_dir)))
    leaving.process.send_signal(signal.SIGTERM)
    assert leaving.finish()[0] == 75
    code, text = staying.finish()
    assert code == 0, text
    assert "the workers have ended, and the nodes meet again: waiting for peers" in text
    sizes = [event["world_size"] for event in events(run_dir) if event["event"] in ("start", "resume")]
    assert sizes == [2, 1]
    assert [event["event"] for event in events(run_dir) if event["event"] in ("interrupt", "done")] == [
        "interrupt", "done",
    ]  # fmt: skip
    # A node that ends leaves the rendezvous, and does not close it for ever.
    code, text = node().finish()
    assert (code, "done already" in text) == (0, True), text
    store.process.send_signal(signal.SIGTERM)
    code, text = store.finish()
    assert code == 0
    assert re.search(r"127.0.0.1 joined, 1 host\(s\) connected", text)
    assert re.search(r"healthy: \d host\(s\), \d+ keys", text)
    assert text.endswith("rendezvous: stopped\n")
