"""A stack whose job is a command of one's own: which keys go together, on which provider; as in a job file."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import InputError
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.job_file import read_job_file
from gangway.stacks.config.own_command import command_variables, output_folder, outputs_in_mounts
from gangway.stacks.config.sections import CommandConfig, JobConfig
from gangway.stacks.loading import unsupported_settings
from gangway.stacks.loading.loader import from_file

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine@sha256:" + "ab" * 32
JOB: dict[str, Any] = {"command": ["python", "train.py"], "image": IMAGE, "max_hours": 4}


@pytest.fixture
def own_file(repo: Path, tmp_path: Path) -> Callable[..., Path]:
    """A shipped stack of one node with another job, and other sections changed."""

    def write(stack: str = "aws-g5-dev", job: Any = None, **sections: Any) -> Path:
        values = yaml.safe_load((repo / "stacks" / f"Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
        values["gangway:job"] = JOB if job is None else job
        values |= {f"gangway:{name}": value for name, value in sections.items()}
        path = tmp_path / "Pulumi.own.yaml"
        path.write_text(yaml.safe_dump({"config": values}), "utf-8")
        return path

    return write


def mistakes(path: Path) -> list[InputError]:
    try:
        from_file(path)
    except ExceptionGroup as group:
        return [one for one in group.exceptions if isinstance(one, InputError)]
    except InputError as error:
        return [error]
    return []


def test_a_command_is_a_job(own_file: Callable[..., Path]) -> None:
    more = {"env": {"A": "1"}, "workdir": "/work", "processes_per_node": 8, "exit_codes": {"interrupted": [75, 85]}}
    config = from_file(own_file(job={**JOB, **more, "terminate_when_done": True}))
    assert isinstance(config.job, CommandConfig)
    assert config.own_command is config.job
    assert config.ready_image == IMAGE
    assert (config.job.command, config.job.workdir) == (("python", "train.py"), "/work")
    assert command_variables(config.job, "/run", "/notices") == {
        "GANGWAY_RUN_DIR": "/run",
        "GANGWAY_NOTICES": "/notices",
        "GANGWAY_CODES_INTERRUPTED": "75 85",
        "GANGWAY_CODES_BAD_INPUT": "2",
        "GANGWAY_CODES_UNFIT": "4",
        "A": "1",
    }


def test_a_preset_is_what_it_was(repo: Path) -> None:
    config = from_file(repo / "stacks/Pulumi.aws-g5-dev.yaml")
    assert isinstance(config.job, JobConfig)
    assert (config.own_command, config.ready_image) == (None, None)


PRESET = {"preset": "dcgan-digits", "kimg": 1, "max_hours": 1}


@pytest.mark.parametrize(
    ("job", "place", "allowed", "fix"),
    [
        (
            {**JOB, "preset": "dcgan-digits"},
            "gangway:job",
            "exactly one of preset and command",
            "leave one of them out",
        ),
        ({**JOB, "command": []}, "gangway:job", "exactly one of preset and command", "write preset"),
        ({**JOB, "kimg": 3}, "gangway:job", "kimg only with preset", "leave kimg out"),
        ({**JOB, "run_id": "a"}, "gangway:job", "run_id only with preset", "leave run_id out"),
        ({**JOB, "autoscale": {}}, "gangway:job", "autoscale only with preset", "leave autoscale out"),
        ({**PRESET, "env": {}}, "gangway:job", "env only with command", "leave env out"),
        ({**PRESET, "processes_per_node": 2}, "gangway:job", "processes_per_node only with command", "leave"),
        ({**JOB, "env": {"GANGWAY_X": "1"}}, "gangway:job.env", "names without GANGWAY_", "leave GANGWAY_X out"),
        ({**JOB, "env": {"a b": "1"}}, "gangway:job.env", "names of letters", "rename 'a b'"),
        ({**JOB, "workdir": "work"}, "gangway:job.workdir", "/work", ""),
        ({**JOB, "image": "mine:latest"}, "gangway:job.image", "@sha256:", ""),
        ({**JOB, "exit_codes": {"unfit": [75]}}, "gangway:job.exit_codes", "each code once", "75"),
        ({**JOB, "processes_per_node": 0}, "gangway:job.processes_per_node", "whole number", ""),
        ({**JOB, "outputs": ["results"]}, "gangway:job.outputs[0]", "/work/results", ""),
        ({**JOB, "outputs": ["/work/../etc"]}, "gangway:job.outputs[0]", "/work/results", ""),
        ({**JOB, "outputs": ["/etc/x"]}, "gangway:job.outputs", "folders outside the system's", "remove /etc/x"),
        ({**JOB, "outputs": ["/fsx"]}, "gangway:job.outputs", "folders outside the system's", "remove /fsx"),
        ({**JOB, "outputs": ["/a", "/a/b"]}, "gangway:job.outputs", "do not contain each other", "remove /a/b"),
        ({**JOB, "outputs": ["/a", "/a"]}, "gangway:job.outputs", "do not contain each other", "remove /a"),
        ({**PRESET, "outputs": ["/a"]}, "gangway:job", "outputs only with command", "leave outputs out"),
        ({"command": ["a"], "image": IMAGE}, "gangway:job.max_hours", "it is required", "add max_hours"),
        ({**JOB, "comand": 1}, "gangway:job.comand", "command", ""),
        ({"command": ["a"], "max_hours": 1}, "gangway:job.image", "it is required with command", "push the image"),
    ],
)
def test_a_mistake_has_its_place_rule_and_fix(
    own_file: Callable[..., Path], job: dict[str, Any], place: str, allowed: str, fix: str
) -> None:
    path = own_file(job=job)
    (mistake,) = mistakes(path)
    assert mistake.place == f"{path}: {place}"
    assert allowed in (mistake.allowed or "")
    assert fix in mistake.fix


def test_the_trainers_image_is_none_of_a_command(own_file: Callable[..., Path]) -> None:
    (mistake,) = mistakes(own_file(image={"prebuilt": IMAGE}))
    assert mistake.place.endswith("gangway:image.prebuilt")


def test_several_nodes_run_one(own_file: Callable[..., Path]) -> None:
    cluster = {
        "machine_type": "g5.xlarge",
        "nodes": {"min": 1, "max": 2},
        "capacity": [{"kind": "on-demand"}],
    }
    assert mistakes(own_file(cluster=cluster)) == []


def test_where_nodes_do_not_meet_several_are_refused(
    own_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = get_provider("gcp")
    without = replace(there, settings=replace(there.settings, joins_commands=False))
    monkeypatch.setattr(unsupported_settings, "get_provider", lambda _: without)
    (mistake,) = [one for one in mistakes(own_file("gcp-a3-spot")) if one.place.endswith("gangway:cluster.nodes")]
    assert "{min: 1, max: 1}" in mistake.fix
    assert "provider: aws" in (mistake.allowed or "")


def test_a_provider_without_them_refuses_it_by_name(
    own_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = get_provider("aws")
    without = replace(there, settings=replace(there.settings, runs_commands=False))
    monkeypatch.setattr(unsupported_settings, "get_provider", lambda _: without)
    (mistake,) = mistakes(own_file())
    assert mistake.place.endswith("gangway:job.command")
    assert "hosts" in (mistake.allowed or "")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("head", "prometheus_image", "prom/prometheus:v3.7.3"), ("observe", "no_steps_minutes", 90)],
)
def test_what_only_a_training_reads_is_refused(
    own_file: Callable[..., Path], section: str, key: str, value: Any
) -> None:
    (mistake,) = mistakes(own_file(**{section: {key: value}}))
    assert mistake.place.endswith(f"gangway:{section}.{key}")
    assert mistake.fix == f"leave {key} out"


def test_no_prometheus_is_no_mistake(own_file: Callable[..., Path]) -> None:
    assert mistakes(own_file(head={"prometheus_image": None})) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"env": {"GANGWAY_X": "1"}},
        {"workdir": "work"},
        {"image": "mine:latest"},
        {"exit_codes": {"unfit": [300]}},
        {"processes_per_node": -1},
        {"command": [3]},
        {"outputs": ["/etc/x"]},
        {"outputs": ["/a", "/a/b"]},
    ],
)
def test_a_job_file_and_a_stack_say_the_same(
    own_file: Callable[..., Path], tmp_path: Path, wrong: dict[str, Any]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"name": "mine", **JOB, **wrong}), "utf-8")
    with pytest.raises(ExceptionGroup) as caught:
        read_job_file(path)
    (of_file,) = caught.value.exceptions
    (of_stack,) = mistakes(own_file(job={**JOB, **wrong}))
    assert isinstance(of_file, InputError)
    assert (of_file.value, of_file.allowed, of_file.fix) == (of_stack.value, of_stack.allowed, of_stack.fix)
    assert of_stack.place.rpartition("gangway:job.")[2] == of_file.place.rpartition(": ")[2]


SCRIPT = "import sys\nif sys.argv:\n\tprint('two\twords')\n"


def test_a_script_may_stand_in_a_command_and_in_its_environment(own_file: Callable[..., Path], tmp_path: Path) -> None:
    job = {**JOB, "command": ["python", "-c", SCRIPT], "env": {"LINES": "a\nb"}}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"name": "mine", **job}), "utf-8")
    of_stack = from_file(own_file(job=job)).own_command
    assert of_stack is not None
    assert of_stack.command == read_job_file(path).command == ("python", "-c", SCRIPT)
    assert of_stack.env == read_job_file(path).env == {"LINES": "a\nb"}


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"command": ["sh", "-c", "a\x07b"]}, "job.command[2]"),
        ({"command": ["a\rb"]}, "job.command[0]"),
        ({"workdir": "/work\n"}, "job.workdir"),
    ],
)
def test_other_characters_that_nobody_sees_are_refused_in_both(
    own_file: Callable[..., Path], tmp_path: Path, wrong: dict[str, Any], place: str
) -> None:
    (mistake,) = mistakes(own_file(job={**JOB, **wrong}))
    assert mistake.place.endswith(f"gangway:{place}")
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"name": "mine", **JOB, **wrong}), "utf-8")
    with pytest.raises(ExceptionGroup, match="not valid"):
        read_job_file(path)


def test_outputs_of_a_job_file_are_those_of_a_stack(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"name": "mine", **JOB, "outputs": ["/work/results", "/work/plots"]}), "utf-8")
    assert read_job_file(path).outputs == ("/work/results", "/work/plots")


def test_an_output_is_kept_beside_the_run_folder_and_never_in_it() -> None:
    kept = output_folder("/fsx/runs/a", "/work/results")
    assert kept == "/fsx/runs/a.outputs/work/results"
    assert not PurePosixPath(kept).is_relative_to("/fsx/runs/a")


@pytest.mark.parametrize(("output", "meets"), [("/a/b", True), ("/a", True), ("/a/b/c", True), ("/a/bc", False)])
def test_outputs_may_not_be_in_a_mount_or_hold_one(output: str, meets: bool) -> None:
    found = list(outputs_in_mounts(["/x", output], ["/y", "/a/b"]))
    assert found == ([(output, "/a/b")] if meets else [])
