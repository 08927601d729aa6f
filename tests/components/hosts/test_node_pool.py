"""HostPool: what each machine is handed and told, and what stands before what."""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pulumi
import pytest
from pulumi.runtime import rpc
from pydantic import TypeAdapter

from gangway.components.core.capacity import AnyRung, Rung
from gangway.components.core.findings import InputError
from gangway.components.hosts.node_pool import MEMBER_KEY, SIGNING_KEY, HostPool, HostPoolArgs, check_ladder
from tests.components.fixture_types import Make

SCRIPT = "#!/usr/bin/env bash\necho made\n"


def machine(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "name": f"dgx-{number}",
        "address": f"10.20.0.{number}",
        "port": 22,
        "user": "gangway",
        "host_key": "ssh-ed25519 AAAA",
        "installer": SCRIPT,
        **changes,
    }


@pytest.fixture
def make(declare: Make) -> Make:
    """Declares a pool called lab."""

    def run(*machines: dict[str, Any], private_key: str | None = None, keys: dict[str, str] | None = None) -> Any:
        given = {"machines": list(machines), "private_key": private_key, "keys": keys or {}}
        args = cast("HostPoolArgs", given)
        return declare(lambda: HostPool("lab", args))

    return run


def opened(value: Any) -> Any:
    """A secret of the wire, which has to be one."""
    assert value[rpc._special_sig_key] == rpc._special_secret_sig
    return value["value"]


def test_a_machine_is_handed_the_script_and_told_to_install_it(make: Make) -> None:
    made = make(machine(1))
    copy, command = made.one("CopyToRemote"), made.one("Command")
    digest = hashlib.sha256(SCRIPT.encode()).hexdigest()
    assert isinstance(copy.inputs["source"], pulumi.StringAsset)
    assert copy.inputs["source"].text == SCRIPT
    assert copy.inputs["remotePath"] == ".gangway-lab-dgx-1.sh", "a new file in the user's home, for SFTP knows no sudo"
    assert copy.inputs["triggers"] == [digest]
    assert f"$as_root bash .gangway-lab-dgx-1.sh install {digest} dgx-1" in command.inputs["create"]
    assert command.inputs["update"] == command.inputs["create"]
    assert "bash /opt/gangway/installer.sh remove dgx-1" in command.inputs["delete"]
    # The SDK replaces a command whose triggers change, and its old `delete` would come after the new `create`.
    assert "triggers" not in command.inputs
    assert command.inputs["addPreviousOutputInEnv"] is False


def test_the_connection_is_a_secret_and_believes_one_key(make: Make) -> None:
    made = make(machine(1, port=2222, user="root"), private_key="nobody's")
    connections = [opened(resource.inputs["connection"]) for resource in made.resources if resource.custom]
    assert connections
    for connection in connections:
        assert connection["host"] == "10.20.0.1"
        assert (connection["port"], connection["user"]) == (2222, "root")
        assert connection["hostKey"] == "ssh-ed25519 AAAA"
        assert "nobody's" in str(connection["privateKey"])


@pytest.mark.parametrize(("name", "file"), [("member", MEMBER_KEY), ("signing", SIGNING_KEY)])
def test_a_key_comes_by_standard_input_before_anything_is_started(make: Make, name: str, file: str) -> None:
    made = make(machine(1), machine(2), keys={MEMBER_KEY: "PEM", SIGNING_KEY: "PEM"})
    commands = {resource.name: resource for resource in made.resources if resource.type.endswith(":Command")}
    for host in ("dgx-1", "dgx-2"):
        key, services = commands[f"lab-{host}-{name}-key"], commands[f"lab-{host}-services"]
        assert opened(key.inputs["stdin"]) == "PEM"
        assert "PEM" not in key.inputs["create"] + key.inputs["update"] + key.inputs["delete"]
        assert f"install -D -m 0400 /dev/stdin {file}" in key.inputs["create"]
        assert key.inputs["logging"] == "none"
        assert key.urn in services.dependencies


def test_without_a_key_the_agents_are_used_and_without_a_host_key_anybody_is_believed(make: Make) -> None:
    connection = opened(make(machine(1, host_key=None)).one("Command").inputs["connection"])
    assert not {"privateKey", "hostKey", "password"} & set(connection)


def test_the_first_machine_stands_before_the_others_and_outlives_them(make: Make) -> None:
    made = make(machine(1), machine(2), machine(3))
    urns = {resource.name: resource.urn for resource in made.resources}
    first = urns["lab-dgx-1-services"]
    for number in (2, 3):
        (command,) = [r for r in made.of("Command") if r.name == f"lab-dgx-{number}-services"]
        assert {first, urns[f"lab-dgx-{number}-files"]} <= command.dependencies
    (head,) = [r for r in made.of("Command") if r.urn == first]
    assert head.dependencies == {urns["lab-dgx-1-files"]}


@pytest.mark.parametrize(("uid", "rights"), [("0", ""), ("1000", "sudo -n ")])
def test_any_users_shell_runs_the_words_with_roots_rights(make: Make, tmp_path: Path, uid: str, rights: str) -> None:
    """The words pass a shell of the machine, so a real one says what they come to."""
    command = make(machine(1)).one("Command")
    for name, body in {"id": f"echo {uid}", "sudo": 'echo "sudo $*" >>said', "bash": 'echo "bash $*" >>said'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    (tmp_path / ".gangway-lab-dgx-1.sh").touch()
    for word in ("create", "delete"):
        subprocess.run(["/bin/sh", "-c", command.inputs[word]], cwd=tmp_path, env=env, check=True)
    digest = hashlib.sha256(SCRIPT.encode()).hexdigest()
    assert (tmp_path / "said").read_text() == f"{rights}bash .gangway-lab-dgx-1.sh install {digest} dgx-1\n"
    assert not (tmp_path / ".gangway-lab-dgx-1.sh").exists(), "nothing is installed here: the copy alone goes"


RUNGS: TypeAdapter[list[AnyRung]] = TypeAdapter(list[Rung])
ON_DEMAND: dict[str, Any] = {"kind": "on-demand"}


def test_machines_that_are_there_are_on_demand() -> None:
    check_ladder(RUNGS.validate_python([ON_DEMAND]))


@pytest.mark.parametrize(
    ("rungs", "place", "said"),
    [
        ([{"kind": "spot"}], "gangway:cluster.capacity[0].kind", "takes them back"),
        ([{"kind": "reservation", "id": "r"}], "gangway:cluster.capacity[0].kind", "reserves them"),
        ([ON_DEMAND, {"kind": "spot"}], "gangway:cluster.capacity[1].kind", "on-demand"),
        ([{**ON_DEMAND, "machine_types": ["dgx"]}], "gangway:cluster.capacity[0]", "no machine_types and no zones"),
        ([{**ON_DEMAND, "zones": ["rack-2"]}], "gangway:cluster.capacity[0]", "'rack-2'"),
        ([ON_DEMAND, ON_DEMAND], "gangway:cluster.capacity", "no other machines to turn to"),
    ],
)
def test_every_other_way_to_get_machines_is_refused(rungs: list[dict[str, Any]], place: str, said: str) -> None:
    with pytest.raises(InputError, match="fix") as caught:
        check_ladder(RUNGS.validate_python(rungs))
    assert caught.value.place == place
    assert said in str(caught.value)
