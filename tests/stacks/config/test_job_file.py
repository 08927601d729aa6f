"""Job files: what is taken, and what is refused with a way out."""

import json
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.node_command import Meeting, Place, node_argv, node_variables, train_document
from gangway.stacks.config.job_file import JobFile, Priority, read_job_file
from tests.conftest import REPO

COMMAND = "name: mine\ncommand: [python, train.py]\nmax_hours: 1\n"
PRESET = "name: mine\npreset: dcgan-digits\nkimg: 4\nmax_hours: 1\n"


def read(tmp_path: Path, text: str) -> JobFile:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return read_job_file(path)


@pytest.mark.parametrize("path", sorted(REPO.glob("examples/*job*/*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_job_files(path: Path) -> None:
    assert read_job_file(path).name


def test_what_is_left_out(tmp_path: Path) -> None:
    job = read(tmp_path, COMMAND)
    assert (job.nodes.min, job.nodes.max, job.processes_per_node, job.priority) == (1, 1, None, Priority.NORMAL)
    assert (job.exit_codes.interrupted, job.exit_codes.bad_input, job.exit_codes.unfit) == ((75,), (2,), (4,))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("name: mine\nmax_hours: 1\n", "exactly one of preset and command"),
        (COMMAND + "preset: dcgan-digits\n", "exactly one of preset and command"),
        (COMMAND + "kimg: 3\n", "kimg only with preset"),
        (PRESET + "workdir: /work\n", "workdir only with command"),
        (PRESET + "outputs: [/work/results]\n", "outputs only with command"),
        (COMMAND + "data_dir: /data\n", "data_dir only with preset"),
        (PRESET + "data_dir: data\n", "/"),
        (COMMAND + "nodes: {min: 0, max: 1}\n", "1 to 512"),
        (PRESET.replace("kimg: 4\n", ""), "kimg is required with preset"),
        (COMMAND + "image: mine:latest\n", "like registry"),
        (COMMAND + "exit_codes: {unfit: [2]}\n", "each code once"),
        (COMMAND + "exit_codes: {unfit: [0]}\n", "codes from 1 to 255"),
        (COMMAND + "nodes: {min: 2, max: 1}\n", "min of at most max"),
        (COMMAND + "env: {1A: x}\n", "not starting with a digit"),
        (COMMAND + "env: {GANGWAY_RUN_DIR: /mine}\n", "names without GANGWAY_"),
        (COMMAND + "env: {UID: '5'}\n", "names that shells do not set"),
        (COMMAND + "workdir: here\n", "/"),
        (COMMAND + "priority: urgent\n", "low"),
        (COMMAND.replace("name: mine", "name: Mine"), "like digits"),
        (COMMAND.replace("max_hours: 1", "max_hours: 0"), "a number above 0"),
        (COMMAND + "resources: {cpu: '1', memory: 1m}\n", "64Mi of memory or more"),
        (COMMAND + "resources: {cpu: '1', memory: 63.9Mi}\n", "64Mi of memory or more"),
        (COMMAND + "resources: {cpu: '1', memory: '67108863'}\n", "64Mi of memory or more"),
    ],
)
def test_refused(tmp_path: Path, text: str, allowed: str) -> None:
    with pytest.raises(ExceptionGroup) as refused:
        read(tmp_path, text)
    mistakes = [str(each) for each in refused.value.exceptions]
    assert all(isinstance(each, InputError) for each in refused.value.exceptions)
    assert any(allowed in each and str(tmp_path / "job.yaml") in each for each in mistakes), mistakes


@pytest.mark.parametrize("memory", ["64Mi", "67108864", "0.0625Gi", "67109k", "1Ei", "68G"])
def test_enough_memory(tmp_path: Path, memory: str) -> None:
    assert read(tmp_path, COMMAND + f"resources: {{cpu: '1', memory: '{memory}'}}\n").resources["memory"] == memory


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("sleep 1", "command: [sleep, '1']"),
        ("sh -c 'a, b'", "command: [sh, -c, 'a, b']"),
        ("make && ./run >log", "command: [sh, -c, make && ./run >log]"),
    ],
)
def test_a_command_in_one_line_is_told_as_words(tmp_path: Path, line: str, fix: str) -> None:
    with pytest.raises(ExceptionGroup) as refused:
        read(tmp_path, COMMAND.replace("[python, train.py]", line))
    (mistake,) = refused.value.exceptions
    assert isinstance(mistake, InputError)
    assert fix in mistake.fix
    read(tmp_path, COMMAND.replace("command: [python, train.py]", fix))


def test_a_command_and_its_variables_may_have_lines(tmp_path: Path) -> None:
    text = 'name: mine\ncommand:\n- sh\n- -c\n- |\n  echo a\n  \techo b\nenv: {A: "x\\ny"}\nmax_hours: 1\n'
    job = read(tmp_path, text)
    assert job.command[-1] == "echo a\n\techo b\n"
    assert job.env == {"A": "x\ny"}
    with pytest.raises(ExceptionGroup):
        read(tmp_path, COMMAND.replace("train.py", '"tr\\u200bain.py"'))
    with pytest.raises(ExceptionGroup):
        read(tmp_path, COMMAND + 'workdir: "/a\\nb"\n')


def test_a_command_runs_once_on_each_node_or_as_processes_of_torchrun(tmp_path: Path) -> None:
    place = Place("/runs/a", "/train.json", "/own-job.sh", "python3")
    assert node_argv(read(tmp_path, COMMAND), place) == ["/bin/sh", "/own-job.sh", "--", "python", "train.py"]
    words = node_argv(read(tmp_path, COMMAND + "processes_per_node: 4\n"), place, Meeting("n1", 29400, "mine-1", 3, ""))
    assert words[:2] == ["/bin/sh", "/own-job.sh"]
    assert words[-3:] == ["--", "python", "train.py"]
    assert {"--nnodes=3", "--rdzv-endpoint=n1:29400", "--rdzv-id=mine-1", "--nproc-per-node=4"} <= set(words)


def test_torchrun_gives_its_processes_the_jobs_grace(tmp_path: Path) -> None:
    place = Place("/runs/a", "/train.json", "/own-job.sh", "python3")
    text = COMMAND + "grace_sec: 120\n"
    assert "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" not in node_variables(read(tmp_path, text), place, "/notices")
    several = read(tmp_path, text + "processes_per_node: 2\n")
    assert node_variables(several, place, "/notices")["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "120"
    own = read(tmp_path, text + "processes_per_node: 2\nenv: {TORCH_ELASTIC_SHUTDOWN_TIMEOUT: '7'}\n")
    assert node_variables(own, place, "/notices")["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "7"


def test_what_a_command_is_given(tmp_path: Path) -> None:
    job = read(tmp_path, COMMAND + "env: {A: b}\nexit_codes: {interrupted: [9, 10]}\n")
    found = node_variables(job, Place("/runs/a", "/train.json", "/own-job.sh", "python3"), "/notices")
    assert found["GANGWAY_CODES_INTERRUPTED"] == "9 10"
    assert found["GANGWAY_NOTICES"] == "/notices"
    assert (found["GANGWAY_RUN_DIR"], found["A"]) == ("/runs/a", "b")


def test_a_preset_is_the_trainers(tmp_path: Path) -> None:
    place = Place("/runs/a", "/train.json", "/own-job.sh", "python3")
    more = "processes_per_node: 2\nsettings: {batch_size: 16}\ndata_dir: /data\n"
    words = node_argv(read(tmp_path, PRESET + more), place)
    assert words[:3] == ["python3", "-m", "gangway.trainer.launch"]
    assert words[words.index("--config") + 1] == "/train.json"
    document = json.loads(train_document(read(tmp_path, PRESET + more), place) or "")
    assert (document["preset"], document["batch_size"]) == ("dcgan-digits", 16)
    assert words[words.index("--run-dir") + 1] == "/runs/a"
    assert words[words.index("--data") + 1] == "/data"
    assert node_variables(read(tmp_path, PRESET), place, "/notices") == {}


@pytest.mark.parametrize("size", [1_000_001, 3 << 30])
def test_a_file_that_is_too_large_is_called_a_job_file(size: int, tmp_path: Path) -> None:
    with (tmp_path / "job.yaml").open("wb") as file:
        file.truncate(size)
    with pytest.raises(InputError, match="too large for a job file") as caught:
        read_job_file(tmp_path / "job.yaml")
    assert caught.value.value == f"{size:,} bytes"
