"""The key by which a job's nodes know each other: from the cloud's store to the container, and nowhere else."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.member_key import new_member_key
from gangway.images.aws import AwsNodeSpec, aws_docker_argv, render_aws_head, render_aws_node
from gangway.images.azure import azure_docker_argv, render_azure_head, render_azure_node
from gangway.images.gcp import GcpNodeSpec, gcp_docker_argv, render_gcp_head, render_gcp_node
from gangway.images.openstack import openstack_docker_argv, render_openstack_head, render_openstack_node

FILE = "/run/gangway-member.pem"
PEM = new_member_key("demo")


@pytest.fixture
def on_aws(machine: Any, tmp_path: Path) -> Any:
    (tmp_path / "parameter").write_text(PEM)
    machine.fake("aws", f'[ "$1" != ssm ] || cat {tmp_path}/parameter')
    return machine


@pytest.fixture
def on_google(gcp_machine: Any, gce: Any, gcp_node: GcpNodeSpec) -> Any:
    gce.secrets[gcp_node.member_key] = PEM.encode()
    return gcp_machine


@pytest.fixture
def on_azure(azure_machine: Any, azure_vm: Any) -> Any:
    azure_vm.secrets["demo-members12345678/member-key"] = PEM
    return azure_machine


@pytest.fixture(params=["on_aws", "on_google", "on_azure"])
def booting(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = request.getfixturevalue(request.param)
    made.more_settings["TRAINER_UID"] = str(os.getuid())
    made.env["GANGWAY_MEMBER_FILE"] = f"{tmp_path}/member.pem"
    return made


def test_it_is_the_trainers_alone(booting: Any, tmp_path: Path) -> None:
    done = booting.run("fetch-key.sh")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "member.pem").read_text() == PEM
    assert (tmp_path / "member.pem").stat().st_mode & 0o777 == 0o400
    assert not (tmp_path / "member.pem.new").exists()
    assert "PRIVATE" not in done.stdout + done.stderr


def test_on_aws_it_is_asked_for_by_its_name(on_aws: Any, tmp_path: Path) -> None:
    on_aws.more_settings["TRAINER_UID"] = str(os.getuid())
    assert on_aws.run("fetch-key.sh", MEMBER_FILE=f"{tmp_path}/member.pem").returncode == 0
    (call,) = on_aws.asked("ssm")
    assert call[:2] == ["ssm", "get-parameter"]
    assert call[call.index("--name") + 1] == "/gangway/demo/member-key"
    assert "--with-decryption" in call


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["", "AccessDenied", PEM.partition("-----BEGIN CERTIFICATE")[0]])
def test_a_node_without_it_gives_itself_up(booting: Any, gce: Any, azure_vm: Any, tmp_path: Path, answer: str) -> None:
    (tmp_path / "parameter").write_text(answer)
    azure_vm.secrets = dict.fromkeys(azure_vm.secrets, answer)
    gce.secrets = dict.fromkeys(gce.secrets, answer.encode())
    done = booting.run("fetch-key.sh", KEY_DEADLINE_SEC="0")
    assert done.returncode == 1
    assert not (tmp_path / "member.pem").exists()
    event = next(line for line in booting.events() if line["event"] == "node-given-up")
    assert re.match("cannot read .*demo.*member-key, by which nodes know each other", event["reason"])


def test_it_is_waited_for(on_aws: Any, tmp_path: Path) -> None:
    """Rights are heeded a little later than they are made."""
    tries = f"{tmp_path}/tries"
    on_aws.more_settings["TRAINER_UID"] = str(os.getuid())
    on_aws.fake("aws", f'echo >>{tries}; [ "$(wc -l <{tries})" -gt 2 ] && cat {tmp_path}/parameter')
    done = on_aws.run("fetch-key.sh", KEY_DEADLINE_SEC="20", MEMBER_FILE=f"{tmp_path}/member.pem")
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
