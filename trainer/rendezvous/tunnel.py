"""Connections that only the job's nodes can make, for services without authentication such as torch's TCPStore.

A job's key is a private key with its self-signed certificate. A front door accepts mutual TLS and forwards to a port
of the loopback; a near end does the reverse. Each end is an event loop in a thread: a slow or hostile peer blocks no
other.
"""

import asyncio
import random
import socket
import ssl
import threading
import weakref
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch names it only in its __all__

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.regular_files import open_file

KEY_FLAG = "--member-key"
_ALLOWED = "a PEM file with one private key, without a passphrase, and the one certificate that belongs to it"
_MAKE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=job "
    "-keyout job.pem -out cert.pem && cat cert.pem >> job.pem"
)
_MAX_BYTES = 1 << 16
_PRIVATE_KEY = re.compile("-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----")
_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_NO_CHECK_TIME = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name


@dataclass(frozen=True)
class MemberKey:
    """TLS contexts for both ends, TLS 1.3 only; `certificate` is DER."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    certificate: bytes

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a key (TrainerError: missing or not a job's key)."""
        text = _read_text(path)
        certificates = _CERTIFICATE.findall(text)
        for what, found in (("private key", _PRIVATE_KEY.findall(text)), ("certificate", certificates)):
            if len(found) != 1:
                raise _key_error(path, f"holds {len(found) or 'no'} {what}{'s' * (len(found) > 1)}")
        try:
            return cls(
                _make_context(path, ssl.PROTOCOL_TLS_SERVER),
                _make_context(path, ssl.PROTOCOL_TLS_CLIENT),
                ssl.PEM_cert_to_DER_cert(certificates[0]),
            )
        except ssl.SSLError as error:
            is_mismatch = error.reason == "KEY_VALUES_MISMATCH"
            problem = "key and certificate do not belong together" if is_mismatch else f"cannot be read: {error}"
        except ValueError as error:
            problem = f"cannot be read: {error}"
        raise _key_error(path, problem)

    def check(self, peer: bytes | None) -> None:
        """Raise PermissionError if the peer's certificate (DER) is not the job's."""
        if peer != self.certificate:
            raise PermissionError("another certificate than the job's")


def _read_text(path: Path) -> str:
    try:
        with open_file(path) as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise _key_error(path, error.strerror or str(error)) from None
    if len(content) > _MAX_BYTES:
        raise _key_error(path, "is too long for a key")
    return content.decode("ascii", "replace").replace("\r\n", "\n")


def _make_context(path: Path, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the key identifies the peer, not its address
    context.verify_mode = ssl.CERT_REQUIRED
    # Node clocks may be hours off, and the key is valid for as long as the job lasts.
    context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_CHECK_TIME)
    context.load_cert_chain(path, password="")  # otherwise OpenSSL asks for one on the terminal
    context.load_verify_locations(path)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # every connection shows its certificate
    return context


def _key_error(path: Path, problem: str) -> TrainerError:
    return TrainerError(place=KEY_FLAG, problem=problem, value=str(path), allowed=_ALLOWED, fix=f"make one: {_MAKE}")


LOOPBACK = "127.0.0.1"
HANDSHAKE_SEC = 5.0
MAX_STRANGERS = 512
"""Concurrent connections without a certificate so far: all nodes of a large job connect at the same moment."""
MAX_OF_ADDRESS = 32  # The same from one address: a node has a worker for each GPU
_WELCOME = b"\x01"
"""A front door's first byte, after it accepted the certificate and reached its target: with TLS 1.3 alone a client does
not learn whether its certificate was accepted."""
_CHUNK = 1 << 16
_CLOSE_SEC = 5.0
_KEEPALIVE = (("TCP_KEEPIDLE", 300), ("TCP_KEEPINTVL", 60), ("TCP_KEEPCNT", 10))
"""Drops a lost host, no sooner than workers do (COLLECTIVE_SEC). Linux's names."""


class _PlainStream:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, most: int = _CHUNK) -> bytes:
        return await self._reader.read(most)

    async def write(self, content: bytes) -> None:
        self._writer.write(content)
        await self._writer.drain()

    async def end(self) -> None:
        self._writer.write_eof()

    def close(self, *, at_once: bool = False) -> None:
        if at_once:
            self._writer.transport.abort()
        else:
            self._writer.close()


class _TlsStream(_PlainStream):
    """TLS over a network connection: asyncio's has no half-closed connections and accepts strangers uncounted."""

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
        """OSError: the other side lacks the job's key or disconnected."""
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
        """OSError: cut off without a TLS close, as when the peer's process is killed."""
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
        unread = self._incoming.read()  # unwrap would search it for the peer's close and drop the data
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


async def _forward(one: _PlainStream, other: _PlainStream, first: bytes = b"") -> None:
    """Forward both directions until both end, after sending `first` to `one`. OSError: one broke, both are closed."""

    async def copy(source: _PlainStream, target: _PlainStream) -> None:
        while content := await source.read():
            await target.write(content)
        await target.end()

    is_complete = False
    try:
        if first:
            await one.write(first)
        async with asyncio.TaskGroup() as both:
            both.create_task(copy(one, other))
            both.create_task(copy(other, one))
        is_complete = True
    finally:
        for each in (one, other):
            each.close(at_once=not is_complete)


async def _call(key: MemberKey, host: str, port: int) -> _TlsStream:
    async with asyncio.timeout(HANDSHAKE_SEC):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            sealed = _TlsStream(reader, writer, key, server=False)
            await sealed.shake_hands()
            if await sealed.read(len(_WELCOME)) != _WELCOME:
                raise ConnectionAbortedError("no front door of ours")
        except BaseException:
            writer.transport.abort()
            raise
    return sealed


class _End(threading.Thread):
    """Listens in a daemon thread until closed; owns `listening`."""

    def __init__(self, key: MemberKey, listening: socket.socket) -> None:
        self.port: int = listening.getsockname()[1]
        super().__init__(name=f"{type(self).__name__}-{self.port}", daemon=True)
        self._key, self._listening = key, listening
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        # The loop only holds weak references to its tasks.
        self._serving: set[asyncio.Task[object] | None] = set()
        self.start()

    def close(self) -> None:
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._closing.set)
        if threading.current_thread() is not self:
            self.join(_CLOSE_SEC)

    def run(self) -> None:
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
            await self._handle(reader, writer)
        except* (OSError, asyncio.CancelledError):  # cancelled when this end closes; asyncio would log it
            pass
        finally:
            self._serving.discard(task)
            writer.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class FrontDoor(_End):
    """Forwards connections of the job's nodes to `target`, a port of the loopback."""

    def __init__(self, key: MemberKey, listening: socket.socket, target: int) -> None:
        self._inner_port = target
        self._strangers: dict[asyncio.StreamWriter, str] = {}  # by arrival, with their addresses
        self._members: Counter[str] = Counter()
        super().__init__(key, listening)

    def hosts(self) -> set[str]:
        """Addresses of the connected nodes."""
        return {host for host, connections in self._members.copy().items() if connections}

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = _get_host(writer)
        self._make_room(host)
        self._strangers[writer] = host
        try:
            async with asyncio.timeout(HANDSHAKE_SEC):
                sealed = _TlsStream(reader, writer, self._key, server=True)
                await sealed.shake_hands()
                inner = _PlainStream(*await asyncio.open_connection(LOOPBACK, self._inner_port))
        finally:
            self._strangers.pop(writer, None)
        self._members[host] += 1
        try:
            await _forward(sealed, inner, _WELCOME)
        finally:
            self._members[host] -= 1

    def _make_room(self, host: str) -> None:
        """Spares addresses of known nodes; a flood mostly hits itself, as a node's handshake takes a moment."""
        own = [writer for writer, other in self._strangers.items() if other == host]
        if len(own) >= MAX_OF_ADDRESS:
            dropped = own[0]
        elif len(self._strangers) >= MAX_STRANGERS:
            unknown = [writer for writer, other in self._strangers.items() if other not in self._members]
            dropped = random.choice(unknown or list(self._strangers))
        else:
            return
        del self._strangers[dropped]
        dropped.transport.abort()


class NearEnd(_End):
    """Forwards connections at `port` of the loopback to the front door at `host` and `remote`."""

    def __init__(self, key: MemberKey, host: str, remote: int) -> None:
        self._host, self._remote = host, remote
        super().__init__(key, socket.create_server((LOOPBACK, 0), backlog=1024))

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _forward(_PlainStream(reader, writer), await _call(self._key, self._host, self._remote))


def why_refused(key: MemberKey, host: str, port: int) -> str:
    """Why no front door accepts us there; empty if one does."""
    try:  # without an event loop, which may swallow what a signal handler raises
        with (
            socket.create_connection((host, port), timeout=HANDSHAKE_SEC) as line,
            key.client.wrap_socket(line) as sealed,
        ):
            key.check(sealed.getpeercert(binary_form=True))
            if sealed.recv(len(_WELCOME)) != _WELCOME:
                return "it answers, and closes the connection"
    except (ssl.SSLError, PermissionError) as error:
        return f"its {KEY_FLAG} is not ours: {error}"
    except OSError as error:
        return str(error)
    return ""


def listen_everywhere(port: int = 0, address: str = "") -> socket.socket:
    """A listening socket of an address, or of all, dual-stack if this machine has IPv6 (OSError: no such address)."""
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


_TIMEOUT = timedelta(seconds=300)  # torch's own


def serve_store(listening: socket.socket, host: str = LOOPBACK, timeout: timedelta = _TIMEOUT) -> "TCPStore":
    """A store of this process, which takes over the socket, so that its port cannot be taken before its use."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # as above

    return TCPStore(
        host,
        listening.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        multi_tenant=True,
        timeout=timeout,
        master_listen_fd=listening.detach(),
    )


def loopback_store(timeout: timedelta = _TIMEOUT) -> "TCPStore":
    """A store served by this process at a free port of the loopback."""
    return serve_store(socket.create_server((LOOPBACK, 0), backlog=1024), timeout=timeout)


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
