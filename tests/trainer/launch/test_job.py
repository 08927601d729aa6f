"""What launchers of a job's nodes make of each other's words: real processes, torchrun on gloo, one job's folder."""

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.host import boot_id
from gangway.trainer.launch import job as job_module
from gangway.trainer.launch.failures import Nodes, end_state, mark_lost, start_state
from gangway.trainer.launch.job import Job
from gangway.trainer.launch.node_state import JobFolder, NodeState, Standing
from gangway.trainer.rendezvous.lifecycle import Event, State

NODE = """
import sys
from gangway.trainer.launch import job
job.BEAT_SEC, job.SETTLE_SEC = 0.3, 2.0
from gangway.trainer.launch.launcher import main
sys.exit(main(sys.argv[1:]))
"""
WORKER = """
import os, sys, time
from pathlib import Path
from gangway.trainer.preemption import notices
from gangway.trainer.run import loop
from gangway.trainer.__main__ import run

batch_of, installed = loop.Batch, []
install = notices.Interruption.install
notices.Interruption.install = lambda self: installed.append(self) or install(self)

def held(config, world, data, *more):
    batch = batch_of(config, world, data, *more)
    reals = batch.reals
    def waits_or_fails(images):
        if os.environ.get("SICK"):
            raise OSError("this node's own trouble")
        # Who is alone goes on once it is let go; until then others may come and take part.
        while world.world_size == 1 and not Path(os.environ["GO"]).exists() and not installed[0].requested:
            time.sleep(0.05)
        return reals(images)
    batch.reals = waits_or_fails
    return batch

loop.Batch = held
run(sys.argv[1:])
"""
OWN_FAILURES = 5


class Launchers:
    """Launchers on this host, each with a name, and a store."""

    def __init__(self, start: Callable[..., Any], folder: Path, *nodes: str) -> None:
        self._start, self.folder, self._nodes = start, folder, nodes
        (folder / "node.py").write_text(NODE)
        self._store = start("-m", "gangway.trainer.launch.rendezvous", "--port", "0")
        log = folder / "command-0.log"
        self._store.wait_for(lambda: "serving on port" in log.read_text())
        self._port = re.findall(r"serving on port (\d+)", log.read_text())[0]

    @property
    def job_dir(self) -> Path:
        return self.folder / "run/.launch/job"

    def begin(self, name: str, *argv: str, **env: str) -> Any:
        where = ["--job-dir", str(self.job_dir), "--node", name, *self._nodes, "--rdzv-backend=gangway"]
        where += [f"--rdzv-endpoint=127.0.0.1:{self._port}", "--rdzv-id=job", "--nproc-per-node=1", "--max-restarts=0"]
        where += ["--rdzv-conf=is_host=0,last_call_timeout=2,keep_alive_interval=1"]
        env |= {"PYTHONPATH": str(Path.cwd())}
        return self._start(str(self.folder / "node.py"), *where, *argv, **env)

    def state(self, name: str) -> NodeState:
        return NodeState.model_validate_json((self.job_dir / f"node-{name}.json").read_bytes())

    def changes(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.job_dir / f"node-{name}.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(("least", "goes_on"), [(1, True), (2, False)])
def test_one_node_fails_for_good_and_the_other_trains_on_or_waits(
    start: Callable[..., Any],
    lines_of: Callable[[Path], list[dict[str, Any]]],
    tiny_config: TrainConfig,
    digits_dir: Path,
    tmp_path: Path,
    least: int,
    *,
    goes_on: bool,
) -> None:
    """Findings 1 and 2: a node that waits ends no job, and the end of one is its own."""
    script, config, run_dir = tmp_path / "worker.py", tmp_path / "config.json", tmp_path / "run"
    script.write_text(WORKER)
    config.write_text(tiny_config.replace({"kimg": 0.32, "stats_kimg": 0.016, "sample_kimg": 100}).to_json())
    options = ["train", "--config", str(config), "--backend", "gloo", "--data", str(digits_dir)]
    nodes = Launchers(start, tmp_path, f"--nnodes={least}:2")

    def node(name: str, **env: str) -> Any:
        return nodes.begin(name, str(script), *options, "--run-dir", str(run_dir), GO=str(tmp_path / "go"), **env)

    healthy = node("healthy")
    for failed in range(1, OWN_FAILURES + 1):
        code, text = node("sick", SICK="1").finish()
        assert code == (1 if failed < OWN_FAILURES else 4), text
        assert "this node's own trouble" in text
    assert nodes.state("sick").standing == "lost"
    (tmp_path / "go").touch()
    if not goes_on:
        healthy.wait_for(lambda: nodes.changes("healthy")[-1]["state"] == "waiting for peers")
        another = node("another")
        assert another.finish()[0] == 0
    code, text = healthy.finish()
    assert code == 0, text
    assert lines_of(run_dir)[-1]["event"] == "done", text


@pytest.mark.slow
def test_hours_count_over_starts_and_nodes_and_end_a_wait(start: Callable[..., Any], tmp_path: Path) -> None:
    nodes = Launchers(start, tmp_path, f"--max-hours={4 / 3600}", "--nnodes=2:2")

    def begin(name: str) -> Any:
        return nodes.begin(name, "-m", "gangway.trainer", "presets")

    first = begin("first")
    first.wait_for(lambda: (nodes.job_dir / "node-first.json").exists() and used(nodes.state("first")) > 1)
    first.process.send_signal(signal.SIGTERM)
    code, text = first.finish()
    assert code == 75, text
    assert nodes.state("first").standing == "left"
    code, text = begin("second").finish()
    assert code == 6, text
    assert "the job's hours are over: ended, exit code 6: the job's hours are over" in text
    total = used(nodes.state("first")) + used(nodes.state("second"))
    assert 3.9 < total < 20, "what the first was up counts, what lay between does not"
    code, text = begin("third").finish()
    assert (code, "hours" in text) == (6, True)
    assert [line["exit_code"] for line in nodes.changes("third")] == [6]


def used(state: NodeState) -> float:
    return sum(each.length_sec for each in state.intervals)


@pytest.mark.slow
def test_one_mistake_of_all_nodes_is_no_nodes_own(start: Callable[..., Any], tmp_path: Path) -> None:
    nodes = Launchers(start, tmp_path, "--nnodes=2:2")
    argv = ("-m", "gangway.trainer", "train", "--preset", "nothing")
    both = [nodes.begin(name, *argv) for name in ("one", "two")]
    for command in both:
        code, text = command.finish()
        assert code == 2, text
    assert json.loads((nodes.job_dir / "over.json").read_text())["code"] == 2
    # Who comes later need not find it out, nor wait for the two; who starts one of these again has mended something.
    code, text = nodes.begin("late", *argv).finish()
    assert code == 2, text
    assert f"says that the job has ended for all; to go on, remove {nodes.job_dir}" in text
    again = nodes.begin("one", *argv)
    again.wait_for(lambda: not (nodes.job_dir / "over.json").exists())


@pytest.mark.slow
def test_a_launcher_that_is_killed_is_counted_and_one_in_order_is_not(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    nodes = Launchers(start, tmp_path, "--nnodes=2:2")

    def killed(number: int) -> None:
        began = time.time()
        command = nodes.begin("node", "-m", "gangway.trainer", "presets")
        file = nodes.job_dir / "node-node.json"
        command.wait_for(lambda: file.exists() and nodes.state("node").seen_at > began + 0.3)
        time.sleep(1)  # it looks after signals a moment after it has said that it is there
        command.process.send_signal(number)
        command.process.wait()

    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGTERM):
        killed(number)
    assert [failure.code for failure in nodes.state("node").failures] == [137]


MIN_SEC = 10.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "BEAT_SEC", 0.05)
    monkeypatch.setattr(job_module, "SETTLE_SEC", 0.0)


def folder(tmp_path: Path, node: str) -> JobFolder:
    return JobFolder(tmp_path / "job", node)


def was(tmp_path: Path, node: str, standing: str, boot: str) -> None:
    """What a node's launcher has left behind."""
    state = start_state(None, time.time() - 60, boot).state
    gone = end_state(mark_lost(state, time.time() - 60), 4) if standing == "lost" else None
    folder(tmp_path, node).write(gone or end_state(state, 0))


@pytest.mark.parametrize("standing", ["lost", "over"])
@pytest.mark.parametrize("code", [0, 2, 5])
def test_a_new_machine_of_the_name_waits_for_nobody_once_the_job_is_over(
    tmp_path: Path, standing: str, code: int
) -> None:
    """Google makes an instance anew under its name; a machine of one's own reboots. The others are gone."""
    was(tmp_path, "a", standing, "the boot before")
    folder(tmp_path, "b").write_over(code)
    with Job(Nodes(2, 4), folder(tmp_path, "a")) as job:
        assert job.life.exit_code == code
    assert folder(tmp_path, "a").over() is not None


def test_somebody_has_a_job_begin_again_on_the_same_boot_unless_it_is_done(tmp_path: Path) -> None:
    was(tmp_path, "a", "over", boot_id())
    folder(tmp_path, "b").write_over(2)
    with Job(Nodes(2, 4), folder(tmp_path, "a")) as job:
        assert (job.life.state, folder(tmp_path, "a").over()) == (State.WAITING, None)
    was(tmp_path, "a", "over", boot_id())
    folder(tmp_path, "b").write_over(0)
    with Job(Nodes(2, 4), folder(tmp_path, "a")) as job:
        assert job.life.exit_code == 0


def test_the_watch_of_a_lost_node_begins_no_ended_job_again(tmp_path: Path) -> None:
    """It starts the node on the same boot, after a pause in which the others have ended the job for all."""
    was(tmp_path, "a", "lost", boot_id())
    folder(tmp_path, "b").write_over(5)
    with Job(Nodes(2, 4), folder(tmp_path, "a")) as job:
        assert job.life.exit_code == 5
    assert folder(tmp_path, "a").over() is not None


def fails(where: JobFolder, error: Exception) -> int | None:
    with Job(Nodes(1, 2), where) as job:
        if job.life.exit_code is None:
            raise error
    return job.life.exit_code


def test_a_launcher_that_fails_is_counted_and_the_fifth_gives_the_node_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk of its own, say, under torchrun: no worker has said anything."""
    other = start_state(None, time.time(), "b").state
    codes = []
    for _ in range(5):
        folder(tmp_path, "b").write(other.model_copy(update={"seen_at": time.time()}))
        codes.append(fails(folder(tmp_path, "a"), OSError(28, "No space left on device")))
    assert codes == [1, 1, 1, 1, 4]
    assert folder(tmp_path, "a").nodes()["a"].standing is Standing.LOST
    assert capsys.readouterr().err.count("OSError: [Errno 28] No space left on device") == 5


def test_what_fails_after_the_end_changes_nothing_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Job(Nodes(1, 1), folder(tmp_path, "a")) as job:
        job.on(Event.JOINED)
        job.workers_ended(0)
        raise RuntimeError("while cleaning up")
    mine = folder(tmp_path, "a").nodes()["a"]
    assert (job.life.exit_code, mine.standing, mine.failures) == (0, Standing.OVER, ())
    assert "while cleaning up" in capsys.readouterr().err


def test_a_mistake_of_the_users_and_a_ctrl_c_are_not_swallowed(tmp_path: Path) -> None:
    with pytest.raises(TrainerError):
        fails(folder(tmp_path, "a"), TrainerError(place="--watch", problem="no cloud", fix="leave it out"))
    with pytest.raises(KeyboardInterrupt), Job(Nodes(1, 2), folder(tmp_path, "a")):
        raise KeyboardInterrupt
    assert folder(tmp_path, "a").nodes()["a"].failures == ()


def test_the_end_for_all_ends_nobody_before_he_listens(tmp_path: Path) -> None:
    """The signal's own default would end a launcher that waits for clean power, with 138."""
    with Job(Nodes(2, 2), folder(tmp_path, "a")) as job:
        folder(tmp_path, "b").write_over(5)
        time.sleep(0.5)  # ten beats
        assert job.life.state is State.WAITING
        before = signal.getsignal(signal.SIGUSR1)
        try:
            job.listen()
            with pytest.raises(Exception, match="the job has ended for all"):
                time.sleep(MIN_SEC)
        finally:
            signal.signal(signal.SIGUSR1, before)
    assert job.life.exit_code == 5


def test_a_job_that_was_done_as_it_was_told_to_leave_is_done_for_all(tmp_path: Path) -> None:
    with Job(Nodes(2, 2), folder(tmp_path, "a"), max_sec=3600) as job:
        job.on(Event.JOINED)
        job.on(Event.HOURS_OVER)
        job.workers_stopped(0)
    assert job.life.exit_code == 0
    over = folder(tmp_path, "b").over()
    assert over is not None
    assert over.code == 0
