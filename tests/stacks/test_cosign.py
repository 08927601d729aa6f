"""cosign on this machine: a stand-in that answers as versions 2.6.5 and 3.1.3 did, and the real one where it is."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gangway.components.core.findings import InputError
from gangway.components.core.image_reference import checked_signature, signed_name
from gangway.stacks import cosign
from gangway.stacks.config.paths import ROOT
from gangway.stacks.config.stack_config import StackConfig, image_signature
from gangway.stacks.cosign import check_keyless, get_signatures
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan
from tests.cosigned import key_pair, signed_payload

IMAGE = "registry.example.com/gan/trainer@sha256:" + "ab" * 32
NONE = f"Error: {IMAGE}: no signatures associated\nerror during command execution: {IMAGE}: no signatures associated"
BUNDLE = {"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "dsseEnvelope": {}}


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for cosign: prints `out`, says `err`, ends with `status`, and keeps its arguments in `argv`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("out", ""), ("err", ""), ("status", "0")):
        (folder / name).write_text(text)
    script = f'printf "%s\\n" "$@" >{folder}/argv; cat {folder}/out; cat {folder}/err >&2; exit $(cat {folder}/status)'
    (folder / "cosign").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "cosign").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def line(payload: str, signature: str) -> str:
    return json.dumps({"Base64Signature": signature, "Payload": payload, "Cert": None, "Bundle": None}) + "\n"


def gangway(*arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "gangway.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_section_that_is_printed_holds_in_a_stack_file(answers: Path, tmp_path: Path) -> None:
    """The signature of another key, which the registry has as well, is not taken."""
    private, public = key_pair(tmp_path)
    other, _ = key_pair(tmp_path, "other")
    (tmp_path / "cosign.pub").write_text(public)
    signed = [signed_payload(one, signed_name(IMAGE), IMAGE.partition("@")[2]) for one in (other, private)]
    (answers / "out").write_text("".join(line(*one) for one in signed))
    code, out, err = gangway("signature", IMAGE, "--key", str(tmp_path / "cosign.pub"))
    assert (code, err) == (0, "")
    section = yaml.safe_load(out)["gangway:image"]
    assert (section["signature"]["payload"], section["signature"]["signature"]) == signed[1]
    assert (answers / "argv").read_text().split() == ["download", "signature", IMAGE]
    config = lab(tmp_path, section)
    asked = image_signature(config)
    assert asked is not None
    assert asked.signature == signed[1][1]


def test_no_signature_by_that_key(answers: Path, tmp_path: Path) -> None:
    private, _ = key_pair(tmp_path)
    _, other = key_pair(tmp_path, "other")
    (tmp_path / "cosign.pub").write_text(other)
    (answers / "out").write_text(line(*signed_payload(private, signed_name(IMAGE), IMAGE.partition("@")[2])))
    code, out, err = gangway("signature", IMAGE, "--key", str(tmp_path / "cosign.pub"))
    assert (code, out) == (2, "")
    assert "does not fit the payload by this key" in " ".join(err.split())


def test_an_image_that_nobody_signed(answers: Path) -> None:
    (answers / "err").write_text(NONE)
    (answers / "status").write_text("1")
    with pytest.raises(InputError, match="no signatures associated") as caught:
        get_signatures(IMAGE)
    assert "error during" not in str(caught.value)


def test_the_bundle_of_cosign_3_is_not_known(answers: Path) -> None:
    (answers / "out").write_text(json.dumps(BUNDLE))
    with pytest.raises(InputError, match="--new-bundle-format=false"):
        get_signatures(IMAGE)


def test_without_cosign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="cosign is not installed on this machine"):
        get_signatures(IMAGE)


def test_one_that_does_not_end(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (answers / "cosign").write_text("#!/bin/sh\nexec sleep 30\n")
    monkeypatch.setattr(cosign, "TIMEOUT_SEC", 0.2)
    with pytest.raises(InputError, match="did not end"):
        get_signatures(IMAGE)


KEYLESS = {"identity": "releases@example.com", "issuer": "https://token.actions.githubusercontent.com"}


def test_keyless_is_cosigns_to_look_at(answers: Path, tmp_path: Path) -> None:
    config = lab(tmp_path, {"prebuilt": IMAGE, "signature": KEYLESS})
    assert image_signature(config) is None, "machines are asked for nothing"
    told = {finding.code: finding for finding in make_plan(config).findings}
    assert "releases@example.com signed the image" in told["image.signed-keyless"].message
    assert not (answers / "argv").exists(), "a plan asks nobody"
    check_keyless(config)
    assert (answers / "argv").read_text().splitlines() == [
        "verify",
        f"--certificate-identity={KEYLESS['identity']}",
        f"--certificate-oidc-issuer={KEYLESS['issuer']}",
        IMAGE,
    ]
    (answers / "status").write_text("1")
    (answers / "err").write_text("Error: no matching signatures: none of the expected identities matched\n")
    with pytest.raises(InputError, match=r"gangway:image.signature.*none of the expected identities"):
        check_keyless(config)


def test_a_stack_that_asks_for_none_asks_nobody(answers: Path, tmp_path: Path) -> None:
    check_keyless(lab(tmp_path, {"prebuilt": IMAGE}))
    assert not (answers / "argv").exists()


def lab(folder: Path, image: dict[str, object]) -> StackConfig:
    """The shipped stack of machines of one's own, with this image."""
    values = yaml.safe_load((ROOT / "stacks" / "Pulumi.hosts-lab.yaml").read_text())
    values["config"]["gangway:image"] = image
    path = folder / "Pulumi.hosts-lab.yaml"
    path.write_text(yaml.safe_dump(values))
    return from_file(path)


def refused(folder: Path, image: dict[str, object]) -> str:
    with pytest.raises(ExceptionGroup) as caught:
        lab(folder, image)
    return " ".join(str(one) for one in caught.value.exceptions)


def test_a_stack_file_whose_signature_does_not_hold_is_no_plan(tmp_path: Path) -> None:
    private, public = key_pair(tmp_path)
    payload, signature = signed_payload(private, signed_name(IMAGE), "sha256:" + "cd" * 32)
    said = refused(
        tmp_path,
        {"prebuilt": IMAGE, "signature": {"public_key": public, "payload": payload, "signature": signature}},
    )
    assert "gangway:image.signature.payload: is of another image" in said


@pytest.mark.parametrize("section", [{}, {"payload": "eA=="}, {**KEYLESS, "payload": "eA=="}, {"identity": "a"}])
def test_half_a_signature_is_refused(tmp_path: Path, section: dict[str, str]) -> None:
    said = refused(tmp_path, {"prebuilt": IMAGE, "signature": section})
    assert "public_key, payload and signature" in said


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """A registry on loopback, with a real image: go-containerregistry's `crane`, where it and cosign are."""
    if not (shutil.which("cosign") and shutil.which("crane")):
        pytest.skip("no cosign and crane on this machine")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{free.getsockname()[1]}"
    serving = subprocess.Popen(["crane", "registry", "serve", "--address", at], stderr=subprocess.DEVNULL)
    try:
        (tmp_path / "layer").mkdir()
        (tmp_path / "layer" / "file").write_text("x")
        subprocess.run(["tar", "cf", f"{tmp_path}/layer.tar", "-C", f"{tmp_path}/layer", "file"], check=True)
        append = ["crane", "append", "--insecure", "--new_layer", f"{tmp_path}/layer.tar", "--new_tag", f"{at}/g/t:1"]
        deadline = time.monotonic() + 30
        while subprocess.run(append, capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline, "the registry does not answer"
            time.sleep(0.1)
        digest = subprocess.run(
            ["crane", "digest", "--insecure", f"{at}/g/t:1"], capture_output=True, text=True, check=True
        ).stdout.strip()
        yield f"{at}/g/t@{digest}"
    finally:
        serving.kill()
        serving.wait()


def test_real_cosigns_signature_holds(registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    monkeypatch.setenv("COSIGN_YES", "true")
    monkeypatch.chdir(tmp_path)
    subprocess.run(["cosign", "generate-key-pair"], capture_output=True, check=True)
    sign = ["cosign", "sign", "--key", "cosign.key", "--tlog-upload=false", "--new-bundle-format=false"]
    version = subprocess.run(["cosign", "version"], capture_output=True, text=True, check=True).stdout
    old = ["--use-signing-config=false"] if "v3." in version else []
    subprocess.run([*sign, *old, registry], capture_output=True, check=True)
    (signed,) = get_signatures(registry)
    public = (tmp_path / "cosign.pub").read_text()
    held = checked_signature(registry, public, signed.payload, signed.signature, signed_name(registry))
    assert held.name == signed_name(registry)
