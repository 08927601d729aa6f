"""The store in which a job's nodes meet, in its own process, so that it survives every worker.

    python -m gangway.trainer.launch.rendezvous --port 29400 --member-key job.pem

Without a key, any host that reaches the port is a member of its jobs. Workers join with `gangway.trainer.launch
--rdzv-backend=gangway --rdzv-endpoint=HOST:29400 --rdzv-conf=is_host=0`. Exit codes: 0 after SIGTERM, 1 sick (its
service manager restarts it), 2 bad input.
"""

import errno
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from gangway.trainer.config.arguments import Parser
from gangway.trainer.core.console import info, refuse, warn
from gangway.trainer.core.errors import EXIT_BAD_INPUT, EXIT_FAILED, TrainerError
from gangway.trainer.rendezvous.tunnel import (
    KEY_FLAG,
    LOOPBACK,
    MemberKey,
    keyed_store,
    listen_everywhere,
    serve_store,
    why_refused,
)

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch names it only in its __all__

_ESTABLISHED = "01"
_SOCKET_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_HEALTH_KEY = "gangway/health"
_STORE_TIMEOUT = timedelta(seconds=10)
_LOOK_SEC = 1.0
_MAX_REFUSALS = 3
"""Health checks in a row in which the front door refuses a connection: fewer mean a busy door and a healthy store."""
_LAST_PORT = 65535
_ALLOWED = f"a free port, 1 to {_LAST_PORT}"


def main(argv: Sequence[str]) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code."""
    parser = Parser(
        prog="python -m gangway.trainer.launch.rendezvous", description="Holds the store in which a job's nodes meet."
    )
    parser.add_argument("--port", type=int, default=29400, help="to listen on [29400]; 0 for any")
    parser.add_argument("--bind", default="", metavar="ADDRESS", help="of the interface to listen on [all of them]")
    parser.add_argument(KEY_FLAG, type=Path, metavar="FILE", help="a PEM file: none but who has it may connect")
    parser.add_argument("--health-sec", type=float, default=60.0, help="seconds between two health lines [60]")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        arguments = parser.parse_args(argv)
        key = MemberKey.read(arguments.member_key) if arguments.member_key else None
        listener = _listen(arguments.port, arguments.bind)
    except TrainerError as error:
        refuse(error)
        return EXIT_BAD_INPUT
    if key is None and not ip_address(listener.getsockname()[0]).is_loopback:
        warn(f"rendezvous: warning: without {KEY_FLAG} whoever reaches the port is a member of its jobs")
    return _serve(_open_store(key, listener), arguments.health_sec, stop)


def _listen(port: int, address: str = "") -> socket.socket:
    if not 0 <= port <= _LAST_PORT:
        raise TrainerError(place="--port", problem="not a port", value=port, allowed=_ALLOWED, fix="--port 29400")
    try:
        return listen_everywhere(port, address)
    except OSError as error:
        # Below 0: an error of name resolution.
        if error.errno is None or error.errno < 0 or error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise TrainerError(
                place="--bind",
                problem="no address of this machine",
                value=address,
                allowed="an IP address of one of its interfaces",
                fix="leave it out to listen on all",
            ) from None
        reason = os.strerror(error.errno) if error.errno else error
        raise TrainerError(
            place="--port",
            problem=f"cannot listen there: {reason}",
            value=port,
            allowed=_ALLOWED,
            fix=f"end the process that holds it (ss -ltnp 'sport = :{port}'), or take another port here and in the "
            "workers' --rdzv-endpoint",
        ) from None


@dataclass(frozen=True)
class _RunningStore:
    """`hosts` returns the connected ones; `refused`, why a node cannot connect, or an empty string."""

    store: "TCPStore"
    port: int
    hosts: Callable[[], set[str]]
    refused: Callable[[], str]


def _open_store(key: MemberKey | None, listener: socket.socket) -> _RunningStore:
    own, port = _own_name(listener), listener.getsockname()[1]
    if key is not None:
        store, door = keyed_store(key, listener, _STORE_TIMEOUT)
        return _RunningStore(store, port, door.hosts, lambda: why_refused(key, own, port))

    def hosts() -> set[str]:
        return connected_hosts([path.read_text() for path in _SOCKET_TABLES if path.exists()], port, own)

    return _RunningStore(serve_store(listener, own, _STORE_TIMEOUT), port, hosts, lambda: "")


def _own_name(listener: socket.socket) -> str:
    address: str = listener.getsockname()[0]
    return LOOPBACK if ip_address(address).is_unspecified else address


def _serve(served: _RunningStore, health_sec: float, stop: threading.Event) -> int:
    began = reported_at = time.monotonic()
    hosts: set[str] = set()
    refusals = 0
    _say(f"serving on port {served.port}")
    while not stop.wait(_LOOK_SEC):
        now = served.hosts()
        for sentence in [
            *(f"{host} joined" for host in sorted(now - hosts)),
            *(f"{host} left" for host in sorted(hosts - now)),
        ]:
            _say(f"{sentence}, {len(now)} host(s) connected")
        hosts = now
        if time.monotonic() - reported_at >= health_sec:
            reported_at = time.monotonic()
            refused = served.refused()
            refusals = refusals + 1 if refused else 0
            if (fault := _find_fault(served.store)) or refusals >= _MAX_REFUSALS:
                _say(f"sick: {fault or refused}")
                return EXIT_FAILED
            if refused:
                _say(f"crowded: a connection of this machine's own was not taken: {refused}")
                continue
            _say(f"healthy: {len(hosts)} host(s), {served.store.num_keys()} keys, up {reported_at - began:.0f} s")
    _say("stopped")
    return 0


def _find_fault(store: "TCPStore") -> str:
    try:
        store.set(_HEALTH_KEY, "well")
        return "" if store.get(_HEALTH_KEY) == b"well" else "it gives back another value"
    except Exception as error:  # torch has several, and any of them means the same here
        return str(error).partition("\n")[0]


def connected_hosts(tables: Iterable[str], port: int, own: str = LOOPBACK) -> set[str]:
    """Returns the hosts connected to a local port, by tables as in /proc/net/tcp, but the store's own client."""
    hosts: dict[str, int] = {}
    for row in (line.split() for table in tables for line in table.splitlines()[1:]):
        local, remote, state = row[1:4]
        if state == _ESTABLISHED and int(local.rpartition(":")[2], 16) == port:
            host = _address(remote.rpartition(":")[0])
            hosts[host] = hosts.get(host, 0) + 1
    # The store's own client is one connection from this machine.
    return {host for host, count in hosts.items() if host not in (LOOPBACK, "::1", own) or count > 1}


def _address(text: str) -> str:
    numbers = [int(text[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(text), 8)]
    if len(numbers) == 1:
        return str(IPv4Address(numbers[0]))
    address = IPv6Address(b"".join(numbers))
    return str(address.ipv4_mapped or address)


def _say(sentence: str) -> None:
    info(f"rendezvous: {sentence}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
