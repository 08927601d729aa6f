"""The store in which a round's workers meet: on the loopback, with an authenticating front door for other nodes."""

import socket
import weakref
from datetime import timedelta
from typing import TYPE_CHECKING

from gangway.trainer.rendezvous.member_key import MemberKey
from gangway.trainer.rendezvous.tunnel import LOOPBACK, FrontDoor, listen_everywhere

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch names it only in its __all__

_TIMEOUT = timedelta(seconds=300)
"""torch's own."""


def loopback_store(timeout: timedelta = _TIMEOUT) -> "TCPStore":
    """A store served by this process at a free port of the loopback."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # as above

    listening = socket.create_server((LOOPBACK, 0), backlog=1024)
    return TCPStore(
        LOOPBACK,
        listening.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        multi_tenant=True,
        timeout=timeout,
        master_listen_fd=listening.detach(),
    )


def keyed_store(
    key: MemberKey, listening: socket.socket, timeout: timedelta = _TIMEOUT
) -> tuple["TCPStore", FrontDoor]:
    """A store on the loopback and its authenticating front door at `listening`."""
    store = loopback_store(timeout)
    return store, FrontDoor(key, listening, store.port)


class WorkersStore:
    """The workers' store of one round, until the last reference; `port` is the front door's for other nodes."""

    def __init__(self, key: MemberKey | None) -> None:
        self._store = loopback_store()
        self.inner_port = self.port = self._store.port
        if key is not None:
            door = FrontDoor(key, listen_everywhere(), self.inner_port)
            self.port = door.port
            weakref.finalize(self, door.close)
