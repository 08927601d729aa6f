"""Connections that none but the job's nodes can make: a front door takes them by mutual TLS and hands them on to a port
of the loopback, a near end takes them on the loopback and hands them on to a front door elsewhere.

What lies behind a front door has no authentication of its own, as torch's TCPStore. Each end is an event loop in a
thread: a peer that is slow, silent or hostile keeps nobody else.
"""

import asyncio
import random
import socket
import ssl
import threading
from collections import Counter
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

from trainer.rendezvous.member_key import FLAG, MemberKey

LOOPBACK = "127.0.0.1"
HANDSHAKE_SEC = 5.0
MAX_STRANGERS = 512
"""Connections at once that have not shown the job's certificate yet: all nodes of a large job come in one moment."""
MAX_OF_ADDRESS = 32
"""Of these from one address: a node has a worker for each GPU."""
_WELCOME = b"\x01"
"""What a front door says first, once it has seen the certificate and reached what it is for: by TLS 1.3 alone a client
does not hear whether its certificate was taken."""
_CHUNK = 1 << 16
_CLOSE_SEC = 5.0
_KEEPALIVE = (("TCP_KEEPIDLE", 300), ("TCP_KEEPINTVL", 60), ("TCP_KEEPCNT", 10))
"""A host that is gone is let go, no sooner than workers give a network up (COLLECTIVE_SEC). Names of Linux's."""


class _Plain:
    """A connection of the loopback."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, most: int = _CHUNK) -> bytes:
        """Some bytes; none at the end."""
        return await self._reader.read(most)

    async def write(self, content: bytes) -> None:
        """Returns when there is room for more."""
        self._writer.write(content)
        await self._writer.drain()

    async def end(self) -> None:
        """Says that no more is written; reading goes on."""
        self._writer.write_eof()

    def close(self, *, at_once: bool = False) -> None:
        """What is under way still arrives, unless `at_once`."""
        if at_once:
            self._writer.transport.abort()
        else:
            self._writer.close()


class _Sealed(_Plain):
    """TLS over a connection of the network. asyncio's own has no half-closed connections, and takes a stranger in
    before anybody could count it.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: MemberKey, *, server: bool
    ) -> None:
        super().__init__(reader, writer)
        self._key = key
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = key.server if server else key.client
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)
        line: socket.socket = writer.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    async def shake_hands(self) -> None:
        """OSError: the other side has not the job's key, or has gone."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
            except ssl.SSLError:
                await self._flush()  # tells the other side why
                raise
        await self._flush()
        self._key.check(self._tls.getpeercert(binary_form=True))

    async def read(self, most: int = _CHUNK) -> bytes:
        """OSError: cut off without a word, as where the other side's process was killed."""
        while True:
            try:
                return self._tls.read(most)
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLWantReadError:
                await self._receive()

    async def write(self, content: bytes) -> None:
        self._tls.write(content)
        await self._flush()

    async def end(self) -> None:
        unread = self._incoming.read()  # or unwrap would look in it for the other side's end, and lose what it finds
        with suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        self._incoming.write(unread)
        await self._flush()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await super().write(self._outgoing.read())

    async def _receive(self) -> None:
        content = await super().read()
        if not content:
            raise ConnectionResetError("cut off")
        self._incoming.write(content)


async def _join(one: _Plain, other: _Plain, first: bytes = b"") -> None:
    """Hands on what either says until both have ended, after `first` for `one` (OSError: one broke, and so does the
    other).
    """

    async def hand_on(source: _Plain, target: _Plain) -> None:
        while content := await source.read():
            await target.write(content)
        await target.end()

    whole = False
    try:
        if first:
            await one.write(first)
        async with asyncio.TaskGroup() as both:
            both.create_task(hand_on(one, other))
            both.create_task(hand_on(other, one))
        whole = True
    finally:
        for each in (one, other):
            each.close(at_once=not whole)


async def _call(key: MemberKey, host: str, port: int) -> _Sealed:
    """A connection through the front door there (OSError: none, or not to us)."""
    async with asyncio.timeout(HANDSHAKE_SEC):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            sealed = _Sealed(reader, writer, key, server=False)
            await sealed.shake_hands()
            if await sealed.read(len(_WELCOME)) != _WELCOME:
                raise ConnectionAbortedError("no front door of ours")
        except BaseException:
            writer.transport.abort()
            raise
    return sealed


class _End(threading.Thread):
    """Listens until it is closed, in a daemon thread from the beginning. `listening` is its own from now on."""

    def __init__(self, key: MemberKey, listening: socket.socket) -> None:
        self.port: int = listening.getsockname()[1]
        super().__init__(name=f"{type(self).__name__}-{self.port}", daemon=True)
        self._key, self._listening = key, listening
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        # The loop holds its tasks weakly: one whose connection has said all and awaits an answer would be in nobody's
        # hands.
        self._serving: set[asyncio.Task[object] | None] = set()
        self.start()

    def close(self) -> None:
        """Cuts all its connections off, and listens no more."""
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._closing.set)
        if threading.current_thread() is not self:
            self.join(_CLOSE_SEC)

    def run(self) -> None:
        """The thread's body."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listen())

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._serve, sock=self._listening, backlog=1024)
        await self._closing.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._serving.add(task)
        try:
            await self._take(reader, writer)
        except* (OSError, asyncio.CancelledError):  # the latter where this end is closed, and asyncio would log it
            pass
        finally:
            self._serving.discard(task)
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class FrontDoor(_End):
    """Takes connections from the network, of none but the job's nodes, and hands them on to `target`, a port of the
    loopback.
    """

    def __init__(self, key: MemberKey, listening: socket.socket, target: int) -> None:
        self._inner_port = target
        self._strangers: dict[asyncio.StreamWriter, str] = {}  # and their addresses, in the order in which they came
        self._members: Counter[str] = Counter()
        super().__init__(key, listening)

    def hosts(self) -> set[str]:
        """Addresses of the nodes that are connected."""
        return {host for host, connections in self._members.copy().items() if connections}

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = _get_host(writer)
        self._make_room(host)
        self._strangers[writer] = host
        try:
            async with asyncio.timeout(HANDSHAKE_SEC):
                sealed = _Sealed(reader, writer, self._key, server=True)
                await sealed.shake_hands()
                inner = _Plain(*await asyncio.open_connection(LOOPBACK, self._inner_port))
        finally:
            self._strangers.pop(writer, None)
        self._members[host] += 1
        try:
            await _join(sealed, inner, _WELCOME)
        finally:
            self._members[host] -= 1

    def _make_room(self, host: str) -> None:
        """Of too many strangers from one address the oldest goes: one that floods is in its own way. Of too many from
        all, any of them by lot, but for those of addresses that nodes have come from: who floods from many addresses
        meets his own, for a node's handshake takes a moment. One that is dropped tries again.
        """
        own = [writer for writer, other in self._strangers.items() if other == host]
        if len(own) >= MAX_OF_ADDRESS:
            goes = own[0]
        elif len(self._strangers) >= MAX_STRANGERS:
            unknown = [writer for writer, other in self._strangers.items() if other not in self._members]
            goes = random.choice(unknown or list(self._strangers))
        else:
            return
        del self._strangers[goes]
        goes.transport.abort()


class NearEnd(_End):
    """Takes connections of this machine at `port` of the loopback, and hands them on to the front door at `host` and
    `remote`. One that does not come about there is closed here.
    """

    def __init__(self, key: MemberKey, host: str, remote: int) -> None:
        self._host, self._remote = host, remote
        super().__init__(key, socket.create_server((LOOPBACK, 0), backlog=1024))

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _join(_Plain(reader, writer), await _call(self._key, self._host, self._remote))


def why_refused(key: MemberKey, host: str, port: int) -> str:
    """Why no front door there takes us; empty where one does. Not by an event loop, which may swallow what a signal's
    handler raises.
    """
    try:
        with (
            socket.create_connection((host, port), timeout=HANDSHAKE_SEC) as line,
            key.client.wrap_socket(line) as sealed,
        ):
            key.check(sealed.getpeercert(binary_form=True))
            if sealed.recv(len(_WELCOME)) != _WELCOME:
                return "it answers, and closes the connection"
    except (ssl.SSLError, PermissionError) as error:
        return f"it has not our {FLAG}, or we not its: {error}"
    except OSError as error:
        return str(error)
    return ""


def listen_everywhere(port: int = 0, address: str = "") -> socket.socket:
    """A listening socket of an address, or of all, dual-stack where this machine has IPv6 (OSError: no such)."""
    if not address and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=1024)


def _get_host(writer: asyncio.StreamWriter) -> str:
    name = writer.get_extra_info("peername")
    if not name:  # gone already
        raise ConnectionAbortedError("gone")
    address = ip_address(name[0].partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
