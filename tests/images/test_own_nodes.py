"""A command of one's own on several nodes: what docker is told, how nodes agree on what an end means, and the example
under real torchruns that meet at the head's store.
"""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from gangway.components.core.job import JobSpec, OwnCommand, Rendezvous
from gangway.images.aws import (
    USER_DATA_LIMIT_BYTES,
    AwsHeadSpec,
    AwsNodeSpec,
    aws_docker_argv,
    render_aws_head,
    render_aws_node,
    user_data_base64gzip,
)
from gangway.images.render import TEMPLATES
from gangway.images.shell import STORE_OF_A_COMMAND
from gangway.images.specs import job_key

SCRIPTS = TEMPLATES / "job"
FOLDERS = (SCRIPTS, TEMPLATES / "aws", TEMPLATES / "node")
"""Of a node's scripts, in the order in which they are looked for."""
EPOCHS = 40
EXAMPLE = Path(__file__).parents[2] / "examples" / "own-job" / "train.py"


def get_job(*words: str, port: int = 29400, processes: int = 1, nodes: tuple[int, int] = (2, 2)) -> JobSpec:
    return JobSpec(
        name="mine",
        image="123456789012.dkr.ecr.us-east-2.amazonaws.com/mine@sha256:" + "cd" * 32,
        backend="nccl",
        num_nodes_min=nodes[0],
        num_nodes_max=nodes[1],
        processes_per_node=8,
        rendezvous=Rendezvous(host="127.0.0.1", port=port),
        command=OwnCommand(words=words, torchrun_processes=processes),
        max_restarts=2,
        shutdown_timeout_sec=60,
    )


@pytest.fixture
def own_spec(node: AwsNodeSpec) -> AwsNodeSpec:
    """A worker with every part of the node planned."""
    return replace(node, job=get_job("python", "train.py", processes=8, nodes=(2, 4)), member_key=None)


@pytest.fixture
def own_head(head: AwsHeadSpec, own_spec: AwsNodeSpec) -> AwsHeadSpec:
    return replace(head, job=own_spec.job, member_key=None, file_system=None, prometheus_image=None)


def find_words(spec: AwsNodeSpec, bin_dir: Path = SCRIPTS) -> list[str]:
    """What docker is to run, behind the image."""
    argv = aws_docker_argv(spec, str(bin_dir))
    return argv[argv.index(spec.job.image) + 1 :]


def test_nodes_meet_at_the_head_and_restart_nothing_by_themselves(own_spec: AwsNodeSpec) -> None:
    words = find_words(own_spec)
    torchrun = words[6 : words.index("--")]
    assert torchrun[0] == "--rdzv-endpoint=127.0.0.1:29400"
    assert {"--rdzv-backend=c10d", "--nnodes=2:4", "--nproc-per-node=8", "--max-restarts=0"} <= set(torchrun)
    assert any(word.startswith("--rdzv-conf=is_host=0,") for word in torchrun), "no node serves the store"
    assert "--standalone" not in torchrun
    assert "NCCL_NET=AWS Libfabric" in aws_docker_argv(own_spec), "as the trainer's nodes have it"


def test_a_command_without_torchrun_meets_nobody(own_spec: AwsNodeSpec) -> None:
    job = get_job("work", processes=0, nodes=(2, 4))
    assert not job.command_meets
    assert find_words(replace(own_spec, job=job))[6:] == ["--", "work"]


def test_all_of_it_fits_into_user_data(own_spec: AwsNodeSpec) -> None:
    labels = {f"label-{number}": f"value-of-{number}" for number in range(8)}
    packed = user_data_base64gzip(render_aws_node(replace(own_spec, labels=labels)))
    assert len(packed) * 3 / 4 < USER_DATA_LIMIT_BYTES


def test_a_head_of_a_command_is_golden(own_head: AwsHeadSpec, same_as_golden: Callable[[str, str], None]) -> None:
    same_as_golden("cloud-init-aws.command_head.yaml", render_aws_head(own_head))


def test_the_heads_store_is_of_the_commands_own_image(own_head: AwsHeadSpec) -> None:
    files = {file["path"]: file["content"] for file in yaml.safe_load(render_aws_head(own_head))["write_files"]}
    unit = files["/etc/systemd/system/gangway-rendezvous.service"]
    (start,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert f'--entrypoint python {own_head.job.image} -c "{STORE_OF_A_COMMAND}" 29400' in start
    assert "gangway.trainer.launch" not in unit
    assert "--read-only" in start, "it is contained as the trainer's is"


def test_narrow_scripts_say_the_same(own_spec: AwsNodeSpec, tmp_path: Path) -> None:
    def as_read(path: Path) -> list[str]:
        done = subprocess.run(["bash", "--pretty-print", str(path)], check=True, capture_output=True, text=True)
        return [line for line in done.stdout.splitlines() if line.strip()]

    for file in yaml.safe_load(render_aws_node(own_spec))["write_files"]:
        path = tmp_path / Path(file["path"]).name
        path.write_text(file["content"])
        if path.suffix == ".py":
            compile(file["content"], str(path), "exec")
        if path.suffix == ".sh" and path.name != "cloud.sh":
            (wide,) = [part / path.name for part in FOLDERS if (part / path.name).exists()][:1]
            assert as_read(path) == as_read(wide)
    (python,) = re.findall(r"-c '\n(.*?)'", (tmp_path / "cloud.sh").read_text(), re.DOTALL)
    compile(python, "cloud.sh", "exec")


def test_the_part_of_the_python_that_is_sent_puts_the_folder(own_spec: AwsNodeSpec, tmp_path: Path) -> None:
    for file in yaml.safe_load(render_aws_node(own_spec))["write_files"]:
        if file["path"].startswith("/opt/gangway/lib/"):
            path = tmp_path / file["path"].removeprefix("/opt/gangway/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file["content"])
    for package in ("gangway/images", "gangway/images/node"):
        (tmp_path / "lib" / package / "__init__.py").touch()
    for name in ("run/deep", "marks"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run/deep/model.pt").write_text("1")
    words = ["-m", "gangway.images.node.run_folder", str(tmp_path / "run"), str(os.getuid()), str(tmp_path / "marks")]
    done = subprocess.run(
        [sys.executable, *words, "sh", "-c", 'cat "$RESULTS/deep/model.pt"; exit 7'],
        cwd=tmp_path / "lib",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "lib")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (7, "1"), done.stderr


# Nodes that agree, with a torchrun that begins its one process and meets nobody.

TORCHRUN = """#!/bin/sh
echo "$*" >>"$TORCHRUN_SAID"
[ ! -e "$0.waits" ] || exec sleep 600
[ ! -e "$0.breaks" ] || exit 1
while [ "$1" != --no-python ]; do shift; done
shift
exec "$@"
"""
SAVES = "trap 'exit 75' TERM; echo up; while :; do sleep 0.05; done"
LOST = "echo up; while [ ! -e {gone} ]; do sleep 0.05; done; exit 1"


@dataclass
class Nodes:
    """Some on one machine, each with what it is told by itself, and the folder that they share."""

    root: Path
    path: str
    endpoint: tuple[str, int]
    max_hours: float | None = None
    env: dict[str, str] = field(default_factory=dict)

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    def folder(self, job: JobSpec) -> Path:
        return self.run_dir / ".launch" / job_key(job)

    def words(self, spec: AwsNodeSpec, name: str) -> list[str]:
        words = find_words(replace(spec, run_dir=str(self.run_dir), max_hours=self.max_hours))
        return ["/bin/sh", words[0], str(self.root / f"{name}.held"), *words[2:]]

    def variables(self, name: str) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": self.path,
            "GANGWAY_RUN_DIR": str(self.run_dir),
            "GANGWAY_NOTICES": str(self.root / f"{name}.jsonl"),
            "GANGWAY_AGREE_SEC": "2",
            "GANGWAY_PEERS_SEC": "2",
            "TMPDIR": str(self.root),
            **self.env,
        }

    @contextmanager
    def begun(self, spec: AwsNodeSpec, name: str) -> Iterator[subprocess.Popen[str]]:
        """A node's start, which ends with the block."""
        with (
            (self.root / f"{name}.log").open("ab") as errors,
            subprocess.Popen(
                self.words(spec, name),
                env=self.variables(name),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            try:
                yield process
            finally:
                self.kill(name)

    def kill(self, name: str) -> None:
        """All that runs on a node: torchrun's workers have sessions of their own."""
        own = f"GANGWAY_NOTICES={self.root}/{name}.jsonl".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if own in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)

    def log(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text()


def until_line(process: subprocess.Popen[str], words: str) -> None:
    """Reads what it prints up to a line that begins so."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(words):
            return
    pytest.fail(f"it has ended with {process.wait()}, and never said {words!r}")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """What answers at the store's port."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as server:
        yield server


@pytest.fixture
def nodes(tmp_path: Path, listening: socket.socket) -> Nodes:
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "python").symlink_to(sys.executable)
    (fake / "torchrun").write_text(TORCHRUN)
    (fake / "torchrun").chmod(0o755)
    made = Nodes(tmp_path, f"{fake}:/usr/bin:/bin", listening.getsockname())
    made.env["TORCHRUN_SAID"] = str(tmp_path / "said")
    return made


@pytest.fixture
def get_spec(own_spec: AwsNodeSpec, nodes: Nodes) -> Callable[..., AwsNodeSpec]:
    """A node whose command is a shell's; all nodes of a test have one job, and say what differs by $MINE."""

    def made(script: str = 'eval "$MINE"') -> AwsNodeSpec:
        return replace(own_spec, job=get_job("sh", "-c", script, port=nodes.endpoint[1]))

    return made


def ends(nodes: Nodes, spec: AwsNodeSpec, scripts: Sequence[str]) -> list[int]:
    """Codes of nodes that begin together, in the order of `scripts`, what each runs."""
    running = []
    for number, script in enumerate(scripts):
        with (nodes.root / f"{number}.log").open("ab") as errors:
            variables = {**nodes.variables(str(number)), "MINE": script}
            words = nodes.words(spec, str(number))
            running.append(subprocess.Popen(words, env=variables, stderr=errors, stdout=errors))
    return [process.wait(120) for process in running]


def ids(nodes: Nodes) -> list[str]:
    """Of the rounds that torchruns were told to meet in."""
    said = nodes.root / "said"
    lines = said.read_text().splitlines() if said.exists() else []
    return [line.split()[0].rpartition(".")[2] for line in lines]


SpecOf = Callable[..., AwsNodeSpec]


def test_who_is_done_ends_the_job_for_all_who_begin_later(nodes: Nodes, get_spec: SpecOf) -> None:
    assert ends(nodes, get_spec(), ["exit 0", "exit 0"]) == [0, 0]
    assert ends(nodes, get_spec(), ["exit 3"]) == [0]
    assert ids(nodes) == ["0", "0"]


@pytest.mark.slow
def test_an_interruption_of_one_is_a_failure_of_nobody(nodes: Nodes, get_spec: SpecOf) -> None:
    assert ends(nodes, get_spec(), ["exit 75", "sleep 1; exit 1"]) == [75, 75]
    assert ends(nodes, get_spec(), ["exit 0", "exit 0"]) == [0, 0]
    assert ids(nodes) == ["0", "0", "1", "1"]
    assert not list(nodes.folder(get_spec().job).glob("failed-*"))


@pytest.mark.slow
def test_a_node_that_gives_itself_up_is_no_failure_of_the_others(nodes: Nodes, get_spec: SpecOf) -> None:
    assert ends(nodes, get_spec(), ["exit 4", "exit 1"]) == [4, 75]


@pytest.mark.slow
def test_bad_input_of_one_is_that_of_all(nodes: Nodes, get_spec: SpecOf) -> None:
    assert ends(nodes, get_spec(), ["exit 2", "exit 1"]) == [2, 2]
    assert ends(nodes, get_spec(), ["exit 0"]) == [2]


@pytest.mark.slow
def test_a_failure_counts_once_whatever_number_of_nodes_saw_it(nodes: Nodes, get_spec: SpecOf) -> None:
    codes = [ends(nodes, get_spec(), ["exit 1", "exit 9"]) for _ in range(3)]
    assert codes == [[1, 1], [1, 1], [5, 5]]
    assert ends(nodes, get_spec(), ["exit 0"]) == [5]
    assert ids(nodes) == ["0", "0", "1", "1", "2", "2"]


def test_who_is_done_while_another_had_to_leave_begins_again(nodes: Nodes, get_spec: SpecOf) -> None:
    assert ends(nodes, get_spec(), ["exit 75", "sleep 1; exit 0"]) == [75, 75]


@pytest.mark.slow
def test_a_node_that_hangs_for_want_of_another_is_told(nodes: Nodes, get_spec: SpecOf) -> None:
    spec = get_spec(SAVES)
    with nodes.begun(spec, "a") as one, nodes.begun(spec, "b") as other:
        until_line(one, "up")
        until_line(other, "up")
        one.send_signal(signal.SIGTERM)
        assert (one.wait(60), other.wait(60)) == (75, 75)
    kinds = [json.loads(line)["kind"] for line in (nodes.root / "b.jsonl").read_text().splitlines()]
    assert kinds == ["stop"]


def test_who_waits_for_the_store_may_leave_and_disturbs_nobody(
    nodes: Nodes, get_spec: SpecOf, listening: socket.socket
) -> None:
    spec = get_spec()
    listening.close()
    with nodes.begun(spec, "a") as process:
        until = time.monotonic() + 60
        while "waits for the store" not in nodes.log("a") and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 75
    assert ids(nodes) == []
    assert not list(nodes.folder(spec.job).glob("round-*"))


@pytest.mark.slow
def test_who_has_lost_the_store_has_not_failed(nodes: Nodes, get_spec: SpecOf, listening: socket.socket) -> None:
    gone = nodes.root / "gone"
    spec = get_spec(LOST.format(gone=gone))
    with nodes.begun(spec, "a") as process:
        until_line(process, "up")
        listening.close()
        gone.touch()
        assert process.wait(60) == 75


@pytest.mark.slow
def test_who_waits_for_peers_hears_that_the_job_has_ended(nodes: Nodes, get_spec: SpecOf) -> None:
    spec, waits = get_spec(), nodes.root / "bin" / "torchrun.waits"
    waits.touch()
    with nodes.begun(spec, "a") as process:
        until = time.monotonic() + 60
        while ids(nodes) != ["0"] and time.monotonic() < until:
            time.sleep(0.05)
        waits.unlink()
        assert ends(nodes, spec, ["exit 0"]) == [0]
        assert process.wait(60) == 0


@pytest.mark.slow
def test_a_torchrun_that_begins_nothing_counts_each_time(nodes: Nodes, get_spec: SpecOf) -> None:
    (nodes.root / "bin" / "torchrun.breaks").touch()
    assert [ends(nodes, get_spec(), ["exit 0"]) for _ in range(3)] == [[1], [1], [5]]


@pytest.mark.parametrize("name", ["python", "torchrun"])
def test_an_image_without_what_it_takes_to_meet_is_bad_input(nodes: Nodes, get_spec: SpecOf, name: str) -> None:
    (nodes.root / "bin" / name).unlink()
    folder = nodes.root / "system"
    folder.mkdir()
    for tool in ("cat", "date", "dirname", "grep", "mkdir", "mktemp", "mv", "sh", "sleep", "uname"):
        (folder / tool).symlink_to(f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}")
    nodes.path = f"{nodes.root}/bin:{folder}"
    assert ends(nodes, get_spec(), ["exit 0"]) == [2]


def test_hours_count_once_while_any_node_is_up(nodes: Nodes, get_spec: SpecOf) -> None:
    uptime, gone = nodes.root / "uptime", nodes.root / "gone"
    uptime.write_text("100.00 1.0\n")
    nodes.env["GANGWAY_UPTIME"] = str(uptime)
    spec = get_spec(f"echo up; while [ ! -e {gone} ]; do sleep 0.05; done; exit 75")
    with nodes.begun(spec, "a") as one, nodes.begun(spec, "b") as other:
        until_line(one, "up")
        until_line(other, "up")
        uptime.write_text("160.00 1.0\n")
        gone.touch()
        assert (one.wait(60), other.wait(60)) == (75, 75)
    assert (nodes.folder(spec.job) / "used").read_text() == "60\n"


@pytest.mark.slow
def test_hours_in_which_the_machine_slept_do_not_count(nodes: Nodes, get_spec: SpecOf) -> None:
    uptime, gone = nodes.root / "uptime", nodes.root / "gone"
    uptime.write_text("100.00 1.0\n")
    nodes.env["GANGWAY_UPTIME"] = str(uptime)
    nodes.max_hours = 1
    spec = get_spec(f"echo up; while [ ! -e {gone} ]; do sleep 0.05; done; exit 75")
    with nodes.begun(spec, "a") as one:
        until_line(one, "up")
        time.sleep(1.2)  # it looks each second
        uptime.write_text("9000.00 1.0\n")
        while not list(nodes.folder(spec.job).glob("slept.*")):
            time.sleep(0.05)
        uptime.write_text("9005.00 1.0\n")
        gone.touch()
        assert one.wait(60) == 75
    assert (nodes.folder(spec.job) / "used").read_text() == "6\n"
    assert not list(nodes.folder(spec.job).glob("slept.*"))


def test_the_end_of_the_hours_is_that_of_all(nodes: Nodes, get_spec: SpecOf) -> None:
    spec, nodes.max_hours = get_spec(SAVES), 2
    folder = nodes.folder(spec.job)
    folder.mkdir(parents=True)
    (folder / "used").write_text("7199\n")
    assert ends(nodes, spec, ["", ""]) == [6, 6]
    assert ends(nodes, spec, [""]) == [6]


# The example under real torchruns, at the store that the head runs.


@pytest.fixture
def store_port() -> Iterator[int]:
    """Of the head's store, which outlives the nodes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", STORE_OF_A_COMMAND, str(port)]) as process:
        try:
            yield port
        finally:
            process.terminate()


class Classifier:
    """The example on two nodes, each with a process."""

    def __init__(
        self, root: Path, spec: AwsNodeSpec, port: int, *, nodes: tuple[int, int] = (2, 2), epochs: int = EPOCHS
    ) -> None:
        root.mkdir()
        job = get_job("python", str(EXAMPLE), "--epochs", str(epochs), port=port, nodes=nodes)
        # A job of its own at the store, as another command is.
        job = job.model_copy(update={"image": f"{job.image[:-64]}{hashlib.sha256(root.name.encode()).hexdigest()}"})
        self.spec = replace(spec, job=job)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.nodes = Nodes(root, path, ("127.0.0.1", port))
        self.nodes.env = {
            **{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            "GANGWAY_PEERS_SEC": "30",
        }

    @contextmanager
    def both(self) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
        with self.nodes.begun(self.spec, "a") as one, self.nodes.begun(self.spec, "b") as other:
            yield one, other

    def ends(self) -> tuple[int, int]:
        with self.both() as (one, other):
            for process in (one, other):
                process.communicate(timeout=300)
            return one.returncode, other.returncode

    def trained(self) -> dict[str, Any]:
        found: dict[str, Any] = torch.load(self.nodes.run_dir / "checkpoint.pt", weights_only=True)
        return found

    def until_saved(self, pair: Sequence[subprocess.Popen[str]], before: int) -> int:
        """Until another epoch than `before` is in the checkpoint, which is returned."""
        until = time.monotonic() + 300
        while time.monotonic() < until:
            assert [process.poll() for process in pair] == [None, None], self.logs
            if (self.nodes.run_dir / "checkpoint.pt").exists() and (epoch := int(self.trained()["epoch"])) > before:
                return epoch
            time.sleep(0.05)
        pytest.fail(self.logs)

    @property
    def logs(self) -> str:
        return self.nodes.log("a") + self.nodes.log("b")

    @property
    def failures(self) -> int:
        return len(list(self.nodes.folder(self.spec.job).glob("failed-*")))


@pytest.mark.slow
@pytest.mark.timeout(900)  # eight starts of torchrun, beside whatever else is on the machine
def test_a_node_told_or_killed_comes_back_and_the_bits_are_the_same(
    tmp_path: Path, own_spec: AwsNodeSpec, store_port: int
) -> None:
    alone = Classifier(tmp_path / "alone", own_spec, store_port)
    assert alone.ends() == (0, 0), alone.logs
    stopped = Classifier(tmp_path / "stopped", own_spec, store_port)
    with stopped.both() as pair:
        stopped.until_saved(pair, 0)
        # As the cloud says it.
        (stopped.nodes.root / "b.held").write_text("spot-interruption 2026-11-21T08:22:00Z\n")
        assert [process.wait(120) for process in pair] == [75, 75], stopped.logs
    (stopped.nodes.root / "b.held").unlink()
    assert stopped.failures == 0
    with stopped.both() as pair:
        stopped.until_saved(pair, stopped.trained()["epoch"])
        stopped.nodes.kill("b")
        assert pair[0].wait(120) == 1, stopped.logs
    assert stopped.failures == 1, "nobody has said why it went"
    assert stopped.ends() == (0, 0), stopped.logs
    one, other = alone.trained(), stopped.trained()
    assert (one["epoch"], one["step"]) == (other["epoch"], other["step"]) == (EPOCHS, 0)
    assert all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])


@pytest.mark.slow
def test_a_node_that_comes_later_joins_those_that_run(tmp_path: Path, own_spec: AwsNodeSpec, store_port: int) -> None:
    several = Classifier(tmp_path / "several", own_spec, store_port, nodes=(1, 2), epochs=200)
    codes: dict[str, list[int]] = {"a": [], "b": []}

    def run(name: str) -> None:
        """As systemd begins it again."""
        while codes[name][-1:] in ([], [75]):
            with several.nodes.begun(several.spec, name) as process:
                process.communicate(timeout=300)
            codes[name].append(process.returncode)

    first, second = (threading.Thread(target=run, args=(name,)) for name in codes)
    first.start()
    until = time.monotonic() + 300
    while not (several.nodes.run_dir / "checkpoint.pt").exists() and time.monotonic() < until:
        time.sleep(0.05)
    alone = several.trained()["epoch"]
    second.start()
    for thread in (first, second):
        thread.join(400)
    assert (codes["a"][-1], codes["b"][-1]) == (0, 0), several.logs
    assert several.failures == 0, several.logs
    assert several.trained()["epoch"] == 200 > alone
