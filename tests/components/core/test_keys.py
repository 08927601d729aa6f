"""The key that signs records: two halves that fit, one of them a secret; both stay."""

import socket
import ssl
import string
import threading
from pathlib import Path

from gangway.components.core.keys import (
    member_key,
    new_member_key,
    new_munge_key,
    new_signing_key,
    public_half,
    signing_key,
)
from gangway.components.core.lookup import STASH
from gangway.runs.signatures import get_signature, read_private_key, read_public_key, sign
from gangway.stacks.recording import PlaceholderCloud, Recording, record


def test_the_halves_fit(tmp_path: Path) -> None:
    own, half, record = tmp_path / "key.pem", tmp_path / "key.pub", tmp_path / "run.json"
    own.write_text(new_signing_key())
    half.write_text(public_half(own.read_text()))
    record.write_text("{}")
    assert sign(record, read_private_key(own, "--key")) == read_public_key(half, "--key")
    assert get_signature(record, b"{}", read_public_key(half, "--key")).state == "valid"
    assert new_signing_key() != own.read_text()
    assert len(own.read_text()) < 4096, "what a standard parameter of AWS's holds"


def test_it_stays_and_only_its_public_half_is_no_secret() -> None:
    """That the engine keeps what the first `up` made is `pinned`'s."""
    made = record(lambda: dict(signing_key("demo")._asdict()), PlaceholderCloud(), "demo")
    (stash,) = made.resources
    assert (stash.type, stash.name) == (STASH, "demo-signing-key-0")
    assert stash.to_json()["inputs"]["input"] == {"pem": "[secret]"}, "each plan would show another public half"
    assert made.result["public"].startswith("-----BEGIN PUBLIC KEY-----")


def side(pem: Path, purpose: ssl.Purpose) -> ssl.SSLContext:
    """One end, which shows the key's certificate and takes no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if purpose is ssl.Purpose.CLIENT_AUTH else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(pem)
    context.load_verify_locations(pem)
    return context


def met(here: Path, there: Path) -> bool:
    """Whether a client with `here` and a server with `there` exchange a word."""
    ours, theirs = socket.socketpair()
    answers = []

    def serve() -> None:
        try:
            with side(there, ssl.Purpose.CLIENT_AUTH).wrap_socket(theirs, server_side=True) as end:
                answers.append(end.recv(5))
                end.sendall(b"well")
        except OSError:
            theirs.close()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        with side(here, ssl.Purpose.SERVER_AUTH).wrap_socket(ours) as end:
            end.sendall(b"hello")
            return end.recv(4) == b"well" and answers == [b"hello"]
    except OSError:
        return False
    finally:
        ours.close()
        serving.join()


def test_who_has_it_is_a_member_and_nobody_else(tmp_path: Path) -> None:
    own, other = tmp_path / "own.pem", tmp_path / "other.pem"
    own.write_text(new_member_key("demo"))
    other.write_text(new_member_key("demo"))
    assert met(own, own)
    assert not met(own, other)
    assert not met(other, own)


def test_it_fits_where_secrets_are_kept() -> None:
    """A standard parameter of AWS's holds 4 KB; a name of any length and letters makes none longer."""
    assert len(new_member_key("x" * 200)) < 1200
    assert new_member_key("demo") != new_member_key("demo")


def test_it_stays_and_is_a_secret() -> None:
    """That the engine keeps what the first `up` made is `pinned`'s."""

    def declared(refresh: int) -> Recording:
        return record(lambda: {"key": member_key("demo", refresh)}, PlaceholderCloud(), "demo")

    names = []
    for refresh in (0, 1):
        made = declared(refresh)
        (stash,) = made.resources
        assert (stash.type, stash.to_json()["inputs"]) == (STASH, {"input": {"pem": "[secret]"}})
        names.append(stash.name)
    assert names == ["demo-member-key-0", "demo-member-key-1"], "another number is another resource"


def test_it_is_text_that_munge_takes_and_no_two_are_the_same() -> None:
    keys = {new_munge_key() for _ in range(20)}
    assert len(keys) == 20
    assert all(32 <= len(key) <= 1024 and set(key) <= set(string.hexdigits) for key in keys)
