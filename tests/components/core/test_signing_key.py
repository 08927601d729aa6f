"""The key that signs records: two halves that fit, one of them a secret; both stay."""

from pathlib import Path

from gangway.components.core.pinned import STASH
from gangway.components.core.signing_key import new_signing_key, public_half, signing_key
from gangway.runs.signatures import get_signature, read_private_key, read_public_key, sign
from gangway.stacks.recording import PlaceholderCloud, record


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
