"""The record's signature: made by root with OpenSSL's own command, put before the record, on every cloud."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.keys import new_member_key, new_signing_key
from gangway.images.aws import AwsNodeSpec, aws_docker_argv, render_aws_head, render_aws_node
from gangway.images.azure import azure_docker_argv, render_azure_head, render_azure_node
from gangway.images.gcp import GcpNodeSpec, gcp_docker_argv, render_gcp_head, render_gcp_node
from gangway.images.openstack import SECRETS_FILE, openstack_docker_argv, render_openstack_head, render_openstack_node
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


FILE = "/run/gangway-member.pem"
MEMBER_PEM = new_member_key("demo")


@pytest.fixture
def member_on_aws(machine: Any, tmp_path: Path) -> Any:
    (tmp_path / "parameter").write_text(MEMBER_PEM)
    machine.fake("aws", f'[ "$1" != ssm ] || cat {tmp_path}/parameter')
    return machine


@pytest.fixture
def member_on_google(gcp_machine: Any, gce: Any, gcp_node: GcpNodeSpec) -> Any:
    gce.secrets[gcp_node.member_key] = MEMBER_PEM.encode()
    return gcp_machine


@pytest.fixture
def member_on_azure(azure_machine: Any, azure_vm: Any) -> Any:
    azure_vm.secrets["demo-members12345678/member-key"] = MEMBER_PEM
    return azure_machine


@pytest.fixture(params=["member_on_aws", "member_on_google", "member_on_azure"])
def booting(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = request.getfixturevalue(request.param)
    made.more_settings["TRAINER_UID"] = str(os.getuid())
    made.env["GANGWAY_MEMBER_FILE"] = f"{tmp_path}/member.pem"
    return made


def test_it_is_the_trainers_alone(booting: Any, tmp_path: Path) -> None:
    done = booting.run("fetch-key.sh")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "member.pem").read_text() == MEMBER_PEM
    assert (tmp_path / "member.pem").stat().st_mode & 0o777 == 0o400
    assert not (tmp_path / "member.pem.new").exists()
    assert "PRIVATE" not in done.stdout + done.stderr


def test_on_aws_it_is_asked_for_by_its_name(member_on_aws: Any, tmp_path: Path) -> None:
    member_on_aws.more_settings["TRAINER_UID"] = str(os.getuid())
    assert member_on_aws.run("fetch-key.sh", MEMBER_FILE=f"{tmp_path}/member.pem").returncode == 0
    (call,) = member_on_aws.asked("ssm")
    assert call[:2] == ["ssm", "get-parameter"]
    assert call[call.index("--name") + 1] == "/gangway/demo/member-key"
    assert "--with-decryption" in call


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["", "AccessDenied", MEMBER_PEM.partition("-----BEGIN CERTIFICATE")[0]])
def test_a_node_without_it_gives_itself_up(booting: Any, gce: Any, azure_vm: Any, tmp_path: Path, answer: str) -> None:
    (tmp_path / "parameter").write_text(answer)
    azure_vm.secrets = dict.fromkeys(azure_vm.secrets, answer)
    gce.secrets = dict.fromkeys(gce.secrets, answer.encode())
    done = booting.run("fetch-key.sh", KEY_DEADLINE_SEC="0")
    assert done.returncode == 1
    assert not (tmp_path / "member.pem").exists()
    event = next(line for line in booting.events() if line["event"] == "node-given-up")
    assert re.match("cannot read the member key .*demo.*member-key", event["reason"])


def test_it_is_waited_for(member_on_aws: Any, tmp_path: Path) -> None:
    """Rights are heeded a little later than they are made."""
    tries = f"{tmp_path}/tries"
    member_on_aws.more_settings["TRAINER_UID"] = str(os.getuid())
    member_on_aws.fake("aws", f'echo >>{tries}; [ "$(wc -l <{tries})" -gt 2 ] && cat {tmp_path}/parameter')
    done = member_on_aws.run("fetch-key.sh", KEY_DEADLINE_SEC="20", MEMBER_FILE=f"{tmp_path}/member.pem")
    assert done.returncode == 0


RENDERED: dict[str, tuple[Any, Any, Any, str]] = {
    "aws": (aws_docker_argv, render_aws_node, render_aws_head, ""),
    "google": (gcp_docker_argv, render_gcp_node, render_gcp_head, "gcp_"),
    "azure": (azure_docker_argv, render_azure_node, render_azure_head, "azure_"),
    "openstack": (openstack_docker_argv, render_openstack_node, render_openstack_head, "openstack_"),
}


@pytest.mark.parametrize("cloud", RENDERED)
def test_launcher_and_store_have_its_file_and_user_data_its_name(cloud: str, request: pytest.FixtureRequest) -> None:
    docker_argv, render_node, render_head, prefix = RENDERED[cloud]
    node, head = (request.getfixturevalue(f"{prefix}{role}") for role in ("node", "head"))
    argv = docker_argv(node)
    image = argv.index(node.job.image)
    assert argv[argv.index(f"type=bind,source={FILE},target={FILE},readonly") - 1] == "--mount"
    launcher = argv[image + 1 :]
    assert launcher[launcher.index("--member-key") + 1] == FILE
    assert launcher.index("--member-key") < launcher.index("--rdzv-backend=gangway"), "the launcher's own come first"
    texts = [render_node(node), render_head(head)]
    store = next(line for line in texts[1].splitlines() if "gangway.trainer.launch.rendezvous" in line)
    assert f"--mount type=bind,source={FILE},target={FILE},readonly" in store
    assert f"-m gangway.trainer.launch.rendezvous --member-key {FILE} --port" in store
    for text in texts:
        assert "fetch-key.sh" in text
        assert node.member_key in text


def test_a_node_alone_has_none(plain_node: AwsNodeSpec) -> None:
    text = render_aws_node(plain_node)
    assert "fetch-key.sh" not in text
    assert FILE not in text
