"""A node whose job is a command of one's own: what docker is told, the scripts run for real, and what is put of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from gangway.components.core.job import JobSpec, OwnCommand
from gangway.images.aws import (
    USER_DATA_LIMIT_BYTES,
    AwsNodeSpec,
    aws_docker_argv,
    render_aws_node,
    user_data_base64gzip,
)
from gangway.images.render import TEMPLATES
from gangway.images.specs import FileSystem, ended_object, job_key
from tests.hostile_store import attack_store
from tests.shellcheck import shell_mistakes

SCRIPT = TEMPLATES / "job" / "own-node.sh"
GRACE_SEC = 60


def get_job(run_dir: str, *words: str, processes: int = 0, workdir: str = "") -> JobSpec:
    return JobSpec(
        name="mine",
        image="123456789012.dkr.ecr.us-east-2.amazonaws.com/mine@sha256:" + "cd" * 32,
        backend="nccl",
        num_nodes_min=1,
        num_nodes_max=1,
        processes_per_node=8,
        env={"GANGWAY_RUN_DIR": run_dir, "GANGWAY_NOTICES": f"{run_dir}.notices", "GREETING": "two words"},
        command=OwnCommand(words=words, workdir=workdir, torchrun_processes=processes),
        shutdown_timeout_sec=GRACE_SEC,
    )


@pytest.fixture
def own_spec(node: AwsNodeSpec) -> AwsNodeSpec:
    """A worker alone, whose command is started eight times by torchrun."""
    job = get_job("/fsx/runs/mine", "python", "train.py", "--note", 'it\'s "50 %"', processes=8, workdir="/work")
    return replace(node, job=job, run_dir="/fsx/runs/mine", member_key=None)


def test_the_command_runs_by_scripts_of_the_node_in_its_own_image(own_spec: AwsNodeSpec) -> None:
    argv = aws_docker_argv(own_spec)
    image = argv.index(own_spec.job.image)
    assert argv[argv.index("--entrypoint") + 1] == "/bin/sh"
    assert argv[argv.index("--workdir") + 1] == "/work"
    for script in ("own-node.sh", "own-job.sh"):
        path = f"/opt/gangway/bin/{script}"
        assert argv[argv.index(f"type=bind,source={path},target={path},readonly") - 1] == "--mount"
    folder = f"/fsx/runs/mine/.launch/{job_key(own_spec.job)}"
    assert argv[image + 1 :] == [
        *("/opt/gangway/bin/own-node.sh", "/run/gangway-notices/held", folder, "28800", "3", "60"),
        *("--standalone", "--nnodes=1", "--nproc-per-node=8", "--max-restarts=0"),
        *("--", "python", "train.py", "--note", 'it\'s "50 %"'),
    ]
    assert {"--read-only", "no-new-privileges"} <= set(argv[:image]), "it is contained as the trainer is"


def test_a_node_with_a_command_is_golden(own_spec: AwsNodeSpec, same_as_golden: Callable[[str, str], None]) -> None:
    same_as_golden("cloud-init-aws.command_node.yaml", render_aws_node(own_spec))


def test_it_fits_into_user_data(own_spec: AwsNodeSpec) -> None:
    packed = user_data_base64gzip(render_aws_node(own_spec))
    assert len(packed) * 3 / 4 < USER_DATA_LIMIT_BYTES


def test_another_command_is_another_job() -> None:
    one, other = get_job("/run", "a"), get_job("/run", "b")
    assert job_key(one) != job_key(other)
    assert ended_object(one, 1) != ended_object(other, 1)
    assert job_key(one) == job_key(one.model_copy(update={"env": {}}))
    assert one.command is not None
    more = one.command.model_copy(update={"outputs": ("/work/results",)})
    assert job_key(one) != job_key(one.model_copy(update={"command": more}))


@pytest.mark.parametrize("name", ["own-node.sh", "own-job.sh", "upload-record.sh", "with-outputs.sh"])
def test_scripts_pass_shellcheck(name: str) -> None:
    assert shell_mistakes([TEMPLATES / "job" / name]) == ""


# own-node.sh itself


class Node:
    """What own-node.sh is told, and what is left of it."""

    def __init__(self, root: Path) -> None:
        self.root, self.run_dir, self.held = root, root / "run", root / "held"
        self.run_dir.mkdir()
        self.folder = self.run_dir / ".launch" / "key"
        self.notices = root / "notices.jsonl"
        self.max_sec, self.grace_sec = "", GRACE_SEC

    def argv(self, script: str) -> list[str]:
        own = [str(self.held), str(self.folder), self.max_sec, "2", str(self.grace_sec)]
        return ["/bin/sh", str(SCRIPT), *own, "--", "sh", "-c", script]

    @property
    def variables(self) -> dict[str, str]:
        return {**os.environ, "GANGWAY_RUN_DIR": str(self.run_dir), "GANGWAY_NOTICES": str(self.notices)}

    def ended(self, script: str) -> int:
        return subprocess.run(self.argv(script), env=self.variables, timeout=120).returncode

    @contextmanager
    def begun(self, script: str) -> Iterator[subprocess.Popen[str]]:
        """Once the command has written a line."""
        with subprocess.Popen(self.argv(script), env=self.variables, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            yield process

    def kinds(self) -> list[str]:
        return [json.loads(line)["kind"] for line in self.notices.read_text().splitlines()]


@pytest.fixture
def own_node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_path_of_the_jobs_own_costs_no_count_of_failures(own_node: Node) -> None:
    words = [*own_node.argv("")[:-3], "/bin/sh", "-c", "exit 1"]
    variables = {**own_node.variables, "PATH": "/no/such"}
    assert [subprocess.run(words, env=variables, timeout=120).returncode for _ in range(3)] == [1, 1, 5]


SAVES = "trap 'exit 75' TERM; echo up; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo up; while :; do sleep 0.05; done"


@pytest.mark.parametrize("code", [0, 1, 2, 4, 75])
def test_codes_go_through(own_node: Node, code: int) -> None:
    assert own_node.ended(f"exit {code}") == code


def test_failures_are_counted_over_all_starts(own_node: Node) -> None:
    assert [own_node.ended(script) for script in ("exit 1", "exit 75", "exit 9", "exit 3")] == [1, 75, 1, 5]


def test_what_the_job_has_kept_may_be_anything(own_node: Node) -> None:
    own_node.folder.mkdir(parents=True)
    for name, text in (("failures", "x; exit 3\n"), ("used", "")):
        (own_node.folder / name).write_text(text)
    assert own_node.ended("exit 1") == 1
    assert (own_node.folder / "failures").read_text() == "1\n"


def test_a_signal_goes_on_to_the_command(own_node: Node) -> None:
    with own_node.begun(SAVES) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 75
    assert own_node.kinds() == ["stop"]


def test_a_command_that_fails_when_it_is_told_is_no_failure_of_the_job(own_node: Node) -> None:
    for _ in range(4):
        with own_node.begun("trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done") as process:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 1


def test_who_does_not_leave_in_time_is_killed(own_node: Node) -> None:
    own_node.grace_sec = 1
    deaf = f"echo $$ >{own_node.root}/pid; {DEAF}"
    with own_node.begun(deaf) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 137
        # A container ends with its first process; here the command has to be ended.
        os.kill(int((own_node.root / "pid").read_text()), signal.SIGKILL)


@pytest.mark.slow
def test_notices_of_the_cloud_are_told_once_and_end_the_command(own_node: Node) -> None:
    with own_node.begun(SAVES) as process:
        own_node.held.write_text("rebalance 2026-11-21T08:10:00Z\n")
        until = time.monotonic() + 60
        while own_node.kinds() != ["rebalance"] and time.monotonic() < until:
            time.sleep(0.05)
        assert process.poll() is None, "it is likely to be taken, and is not yet"
        own_node.held.write_text("rebalance 2026-11-21T08:10:00Z\nspot-interruption 2026-11-21T08:22:00Z\n")
        assert process.wait(60) == 75
    assert own_node.kinds() == ["rebalance", "spot-interruption", "stop"]
    told = json.loads(own_node.notices.read_text().splitlines()[1])
    assert told["deadline"] == "2026-11-21T08:22:00Z"
    assert isinstance(told["seen_at"], int)


def test_hours_count_over_all_starts(own_node: Node) -> None:
    own_node.max_sec = "7200"
    own_node.folder.mkdir(parents=True)
    (own_node.folder / "used").write_text("7199\n")
    with own_node.begun(SAVES) as process:
        assert process.wait(60) == 6
    assert own_node.kinds() == ["max-hours", "stop"]
    assert int((own_node.folder / "used").read_text()) >= 7200
    assert own_node.ended("exit 0") == 6, "and it does not begin again"


def test_who_is_done_in_its_last_seconds_is_done(own_node: Node) -> None:
    own_node.max_sec = "1"
    with own_node.begun("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done") as process:
        assert process.wait(60) == 0


# on a node


@pytest.fixture
def own_machine(job_node: Any, tmp_path: Path) -> Any:
    """A node on which docker runs the command here."""
    job_node.runs_commands()
    copy = f'target={tmp_path}/bucket/${{@: -1}}; mkdir -p "$target"; cp -r "${{@: -2:1}}/." "$target"'
    job_node.fake("aws", f'[ "$1" = s3 ] || exit 0; {copy}')
    return job_node


def plan(machine: Any, script: str, **more: Any) -> None:
    run_dir = machine.root / "run"
    machine.plan(job=get_job(str(run_dir), "sh", "-c", script), run_dir=str(run_dir), member_key=None, **more)


def test_the_node_runs_the_command_with_its_environment(own_machine: Any) -> None:
    plan(own_machine, 'echo "$GREETING" >"$GANGWAY_RUN_DIR/said"; exit 75')
    done = own_machine.run("run-trainer.sh")
    assert done.returncode == 75, done.stderr
    assert (own_machine.root / "run/said").read_text() == "two words\n"


@pytest.mark.parametrize(
    ("code", "reason"), [(0, "done"), (2, "bad-input"), (5, "too-many-failures"), (6, "max-hours")]
)
def test_an_end_for_all_ends_the_job(own_machine: Any, code: int, reason: str) -> None:
    plan(own_machine, "exit 0")
    own_machine.state("ran").touch()
    own_machine.env |= {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": str(code)}
    assert own_machine.run("leave-node.sh").returncode == 0
    assert own_machine.state("ended").read_text() == f"{code} {reason}\n"


def test_outputs_are_folders_beside_the_run_folder_and_are_put_with_it(own_machine: Any) -> None:
    run_dir = own_machine.root / "run"
    script = 'echo "$OUTPUTS" >"$GANGWAY_RUN_DIR/told"'
    job = get_job(str(run_dir), "sh", "-c", script)
    assert job.command is not None
    own = job.command.model_copy(update={"outputs": ("/work/results", "/logs")})
    own_machine.plan(
        job=job.model_copy(update={"command": own}), run_dir=str(run_dir), member_key=None, file_system=None
    )
    done = own_machine.run("run-trainer.sh")
    assert done.returncode == 0, done.stderr
    folders = [own_machine.root / "run.outputs" / name for name in ("work/results", "logs")]
    assert all(folder.is_dir() for folder in folders)
    assert [call[-1] for call in own_machine.calls("chown")] == [str(run_dir), *map(str, folders)]
    assert (run_dir / "told").read_text() == "\n", "what the node knows is not the command's"
    (folders[0] / "deep").mkdir()
    (folders[0] / "deep/best.pt").write_text("best")
    for _ in range(2):
        done = own_machine.run("upload-record.sh")
        assert done.returncode == 0, done.stderr
    put = {name: text for name, text in in_bucket(own_machine).items() if not name.startswith(".starts/")}
    assert put == {"told": "\n", "outputs/work/results/deep/best.pt": "best"}
    assert len(own_machine.asked("s3")) == 2, "each once"


def test_an_output_that_cannot_be_put_keeps_no_other(own_machine: Any) -> None:
    run_dir = own_machine.root / "run"
    job = get_job(str(run_dir), "true")
    assert job.command is not None
    own = job.command.model_copy(update={"outputs": ("/a", "/b")})
    own_machine.plan(
        job=job.model_copy(update={"command": own}), run_dir=str(run_dir), member_key=None, file_system=None
    )
    run_dir.mkdir()
    for name in ("a", "b"):
        folder = own_machine.root / "run.outputs" / name
        folder.mkdir(parents=True)
        (folder / "x").write_text(name)
    copy = f'target={own_machine.root}/bucket/${{@: -1}}; mkdir -p "$target"; cp -r "${{@: -2:1}}/." "$target"'
    own_machine.fake("aws", f'[ "$1" = s3 ] || exit 0; [[ ${{@: -1}} != */a ]] || exit 1; {copy}')
    assert own_machine.run("upload-record.sh").returncode == 1
    assert in_bucket(own_machine) == {"outputs/b/x": "b"}
    own_machine.fake("aws", f'[ "$1" = s3 ] || exit 0; {copy}')
    assert own_machine.run("upload-record.sh").returncode == 0
    assert in_bucket(own_machine) == {"outputs/a/x": "a", "outputs/b/x": "b"}
    assert len(own_machine.asked("s3")) == 3


FILES = {"model.pt": "1", "deep/er/weights.bin": "22", ".hidden": "3"}


def in_bucket(machine: Any) -> dict[str, str]:
    root = machine.root / "bucket/s3:/gangway-records/runs/mine"
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


def has_files(machine: Any) -> None:
    for name, text in {**FILES, ".launch/key/used": "9"}.items():
        path = machine.root / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_all_of_the_run_folder_is_put_when_it_has_changed(own_machine: Any) -> None:
    plan(own_machine, "exit 0", file_system=None)
    has_files(own_machine)
    for _ in range(2):
        done = own_machine.run("upload-record.sh")
        assert done.returncode == 0, done.stderr
    assert in_bucket(own_machine) == FILES
    assert len(own_machine.asked("s3")) == 1
    (own_machine.root / "run/model.pt").write_text("later")
    assert own_machine.run("upload-record.sh").returncode == 0
    assert in_bucket(own_machine)["model.pt"] == "later"
    assert sorted(path.name for path in (own_machine.root / "run").iterdir()) == [
        ".hidden",
        ".launch",
        "deep",
        "model.pt",
    ]


def test_on_a_file_system_it_is_put_once_the_job_has_ended(own_machine: Any) -> None:
    plan(own_machine, "exit 0", file_system=FileSystem("lustre", "fs.example@tcp:/x", "/fsx"))
    has_files(own_machine)
    assert own_machine.run("upload-record.sh").returncode == 0
    assert own_machine.asked("s3") == []
    own_machine.state("ended").write_text("0 done\n")
    assert own_machine.run("upload-record.sh").returncode == 0
    assert in_bucket(own_machine) == FILES


def test_what_cannot_be_put_is_told_and_tried_again(own_machine: Any) -> None:
    plan(own_machine, "exit 0", file_system=None)
    has_files(own_machine)
    own_machine.fake("aws", '[ "$1" = s3 ] || exit 0; echo "no such bucket" >&2; exit 1')
    done = own_machine.run("upload-record.sh")
    assert done.returncode == 1
    assert "no such bucket" in done.stderr
    assert len(own_machine.asked("s3")) == 1
    own_machine.run("upload-record.sh")
    assert len(own_machine.asked("s3")) == 2


def test_a_command_that_runs_puts_nothing(own_machine: Any) -> None:
    """The watch asks for the trainer's progress, of which a command tells nothing."""
    plan(own_machine, "exit 0", file_system=None)
    has_files(own_machine)
    own_machine.fake("systemctl", "echo active")
    done = own_machine.run("watch-node.sh")
    assert done.returncode == 0, done.stderr
    assert "could not" not in done.stderr
    assert in_bucket(own_machine) == {}


JOB_SCRIPT = TEMPLATES / "job" / "own-job.sh"


def ended(script: str, **variables: str) -> int:
    words = ["/bin/sh", str(JOB_SCRIPT), "--", "sh", "-c", script]
    return subprocess.run(words, env={**os.environ, **variables}, timeout=60).returncode


@pytest.mark.parametrize(
    ("code", "meaning"), [(0, 0), (2, 2), (4, 4), (75, 75), (1, 1), (3, 1), (126, 2), (127, 2), (143, 1), (255, 1)]
)
def test_codes_as_they_are_usually(code: int, meaning: int) -> None:
    assert ended(f"exit {code}") == meaning


@pytest.mark.parametrize(("code", "meaning"), [(0, 0), (11, 75), (12, 75), (13, 2), (14, 4), (75, 1), (2, 1), (4, 1)])
def test_codes_of_ones_own(code: int, meaning: int) -> None:
    own = {"INTERRUPTED": "11 12", "BAD_INPUT": "13", "UNFIT": "14"}
    assert ended(f"exit {code}", **{f"GANGWAY_CODES_{name}": value for name, value in own.items()}) == meaning


def test_a_program_that_is_not_there_is_bad_input() -> None:
    assert (
        subprocess.run(["/bin/sh", str(JOB_SCRIPT), "--", "/no/such/program"], stderr=subprocess.PIPE).returncode == 2
    )


@pytest.mark.parametrize(
    ("script", "meaning"),
    [
        ("trap 'exit 75' TERM; echo up; while :; do sleep 0.05; done", 75),
        ("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done", 0),
        ("trap 'exit 2' TERM; echo up; while :; do sleep 0.05; done", 2),
        ("trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done", 1),
        ("echo up; exec sleep 600", 75),
    ],
)
def test_who_is_told_is_told_by_a_signal_and_a_file_and_may_answer(tmp_path: Path, script: str, meaning: int) -> None:
    notices = tmp_path / "notices.jsonl"
    words = ["/bin/sh", str(JOB_SCRIPT), "--", "sh", "-c", script]
    variables = {**os.environ, "GANGWAY_NOTICES": str(notices)}
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert not notices.exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == meaning
    assert notices.read_text().count('"kind": "stop"') == 1


@pytest.mark.parametrize("words", [["run", "echo", "hi"], ["exit", "0"], ["told"]])
def test_a_command_is_a_program_and_nothing_of_the_shells(words: list[str]) -> None:
    done = subprocess.run(["/bin/sh", str(JOB_SCRIPT), "--", *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")


def test_its_environment_is_the_jobs_alone() -> None:
    mine = dict.fromkeys(("child", "code", "all", "each", "file", "word", "before", "is_told", "folder"), "mine")
    words = ["/bin/sh", str(JOB_SCRIPT), "--", "env"]
    told = subprocess.run(words, env={**os.environ, **mine}, capture_output=True, text=True).stdout.splitlines()
    assert {f"{name}=mine" for name in mine} <= set(told)


def test_the_commands_own_code_is_in_the_log() -> None:
    words = ["/bin/sh", str(JOB_SCRIPT), "--", "sh", "-c", "exit 17"]
    assert "ended with 17" in subprocess.run(words, capture_output=True, text=True).stderr


@pytest.mark.parametrize(("code", "is_held"), [(0, False), (2, False), (4, False), (75, False), (9, True), (143, True)])
def test_where_others_end_with_it_a_plain_failure_is_the_last_to_say_so(code: int, is_held: bool) -> None:
    # A length that sleep does not take, and says so.
    words = ["/bin/sh", str(JOB_SCRIPT), "--", "sh", "-c", f"exit {code}"]
    variables = {**os.environ, "GANGWAY_HOLD_BACK_SEC": "for-a-while"}
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == (1 if is_held else code)
    assert ("for-a-while" in done.stderr) == is_held


def test_who_holds_back_leaves_when_it_is_told_to() -> None:
    words = ["/bin/sh", str(JOB_SCRIPT), "--", "sh", "-c", "exit 9"]
    variables = {**os.environ, "GANGWAY_HOLD_BACK_SEC": "600"}
    with subprocess.Popen(words, env=variables, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "ended with 9" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 1


ENDS = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os._exit(int(sys.argv[1])))
print("up", flush=True)
while True:
    signal.pause()
"""


@pytest.mark.parametrize("code", [0, 2])
def test_a_signal_to_all_processes_at_once_costs_no_code(code: int) -> None:
    """As Slurm sends it: the command ends while the script is still hearing it. `sh` is dash here; with bash as sh the
    code of a command that ends in that very moment may be lost, and it is begun again.
    """
    if "dash" not in os.path.realpath("/bin/sh"):
        pytest.skip("/bin/sh is no dash")
    for _ in range(20):
        words = ["/bin/sh", str(JOB_SCRIPT), "--", sys.executable, "-c", ENDS, str(code)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            os.killpg(process.pid, signal.SIGTERM)
            assert process.wait(60) == code


def test_words_reach_the_command_as_they_are() -> None:
    odd = ["a b", "", "$HOME", "--", "*", 'x"y', "ä\nö"]
    words = ["/bin/sh", str(JOB_SCRIPT), "--", "printf", "<%s>", *odd]
    assert subprocess.run(words, capture_output=True, text=True).stdout == "".join(f"<{word}>" for word in odd)


def test_a_path_of_the_jobs_own_costs_no_code(tmp_path: Path) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text('#!/bin/sh\nwhile [ "$1" != --no-python ]; do shift; done; shift; exec "$@"\n')
    torchrun.chmod(0o755)
    words = ["/bin/sh", str(JOB_SCRIPT), "--standalone", "--", "/bin/sh", "-c", 'echo "$PATH"; exit 4']
    done = subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (4, f"{tmp_path}\n")


def test_a_path_of_the_jobs_own_costs_no_notice(tmp_path: Path) -> None:
    notices = tmp_path / "notices.jsonl"
    words = ["/bin/sh", str(JOB_SCRIPT), "--", "/bin/sh", "-c", "echo up; exec /bin/sleep 600"]
    variables = {"PATH": str(tmp_path), "GANGWAY_NOTICES": str(notices)}
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 75
    assert json.loads(notices.read_text())["seen_at"] > 0


def test_without_torchrun_it_is_bad_input(tmp_path: Path) -> None:
    words = ["/bin/sh", str(JOB_SCRIPT), "--standalone", "--", "true"]
    variables = {"PATH": f"{tmp_path}:/bin:/usr/bin"}
    assert subprocess.run(words, env=variables, stderr=subprocess.PIPE).returncode == 2


def listening(process: psutil.Process) -> set[int]:
    """Ports of a process and its children, at any address."""
    found = [each for one in (process, *process.children(recursive=True)) for each in one.net_connections("tcp")]
    return {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}


@pytest.mark.slow
@pytest.mark.attack("another user of the machine", "code in a command's torchrun")
def test_torchruns_of_one_node_run_no_code_of_their_neighbours(tmp_path: Path) -> None:
    mark, go = tmp_path / "mark", tmp_path / "go"
    waits = f"echo up; while [ ! -e {go} ]; do sleep 0.1; done"
    torchrun = ["--standalone", "--nnodes=1", "--nproc-per-node=2", "--max-restarts=0"]
    words = ["/bin/sh", str(JOB_SCRIPT), *torchrun, "--", "/bin/sh", "-c", waits]
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        try:
            attack_store(mark, listening(psutil.Process(process.pid)))
            time.sleep(5)  # torchrun reads its state some times a second
        finally:
            go.touch()
        assert process.wait(120) == 0
    assert not mark.exists()
