"""`gangway down`: what it explains and refuses, and signals to Pulumi. The real CLI: tests/engine/test_down.py."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from typer.testing import CliRunner, Result

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.live.teardown import Explanation, destroy
from gangway.stacks.config.paths import module_environment
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan
from tests.gangway.live.conftest import REGION, run_lines, write_lines

FAKE = """#!{python}
import os, signal, sys, time
folder = {folder!r}
def note(text):
    with open(os.path.join(folder, "calls"), "a") as file:
        file.write(text + "\\n")
if sys.argv[1] != "destroy":
    sys.exit(f"unexpected: {{sys.argv}}")
signal.signal(signal.SIGINT, lambda *_: (note("SIGINT"), sys.exit(255)))
note(" ".join(sys.argv[1:4]))
print("Destroying (demo)", flush=True)
time.sleep({seconds})
os.replace(os.path.join(folder, "empty.json"), os.path.join(folder, "state/.pulumi/stacks/gangway/demo.json"))
"""


def ask(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, ["down", *words], input=stdin)


@pytest.fixture
def pulumi(project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Path]:
    """Puts a program called pulumi on PATH that takes a while to destroy everything; the file of its calls."""

    def make(seconds: float = 0) -> Path:
        (project / "empty.json").write_text('{"version": 3, "checkpoint": {"latest": {"resources": []}}}')
        program = project / "bin/pulumi"
        program.parent.mkdir()
        program.write_text(FAKE.format(python=sys.executable, folder=str(project), seconds=seconds))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        return project / "calls"

    return make


@pytest.fixture
def over(make_stack: Callable[..., Any], aws: Any) -> Any:
    """A stack whose job is done and whose nodes have left, with all that its plan declares in its state."""
    stack = make_stack()
    boto3.client("autoscaling", region_name=REGION).set_desired_capacity(
        AutoScalingGroupName="demo-0-on-demand", DesiredCapacity=0
    )
    (stack.folder / "run.json").write_text('{"id": "r", "status": "done", "images": 20000000}')
    for each in make_plan(from_file(stack.project / "Pulumi.demo.yaml")).resources:
        if each.custom and not each.type.startswith("pulumi:"):
            stack.add(each.type, each.name)
    stack.save()
    return stack


def test_it_explains_what_goes_what_stays_and_what_that_costs(over: Any) -> None:
    found = ask("demo", "--dry-run")
    assert found.exit_code == 0, (found.output, found.exception)
    text = " ".join(found.stdout.split())
    assert "destroys " in text
    assert "aws:autoscaling/group:Group" in text
    assert "with its data: demo-lustre: deleted with all its files" in text
    assert "runs: 2 files" in text
    assert "remains, for 0.00 USD per month" in text
    assert "`pulumi destroy` will stop: demo-runs" in text
    assert "job: none is running" in text


def test_existing_resources_are_named_as_staying() -> None:
    names = {"gangway:gcp.existing.run_bucket": "my-gan-runs"}
    told = Explanation("demo", frozenset(), {}, (), (), "", names, "2 files", "", "")
    assert "  my-gan-runs (gangway:gcp.existing.run_bucket)" in list(told.lines())


@pytest.mark.slow
def test_what_is_left_is_audited_after_the_end(over: Any, pulumi: Callable[..., Path]) -> None:
    calls = pulumi()
    found = ask("demo", "--yes")
    assert calls.read_text() == "destroy --yes --stack\n"
    assert found.exit_code == 1, (found.output, found.exception)
    assert "orphaned: not in the state" in found.stdout, "moto still has its group"


def test_a_job_that_runs_stops_it(make_stack: Callable[..., Any], aws: Any, pulumi: Callable[..., Path]) -> None:
    stack, calls = make_stack(), pulumi()
    stack.add("aws:ec2/vpc:Vpc", "demo")
    stack.save()
    refused = ask("demo", "--yes")
    assert isinstance(refused.exception, InputError)
    assert "a job may be running there: last sign of life" in str(refused.exception)
    write_lines(stack.folder, run_lines(time.time() - 7200))
    silent = ask("demo", "--yes")
    assert "2 nodes are up, and the job is silent" in str(silent.exception)
    unsure = ask("demo", "--force")
    assert "no terminal to ask on" in str(unsure.exception)
    assert not calls.exists()


def test_what_is_not_up_has_nothing_to_destroy(
    make_stack: Callable[..., Any], pulumi: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_stack()
    with monkeypatch.context() as closed:
        closed.setenv("PATH", "/nonexistent")
        without_cli = ask("demo", "--yes")
    assert "not on PATH" in str(without_cli.exception)
    pulumi()
    assert "there is nothing to destroy" in str(ask("demo", "--yes").exception)
    assert isinstance(ask("nonesuch").exception, InputError)


def test_a_half_that_is_up_can_be_removed_by_force_only(
    make_stack: Callable[..., Any], pulumi: Callable[..., Path]
) -> None:
    stack = make_stack()
    stack.outputs = {}
    stack.add("aws:ec2/vpc:Vpc", "demo")
    stack.save()
    pulumi()
    refused = ask("demo", "--yes")
    assert "its status cannot be read: stack demo: half up" in str(refused.exception)
    assert "1 aws:ec2/vpc:Vpc" in refused.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_once_and_it_says_how_to_go_on(
    pulumi: Callable[..., Path], project: Path, number: signal.Signals
) -> None:
    calls = pulumi(60)
    code = "import sys; from gangway.live.teardown import Explanation, destroy; sys.exit(destroy('demo', print))"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=module_environment(dict(os.environ)),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while not calls.exists() or not calls.read_text():
            time.sleep(0.05)
        os.killpg(process.pid, number)  # as a terminal does
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 255
    assert calls.read_text() == "destroy --yes --stack\nSIGINT\n"
    assert "Destroying (demo)" in output
    assert "run the same command again to continue" in output


def test_the_handlers_are_as_before(pulumi: Callable[..., Path], make_stack: Callable[..., Any]) -> None:
    make_stack()
    pulumi()
    before = signal.getsignal(signal.SIGINT)
    assert destroy("demo", print) == 0
    assert signal.getsignal(signal.SIGINT) is before
