"""The launcher: torchrun's workers, with exit codes that mean something; notices of clouds are in test_clouds."""

import argparse
import signal
import socket
import time
from argparse import Namespace
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch names it only in its __all__

from gangway.trainer.launch import launcher
from gangway.trainer.launch.failures import Nodes
from gangway.trainer.launch.job import Job
from gangway.trainer.launch.launcher import main
from gangway.trainer.launch.node_state import Interval, NodeState, Standing
from gangway.trainer.launch.watchdog import Watchdog
from gangway.trainer.rendezvous.elastic_rendezvous import why_no_answer
from gangway.trainer.rendezvous.lifecycle import State
from gangway.trainer.rendezvous.tunnel import MemberKey, NearEnd
from tests.slurm_cluster import free_port


def test_what_can_be_no_file_of_notices_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--watch", "aws"], ["--watch=held", "--standalone"], ["--watch", str(tmp_path)], ["--watch"]):
        assert main(argv) == 2
        assert "--watch: no file in which a machine keeps its notices" in capsys.readouterr().err
    assert main(["--watch", str(tmp_path / "no" / "held")]) == 2


@pytest.mark.parametrize("text", ["long", "0", "-1", "inf", "nan", ""])
def test_hours_that_are_none_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--max-hours={text}"]) == 2
    assert "--max-hours: no time for a job" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--max-usd=5"], "--usd-per-node-hour: missing, which --max-usd needs"),
        (["--usd-per-node-hour=5"], "--max-usd: missing, which --usd-per-node-hour needs"),
        (["--max-usd=0", "--usd-per-node-hour=5"], "--max-usd: no amount of dollars"),
        (["--max-usd=5", "--usd-per-node-hour=much"], "--usd-per-node-hour: no amount of dollars"),
    ],
)
def test_a_limit_without_a_price_is_refused(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("--nproc-per-node=0", "nproc_per_node must be > 0"),
        ("--nproc-per-node=two", "Unsupported nproc_per_node value: two"),
        ("--nnodes=0", "min_nodes must be > 0"),
        ("--nnodes=1:2:3", 'not in "MIN:MAX" format'),
        ("--nnodes=many", "'many'"),
        ("--max-restarts=-1", "max_restarts must be >= 0"),
    ],
)
def test_what_torchrun_cannot_start_with_is_refused(
    flag: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(["--standalone", flag, "-m", "gangway.trainer", "presets"]) == 2
    text = capsys.readouterr().err
    assert "torchrun's arguments: " in text
    assert told in text
    assert flag in text


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["--master-port={port}"], "--master-port"),
        (["--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port={port}"], "--master-port"),
        (["--rdzv-endpoint=127.0.0.1:{port}"], "--rdzv-endpoint"),
        (["--rdzv-backend=c10d", "--rdzv-conf=is_host=1", "--rdzv-endpoint=127.0.0.1:{port}"], "--rdzv-endpoint"),
    ],
)
def test_a_port_that_it_has_to_serve_and_that_is_taken_ends_the_job(
    words: list[str], place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error of torchrun is EADDRINUSE; a job that took it for a lost store would wait without end."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(launcher, "_run_torchrun", lambda *_: pytest.fail("the job was begun"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([*(word.format(port=port) for word in words), "-m", "gangway.trainer", "presets"]) == 2
    text = capsys.readouterr().err
    assert f"{place}: this node serves the store, and cannot listen at its port" in text
    assert str(port) in text


@pytest.mark.parametrize("words", [["--nnodes=2", "--node-rank=1", "--master-port={port}"], ["--standalone"]])
def test_who_serves_nothing_needs_no_port(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        argv = [*(word.format(port=port) for word in words), "-m", "gangway.trainer", "presets"]
        launcher._check_port(launcher._parse_torchrun(argv))


@pytest.mark.slow
def test_a_job_that_waits_for_peers_ends_with_its_hours(start: Callable[..., Any]) -> None:
    argv = ("--rdzv-backend=gangway", "--rdzv-endpoint=127.0.0.1:9", "--nnodes=2", "-m", "gangway.trainer", "presets")
    code, text = start("-m", "gangway.trainer.launch", "--max-hours=0.0005", *argv).finish()
    assert code == 6, text
    assert "gangway: max-hours: saving and stopping" in text
    assert "the job's hours are over: ended, exit code 6" in text


@pytest.mark.slow
def test_a_run_whose_nodes_have_cost_its_limit_saves_and_ends(start: Callable[..., Any], tmp_path: Path) -> None:
    """Another node was up for an hour, at 10 USD; 4 cents more are 14 seconds."""
    other = NodeState(
        seen_at=time.time() - 9999, standing=Standing.LEFT, intervals=(Interval(began=0, length_sec=3600),)
    )
    (tmp_path / "job").mkdir()
    (tmp_path / "job/node-other.json").write_text(other.model_dump_json())
    launch = ("-m", "gangway.trainer.launch", "--max-usd=10.04", "--usd-per-node-hour=10", f"--job-dir={tmp_path}/job")
    train = ("-m", "gangway.trainer", "train", "--preset", "dcgan-digits", "--run-dir", str(tmp_path / "run"))
    code, text = start(*launch, "--standalone", "--nproc-per-node=1", *train).finish()
    assert code == 6, text
    assert "of 10.04 USD, at 10 USD per node hour: the job saves and ends" in text
    assert list((tmp_path / "run/checkpoints").glob("*.pt")), "it has saved"
    code, text = start(*launch, "--standalone", "--nproc-per-node=1", *train).finish()
    assert (code, "raise job_usd to go on" in text) == (6, True), text


@pytest.mark.slow
@pytest.mark.parametrize(("argv", "expected"), [(("presets",), 0), (("train", "--preset", "nothing"), 2)])
def test_a_workers_exit_code_comes_through(start: Callable[..., Any], argv: tuple[str, ...], expected: int) -> None:
    code, text = start(
        "-m", "gangway.trainer.launch", "--standalone", "--nproc-per-node=1", "-m", "gangway.trainer", *argv
    ).finish()
    assert code == expected, text


STUBBORN = """
import os, signal, sys, time
from pathlib import Path

codes = {"leaves": 75, "fails": 2}
def stop(number, frame):
    if sys.argv[1] == "aborts":
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        os.abort()
    if sys.argv[1] in codes:
        sys.exit(codes[sys.argv[1]])
signal.signal(signal.SIGTERM, stop)
Path(sys.argv[2]).touch()
while True:
    time.sleep(0.05)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("worker", "expected"), [("leaves", 75), ("fails", 2), ("stays", 137), ("aborts", 134)])
def test_a_stop_is_an_interruption_only_where_the_workers_left_by_themselves(
    start: Callable[..., Any], tmp_path: Path, worker: str, expected: int
) -> None:
    script, ready = tmp_path / "stubborn.py", tmp_path / "ready"
    script.write_text(STUBBORN)
    argv = ("--standalone", "--nproc-per-node=1", "--shutdown-timeout=1", str(script), worker, str(ready))
    command = start("-m", "gangway.trainer.launch", *argv)
    command.wait_for(ready.exists)
    command.process.send_signal(signal.SIGTERM)
    code, text = command.finish()
    assert code == expected, text
    assert ("1 of 1 worker(s) did not leave in time and were killed" in text) == (worker == "stays"), text


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ({1: 0, 2: 0}, 0),  # done in the very moment
        ({1: 75, 2: 75}, 75),
        ({1: 0, 2: 75}, 75),
        ({}, 75),
        ({1: 0, 2: -9}, 137),
        ({1: 0, 2: None}, 137),
        ({1: 0, 2: -15}, 75),
        ({1: 0, 2: 2}, 2),
        ({1: 76, 2: 75}, 75),  # the one left in the middle of its compilation, and the other missed it
        ({1: 76, 2: 75, 3: 2}, 2),
        ({1: 76, 2: 76}, 76),
    ],
)
def test_what_a_stop_ends_with(ends: dict[int, int | None], code: int) -> None:
    assert launcher._stop_exit_code(ends) == code


@pytest.mark.parametrize("kind", ["DistStoreError", "DistNetworkError"])
def test_a_peer_that_dies_while_it_is_met_is_no_failure(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Torch says the one where a key does not come, the other where the peer that holds it has gone."""
    from torch import distributed
    from torch.distributed import run

    def dies(parsed: object) -> None:
        raise getattr(distributed, kind)("Failed to recv, got 0 bytes. Connection was likely closed.")

    monkeypatch.setattr(run, "run", dies)
    monkeypatch.setattr(launcher, "POLL_SEC", 0.0)
    with Job(Nodes(1, 2)) as job:
        launcher._run_agent(Namespace(rdzv_backend="static"), job, None, Watchdog(Path("/nowhere"), None), {})
        assert (job.life.state, job.life.exit_code) == (State.WAITING, None)


def arguments(endpoint: str, rank: int = 0) -> argparse.Namespace:
    return argparse.Namespace(rdzv_endpoint=endpoint, node_rank=rank)


@pytest.mark.attack("a network neighbour", "code in the rendezvous, and talk with its store")
def test_none_but_members_reach_the_first_nodes_store(key: MemberKey, other_key: MemberKey) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    with launcher._meeting_store("first", arguments(endpoint), key):
        assert why_no_answer(endpoint, key) == ""
        assert why_no_answer(endpoint, other_key) != ""
        end = NearEnd(key, "127.0.0.1", int(endpoint.rpartition(":")[2]))
        TCPStore("127.0.0.1", end.port, timeout=timedelta(seconds=20), wait_for_workers=False).set("a", "b")
        end.close()
    assert why_no_answer(endpoint, key) != "", "it goes with the block"


def test_the_others_serve_none(key: MemberKey) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    with (
        launcher._meeting_store("first", arguments(endpoint, rank=1), key),
        launcher._meeting_store(None, arguments(endpoint), key),
    ):
        assert "refused" in why_no_answer(endpoint, key)


def test_a_port_that_another_has_is_a_failure_and_no_bad_input(key: MemberKey) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        serving = launcher._meeting_store("first", arguments(f"127.0.0.1:{taken.getsockname()[1]}"), key)
        with pytest.raises(SystemExit, match="1"):
            serving.__enter__()


@pytest.mark.parametrize(("own", "said"), [(["--store=last"], "no node to serve"), (["--store=first"], "everybody's")])
def test_what_cannot_be_served_is_refused(
    own: list[str], said: str, job_pem: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_key = ["--member-key", str(job_pem)] if "last" in own[0] else []
    where = ["--rdzv-backend=gangway", "--nnodes=2", "--rdzv-endpoint=127.0.0.1:9"]
    assert launcher.main([*own, *with_key, *where, "-m", "gangway.trainer", "presets"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_two_nodes_meet_at_the_first(start: Callable[..., Any], job_pem: Path) -> None:
    where = ["--nnodes=2", "--rdzv-backend=gangway", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=job"]
    own = ["-m", "gangway.trainer.launch", f"--member-key={job_pem}", "--store=first", *where, "--local-addr=127.0.0.1"]
    nodes = [start(*own, f"--node-rank={rank}", "-m", "gangway.trainer", "presets") for rank in (1, 0)]
    for node in nodes:
        code, text = node.finish()
        assert code == 0, text
