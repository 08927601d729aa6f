"""Machines that are there already under the real Pulumi engine: what is run on which of them, and in which order."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytestmark = pytest.mark.engine

Edit = Callable[[dict[str, Any]], None]
FIRST, SECOND, NEW = "10.20.0.11", "10.20.0.12", "10.20.0.13"
# Begun by a new line: on a command line it is a value then, and no option.
KEY = "\n-----BEGIN OPENSSH PRIVATE KEY-----\nnobody's\n-----END OPENSSH PRIVATE KEY-----\n"
COMMAND, COPY = "command:remote:Command", "command:remote:CopyToRemote"


@pytest.fixture
def machines(make_engine: Any, running_plugin: Any) -> Callable[[str], Any]:
    """Has a shipped stack's engine; the plugin runs all the while."""

    @contextmanager
    def of(stack: str) -> Iterator[Any]:
        made = make_engine(stack)
        with running_plugin("command", made.cloud) as plugin:
            made.env["PULUMI_DEBUG_PROVIDERS"] = f"command:{plugin.port}"
            yield made

    return of


@pytest.fixture
def lab(machines: Callable[[str], Any]) -> Iterator[Any]:
    """Machines for one job after the other."""
    with machines("hosts-lab") as made:
        yield made


@pytest.fixture
def slurm(machines: Callable[[str], Any]) -> Iterator[Any]:
    """Machines with a queue."""
    with machines("hosts-slurm") as made:
        yield made


def asked(engine: Any) -> list[dict[str, Any]]:
    """What was asked of machines since the last time."""
    log = engine.cloud / "commands.jsonl"
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def verbs(engine: Any) -> list[tuple[str, str]]:
    """Machine and verb, in their order."""
    return [(line["host"], line["verb"]) for line in asked(engine)]


def test_machines_are_given_their_services_and_freed_of_them(lab: Any, set_value: Callable[..., Edit]) -> None:
    """One life for all phases."""
    preview_touches_no_machine(lab)
    up_installs_the_first_machine_first(lab)
    second_up_asks_for_nothing(lab)
    a_new_key_of_the_user_is_a_secret(lab)
    a_longer_job_is_put_on_all(lab, set_value)
    another_address_is_another_machine(lab)
    destroy_ends_the_first_machine_last(lab, NEW, "member.pem")


def preview_touches_no_machine(lab: Any) -> None:
    preview = lab.run("preview")
    assert preview.status == 0, preview.text
    assert set(preview.changes) == {"create"}
    assert "gangway:budget: there is no bill for these machines" in preview.text
    assert (lab.resources(), asked(lab)) == ([], [])


def up_installs_the_first_machine_first(lab: Any) -> None:
    lab.applied("up")
    lines = asked(lab)
    the_first_is_complete_before_the_second(lines)
    told = [(line["host"], line["text"]) for line in lines if line["verb"] == "create"]
    for host in (FIRST, SECOND):
        *keys, services = (text for name, text in told if name == host)
        for name in ("member", "signing"):
            assert any(f"install -D -m 0400 /dev/stdin /etc/gangway/{name}.pem" in key for key in keys)
        assert "$as_root bash .gangway-hosts-lab-dgx-" in services
    assert "BEGIN PRIVATE" not in lab.plain("stack", "export"), "they are secrets of the state"
    exports = json.loads(lab.plain("stack", "output", "--json", "--show-secrets"))
    assert exports["signing_public_key"].startswith("-----BEGIN PUBLIC KEY-----")
    assert exports["group_names"] == ["dgx-1", "dgx-2"]
    assert exports["run_bucket_url"] == "s3://my-bucket/runs"
    assert exports["job"]["rendezvous"]["host"] == "10.30.0.11"


def the_first_is_complete_before_the_second(lines: list[dict[str, Any]]) -> None:
    places = {(line["host"], line["verb"]): place for place, line in enumerate(lines)}
    assert set(places) == {(host, verb) for host in (FIRST, SECOND) for verb in ("copy", "create")}
    assert places[FIRST, "copy"] < places[FIRST, "create"] < places[SECOND, "create"] == len(lines) - 1
    for line in lines:
        assert line["connection"]["user"] == "gangway"
        assert line["connection"]["hostKey"].startswith("ssh-ed25519 ")
        assert "privateKey" not in line["connection"]


def second_up_asks_for_nothing(lab: Any) -> None:
    again = lab.applied("up", "--expect-no-changes")
    assert set(again.changes) == {"same"}
    lab.applied("refresh", "--expect-no-changes")
    assert asked(lab) == []


def a_new_key_of_the_user_is_a_secret(lab: Any) -> None:
    """Nothing is new to the machines; what matters is that nothing is taken away, and that the key stays secret."""
    lab.plain("config", "set", "--path", "--secret", "gangway:hosts.private_key", KEY, "--stack", lab.stack)
    lab.applied("up")
    lines = asked(lab)
    assert {(line["host"], line["verb"]) for line in lines} == {
        (host, verb) for host in (FIRST, SECOND) for verb in ("copy", "update")
    }
    assert {line["connection"]["privateKey"] for line in lines} == {KEY}
    assert "nobody's" in lab.plain("stack", "export", "--show-secrets")
    assert "nobody's" not in lab.plain("stack", "export")
    files = [file for file in lab.state.rglob("*") if file.is_file()]
    assert any(b"hosts-lab-dgx-1-services" in file.read_bytes() for file in files), "no state where it was looked for"
    assert not [file for file in files if b"nobody's" in file.read_bytes()]


def a_longer_job_is_put_on_all(lab: Any, set_value: Callable[..., Edit]) -> None:
    lab.change(set_value("job.kimg", 30000))
    up = lab.applied("up")
    # No command is replaced: its `delete` would take away what the new one has just put there.
    assert COMMAND not in up.types("replace")
    lines = asked(lab)
    assert [line["verb"] for line in lines].count("update") == 2
    assert {line["verb"] for line in lines} == {"copy", "update"}
    assert all("30000" in line["text"] for line in lines if line["verb"] == "copy")


def another_address_is_another_machine(lab: Any) -> None:
    def move(config: dict[str, Any]) -> None:
        config["gangway:hosts"]["machines"][1]["address"] = NEW

    lab.change(move)
    up = lab.applied("up")
    assert up.types("replace") == {COMMAND, COPY}
    done = verbs(lab)
    assert set(done) == {(SECOND, "delete"), (NEW, "copy"), (NEW, "create")}
    assert done.index((SECOND, "delete")) < done.index((NEW, "create"))


def destroy_ends_the_first_machine_last(engine: Any, other: str, key: str) -> None:
    engine.applied("destroy")
    lines = asked(engine)
    assert {line["verb"] for line in lines} == {"delete"}
    services = {line["host"]: at for at, line in enumerate(lines) if "installer.sh remove dgx-" in line["text"]}
    assert list(services) == [other, FIRST]
    keyless = [(at, line["host"]) for at, line in enumerate(lines) if f"rm -f /etc/gangway/{key}" in line["text"]]
    assert {host for _, host in keyless} == {other, FIRST}
    assert all(at > services[host] for at, host in keyless), "the key goes last"
    assert engine.resources() == []
    assert json.loads(engine.plain("stack", "export"))["deployment"].get("resources", []) == []


def test_a_slurm_is_put_on_them_and_taken_away(slurm: Any) -> None:
    """One life for all phases, as above."""
    preview_touches_no_machine(slurm)
    up_begins_with_the_controller(slurm)
    key = the_only_munge_key(slurm)
    second_up_asks_for_nothing(slurm)
    one_more_is_told_to_all(slurm)
    assert the_only_munge_key(slurm) == key, "or the machines would not know each other until all have the new one"
    one_less_is_told_to_the_others(slurm)
    destroy_ends_the_first_machine_last(slurm, SECOND, "munge.key")


def up_begins_with_the_controller(slurm: Any) -> None:
    slurm.applied("up")
    lines = asked(slurm)
    the_first_is_complete_before_the_second(lines)
    scripts = {line["host"]: line["text"] for line in lines if line["verb"] == "copy"}
    assert [host for host, text in scripts.items() if "ExecStart=/usr/sbin/slurmctld" in text] == [FIRST]
    for host in (FIRST, SECOND):
        kept, services = (line["text"] for line in lines if (line["host"], line["verb"]) == (host, "create"))
        assert "install -D -m 0400 /dev/stdin /etc/gangway/munge.key" in kept
        assert "$as_root bash .gangway-hosts-slurm-dgx-" in services
    exports = json.loads(slurm.plain("stack", "output", "--json", "--show-secrets"))
    assert exports["group_names"] == ["dgx-1", "dgx-2"]
    assert exports["host_addresses"] == [FIRST, SECOND]
    assert exports["submit_on"] == "slurm:/shared/gangway/jobs@main"


def the_only_munge_key(slurm: Any) -> str:
    """That all machines have, and nobody reads in the state."""
    [key] = {each["inputs"]["stdin"] for each in slurm.resources() if each["urn"].endswith("-munge-key")}
    assert len(key) == 128
    assert key in slurm.plain("stack", "export", "--show-secrets")
    assert key not in slurm.plain("stack", "export")
    return str(key)


def sized(slurm: Any, edit: Edit) -> Any:
    """Other machines, all of which are nodes."""

    def all_of_them(config: dict[str, Any]) -> None:
        edit(config)
        number = len(config["gangway:hosts"]["machines"])
        config["gangway:cluster"]["nodes"] = {"min": number, "max": number}

    slurm.change(all_of_them)
    return slurm.applied("up")


def one_more_is_told_to_all(slurm: Any) -> None:
    def add(config: dict[str, Any]) -> None:
        known = config["gangway:hosts"]["machines"]
        known.append({**known[0], "name": "dgx-3", "address": NEW, "cluster_address": "10.30.0.13"})

    up = sized(slurm, add)
    assert COMMAND not in up.types("replace")
    lines = asked(slurm)
    assert [line["host"] for line in lines if line["verb"] == "update"] == [FIRST, SECOND]
    assert {line["host"] for line in lines if line["verb"] == "create"} == {NEW}
    scripts = {line["host"]: line["text"] for line in lines if line["verb"] == "copy"}
    assert scripts.keys() == {FIRST, SECOND, NEW}
    assert all("NodeAddr=10.30.0.13" in text for text in scripts.values())


def one_less_is_told_to_the_others(slurm: Any) -> None:
    sized(slurm, lambda config: config["gangway:hosts"]["machines"].pop())
    lines = asked(slurm)
    assert [line["host"] for line in lines if line["verb"] == "update"] == [FIRST, SECOND]
    assert {line["host"] for line in lines if line["verb"] == "delete"} == {NEW}
    assert all("dgx-3" not in line["text"] for line in lines if line["verb"] == "copy")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("hosts.private_key", KEY, ["gangway:hosts.private_key: a private key in plain text", "pulumi config set"]),
        ("cluster.capacity", [{"kind": "spot"}], ["gangway:cluster.capacity[0].kind", "takes them back"]),
        ("cluster.nodes", {"min": 1, "max": 3}, ["gangway:cluster.nodes.max", "set nodes: {min: 1, max: 2}"]),
        ("storage", {"kind": "lustre", "capacity_gib": 9600}, ["gangway:storage: of no effect", "shared_dir"]),
        ("hosts.shared_dir", None, ["gangway:hosts.shared_dir", "storage.not-shared"]),
    ],
)
def test_a_mistake_is_one_message_and_no_machine_is_touched(
    make_engine: Any, set_value: Callable[..., Edit], path: str, value: Any, said: list[str]
) -> None:
    lab = make_engine("hosts-lab")
    lab.change(set_value(path, value))
    outcome = lab.run("up", "--yes", "--skip-preview")
    assert outcome.status != 0
    for words in said:
        assert words in outcome.text
    assert "Traceback" not in outcome.text
    assert "nobody's" not in outcome.text
    assert (lab.resources(), asked(lab)) == ([], [])
