"""The store of a round's workers: for this machine, and for none elsewhere but those with the job's key."""

import socket
from contextlib import closing
from datetime import timedelta

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch names it only in its __all__

from gangway.trainer.rendezvous.member_key import MemberKey
from gangway.trainer.rendezvous.tunnel import LOOPBACK, NearEnd
from gangway.trainer.rendezvous.workers_store import WorkersStore, loopback_store


def client(port: int, timeout_sec: float = 20.0) -> TCPStore:
    return TCPStore(LOOPBACK, port, timeout=timedelta(seconds=timeout_sec), wait_for_workers=False)


def answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_store_of_the_loopback_is_at_no_other_address() -> None:
    store = loopback_store()
    assert answers(LOOPBACK, store.port)
    assert not answers("127.0.0.2", store.port), "which a store on all interfaces would answer at"


def test_without_a_key_the_workers_store_is_this_machines() -> None:
    served = WorkersStore(None)
    assert served.port == served.inner_port
    assert not answers("127.0.0.2", served.port)
    client(served.inner_port).set("a", "b")


@pytest.mark.attack("a network neighbour", "a way through the front door without the member key")
def test_workers_here_and_elsewhere_find_each_other_and_a_stranger_does_not(key: MemberKey) -> None:
    served = WorkersStore(key)
    assert answers("127.0.0.2", served.port)
    assert not answers("127.0.0.2", served.inner_port)
    here = client(served.inner_port)
    with closing(NearEnd(key, LOOPBACK, served.port)) as end:
        there = client(end.port)
        there.set("a", "b")
        assert here.get("a") == b"b"
        with pytest.raises(RuntimeError):
            client(served.port, 1.0)
    ports = served.port, served.inner_port
    del here, there, served
    assert [answers(LOOPBACK, port) for port in ports] == [False, False], "it closes with the last reference"
