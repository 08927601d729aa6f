"""The record of a stack's command, as `gangway job record STACK --stack` has it out of the run folder."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.components.core.job import JobSpec
from gangway.images.specs import job_key
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine@sha256:" + "ab" * 32
ALL = ("wall_sec", "waiting_sec", "images", "tokens", "joules", "gco2e", "usd", "node_hours")


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
