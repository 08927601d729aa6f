"""The store in which a job's nodes meet, in a process that no worker's end can take with it.

    python -m trainer.launch.rendezvous --port 29400

Workers join by `trainer.launch --rdzv-backend=gangway --rdzv-endpoint=HOST:29400 --rdzv-conf=is_host=0` and may come
and go; jobs may share it under different `--rdzv-id`. It prints hosts that connect or leave, and a health line every
minute. Exit codes: 0 after SIGTERM, 1 sick (it does not answer itself; its service manager restarts it), 2 bad input.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.commands.arguments import Parser
from trainer.core.console import info, warn
from trainer.core.errors import EXIT_BAD_INPUT, EXIT_FAILED, TrainerError

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch names it only in its __all__

_ESTABLISHED = "01"
_HEALTH_KEY = "gangway/health"
_STORE_TIMEOUT = timedelta(seconds=10)
_LOOK_SEC = 1.0
_LAST_PORT = 65535
_ALLOWED = f"a free port, 1 to {_LAST_PORT}"


def main(argv: Sequence[str]) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code."""
    parser = Parser(
        prog="python -m trainer.launch.rendezvous", description="Holds the store in which a job's nodes meet."
    )
    parser.add_argument("--port", type=int, default=29400, help="to listen on, all interfaces [29400]; 0 for any")
    parser.add_argument("--health-sec", type=float, default=60.0, help="seconds between two health lines [60]")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        arguments = parser.parse_args(argv)
        listening = _listen(arguments.port)
    except TrainerError as error:
        warn(str(error))
        return EXIT_BAD_INPUT
    return _serve(listening, arguments.health_sec, stop)


def _listen(port: int) -> socket.socket:
    """A listening socket, dual-stack where this machine has IPv6 (TrainerError: no port, or one in use)."""
    if not 0 <= port <= _LAST_PORT:
        raise TrainerError(place="--port", problem="not a port", value=port, allowed=_ALLOWED, fix="--port 29400")
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
        return socket.create_server(("", port), backlog=1024)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise TrainerError(
            place="--port",
            problem=f"cannot listen there: {reason}",
            value=port,
            allowed=_ALLOWED,
            fix=f"end the process that holds it (ss -ltnp 'sport = :{port}'), or take another port here and in the "
            "workers' --rdzv-endpoint",
        ) from None


def _serve(listening: socket.socket, health_sec: float, stop: threading.Event) -> int:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # as above

    port: int = listening.getsockname()[1]
    # The store takes the socket over, so that no one can come between the check of the port and its use.
    store = TCPStore(
        "localhost",
        port,
        is_master=True,
        wait_for_workers=False,
        multi_tenant=True,
        timeout=_STORE_TIMEOUT,
        master_listen_fd=listening.detach(),
    )
    began = reported_at = time.monotonic()
    hosts: set[str] = set()
    _say(f"serving on port {port}")
    while not stop.wait(_LOOK_SEC):
        now = connected_hosts(_socket_tables(), port)
        for sentence in [
            *(f"{host} joined" for host in sorted(now - hosts)),
            *(f"{host} left" for host in sorted(hosts - now)),
        ]:
            _say(f"{sentence}, {len(now)} host(s) connected")
        hosts = now
        if time.monotonic() - reported_at >= health_sec:
            reported_at = time.monotonic()
            if trouble := _trouble(store):
                _say(f"sick: {trouble}")
                return EXIT_FAILED
            _say(f"healthy: {len(hosts)} host(s), {store.num_keys()} keys, up {reported_at - began:.0f} s")
    _say("stopped")
    return 0


def _trouble(store: "TCPStore") -> str:
    """Why the store does not give back what was put into it; empty when it does."""
    try:
        store.set(_HEALTH_KEY, "well")
        return "" if store.get(_HEALTH_KEY) == b"well" else "it gives back another value"
    except Exception as error:  # torch has several, and any of them means the same here
        return str(error).partition("\n")[0]


def _socket_tables() -> list[str]:
    """The kernel's tables of TCP sockets; none where there is no /proc, and then nobody is seen to join."""
    paths = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    return [path.read_text() for path in paths if path.exists()]


def connected_hosts(tables: Iterable[str], port: int) -> set[str]:
    """Addresses of the hosts with an established connection to that local port, our own client's left out. `tables` are
    texts in the format of /proc/net/tcp and /proc/net/tcp6 (proc(5)).
    """
    hosts: dict[str, int] = {}
    for row in (line.split() for table in tables for line in table.splitlines()[1:]):
        local, remote, state = row[1:4]
        if state == _ESTABLISHED and int(local.rpartition(":")[2], 16) == port:
            host = _address(remote.rpartition(":")[0])
            hosts[host] = hosts.get(host, 0) + 1
    # The store's own client is one connection from this machine.
    return {host for host, count in hosts.items() if host not in ("127.0.0.1", "::1") or count > 1}


def _address(text: str) -> str:
    """The kernel writes an address as 32-bit words in the machine's byte order."""
    numbers = [int(text[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(text), 8)]
    if len(numbers) == 1:
        return str(IPv4Address(numbers[0]))
    address = IPv6Address(b"".join(numbers))
    return str(address.ipv4_mapped or address)


def _say(sentence: str) -> None:
    info(f"rendezvous: {sentence}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
