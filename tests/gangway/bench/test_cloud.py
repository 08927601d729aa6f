"""The Environment over Pulumi's Automation API, with a stand-in for the CLI that keeps state, delays and fails."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi.automation import PulumiCommand

from gangway.bench.cloud import SIGNER, Cloud, check_login, check_signer
from gangway.bench.processes import end_leftover, process_facts
from gangway.bench.pulumi_cli import WatchedCommand, find_cli, project_dir, read_project, write_project
from gangway.bench.suite import Item, SuiteConfig, get_items, get_run_id, stack_name
from gangway.components.core.findings import InputError
from gangway.components.core.keys import new_signing_key, public_half
from gangway.runs.run_store import RunFailedError, StoreFailedError
from gangway.runs.signatures import read_private_key, sign
from gangway.stacks.config.stack_config import StackConfig
from gangway.trainer.records.run_record import RunRecord

STAMP = "20260101-000000-abcd"


@pytest.fixture
def item(make_suite: Callable[..., SuiteConfig]) -> Item:
    return get_items(make_suite(), local=False)[0]


@pytest.fixture
def run_dir(tmp_path: Path, make_suite: Callable[..., SuiteConfig], item: Item, repo: Path) -> Path:
    """A suite's folder with the item's project."""
    folder = tmp_path / "run"
    write_project(project_dir(folder, item), item, make_suite(), "dcgan-digits", STAMP, repo / "stacks")
    return folder


@pytest.fixture
def cloud(fake: Any, run_dir: Path) -> Cloud:
    return Cloud(run_dir, STAMP, find_cli(install=False), {}, (0.0, 0.0))


def up(cloud: Cloud, item: Item, guard: Callable[[], str] = str) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    facts |= cloud.up(item, lambda **new: facts.update(new), guard)
    return facts


def no_note(**facts: Any) -> None:
    """Facts that the test does not look at."""


def test_up_makes_a_stack_of_its_own_and_destroy_takes_it(cloud: Cloud, fake: Any, item: Item, run_dir: Path) -> None:
    facts = up(cloud, item)
    name = stack_name(item, STAMP)
    assert fake.stacks == [name] != ["aws-g5-dev"]
    assert facts["runs_url"] == f"s3://runs-1/{name}/{name}"
    assert facts["region"] == "us-east-1"
    assert facts["process"]["word"] == "pulumi"
    left = cloud.destroy(item, facts, no_note)
    assert left == ["azure-native:storage:StorageAccount /kept"]
    assert fake.stacks == []
    assert "resources: 2 created" in (project_dir(run_dir, item) / "pulumi.log").read_text("utf-8")
    assert list(project_dir(run_dir, item).glob(f"Pulumi.{name}.yaml")), "its settings are this run's"


def test_the_end_of_an_attempt_before_this_up_is_not_heeded(cloud: Cloud, item: Item, tmp_path: Path) -> None:
    facts = {**up(cloud, item), "runs_url": (tmp_path / "bucket").as_uri(), "region": ""}
    (tmp_path / "bucket").mkdir()
    ended = {
        "version": 1,
        "run_id": get_run_id(item, STAMP),
        "stack": "s",
        "node": "n",
        "code": 2,
        "reason": "bad-input",
    }

    def ends(when: datetime) -> None:
        (tmp_path / "bucket/ended.json").write_text(json.dumps({**ended, "time": when.isoformat()}), "utf-8")

    ends(datetime.now(UTC) - timedelta(hours=1))
    assert cloud.record(item, facts) is None
    ends(datetime.now(UTC))
    with pytest.raises(RunFailedError, match="bad-input"):
        cloud.record(item, facts)
    ends(datetime.now(UTC) - timedelta(hours=1))
    with pytest.raises(RunFailedError, match="bad-input"):
        cloud.record(item, {key: value for key, value in facts.items() if key != "began"})


def test_a_stack_that_the_backend_has_lost_is_not_gone(cloud: Cloud, fake: Any, item: Item) -> None:
    """Another user's `file://~` has the same address, and other stacks behind it."""
    facts = up(cloud, item)
    (state,) = fake.home.glob("*.stack.json")
    content = state.read_text("utf-8")
    state.unlink()
    with pytest.raises(RunFailedError, match=r"does not know the stack .*, which was created: its state is with"):
        cloud.destroy(item, facts, no_note)
    state.write_text(content, "utf-8")
    cloud.destroy(item, facts, lambda **new: facts.update(new))
    assert cloud.destroy(item, facts, no_note) == [], "an earlier destroy took it, and was cut off after that"


def test_a_stack_that_was_never_made_is_gone(cloud: Cloud, item: Item) -> None:
    assert cloud.destroy(item, {}, no_note) == []


def test_a_place_of_ones_own_is_no_region_of_a_bucket(
    fake: Any, tmp_path: Path, make_suite: Callable[..., SuiteConfig], repo: Path
) -> None:
    suite = make_suite(stacks=["hosts-lab"])
    lab = get_items(suite, local=False)[0]
    write_project(project_dir(tmp_path / "run", lab), lab, suite, "dcgan-digits", STAMP, repo / "stacks")
    facts = up(Cloud(tmp_path / "run", STAMP, find_cli(install=False), {}, (0.0, 0.0)), lab)
    assert facts["region"] == ""


def test_an_up_that_fails_says_why(cloud: Cloud, fake: Any, item: Item) -> None:
    fake.orders(up={"fail": "InsufficientInstanceCapacity: none in us-east-1a"})
    with pytest.raises(RunFailedError, match=r"up: .*InsufficientInstanceCapacity: none in us-east-1a"):
        up(cloud, item)
    assert cloud.destroy(item, {}, no_note) == []
    assert fake.stacks == []


def test_an_up_is_stopped_when_there_is_a_reason(cloud: Cloud, fake: Any, item: Item) -> None:
    fake.orders(up={"sleep": 60})
    began = time.monotonic()
    with pytest.raises(RunFailedError, match=r"^over the cap$"):
        up(cloud, item, lambda: "over the cap" if time.monotonic() > began + 1 else "")
    assert time.monotonic() - began < 30
    assert (fake.home / "interrupted").exists(), "by the signal that Pulumi takes for a wish to stop"


def test_what_does_not_stop_is_killed_in_the_end(
    cloud: Cloud, fake: Any, item: Item, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangway.bench.pulumi_cli._GRACES_SEC", (0.0, 0.5, 1.0))
    fake.orders(up={"sleep": 60, "stubborn": True})
    with pytest.raises(RunFailedError, match=r"^enough$"):
        up(cloud, item, lambda: "enough" if (fake.home / "commands.log").read_text().count("\nup ") else "")


def test_what_is_cut_off_in_the_making_is_told(cloud: Cloud, fake: Any, item: Item) -> None:
    urn = "urn:pulumi:s::p::aws:fsx/lustre:Lustre::data"
    pending = [{"type": "creating", "resource": {"urn": urn, "type": "aws:fsx/lustre:Lustre"}}]
    fake.orders(up={"pending": [*pending, {"type": "deleting", "resource": {"urn": "u::x", "type": "t"}}]})
    facts = up(cloud, item)
    (maybe,) = [left for left in cloud.destroy(item, facts, no_note) if "maybe" in left]
    assert maybe.startswith("maybe data (aws:fsx/lustre:Lustre)")


def test_a_destroy_that_fails_says_why(cloud: Cloud, fake: Any, item: Item) -> None:
    up(cloud, item)
    fake.orders(destroy={"fail": "DependencyViolation"})
    with pytest.raises(RunFailedError, match="DependencyViolation"):
        cloud.destroy(item, {}, no_note)
    assert len(fake.stacks) == 1


def test_a_state_that_was_cut_off_is_told_with_the_way_out(cloud: Cloud, fake: Any, item: Item) -> None:
    up(cloud, item)
    fake.orders(destroy={"fail": "failed to load checkpoint: EOF"})
    with pytest.raises(RunFailedError, match=r"EOF; .*FILE\.json\.bak: restore that"):
        cloud.destroy(item, {}, no_note)


def test_a_lock_that_nobody_holds_any_more_is_taken_away(cloud: Cloud, fake: Any, item: Item) -> None:
    up(cloud, item)
    fake.orders(destroy={"fail": "the stack is currently locked by 1 lock(s)", "times": 1})
    with pytest.raises(RunFailedError, match="the lock was removed"):
        cloud.destroy(item, {}, no_note)
    assert "cancel" in fake.commands
    cloud.destroy(item, {}, no_note)
    assert fake.stacks == []


def test_an_up_of_a_process_that_is_gone_is_ended_first(cloud: Cloud, fake: Any, item: Item, run_dir: Path) -> None:
    fake.orders(up={"sleep": 60})
    facts: dict[str, Any] = {}
    folder = project_dir(run_dir, item)
    WatchedCommand(find_cli(install=False)).run(["stack", "init", stack_name(item, STAMP)], str(folder), {})
    orphan = subprocess.Popen(
        [fake.home / "bin/pulumi", "up", "--stack", stack_name(item, STAMP)], start_new_session=True, cwd=folder
    )
    threading.Thread(target=orphan.wait, daemon=True).start()
    facts |= process_facts(orphan.pid, "pulumi")
    while "up" not in fake.commands:
        time.sleep(0.05)
    cloud.destroy(item, facts, no_note)
    assert orphan.wait(5) != 0
    assert (fake.home / "interrupted").exists()
    assert fake.stacks == []


@pytest.fixture
def reported(tmp_path: Path, item: Item, make_record: Callable[..., RunRecord]) -> Callable[..., dict[str, Any]]:
    """Puts a record, with changes, where the stack would; returns the facts that name the place."""

    def put(**changes: Any) -> dict[str, Any]:
        folder = tmp_path / "bucket"
        folder.mkdir(exist_ok=True)
        record = make_record(changes.pop("run_id", get_run_id(item, STAMP)), item.seed, **changes)
        (folder / "run.json").write_text(record.model_dump_json(), "utf-8")
        return {"runs_url": folder.as_uri(), "region": "", "cloud": ""}

    return put


def test_a_record_counts_when_it_is_done_and_this_runs(
    cloud: Cloud, item: Item, reported: Callable[..., dict[str, Any]]
) -> None:
    facts = reported(status="running")
    assert cloud.record(item, facts) is None
    assert "running, 2,048 images of" in cloud.doing(item)
    assert cloud.record(item, reported(run_id="somebody-else")) is None
    done = cloud.record(item, reported())
    assert done is not None
    assert done.id == get_run_id(item, STAMP)


def test_no_record_yet_and_one_that_cannot_be_read(cloud: Cloud, item: Item, tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    facts = {"runs_url": (tmp_path / "bucket").as_uri(), "region": "", "cloud": ""}
    assert cloud.record(item, facts) is None
    assert "waiting for" in cloud.doing(item)
    (tmp_path / "bucket/run.json").write_text("{}", "utf-8")
    with pytest.raises(StoreFailedError, match="not a run record of this version"):
        cloud.record(item, facts)


def test_the_runs_files_are_brought_here(
    cloud: Cloud, item: Item, run_dir: Path, reported: Callable[..., dict[str, Any]]
) -> None:
    facts = reported()
    cloud.collect(item, facts)
    assert (run_dir / get_run_id(item, STAMP) / "run.json").exists()
    with pytest.raises(RunFailedError, match="never up"):
        cloud.collect(item, {})


def test_nothing_to_bring_is_told(cloud: Cloud, item: Item, tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    with pytest.raises(RunFailedError, match="no files"):
        cloud.collect(item, {"runs_url": (tmp_path / "bucket").as_uri(), "region": "", "cloud": ""})


def test_the_engines_events_are_counted_and_its_errors_kept(cloud: Cloud, fake: Any, item: Item) -> None:
    from pulumi.automation import EngineEvent

    tell = cloud._event_listener(item, "up")
    stack = {"op": "create", "urn": "u", "type": "aws:ec2/vpc:Vpc", "keys": [], "diffs": [], "provider": ""}
    tell(EngineEvent.from_json({"sequence": 1, "timestamp": 1, "resOutputsEvent": {"metadata": stack}}))
    assert cloud.doing(item) == "up: 1 done, aws:ec2/vpc:Vpc"
    said = {"message": "no  capacity\n", "color": "never", "severity": "error"}
    tell(EngineEvent.from_json({"sequence": 2, "timestamp": 1, "diagnosticEvent": said}))
    assert cloud._errors == ["no capacity"]


def test_no_cli_is_told_with_the_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="not on PATH") as told:
        find_cli(install=False)
    assert "--install-cli" in told.value.fix


def test_an_old_cli_is_told(fake: Any) -> None:
    fake.orders(version={"number": "v3.0.0"})
    with pytest.raises(InputError, match="Minimum version"):
        find_cli(install=False)


@pytest.mark.parametrize("error", [OSError("no route to host"), subprocess.CalledProcessError(1, "sh", b"no disk")])
def test_an_installation_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception) -> None:
    def install() -> PulumiCommand:
        raise error

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(PulumiCommand, "install", install)
    with pytest.raises(InputError, match=r"cannot be installed: no (route|disk)"):
        find_cli(install=True)


def test_an_installed_cli_finds_what_lies_beside_it(fake: Any, tmp_path: Path) -> None:
    command = WatchedCommand(find_cli(install=False))
    command.command = str(tmp_path / "versions/bin/pulumi")
    assert command._env({})["PATH"].startswith(f"{tmp_path / 'versions/bin'}{os.pathsep}")


def test_who_leaves_at_once_leaves_the_cli_as_it_is(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gangway.bench.processes import AbandonedError

    def leave() -> str:
        raise AbandonedError

    made, popen = list[subprocess.Popen[bytes]](), subprocess.Popen

    def noted(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        made.append(popen(*args, **kwargs))
        return made[-1]

    fake.orders(up={"sleep": 60})
    command, pids = WatchedCommand(find_cli(install=False)), list[int]()
    command.began, command.why_stop = pids.append, leave
    monkeypatch.setattr(subprocess, "Popen", noted)
    with pytest.raises(AbandonedError):
        command.run(["up", "--stack", "s"], str(tmp_path), {})
    (process,) = made
    assert process.pid == pids[0]
    time.sleep(0.5)
    try:
        assert process.poll() is None, "neither stopped nor killed"
        assert not (fake.home / "interrupted").exists()
        assert end_leftover(process_facts(process.pid, "pulumi"), signal.SIGINT, 30), "as resume finds it"
    finally:
        process.kill()
        process.wait()


def test_the_login_is_looked_at_before_anything(fake: Any, tmp_path: Path) -> None:
    command = find_cli(install=False)
    assert check_login(command, {}, tmp_path, {}) == "https://app.pulumi.com/somebody"
    env = {"PULUMI_BACKEND_URL": "file:///state"}
    assert check_login(command, env, tmp_path, {"PULUMI_CONFIG_PASSPHRASE": ""}) == "file:///state"
    with pytest.raises(InputError, match="encrypts secrets with a passphrase"):
        check_login(command, env, tmp_path, {})
    fake.orders(whoami={"fail": "PULUMI_ACCESS_TOKEN must be set"})
    with pytest.raises(InputError, match="PULUMI_ACCESS_TOKEN must be set") as told:
        check_login(command, {}, tmp_path, {})
    assert "--backend-url" in told.value.fix


def test_a_project_holds_the_suites_training(run_dir: Path, item: Item, repo: Path) -> None:
    folder = project_dir(run_dir, item)
    settings = yaml.safe_load((folder / f"Pulumi.{stack_name(item, STAMP)}.yaml").read_text("utf-8"))["config"]
    job = settings["gangway:job"]
    assert {key: job[key] for key in ("preset", "kimg", "seed", "max_hours", "keep_runs")} == {
        "preset": "dcgan-digits", "kimg": 2.0, "seed": 0, "max_hours": 4.0, "keep_runs": False,
    }  # fmt: skip
    assert job["run_id"] == get_run_id(item, STAMP)
    assert job["terminate_when_done"] is True, "what the suite does not say is the stack file's"
    project = yaml.safe_load((folder / "Pulumi.yaml").read_text("utf-8"))
    assert project["main"] == str(repo / "stacks")
    assert "stackConfigDir" not in project


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


Written = Callable[..., StackConfig]


@pytest.fixture
def written(tmp_path: Path, make_suite: Callable[..., SuiteConfig], repo: Path) -> Written:
    """The settings of an item on this stack, as the program will read them."""

    def write(stack: str, **changes: object) -> StackConfig:
        suite = make_suite(stacks=[{"stack": stack, "set": changes}], seeds=[0])
        (item,) = get_items(suite, local=False)
        write_project(tmp_path / stack, item, suite, "dcgan-digits", "20260101-000000-abcd", repo / "stacks")
        return read_project(tmp_path / stack, item, "suite.yaml")

    return write


@pytest.mark.parametrize("stack", ["aws-p4d-block", "gcp-v5e-pod", "azure-ndv4", "openstack-gpu"])
def test_nodes_go_by_themselves_should_nobody_be_left_to_destroy_them(written: Written, stack: str) -> None:
    job = written(stack).work
    assert (job.terminate_when_done, job.max_hours) == (True, 4.0)


def test_machines_of_ones_own_stay_and_stop_training(written: Written) -> None:
    job = written("hosts-lab").work
    assert (job.terminate_when_done, job.max_hours) == (False, 4.0)


def test_who_wants_nodes_to_stay_is_heeded(written: Written) -> None:
    assert written("aws-g5-dev", **{"job.terminate_when_done": False}).work.terminate_when_done is False


def test_a_provider_that_nobody_knows_is_a_mistake_with_its_place(written: Written) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        written("aws-g5-dev", **{"provider": "asw"})
    assert "gangway:provider: not an accepted value" in str(caught.value.exceptions[0])
