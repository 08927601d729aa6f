"""`gangway init`: what it writes can be planned at once, asks in order, and never stands over a file that is there."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from gangway.cli import main as cli
from gangway.cli.new_project import file_names, get_start, startable_providers
from gangway.components.core.findings import InputError
from gangway.stacks.config.identity import stack_identity
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan

REPO = Path(__file__).resolve().parents[3]


def init(folder: Path, *flags: str, answers: str | None = None) -> Result:
    """Runs the command in this process; asks where there are answers, else has an address."""
    email = () if answers is not None or "--email" in flags else ("--email", "me@example.org")
    return CliRunner().invoke(cli.app, ["init", str(folder), *flags, *email], input=answers)


def settings(folder: Path, stack: str = "p") -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((folder / f"Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
    return config


def gangway(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The real command in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    command = [sys.executable, "-m", "gangway.cli", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


@pytest.mark.slow
@pytest.mark.parametrize("provider", startable_providers())
def test_what_it_writes_is_planned_at_once(tmp_path: Path, provider: str) -> None:
    folder = tmp_path / "my cluster"
    made = gangway("init", str(folder), "--provider", provider, "--email", "me@example.org", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert sorted(file.name for file in folder.iterdir()) == sorted(file_names("my-cluster", policy=False))
    planned = gangway("plan", "my-cluster", "--json", cwd=folder)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    plan = json.loads(planned.stdout)
    assert (plan["stack"], plan["provider"]) == (stack_identity("my-cluster", "my-cluster"), provider)
    assert not [f for f in plan["findings"] if f["code"] == "budget.below-estimate"]
    images = [r["inputs"] for r in plan["resources"] if r["type"] == "docker-build:index:Image"]
    for image in images:
        context = folder / image["context"]["location"]
        assert (context / "trainer").is_dir(), "up builds from here, relative to the project"
    assert bool(images) == (provider not in ("openstack", "hosts"))


@pytest.mark.slow
@pytest.mark.parametrize("provider", sorted(set(startable_providers()) - {"hosts"}))
def test_several_nodes_get_what_they_share(tmp_path: Path, provider: str) -> None:
    machines = {
        "aws": "p4d.24xlarge",
        "gcp": "a3-highgpu-8g",
        "azure": "Standard_ND96asr_v4",
        "openstack": "gpu.h100x8",
    }
    region = ["--region", "southcentralus"] if provider == "azure" else []
    flags = ["--provider", provider, "--machine-type", machines[provider], "--nodes", "2", *region]
    assert init(tmp_path / "p", *flags).exit_code == 0
    plan = make_plan(from_file(tmp_path / "p" / "Pulumi.p.yaml"))
    assert not plan.has_errors, [finding for finding in plan.findings if finding.severity == "error"]
    assert "gangway:storage" in settings(tmp_path / "p")


def test_the_project_is_a_pulumi_project(tmp_path: Path) -> None:
    assert init(tmp_path / "a b!c", "--stack", "prod", "--policy").exit_code == 0
    folder = tmp_path / "a b!c"
    project = yaml.safe_load((folder / "Pulumi.yaml").read_text("utf-8"))
    assert project["name"] == "a-b-c"
    assert project["runtime"]["options"]["virtualenv"] == ".venv"
    assert 'run_module("gangway.stacks"' in (folder / "__main__.py").read_text("utf-8")
    assert (folder / "requirements.txt").read_text("utf-8").startswith("gangway-iac[aws,policy] @ file:///")
    assert yaml.safe_load((folder / "policy/PulumiPolicy.yaml").read_text("utf-8"))["runtime"]["name"] == "python"
    assert 'run_module("gangway.stacks.policy"' in (folder / "policy/__main__.py").read_text("utf-8")


def test_flags_become_settings(tmp_path: Path) -> None:
    flags = {
        "--provider": "gcp",
        "--accelerator": "H100x8",
        "--region": "us-east5",
        "--nodes": "2-4",
        "--preset": "dcgan-cifar10",
        "--kimg": "1000.5",
        "--max-hours": "12",
        "--email": "me@example.org",
        "--budget": "90000",
        "--team": "vision",
        "--cost-center": "0815",
    }
    sets = ["gcp.project=our-project", "gangway:cluster.zone=us-east5-a", "storage.kind=filestore",
            "storage.capacity_gib=2560", "storage.source=gs://our-bucket/cifar10"]  # fmt: skip
    words = [word for pair in flags.items() for word in pair]
    result = init(tmp_path / "p", *words, *[word for each in sets for word in ("--set", each)],
                  "--machine-type", "a3-highgpu-8g")  # fmt: skip
    assert result.exit_code == 0, result.output
    config = settings(tmp_path / "p")
    assert config["gangway:cluster"] == {
        "machine_type": "a3-highgpu-8g",
        "nodes": {"min": 2, "max": 4},
        "capacity": [{"kind": "on-demand"}],
        "zone": "us-east5-a",
    }
    assert config["gangway:storage"] == {
        "kind": "filestore",
        "capacity_gib": 2560,
        "source": "gs://our-bucket/cifar10",
    }
    assert config["gangway:gcp"] == {"project": "our-project", "billing_account": "012345-6789AB-CDEF01"}
    assert config["gangway:budget"] == {"monthly_usd": 90000, "emails": ["me@example.org"]}
    assert config["gangway:job"]["kimg"] == 1000.5
    assert config["gangway:tags"] == {"team": "vision", "cost_center": "0815"}
    text = (tmp_path / "p" / "Pulumi.p.yaml").read_text("utf-8")
    assert "Replace with yours: gcp.billing_account." in text


def test_it_asks_for_what_no_flag_says(tmp_path: Path) -> None:
    told = ["azure", "H100x8", "22222222-0000-0000-0000-222222222222", "southcentralus", "2", "", "me@example.org", ""]
    result = init(tmp_path / "p", "--ask", answers="\n".join(told) + "\n")
    assert result.exit_code == 0, result.output
    config = settings(tmp_path / "p")
    assert config["gangway:azure"]["subscription_id"] == told[2]
    assert config["gangway:cluster"]["accelerator"] == "H100x8"
    assert config["gangway:cluster"]["nodes"] == {"min": 2, "max": 2}
    assert config["gangway:budget"]["monthly_usd"] % 100 == 0
    assert "Replace with yours" not in (tmp_path / "p" / "Pulumi.p.yaml").read_text("utf-8")


def test_without_an_address_nothing_is_written(tmp_path: Path) -> None:
    done = gangway("init", "p", "--provider", "aws", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: --email: missing" in done.stderr
    assert not (tmp_path / "p").exists()


def test_it_asks_until_there_is_an_address(tmp_path: Path) -> None:
    """A line without an answer is none."""
    told = ["aws", "g5.xlarge", "us-east-1", "1", "", "", "me@example.org", ""]
    assert init(tmp_path / "p", "--ask", answers="\n".join(told) + "\n").exit_code == 0
    assert settings(tmp_path / "p")["gangway:budget"]["emails"] == ["me@example.org"]


def test_each_question_begins_with_what_the_start_has() -> None:
    for provider in startable_providers():
        assert all(get_start(provider).example(path) for path in get_start(provider).questions)


BAD: Mapping[str, tuple[list[str], list[str]]] = {
    "provider": (["--provider", "gpc"], ["--provider: no such provider", "'gpc'", "aws, gcp", "did you mean 'gcp'?"]),
    "stack": (["--stack", "a/b"], ["--stack: invalid stack name", "'a/b'", "--stack dev"]),
    "stack's letters": (["--stack", "Dev"], ["Pulumi.Dev.yaml: gangway:stack", "'Dev'", "rename the stack"]),
    "region": (["--region", "us-esat-1"], ["Pulumi.p.yaml: gangway:region", "'us-esat-1'", "mean 'us-east-1'?"]),
    "accelerator": (["--accelerator", "H100x9"], ["gangway:cluster.accelerator", "'H100x9'", "did you mean 'H100x8'?"]),
    "machine type": (["--machine-type", "g5.xlarg"], ["gangway:cluster.machine_type", "did you mean 'g5.xlarge'?"]),
    "nodes": (["--nodes", "two"], ["--nodes: invalid number of nodes", "'two'", "2, or 2-4"]),
    "nodes' order": (["--nodes", "4-2"], ["gangway:cluster.nodes", "min not above max"]),
    "preset": (["--preset", "dcgan-digit"], ["gangway:job.preset", "did you mean 'dcgan-digits'?"]),
    "email": (["--email", "me"], ["gangway:budget.emails[0]", "an e-mail address"]),
    "budget": (["--budget", "0.5"], ["gangway:budget.monthly_usd: below the cost of one hour", "at least 1."]),
    "no budget": (["--budget", "-1"], ["gangway:budget.monthly_usd", "-1"]),
    "set": (["--set", "job"], ["--set: not a setting", "'job'", "KEY=VALUE"]),
    "a set's key": (["--set", "job.steps=1"], ["gangway:job.steps: unknown key"]),
    "a set's place": (["--set", "cluster.nodes.min.x=1"], ["--set cluster.nodes.min.x", "min cannot contain x"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(BAD))
def test_a_wrong_answer_says_what_is_right_and_leaves_nothing(tmp_path: Path, case: str) -> None:
    flags, expected = BAD[case]
    result = init(tmp_path / "p", *flags)
    assert result.exit_code != 0
    assert isinstance(result.exception, InputError | ExceptionGroup), result.output
    mistakes = result.exception.exceptions if isinstance(result.exception, ExceptionGroup) else [result.exception]
    told = "\n".join(map(str, mistakes))
    for words in expected:
        assert words in told, told
    assert not (tmp_path / "p").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "place", "fix"),
    [
        (["--accelerator", "H100x8", "--region", "eu-central-1"], "gangway:region: ", "us-east-1"),
        (["--accelerator", "H100x8", "--nodes", "1", "--preset", "dcgan-celeba64"], "gangway:", "storage"),
    ],
)
def test_what_the_plan_refuses_is_said_beside_what_was_written(
    tmp_path: Path, flags: list[str], place: str, fix: str
) -> None:
    done = init(tmp_path / "mine", "--provider", "aws", "--no-ask", *flags)
    assert done.exit_code == 1, done.output
    assert "fix in Pulumi.mine.yaml before `pulumi up`:" in done.output
    told = done.output.partition("before `pulumi up`:")[2]
    assert place in told
    assert fix in told.partition("fix: ")[2]
    assert (tmp_path / "mine" / "Pulumi.mine.yaml").is_file()


def test_a_mistake_ends_the_command_with_2(tmp_path: Path) -> None:
    done = gangway("init", "p", "--email", "me@example.org", "--nodes", "two", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --nodes: invalid number of nodes")


@pytest.mark.parametrize("name", file_names("dev", policy=True))
def test_it_never_overwrites(tmp_path: Path, name: str) -> None:
    there = tmp_path / name
    there.parent.mkdir(exist_ok=True)
    there.write_text("mine", "utf-8")
    before = sorted(tmp_path.rglob("*"))
    result = init(tmp_path, "--policy", "--stack", "dev")
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"{there}: already exists and is not overwritten")
    assert there.read_text("utf-8") == "mine"
    assert sorted(tmp_path.rglob("*")) == before


def test_it_never_writes_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "p" / ".git").mkdir(parents=True)
    (tmp_path / "p" / "notes.txt").write_text("mine", "utf-8")
    result = init(tmp_path / "p")
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith("DIR: the folder has other files: notes.txt")
    assert f"use {tmp_path / 'p-1'} as DIR" in str(result.exception)
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == [".git", "notes.txt"]
    (tmp_path / "p" / "notes.txt").unlink()
    assert init(tmp_path / "p").exception is None, "hidden files are no one's project"


def test_what_cannot_be_written_is_not_half_written(tmp_path: Path) -> None:
    (tmp_path / "policy").write_text("a file where the folder would be", "utf-8")
    result = init(tmp_path, "--policy")
    assert isinstance(result.exception, InputError)
    assert [file.name for file in tmp_path.iterdir()] == ["policy"]
    assert isinstance(init(tmp_path / "policy").exception, InputError)


def test_the_printed_commands_quote_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "vision team"
    result = init(folder)
    assert f"  cd {shlex.quote(str(folder))}\n" in result.output
    assert shlex.split(result.output.split("  cd ")[1].splitlines()[0]) == [str(folder)]


def test_accents_of_a_folders_name_are_dropped(tmp_path: Path) -> None:
    assert init(tmp_path / "Ünï").exception is None
    assert settings(tmp_path / "Ünï", "uni")
    assert yaml.safe_load((tmp_path / "Ünï" / "Pulumi.yaml").read_text("utf-8"))["name"] == "Uni"
    refused = init(tmp_path / "日本")
    assert isinstance(refused.exception, InputError)
    assert "fix:     add --stack dev" in str(refused.exception)
    assert not (tmp_path / "日本").exists()
    assert init(tmp_path / "日本", "--stack", "dev").exception is None


@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\nb", "a\u202eb"])
def test_a_name_that_a_terminal_would_not_show_is_refused(tmp_path: Path, name: str) -> None:
    refused = init(tmp_path / name, "--stack", "dev")
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception).startswith("DIR: contains unprintable characters")
    assert name not in str(refused.exception)
    assert list(tmp_path.iterdir()) == []


def test_the_second_of_two_at_once_says_that_another_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gangway.cli import init as command

    def first_one_writes(folder: Path, *_: object) -> None:
        folder.mkdir()
        (folder / "Pulumi.p.yaml").write_text("of the other", "utf-8")

    monkeypatch.setattr(command, "_check_folder", first_one_writes)
    refused = init(tmp_path / "p")
    assert isinstance(refused.exception, InputError)
    assert "another `gangway init` is writing into this folder" in str(refused.exception)
    assert [(file.name, file.read_text("utf-8")) for file in (tmp_path / "p").iterdir()] == [
        ("Pulumi.p.yaml", "of the other")
    ]
