"""Signatures of records: valid, unsigned, another's, forged."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.components.core.keys import new_signing_key, public_half
from gangway.runs.run_folders import find_runs, not_covered
from gangway.runs.signatures import ForgedError, get_signature, read_private_key, read_public_key, sign
from gangway.trainer.records.digest import get_sums
from gangway.trainer.records.run_record import RunRecord

RECORDED = Path(__file__).parents[1] / "report" / "comparison" / "recorded"
PEM, OTHER = new_signing_key(), new_signing_key()


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Path]:
    folder = tmp_path / "keys"
    folder.mkdir()
    texts = {"own": PEM, "own.pub": public_half(PEM), "other.pub": public_half(OTHER)}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: folder / name for name in texts}


@pytest.fixture
def signed(keys: dict[str, Path], tmp_path: Path) -> Path:
    record = tmp_path / "run.json"
    record.write_text('{"id": "a"}')
    sign(record, read_private_key(keys["own"], "--key"))
    return record


def test_valid_by_the_named_key_and_signed_by_one_that_nobody_compared(signed: Path, keys: dict[str, Path]) -> None:
    own = read_public_key(keys["own.pub"], "--key")
    assert own == read_public_key(keys["own"], "--key"), "either half names the key"
    assert get_signature(signed, signed.read_bytes(), own) == (own, True)
    assert get_signature(signed, signed.read_bytes(), None) == (own, False)


@pytest.mark.attack("a bucket's writer", "a record that is changed, or signed with a key of his own")
def test_anothers_signature_is_refused(signed: Path, keys: dict[str, Path]) -> None:
    """Whoever changes a record can sign it with a key of his own."""
    with pytest.raises(ForgedError, match="signed by another key"):
        get_signature(signed, signed.read_bytes(), read_public_key(keys["other.pub"], "--key"))


@pytest.mark.attack("a bucket's writer", "a record that is changed, or signed with a key of his own")
@given(change=st.integers(0, 10), bits=st.integers(1, 255))
def test_any_change_is_seen(change: int, bits: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    record = tmp_path_factory.mktemp("changed") / "run.json"
    content = bytearray(b'{"id": "a"}')
    record.write_bytes(content)
    key = record.with_name("key")
    key.write_text(PEM)
    sign(record, read_private_key(key, "--key"))
    content[change] ^= bits
    with pytest.raises(ForgedError, match="changed after it was signed"):
        get_signature(record, bytes(content), None)


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_signature_is_none(signed: Path, text: str) -> None:
    signed.with_name("run.json.sig").write_text(text)
    assert get_signature(signed, signed.read_bytes(), None).state == "unsigned"


@pytest.mark.attack("a bucket's writer", "a record that is changed, or signed with a key of his own")
@pytest.mark.parametrize("text", ["one", "a b c", "AAAA BBBB", "\0 \x80", "*" * 10_000, "é è"])
def test_what_is_no_signature_is_refused(signed: Path, text: str) -> None:
    signed.with_name("run.json.sig").write_text(text)
    with pytest.raises(ForgedError):
        get_signature(signed, signed.read_bytes(), None)


@pytest.mark.parametrize("text", ["", "PRIVATE KEY", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_a_file_without_a_key_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text(text)
    with pytest.raises(InputError, match="contains no key"):
        read_public_key(tmp_path / "key", "--key")


def test_a_key_of_another_kind_and_a_missing_one_are_refused(tmp_path: Path, keys: dict[str, Path]) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "ec").write_bytes(pem)
    with pytest.raises(InputError, match="another type"):
        read_public_key(tmp_path / "ec", "--key")
    with pytest.raises(InputError, match="not a private key"):
        read_private_key(keys["own.pub"], "--key")
    with pytest.raises(InputError, match="cannot be read"):
        read_public_key(tmp_path / "none", "--key")


@pytest.fixture
def whole(keys: dict[str, Path], tmp_path: Path) -> Path:
    """A run whose record has the sums of what lies beside it, signed."""
    folder = tmp_path / "whole"
    shutil.copytree(RECORDED, folder)
    record = RunRecord.read(folder / "run.json")
    record.model_copy(update={"files": get_sums(folder)}).write(folder / "run.json")
    sign(folder / "run.json", read_private_key(keys["own"], "--key"))
    return folder


def test_a_signature_answers_for_the_files_beside_the_record(whole: Path, keys: dict[str, Path]) -> None:
    own = read_public_key(keys["own.pub"], "--key")
    (run,) = find_runs([whole], trusted=own)
    assert (run.signature.state, not_covered([run])) == ("valid", [])
    stats = whole / "stats.jsonl"
    stats.write_text(stats.read_text().replace('"images_per_sec": ', '"images_per_sec": 9'))
    for words in (["report", str(whole), "--key", str(keys["own.pub"])], ["reproduce", str(whole)]):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, ForgedError), done.output
        assert "stats.jsonl: was changed, or is older" in str(done.exception)


def test_a_record_without_sums_is_told_as_covering_itself_alone(keys: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(RECORDED, tmp_path / "older")
    sign(tmp_path / "older/run.json", read_private_key(keys["own"], "--key"))
    (run,) = find_runs([tmp_path / "older"])
    (told,) = not_covered([run])
    assert told.startswith(f"{run.record.id}: its signature covers run.json only")
    page = tmp_path / "page"
    words = ["report", str(tmp_path / "older"), "--key", str(keys["own.pub"]), "--out", str(page)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert told in done.output
    assert "<td>valid, run.json alone</td>" in (page / "report.html").read_text()


def test_a_page_says_that_nobody_signed(tmp_path: Path) -> None:
    shutil.copytree(RECORDED, tmp_path / "run")
    done = CliRunner().invoke(app, ["report", str(tmp_path / "run"), "--out", str(tmp_path / "page")])
    assert done.exit_code == 0, done.output
    assert "<td>unsigned</td>" in (tmp_path / "page/report.html").read_text()
