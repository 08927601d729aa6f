"""Tunnels: what goes in comes out, an end shows at the other end, and none gets in without the job's key."""

import gc
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch names it only in its __all__

from gangway.trainer.rendezvous import tunnel
from gangway.trainer.rendezvous.tunnel import (
    LOOPBACK,
    FrontDoor,
    MemberKey,
    NearEnd,
    WorkersStore,
    listen_everywhere,
    loopback_store,
    why_refused,
)

PATIENCE_SEC = 30.0

stranger = pytest.mark.attack("a network neighbour", "a way through the front door without the member key")


class Inner:
    """What lies behind a front door: every connection is handed to `serve`, in a thread."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve, self._listening = serve, socket.create_server((LOOPBACK, 0))
        self.port: int = self._listening.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._listening.accept()
                self.connections += 1
                threading.Thread(target=self._one, args=(line,), daemon=True).start()

    def _one(self, line: socket.socket) -> None:
        with line, suppress(OSError):
            line.settimeout(PATIENCE_SEC)
            self._serve(line)

    def shut(self) -> None:
        with suppress(OSError):  # it is already
            self._listening.shutdown(socket.SHUT_RDWR)  # or the accept under way would take one more

    def close(self) -> None:
        self.shut()
        self._listening.close()


def echo(line: socket.socket) -> None:
    while content := line.recv(1 << 16):
        line.sendall(content)


def answers_at_the_end(line: socket.socket) -> None:
    line.sendall(read_all(line)[::-1])


def read_all(line: socket.socket) -> bytes:
    parts = []
    while content := line.recv(1 << 16):
        parts.append(content)
    return b"".join(parts)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def behind_a_door(stack: ExitStack, key: MemberKey, serve: Callable[[socket.socket], None]) -> tuple[Inner, FrontDoor]:
    inner = stack.enter_context(closing(Inner(serve)))
    return inner, stack.enter_context(closing(FrontDoor(key, listen_everywhere(), inner.port)))


def near(stack: ExitStack, key: MemberKey, port: int) -> NearEnd:
    return stack.enter_context(closing(NearEnd(key, LOOPBACK, port)))


def connect(stack: ExitStack, port: int) -> socket.socket:
    line = stack.enter_context(socket.create_connection((LOOPBACK, port), timeout=PATIENCE_SEC))
    line.settimeout(PATIENCE_SEC)
    return line


def is_closed(line: socket.socket) -> bool:
    """Whether the other side has; waits for it, whatever it says before."""
    try:
        read_all(line)
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SEC
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_what_goes_in_comes_out_at_several_connections_at_once(stack: ExitStack, key: MemberKey) -> None:
    inner, door = behind_a_door(stack, key, echo)
    end = near(stack, key, door.port)
    content = os.urandom(3_000_000)
    lines = [connect(stack, end.port) for _ in range(4)]

    def send(line: socket.socket) -> None:
        line.sendall(content)
        line.shutdown(socket.SHUT_WR)

    senders = [threading.Thread(target=send, args=(line,)) for line in lines]
    for sender in senders:
        sender.start()
    assert until(lambda: inner.connections == 4)
    assert door.hosts() == {LOOPBACK}
    for line in lines:
        assert read_all(line) == content
    for sender in senders:
        sender.join()
    assert until(lambda: not door.hosts()), "those that have ended are no longer there"


def test_an_answer_may_come_after_the_question_has_ended(stack: ExitStack, key: MemberKey) -> None:
    _, door = behind_a_door(stack, key, answers_at_the_end)
    line = connect(stack, near(stack, key, door.port).port)
    content = os.urandom(2_000_000)
    line.sendall(content)
    line.shutdown(socket.SHUT_WR)
    assert read_all(line) == content[::-1]


@pytest.mark.slow
def test_an_answer_that_is_awaited_outlives_a_collection_of_garbage(stack: ExitStack, key: MemberKey) -> None:
    """A loop holds its tasks weakly, and nothing of a connection that has said all and waits for bytes."""
    asked, may_answer = threading.Event(), threading.Event()

    def thinks(line: socket.socket) -> None:
        question = read_all(line)
        asked.set()
        may_answer.wait(PATIENCE_SEC)
        line.sendall(question[::-1])

    _, door = behind_a_door(stack, key, thinks)
    line = connect(stack, near(stack, key, door.port).port)
    line.sendall(b"why?")
    line.shutdown(socket.SHUT_WR)
    assert asked.wait(PATIENCE_SEC)
    for _ in range(3):
        gc.collect()
        time.sleep(0.05)
    may_answer.set()
    assert read_all(line) == b"?yhw"


def test_a_question_may_go_on_after_the_answer_has_ended(stack: ExitStack, key: MemberKey) -> None:
    heard: list[bytes] = []

    def says_little(line: socket.socket) -> None:
        line.sendall(b"that is all")
        line.shutdown(socket.SHUT_WR)
        heard.append(read_all(line))

    _, door = behind_a_door(stack, key, says_little)
    line = connect(stack, near(stack, key, door.port).port)
    assert read_all(line) == b"that is all"
    content = os.urandom(2_000_000)
    line.sendall(content)
    line.shutdown(socket.SHUT_WR)
    assert until(lambda: heard == [content])


def test_a_question_may_end_while_its_answer_waits_to_be_read(stack: ExitStack, key: MemberKey) -> None:
    content = os.urandom(20_000_000)  # more than all buffers on the way hold
    inner, door = behind_a_door(stack, key, lambda line: line.sendall(content))
    line = connect(stack, near(stack, key, door.port).port)
    assert until(lambda: inner.connections == 1)
    time.sleep(0.2)  # the answer has come as far as it can
    line.shutdown(socket.SHUT_WR)
    assert read_all(line) == content


def test_a_connection_that_breaks_behind_the_door_breaks_here(stack: ExitStack, key: MemberKey) -> None:
    def hangs_up(line: socket.socket) -> None:
        line.recv(1)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # as where a process is killed

    _, door = behind_a_door(stack, key, hangs_up)
    line = connect(stack, near(stack, key, door.port).port)
    line.sendall(b"x")
    assert is_closed(line)


@pytest.mark.parametrize("closed", ["front door", "near end"])
def test_an_end_that_is_closed_cuts_its_connections_and_frees_its_port(
    stack: ExitStack, key: MemberKey, closed: str
) -> None:
    _, door = behind_a_door(stack, key, echo)
    end = near(stack, key, door.port)
    line = connect(stack, end.port)
    line.sendall(b"x")
    assert line.recv(1) == b"x"
    ended: FrontDoor | NearEnd = door if closed == "front door" else end
    ended.close()
    ended.close()
    assert not ended.is_alive()
    assert is_closed(line)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, ended.port), timeout=PATIENCE_SEC)


@pytest.mark.slow
def test_where_nothing_listens_the_near_end_closes_what_it_took(stack: ExitStack, key: MemberKey) -> None:
    with socket.socket() as silent:  # bound, so that nobody else gets the port meanwhile
        silent.bind((LOOPBACK, 0))
        port = silent.getsockname()[1]
        assert is_closed(connect(stack, near(stack, key, port).port))
        assert "refused" in why_refused(key, LOOPBACK, port)


def test_where_nothing_is_behind_the_door_nobody_is_taken_in(stack: ExitStack, key: MemberKey) -> None:
    inner, door = behind_a_door(stack, key, echo)
    assert why_refused(key, LOOPBACK, door.port) == ""
    inner.shut()
    assert is_closed(connect(stack, near(stack, key, door.port).port))
    assert why_refused(key, LOOPBACK, door.port) == "it answers, and closes the connection"


def test_a_member_that_does_not_read_keeps_nobody(stack: ExitStack, key: MemberKey) -> None:
    _, door = behind_a_door(stack, key, echo)
    end = near(stack, key, door.port)
    slow = connect(stack, end.port)
    slow.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            slow.send(bytes(1 << 16))
    quick = connect(stack, end.port)
    quick.sendall(b"x")
    assert quick.recv(1) == b"x"


def _plain(content: bytes) -> Callable[[int, MemberKey, MemberKey], bool]:
    def attack(port: int, key: MemberKey, other: MemberKey) -> bool:
        with socket.create_connection((LOOPBACK, port), timeout=PATIENCE_SEC) as line:
            line.sendall(content)
            return is_closed(line)

    return attack


def _tls(context: Callable[[MemberKey, MemberKey], ssl.SSLContext]) -> Callable[[int, MemberKey, MemberKey], bool]:
    def attack(port: int, key: MemberKey, other: MemberKey) -> bool:
        try:
            with (
                socket.create_connection((LOOPBACK, port), timeout=PATIENCE_SEC) as line,
                context(key, other).wrap_socket(line) as sealed,
            ):
                sealed.sendall(b"let me in")
                return sealed.recv(1) == b""
        except (ssl.SSLError, ConnectionError):
            return True

    return attack


def _trusting(context: ssl.SSLContext) -> ssl.SSLContext:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _given(context: ssl.SSLContext, key: MemberKey, other: MemberKey) -> ssl.SSLContext:
    return context


def _with_other(key: MemberKey, other: MemberKey) -> ssl.SSLContext:
    """Shows its own certificate, and takes any."""
    context = other.client
    context.verify_mode = ssl.CERT_NONE
    return context


STRANGERS = {
    "garbage": _plain(os.urandom(5000)),
    "http": _plain(b"GET / HTTP/1.1\r\nHost: head\r\n\r\n"),
    "half a hello": _plain(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)),
    "no certificate": _tls(lambda key, other: _trusting(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))),
    "another key": _tls(_with_other),
}


@stranger
@pytest.mark.parametrize("name", STRANGERS)
def test_a_stranger_is_not_let_in(
    name: str, stack: ExitStack, key: MemberKey, other_pem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "HANDSHAKE_SEC", 1.0)
    inner, door = behind_a_door(stack, key, echo)
    assert STRANGERS[name](door.port, key, MemberKey.read(other_pem))
    assert (inner.connections, door.hosts()) == (0, set())
    assert why_refused(key, LOOPBACK, door.port) == ""


@stranger
@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_before_1_3_is_refused_to_members_too(
    newest: ssl.TLSVersion, stack: ExitStack, key: MemberKey, job_pem: Path
) -> None:
    inner, door = behind_a_door(stack, key, echo)
    context = _trusting(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.load_cert_chain(job_pem)
    context.maximum_version = newest
    old = newest is ssl.TLSVersion.TLSv1_2
    assert _tls(partial(_given, context))(door.port, key, key) is old
    assert until(lambda: inner.connections == (0 if old else 1))


@stranger
def test_a_server_without_the_key_hears_nothing(stack: ExitStack, key: MemberKey, other_key: MemberKey) -> None:
    heard: list[bytes] = []
    wrong = stack.enter_context(closing(Inner(lambda line: heard.append(line.recv(1 << 16)))))
    inner, door = behind_a_door(stack, other_key, echo)
    for port in (wrong.port, door.port):
        line = connect(stack, near(stack, key, port).port)
        with suppress(ConnectionError):
            line.sendall(b"a secret of the job's")
        assert is_closed(line)
        assert why_refused(key, LOOPBACK, port)
    assert until(lambda: len(heard) == 2)
    assert not any(b"secret" in content for content in heard)
    assert inner.connections == 0
    assert "its --member-key is not ours" in why_refused(key, LOOPBACK, door.port)


@pytest.mark.slow
@stranger
def test_strangers_who_say_nothing_are_dropped_and_keep_nobody_out(
    stack: ExitStack, key: MemberKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, door = behind_a_door(stack, key, echo)
    idle = [connect(stack, door.port) for _ in range(200)]
    assert until(lambda: len(door._strangers) == tunnel.MAX_OF_ADDRESS), "no more of them are kept"
    assert why_refused(key, LOOPBACK, door.port) == ""
    line = connect(stack, near(stack, key, door.port).port)
    line.sendall(b"x")
    assert line.recv(1) == b"x"
    assert all(is_closed(each) for each in idle)
    assert until(lambda: not door._strangers)
    assert until(lambda: inner.connections == 2)


@pytest.mark.slow
@stranger
def test_of_too_many_strangers_any_go_but_those_where_a_node_has_been(
    stack: ExitStack, key: MemberKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "MAX_STRANGERS", 8)
    _, door = behind_a_door(stack, key, echo)
    assert why_refused(key, LOOPBACK, door.port) == ""
    assert until(lambda: not door._strangers)

    def idle(host: int) -> socket.socket:
        """A connection that says nothing."""
        source = (f"127.0.0.{host}", 0)
        return stack.enter_context(socket.create_connection((LOOPBACK, door.port), PATIENCE_SEC, source_address=source))

    of_a_node = idle(1)
    assert until(lambda: list(door._strangers.values()) == [LOOPBACK])
    strangers = [idle(2 + number % 200) for number in range(100)]
    assert until(lambda: len(door._strangers) == 8)
    assert LOOPBACK in door._strangers.values(), "a node comes from there"
    assert why_refused(key, LOOPBACK, door.port) == "", "and comes in, however many wait"
    of_a_node.setblocking(False)
    with pytest.raises(BlockingIOError):
        of_a_node.recv(1)
    assert sum(is_closed(each) for each in strangers) >= len(strangers) - 8


def test_a_date_ends_no_job(stack: ExitStack, tmp_path: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([]), datetime.now(UTC)
    for begins, ends in ((-2, -1), (1, 2)):
        builder = x509.CertificateBuilder(name, name, private.public_key(), 1)
        dated = builder.not_valid_before(now + timedelta(begins)).not_valid_after(now + timedelta(ends))
        path = tmp_path / "job.pem"
        encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        path.write_bytes(
            private.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
            + dated.sign(private, hashes.SHA256()).public_bytes(encoding)
        )
        key = MemberKey.read(path)
        _, door = behind_a_door(stack, key, echo)
        assert why_refused(key, LOOPBACK, door.port) == ""


@stranger
def test_a_certificate_that_the_jobs_own_has_signed_is_another(
    stack: ExitStack, key: MemberKey, job_pem: Path, tmp_path: Path
) -> None:
    """What openssl makes is an authority's: what that has signed is valid, and still not the job's."""
    own, request, signed = (tmp_path / name for name in ("own.pem", "request.pem", "signed.pem"))
    make = f"req -new -newkey rsa:2048 -nodes -subj /CN=node -keyout {own} -out {request}"
    sign = f"x509 -req -in {request} -CA {job_pem} -CAkey {job_pem} -CAserial {tmp_path}/serial -CAcreateserial"
    for words in (make, f"{sign} -out {signed}"):
        subprocess.run(["openssl", *words.split()], check=True, capture_output=True)
    own.write_text(own.read_text() + signed.read_text())
    inner, door = behind_a_door(stack, key, echo)
    for shown, taken in ((own, False), (job_pem, True)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(job_pem)
        context.load_cert_chain(shown)
        assert _tls(partial(_given, context))(door.port, key, key) is not taken
    assert until(lambda: inner.connections == 1)


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
