"""`--store first`: of nodes without a head the first one serves the store, to who has the job's key alone."""

import argparse
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch names it only in its __all__

from gangway.trainer.launch import launcher
from gangway.trainer.rendezvous.elastic_rendezvous import why_no_answer
from gangway.trainer.rendezvous.member_key import MemberKey
from gangway.trainer.rendezvous.tunnel import NearEnd
from tests.slurm_cluster import free_port


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
