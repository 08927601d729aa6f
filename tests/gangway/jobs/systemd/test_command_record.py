"""The record of a stack's command, as `gangway job record STACK --stack` has it out of the run folder."""

import json
import os
import stat
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.components.core.job import JobSpec
from gangway.images.render import TEMPLATES
from gangway.images.specs import job_key
from gangway.jobs.base import RunInterval
from gangway.jobs.systemd.command_record import count_failures, count_starts, get_run_intervals, read_starts
from gangway.runs.run_store import RunStore, StoreFailedError
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine@sha256:" + "ab" * 32
ALL = ("wall_sec", "waiting_sec", "images", "tokens", "joules", "gco2e", "usd", "node_hours")
NODE = TEMPLATES / "job" / "own-node.sh"
KEY = "0123456789ab"


class Stack:
    """A stack file, the run folder of its command, and a CLI that knows the program's outputs."""

    def __init__(self, root: Path, values: dict[str, Any]) -> None:
        self.root, self.file = root, root / "Pulumi.own.yaml"
        self.file.write_text(yaml.safe_dump({"config": values}))
        self.run_dir = root / "runs"
        (self.run_dir / ".starts").mkdir(parents=True)
        self.job = JobSpec.model_validate(make_plan(from_file(self.file)).job)
        outputs = {"job": self.job.model_dump(mode="json"), "run_bucket": "b", "runs_url": self.run_dir.as_uri()}
        fake = root / "bin" / "pulumi"
        fake.parent.mkdir()
        fake.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(outputs)}\nEND\n")
        fake.chmod(fake.stat().st_mode | stat.S_IXUSR)

    def noted(self, *starts: str) -> None:
        """Starts, each NODE: BEGAN LINE."""
        for start in starts:
            node, _, line = start.partition(": ")
            began, _, rest = line.partition(" ")
            (self.run_dir / ".starts" / f"{job_key(self.job)}.{node}.7.{began}").write_text(rest)

    def ended(self, code: int, reason: str, time: str) -> None:
        end = {"version": 1, "run_id": "", "stack": "own", "node": "n", "code": code, "reason": reason, "time": time}
        (self.run_dir / "ended.json").write_text(json.dumps(end))

    def asked(self, *words: str) -> Result:
        return CliRunner().invoke(app, ["job", "record", str(self.file), "--stack", *words])

    def record(self) -> dict[str, Any]:
        done = self.asked("--json", "--out", str(self.root / "record.json"))
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads((self.root / "record.json").read_text())
        return found


MakeStack = Callable[..., Stack]


@pytest.fixture
def stack(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeStack:
    def make(shipped: str = "aws-g5-dev", job: dict[str, Any] | None = None, **sections: Any) -> Stack:
        values = yaml.safe_load((repo / "stacks" / f"Pulumi.{shipped}.yaml").read_text("utf-8"))["config"]
        values["gangway:job"] = job or {"command": ["python", "train.py"], "image": IMAGE, "max_hours": 4}
        values |= {f"gangway:{name}": section for name, section in sections.items()}
        made = Stack(tmp_path, values)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
        return made

    return make


ON_DEMAND = {"machine_type": "g5.xlarge", "nodes": {"min": 1, "max": 1}, "capacity": [{"kind": "on-demand"}]}
P5 = {
    "accelerator": "H100x8",
    "nodes": {"min": 1, "max": 1},
    "capacity": [{"kind": "spot"}, {"kind": "on-demand"}],
}
OF_P5 = {"command": ["python", "train.py"], "image": IMAGE.replace("us-east-1", "us-east-2"), "max_hours": 4}


def value(record: dict[str, Any], name: str) -> Any:
    return record["figures"][name]["value"]


def test_a_command_that_is_done_has_hours_dollars_and_what_it_said(stack: MakeStack) -> None:
    made = stack(cluster=ON_DEMAND)
    made.noted("n1: 3600 5400 - on-demand 75", "n2: 6000 7800 - on-demand 0")
    (made.run_dir / "figures.json").write_text('{"images": 5000, "joules": 400, "accuracy": 0.5}')
    record = made.record()
    assert (record["engine"], record["where"], record["so_far"]) == ("systemd", "aws, stack own", False)
    assert record["job"]["phase"] == "done"
    assert (value(record, "node_hours"), value(record, "on_nodes_sec")) == (1, 3600)
    assert (value(record, "starts"), value(record, "failures"), value(record, "interruptions")) == (2, 0, 1)
    usd = record["figures"]["usd"]
    assert usd["source"] == "list price"
    assert usd["value"] == pytest.approx(value(record, "usd_per_node_hour"))
    assert (record["figures"]["joules"]["source"], value(record, "joules_per_image")) == ("reported", 0.08)
    assert record["figures"]["gco2e"]["source"] == "estimated"
    assert record["metrics"]["accuracy"]["value"] == 0.5
    assert "submitted" in record["absent"]["wall_sec"]
    assert "no tokens" in record["absent"]["tokens"]
    assert record["problems"] == []


def test_what_it_did_not_say_is_absent_or_estimated_and_never_zero(stack: MakeStack) -> None:
    made = stack(cluster=ON_DEMAND)
    made.noted("n1: 3600 7200 - on-demand 0")
    record = made.record()
    assert "has not written figures.json" in record["absent"]["images"]
    joules = record["figures"]["joules"]
    assert (joules["source"], joules["value"] > 0) == ("estimated", True)
    assert "images" in record["absent"]["joules_per_image"]


def test_hours_on_spot_and_on_demand_have_each_their_price(stack: MakeStack) -> None:
    made = stack("aws-p5-spot", OF_P5, cluster=P5)
    made.noted("n1: 3600 7200 - spot 0")
    spot = value(made.record(), "usd")
    for old in (made.run_dir / ".starts").iterdir():
        old.unlink()
    made.noted("n1: 3600 7200 - on-demand 0")
    on_demand = value(made.record(), "usd")
    assert 0 < spot < on_demand
    made.noted("n2: 3600 7200 - spot 0")
    both = made.record()
    assert value(both, "usd") == pytest.approx(spot + on_demand)
    note = both["figures"]["usd_per_node_hour"]["note"]
    assert "spot: " in note
    assert "on-demand: " in note


@pytest.mark.slow
def test_nodes_that_were_there_together_count_each(stack: MakeStack) -> None:
    made = stack("aws-p5-spot", {**OF_P5, "processes_per_node": 8})
    made.noted("a: 0 3600 0 spot 75", "b: 0 3600 0 spot 75", "a: 4000 7600 1 spot 0", "b: 4000 7600 1 spot 0")
    record = made.record()
    assert record["job"]["phase"] == "done"
    assert (value(record, "node_hours"), value(record, "on_nodes_sec"), value(record, "starts")) == (4, 7200, 2)


def test_one_that_goes_on_has_its_figures_so_far(stack: MakeStack) -> None:
    made = stack()
    made.noted("n1: 3600 5400 - spot 75")
    record = made.record()
    assert (record["so_far"], record["job"]["phase"]) == (True, "running")
    assert "not over" in record["absent"]["usd_per_1000_images"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "reason", "phase"),
    [(2, "bad-input", "bad input"), (5, "too-many-failures", "failed"), (6, "max-hours", "over its hours")],
)
def test_an_end_is_told_as_it_was(stack: MakeStack, code: int, reason: str, phase: str) -> None:
    made = stack()
    made.noted(f"n1: 3600 5400 - spot {code} failed" if code == 5 else f"n1: 3600 5400 - spot {code}")
    made.ended(code, reason, "1970-01-01T01:30:05Z")
    job = made.record()["job"]
    assert (job["phase"], job["exit_code"], job["reason"]) == (phase, code, reason)
    made.noted("n1: 9000 9900 - spot 75")
    assert made.record()["job"]["phase"] == "running", "begun again, with more hours"


def test_a_site_of_ones_own_has_the_price_that_its_owner_says(stack: MakeStack, repo: Path) -> None:
    values = yaml.safe_load((repo / "stacks/Pulumi.hosts-lab.yaml").read_text("utf-8"))["config"]
    hosts = {**values["gangway:hosts"], "machines": values["gangway:hosts"]["machines"][:1]}
    site = {**values["gangway:site"], "usd_per_node_hour": 7.5}
    cluster = {**values["gangway:cluster"], "nodes": {"min": 1, "max": 1}}
    job = {"command": ["python", "train.py"], "image": IMAGE, "max_hours": 4}
    made = stack("hosts-lab", job, hosts=hosts, site=site, cluster=cluster, image={})
    made.noted("dgx-1: 3600 7200 - on-demand 0")
    usd = made.record()["figures"]["usd"]
    assert (usd["value"], usd["source"]) == (7.5, "told")


def test_the_table_says_what_there_is_and_why_there_is_no_other(stack: MakeStack) -> None:
    made = stack(cluster=ON_DEMAND)
    made.noted("n1: 3600 5400 - on-demand 0", "n1: odd")
    done = made.asked()
    assert done.exit_code == 0, done.output
    assert "own: done" in done.output
    assert "warning: .starts/" in done.output
    assert "absent" in done.output


def refused(done: Result) -> InputError:
    assert isinstance(done.exception, InputError), done.output
    return done.exception


def test_before_anything_is_put_it_says_when(stack: MakeStack) -> None:
    assert "whenever the command stops" in (refused(stack().asked()).allowed or "")


def test_what_the_job_is_at_says_where_its_record_is(stack: MakeStack) -> None:
    made = stack(
        "gcp-a3-spot", {**OF_P5, "image": f"us-central1-docker.pkg.dev/my-project/mine/train@sha256:{'ab' * 32}"}
    )
    made.ended(6, "max-hours", "2026-11-27T21:00:00Z")
    done = CliRunner().invoke(app, ["job", str(made.file)])
    assert done.exit_code == 0, done.output
    assert "gangway job record own --stack" in done.output
    assert "max-hours, exit code 6" in done.output


def test_a_preset_has_a_record_of_its_own(stack: MakeStack, repo: Path) -> None:
    made = stack()
    values = yaml.safe_load((repo / "stacks/Pulumi.aws-g5-dev.yaml").read_text("utf-8"))
    made.file.write_text(yaml.safe_dump(values))
    assert refused(made.asked()).place == "gangway:job"


def test_an_engine_beside_a_stack_is_refused(stack: MakeStack) -> None:
    assert refused(stack().asked("--on", "local:q")).place == "--on"


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


@pytest.fixture
def noted(tmp_path: Path) -> Callable[..., RunStore]:
    """A run folder with such starts: name behind the key -> line."""

    def write(starts: dict[str, str], key: str = KEY) -> RunStore:
        folder = tmp_path / "run" / ".starts"
        folder.mkdir(parents=True, exist_ok=True)
        for name, line in starts.items():
            (folder / f"{key}.{name}").write_text(line)
        return RunStore((tmp_path / "run").as_uri())

    return write


def run_node(root: Path, script: str, **env: str) -> int:
    """A start of a command, as a node's container has it."""
    (root / "run").mkdir(exist_ok=True)
    words = ["/bin/sh", str(NODE), str(root / "held"), str(root / "run/.launch" / KEY), "", "1", "60"]
    variables = {"GANGWAY_RUN_DIR": str(root / "run"), "GANGWAY_NOTICES": str(root / "notices.jsonl"), **env}
    return subprocess.run(
        [*words, "--", "sh", "-c", script],
        env={**os.environ, **variables},
        capture_output=True,
        timeout=60,
        check=False,
    ).returncode


def test_each_start_of_a_node_is_noted_with_its_end(tmp_path: Path) -> None:
    assert run_node(tmp_path, "exit 75", GANGWAY_CAPACITY="spot") == 75
    (start,) = read_starts(RunStore((tmp_path / "run").as_uri()), KEY)[0]
    assert (start.node, start.code, start.failed, start.round) == (os.uname().nodename, 75, False, "")
    assert start.capacity == "spot"
    assert start.began <= start.last


def test_failures_are_noted_as_they_count(tmp_path: Path) -> None:
    (tmp_path / "run/.launch" / KEY).mkdir(parents=True)
    (tmp_path / "run/.launch" / KEY / "failures").write_text("1\n")
    assert run_node(tmp_path, "exit 9") == 5
    (start,) = read_starts(RunStore((tmp_path / "run").as_uri()), KEY)[0]
    assert (start.code, start.failed, start.capacity) == (5, True, "")


def test_a_command_that_is_at_work_is_noted_as_begun(tmp_path: Path) -> None:
    assert run_node(tmp_path, f'cat "$GANGWAY_RUN_DIR"/.starts/{KEY}.* >"$GANGWAY_RUN_DIR/seen"') == 0
    last, of_round, capacity = (tmp_path / "run/seen").read_text().split()
    assert int(last) > 0
    assert (of_round, capacity) == ("-", "-")


def test_rounds_of_several_nodes_are_one_time_each(noted: Callable[..., RunStore]) -> None:
    starts, problems = read_starts(
        noted(
            {
                "a.7.10": "100 0 spot 75",
                "b.c.7.12": "90 0 spot 75",
                "a.7.110": "200 1 on-demand 1 failed",
                "b.c.7.111": "190 1 on-demand 1 failed",
            }
        ),
        KEY,
    )
    assert not problems
    assert [start.node for start in starts] == ["a", "b.c", "a", "b.c"]
    assert (count_starts(starts), count_failures(starts)) == (2, 1)
    assert get_run_intervals(starts) == (
        RunInterval(at(10), at(12), 1),
        RunInterval(at(12), at(90), 2),
        RunInterval(at(90), at(100), 1),
        RunInterval(at(110), at(111), 1),
        RunInterval(at(111), at(190), 2),
        RunInterval(at(190), at(200), 1),
    )


def test_nodes_that_do_not_meet_begin_each_by_itself(noted: Callable[..., RunStore]) -> None:
    starts, _ = read_starts(noted({"a.7.10": "100 - - 0", "b.7.10": "90 - - 1 failed", "b.7.91": "95 - -"}), KEY)
    assert (count_starts(starts), count_failures(starts)) == (3, 1)
    assert [start.code for start in starts] == [0, 1, None]


def test_another_commands_starts_are_none_of_it(noted: Callable[..., RunStore]) -> None:
    noted({"a.7.10": "100 - - 0"}, key="ba9876543210")
    assert read_starts(noted({"a.7.20": "30 - - 0"}), KEY)[0][0].began == at(20)


@pytest.mark.parametrize("line", ["", "20", "9 - - 0", "20 - - 1000", "20 x - 0", "20 - - 0 lost", "a - -"])
def test_what_is_no_start_is_told_and_counts_for_nothing(noted: Callable[..., RunStore], line: str) -> None:
    starts, problems = read_starts(noted({"a.7.10": line, "b.7.10": "20 - - 0"}), KEY)
    assert [start.node for start in starts] == ["b"]
    assert problems == [f".starts/{KEY}.a.7.10: not a start"]


def test_whoever_writes_much_there_is_told(noted: Callable[..., RunStore]) -> None:
    with pytest.raises(StoreFailedError, match="more than"):
        read_starts(noted({"a.7.10": "1" * 5000}), KEY)
