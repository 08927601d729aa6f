"""Checks of existing machines: a script in place of ssh, which keeps its arguments."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.live.preflight.check import Result, State
from gangway.live.preflight.hosts import get_checks
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan


@pytest.fixture(scope="module")
def plan(repo: Path) -> Plan:
    return make_plan(from_file(repo / "stacks" / "Pulumi.hosts-lab.yaml"))


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    def install(script: str) -> Path:
        program = tmp_path / "ssh"
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/arguments\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return tmp_path / "arguments"

    return install


@pytest.mark.parametrize(
    ("script", "state", "words"),
    [
        ("exit 0", State.OK, "logged in, with root rights and docker"),
        ("exit 3", State.ERROR, "sudo without a password"),
        ("exit 4", State.ERROR, "install docker"),
        ("echo 'ssh: connect to host: Connection refused' >&2; exit 255", State.ERROR, "Connection refused"),
        ("echo 'Permission denied (publickey).' >&2; exit 255", State.ERROR, "work without a password"),
    ],
)
def test_each_machine_is_tried(ssh: Any, plan: Plan, outcomes: Any, script: str, state: State, words: str) -> None:
    arguments = ssh(script)
    found = outcomes(get_checks(plan))
    results: set[Result] = {answer.result for answer in found.values()}
    assert {result.state for result in results} == {state}
    assert all(words in f"{result.answer} {result.fix}" for result in results)
    lines = arguments.read_text().splitlines()
    assert lines.count("BatchMode=yes") == len(found) >= 2
    assert not [line for line in lines if "password" in line.lower()]


def test_without_ssh_there_is_one_error(plan: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="ssh is not installed here"):
        get_checks(plan)
