"""The key by which a job's nodes know each other: from the cloud's store to the container, and nowhere else."""

import os
from pathlib import Path
from typing import Any

import pytest

from components.core.member_key import new_member_key
from images.aws import AwsHeadSpec, AwsNodeSpec, aws_docker_argv, render_aws_head, render_aws_node

FILE = "/run/gangway-member.pem"
PEM = new_member_key("demo")


@pytest.fixture
def booting(machine: Any, tmp_path: Path) -> Any:
    machine.more_settings["TRAINER_UID"] = str(os.getuid())
    machine.env["GANGWAY_MEMBER_FILE"] = f"{tmp_path}/member.pem"
    (tmp_path / "parameter").write_text(PEM)
    machine.fake("aws", f'[ "$1" != ssm ] || cat {tmp_path}/parameter')
    return machine


def test_it_is_asked_for_by_its_name_and_is_the_trainers_alone(booting: Any, tmp_path: Path) -> None:
    done = booting.run("fetch-key.sh")
    assert done.returncode == 0, done.stderr
    (call,) = booting.asked("ssm")
    assert call[:2] == ["ssm", "get-parameter"]
    assert call[call.index("--name") + 1] == "/gangway/demo/member-key"
    assert "--with-decryption" in call
    assert (tmp_path / "member.pem").read_text() == PEM
    assert (tmp_path / "member.pem").stat().st_mode & 0o777 == 0o400
    assert not (tmp_path / "member.pem.new").exists()
    assert "PRIVATE" not in done.stdout + done.stderr


@pytest.mark.parametrize("answer", ["", "AccessDenied", PEM.partition("-----BEGIN CERTIFICATE")[0]])
def test_a_node_without_it_gives_itself_up(booting: Any, tmp_path: Path, answer: str) -> None:
    (tmp_path / "parameter").write_text(answer)
    done = booting.run("fetch-key.sh", KEY_DEADLINE_SEC="0")
    assert done.returncode == 1
    assert not (tmp_path / "member.pem").exists()
    event = next(line for line in booting.events() if line["event"] == "node-given-up")
    assert event["reason"].startswith("cannot read /gangway/demo/member-key")


def test_it_is_waited_for(booting: Any) -> None:
    """Rights are heeded a little later than they are made."""
    tries = f"{booting.root}/tries"
    booting.fake("aws", f'echo >>{tries}; [ "$(wc -l <{tries})" -gt 2 ] && cat {booting.root}/parameter')
    assert booting.run("fetch-key.sh", KEY_DEADLINE_SEC="20").returncode == 0


def test_launcher_and_store_have_its_file_and_user_data_its_name(node: AwsNodeSpec, head: AwsHeadSpec) -> None:
    argv = aws_docker_argv(node)
    image = argv.index(node.job.image)
    assert argv[argv.index(f"type=bind,source={FILE},target={FILE},readonly") - 1] == "--mount"
    launcher = argv[image + 1 :]
    assert launcher[launcher.index("--member-key") + 1] == FILE
    assert launcher.index("--member-key") < launcher.index("--rdzv-backend=gangway"), "the launcher's own come first"
    store = next(line for line in render_aws_head(head).splitlines() if "trainer.launch.rendezvous" in line)
    assert f"--mount type=bind,source={FILE},target={FILE},readonly" in store
    assert f"-m trainer.launch.rendezvous --member-key {FILE} --port" in store
    for text in (render_aws_node(node), render_aws_head(head)):
        assert "fetch-key.sh" in text
        assert "/gangway/demo/member-key" in text


def test_a_node_alone_has_none(plain_node: AwsNodeSpec) -> None:
    text = render_aws_node(plain_node)
    assert "fetch-key.sh" not in text
    assert FILE not in text
