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
from gangway.trainer.launch.node_state import NodeState

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


class Nodes:
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
    nodes = Nodes(start, tmp_path, f"--nnodes={least}:2")

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
    nodes = Nodes(start, tmp_path, f"--max-hours={4 / 3600}", "--nnodes=2:2")

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
    nodes = Nodes(start, tmp_path, "--nnodes=2:2")
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
    nodes = Nodes(start, tmp_path, "--nnodes=2:2")

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
