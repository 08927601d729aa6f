"""Keys of apt's repositories and of AWS's installer: real gpg with keys made here; another key than the one that is
meant is not taken.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.images.render import render_dockerfile
from gangway.images.specs import DOCKERFILE_FLAVOURS

pytestmark = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("gpgv")), reason="no gpg or gpgv on this machine"
)


class Signer:
    """Somebody with a key."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o700)
        self.home = home
        self.gpg("--quick-generate-key", "--passphrase", "", f"{home.name}@example.com", "ed25519", "sign", "never")
        listed = self.gpg("--with-colons", "--list-keys").decode()
        self.fingerprint = re.findall(r"^fpr:+([0-9A-F]{40}):$", listed, re.MULTILINE)[0]

    def gpg(self, *argv: str) -> bytes:
        command = ["gpg", "--homedir", str(self.home), "--batch", "--quiet", *argv]
        return subprocess.run(command, capture_output=True, check=True).stdout

    @property
    def armored(self) -> bytes:
        return self.gpg("--armor", "--export")


@pytest.fixture(scope="module")
def signers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Signer, Signer]]:
    # A socket's name has a limit, and pytest's folders have long names.
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    made = Signer(folder / "a"), Signer(folder / "b")
    yield made
    for one in made:
        subprocess.run(["gpgconf", "--homedir", str(one.home), "--kill", "all"], check=False)
    shutil.rmtree(folder)


@pytest.fixture
def asks(bare: Any, tmp_path: Path) -> Any:
    """A machine of Google Cloud's with real gpg, that calls apt_key with words of the test."""
    (bare.root / "fake/gpg").unlink()
    bare.fake("curl", f"cat {tmp_path}/answer")
    call = 'apt_key own https://x.example/key "$GANGWAY_WANTED"'
    call = 'apt_key own https://x.example/key "$GANGWAY_WANTED"'
    (tmp_path / "ask.sh").write_text(f"set -euo pipefail\n. {bare.bin}/common.sh\n{call}\n")

    def ask(answer: bytes, wanted: str) -> Any:
        (tmp_path / "answer").write_bytes(answer)
        return bare.run(f"{tmp_path}/ask.sh", WANTED=wanted)

    return ask


@pytest.mark.attack("who answers for a vendor", "another key for its packages, another installer")
def test_the_meant_key_is_taken_and_another_gives_the_node_up(
    asks: Any, bare: Any, signers: tuple[Signer, Signer], tmp_path: Path
) -> None:
    own, other = signers
    keyring = tmp_path / "usr/share/keyrings/own.gpg"
    for answer in (other.armored, own.armored + other.armored, other.armored + own.armored):
        assert asks(answer, own.fingerprint).returncode == 1
        assert not keyring.exists()
    assert any(other.fingerprint in line.get("reason", "") for line in bare.events())
    assert asks(b"<html>", own.fingerprint).returncode != 0
    assert asks(own.armored, own.fingerprint).returncode == 0
    assert keyring.read_bytes() == own.gpg("--export")


def lines_of_efa(fingerprint: str) -> str:
    """What the Dockerfile does with AWS's archive before it unpacks it, without the download."""
    spec = replace(DOCKERFILE_FLAVOURS["cuda-efa"], efa_key_fingerprint=fingerprint)
    text = render_dockerfile(spec).replace("\\\n", " ")
    (line,) = re.findall(r"^RUN mkdir /tmp/efa (.*)$", text, re.MULTILINE)
    steps = [step.strip() for step in line.split("&&")]
    begin = next(place for place, step in enumerate(steps) if step.startswith("{ if grep"))
    end = next(place for place, step in enumerate(steps) if step.startswith("tar -xzf"))
    return " && ".join(steps[begin:end])


@pytest.mark.attack("who answers for a vendor", "another key for its packages, another installer")
@pytest.mark.parametrize("armored", [True, False])
def test_aws_installer_is_unpacked_only_with_aws_own_signature(
    signers: tuple[Signer, Signer], tmp_path: Path, armored: bool
) -> None:
    own, other = signers
    archive = tmp_path / "efa.tar.gz"
    archive.write_bytes(b"an installer")

    def checked(signer: Signer, fingerprint: str) -> int:
        (tmp_path / "efa.sig").unlink(missing_ok=True)
        signer.gpg("--detach-sign", "--output", str(tmp_path / "efa.sig"), str(archive))
        (tmp_path / "efa.key").write_bytes(signer.armored if armored else signer.gpg("--export"))
        command = ["sh", "-c", lines_of_efa(fingerprint)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode

    assert checked(own, own.fingerprint) == 0
    assert checked(other, own.fingerprint) != 0, "whoever brings an archive brings a key as well"
    own.gpg("--yes", "--detach-sign", "--output", str(tmp_path / "efa.sig"), str(archive))
    archive.write_bytes(b"another installer")
    (tmp_path / "efa.key").write_bytes(own.armored)
    done = subprocess.run(["sh", "-c", lines_of_efa(own.fingerprint)], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode != 0
