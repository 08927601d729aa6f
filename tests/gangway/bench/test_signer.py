"""A suite compares what it collects with the key of the stack that it came from."""

from pathlib import Path

import pytest

from gangway.bench.cloud import SIGNER, check_signer
from gangway.components.core.signing_key import new_signing_key, public_half
from gangway.runs.run_store import RunFailedError
from gangway.runs.signatures import read_private_key, sign


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder as it is fetched, not signed yet."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json").write_text("{}")
    return tmp_path / "run"


def signed_by(pem: str, run: Path) -> None:
    key = run.parent / "key"
    key.write_text(pem)
    sign(run / "run.json", read_private_key(key, "--key"))


def test_what_the_stack_signed_is_collected_and_its_key_kept(run: Path) -> None:
    """Also what nobody signed: a node that cannot says so itself, and puts the record."""
    own = new_signing_key()
    (run / SIGNER).write_text("of whoever wrote into the bucket")
    check_signer(run, public_half(own))
    signed_by(own, run)
    check_signer(run, public_half(own))
    assert (run / SIGNER).read_text() == public_half(own)


@pytest.mark.attack("a bucket's writer", "a record that is changed, or signed with a key of his own")
@pytest.mark.parametrize("change", ["content", "key"])
def test_what_somebody_else_wrote_is_no_result(run: Path, change: str) -> None:
    own = new_signing_key()
    signed_by(own if change == "content" else new_signing_key(), run)
    if change == "content":
        (run / "run.json").write_text('{"usd": 0}')
    with pytest.raises(RunFailedError, match=r"after it was signed|another key"):
        check_signer(run, public_half(own))


@pytest.mark.attack("a bucket's writer", "a record that is a link to another file of the reader's")
def test_a_record_that_is_a_link_is_not_read(run: Path) -> None:
    own = new_signing_key()
    signed_by(own, run)
    (run / "run.json").rename(run.parent / "elsewhere.json")
    (run / "run.json").symlink_to(run.parent / "elsewhere.json")
    with pytest.raises(RunFailedError, match="it is a link"):
        check_signer(run, public_half(own))
