"""The record's signature: made by root with OpenSSL's own command, put before the record, on every cloud."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.signing_key import new_signing_key
from gangway.images.openstack import SECRETS_FILE
from gangway.runs.signatures import ForgedError, get_signature, read_public_key

PEM = new_signing_key()
NAME = "demo-signing-key"


@pytest.fixture
def trusted(tmp_path: Path) -> str:
    (tmp_path / "signer.pem").write_text(PEM)
    return read_public_key(tmp_path / "signer.pem", "--key")


@pytest.fixture
def on_aws(machine: Any, tmp_path: Path) -> Any:
    machine.plan(run_dir=f"{tmp_path}/run", file_system=None)
    machine.more_settings["SIGNING_KEY"] = NAME
    copy = f'target={tmp_path}/bucket/$(basename "${{@: -1}}"); mkdir -p {tmp_path}/bucket'
    machine.fake(
        "aws", f'case $1 in ssm) cat {tmp_path}/signer.pem;; s3) {copy}; cp -r "${{@: -2:1}}" "$target";; esac'
    )
    return machine


@pytest.fixture
def on_google(gcp_machine: Any, tmp_path: Path) -> Any:
    gcp_machine.plan(run_dir=f"{tmp_path}/run", file_system=None, data=None)
    gcp_machine.more_settings["SIGNING_KEY"] = NAME
    gcp_machine.gce.secrets[NAME] = PEM.encode()
    return gcp_machine


@pytest.fixture
def on_azure(azure_machine: Any, tmp_path: Path) -> Any:
    url = "https://demo-members12345678.vault.azure.net/secrets/signing-key"
    azure_machine.plan(run_dir=f"{tmp_path}/run", file_system=None, signing_key=url)
    azure_machine.vm.secrets["demo-members12345678/signing-key"] = PEM
    return azure_machine


@pytest.fixture
def on_openstack(openstack_machine: Any, swift: Any, tmp_path: Path) -> Any:
    openstack_machine.cloud = swift
    openstack_machine.plan(run_dir=f"{tmp_path}/run", file_system=None, mount_user="", signing_key=SECRETS_FILE)
    openstack_machine.secrets = replace(openstack_machine.secrets, signing_key=PEM)
    return openstack_machine


def in_bucket(worker: Any, name: str) -> bytes:
    """What the run bucket has of the run, by the end of its name."""
    if hasattr(worker, "gce"):
        return bytes(worker.gce.objects[f"gangway-records/demo/dcgan-celeba64/{name}"])
    if hasattr(worker, "vm"):
        (key,) = [key for key in worker.vm.blobs if key.endswith(f"/dcgan-celeba64/{name}")]
        return bytes(worker.vm.blobs[key])
    if hasattr(worker, "cloud"):
        (key,) = [key for key in worker.cloud.objects if key.endswith(f"/dcgan-celeba64/{name}")]
        return bytes(worker.cloud.objects[key])
    return Path(worker.root / "bucket" / name).read_bytes()


def fetched(worker: Any, folder: Path) -> tuple[Path, bytes]:
    """The record and its signature, as whoever reads them has them."""
    for name in ("run.json", "run.json.sig"):
        (folder / name).write_bytes(in_bucket(worker, name))
    return folder / "run.json", (folder / "run.json").read_bytes()


def writes(worker: Any, text: str) -> None:
    """As the trainer does: a new file, by its name."""
    run = worker.root / "run"
    run.mkdir(exist_ok=True)
    (run / "new").write_text(text)
    (run / "new").rename(run / "run.json")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["on_aws", "on_google", "on_azure", "on_openstack"])
def test_what_is_put_is_signed_and_a_reader_in_between_has_the_signature_of_what_he_read(
    name: str, trusted: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    worker = request.getfixturevalue(name)
    writes(worker, '{"first": 1}')
    assert worker.run("upload-record.sh").returncode == 0
    record, first = fetched(worker, tmp_path)
    assert get_signature(record, first, trusted).state == "valid"
    writes(worker, '{"second": 2}')
    done = worker.run("upload-record.sh")
    assert done.returncode == 0
    record, second = fetched(worker, tmp_path)
    for content in (first, second):
        assert get_signature(record, content, trusted).state == "valid"
    with pytest.raises(ForgedError, match="changed after it was signed"):
        get_signature(record, second + b" ", trusted)
    assert "PRIVATE" not in done.stdout + done.stderr
    assert "PRIVATE" not in in_bucket(worker, "run.json.sig").decode()


def test_the_signature_comes_first_and_the_key_is_roots(on_aws: Any, trusted: str) -> None:
    writes(on_aws, "{}")
    on_aws.run("upload-record.sh")
    puts = [call[-1].rpartition("/")[2] for call in on_aws.asked("s3") if call[-1].endswith((".json", ".sig"))]
    assert puts == ["run.json.sig", "run.json"]
    assert on_aws.state("signing.pem").stat().st_mode & 0o777 == 0o600
    assert str(on_aws.root / "run") not in str(on_aws.state("signing.pem")), "not where the container writes"


def test_what_is_tried_again_keeps_the_last_records_signature(on_aws: Any, trusted: str, tmp_path: Path) -> None:
    writes(on_aws, '{"first": 1}')
    on_aws.run("upload-record.sh")
    record, first = fetched(on_aws, tmp_path)
    writes(on_aws, '{"second": 2}')
    for _ in range(2):
        on_aws.state("uploaded").unlink()
        assert on_aws.run("upload-record.sh").returncode == 0
    record.with_name("run.json.sig").write_bytes(in_bucket(on_aws, "run.json.sig"))
    assert get_signature(record, first, trusted).state == "valid"


def test_without_a_key_the_record_is_put_unsigned_and_it_is_told(on_google: Any, trusted: str, tmp_path: Path) -> None:
    """An old signature beside it would make a forged record of it."""
    writes(on_google, '{"first": 1}')
    on_google.run("upload-record.sh")
    on_google.state("signing.pem").unlink()
    on_google.gce.secrets.clear()
    writes(on_google, '{"second": 2}')
    done = on_google.run("upload-record.sh")
    assert done.returncode == 0
    record, content = fetched(on_google, tmp_path)
    assert content == b'{"second": 2}'
    assert get_signature(record, content, trusted).state == "unsigned"
    assert "record-not-signed" in [line["event"] for line in on_google.events()]


def test_a_machine_on_azure_whose_key_is_gone_says_so(on_azure: Any, trusted: str, tmp_path: Path) -> None:
    on_azure.vm.secrets.clear()
    writes(on_azure, '{"first": 1}')
    assert on_azure.run("upload-record.sh").returncode == 0
    record, content = fetched(on_azure, tmp_path)
    assert get_signature(record, content, trusted).state == "unsigned"
    assert "record-not-signed" in [line["event"] for line in on_azure.events()]


def test_a_machine_on_openstack_that_fetched_before_there_was_a_key_says_so(
    on_openstack: Any, trusted: str, tmp_path: Path
) -> None:
    on_openstack.write_settings(None)
    older = json.loads((on_openstack.root / "secrets.json").read_text())
    del older["signing_key"]
    (on_openstack.root / "secrets.json").write_text(json.dumps(older))
    on_openstack.secrets = None
    writes(on_openstack, '{"first": 1}')
    done = on_openstack.run("upload-record.sh")
    assert done.returncode == 0
    assert "have no signing_key" in done.stderr
    assert "cannot sign run.json" in done.stderr
    record, content = fetched(on_openstack, tmp_path)
    assert get_signature(record, content, trusted).state == "unsigned"
