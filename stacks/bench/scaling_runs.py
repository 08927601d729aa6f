"""One measurement of a scaling study: the trainer itself, on so many processes of this machine, and what it noted.

A short training run, without checkpoints and samples on its way; the time of a step is the median over its lines of
statistics but the first, in which memory is still being laid out. All-reduces are timed by the trainer's own test of
the fabric, before the first step; that test wants RDMA where there are GPUs, so that their all-reduces may stay
untimed. Draws no conclusions.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from components.findings import InputError
from components.job import JobSpec, Rendezvous
from stacks.bench.scaling_devices import Placement
from stacks.local_run import LocalRun, StatsTail
from trainer.config import TrainConfig

__all__ = ["Sample", "job", "measure", "read_sample", "short"]

LINES = 7
"""Of statistics in a run, the first of which is left out."""
_POLL_SEC = 0.1
_ANY_FABRIC = "1e-9"
_LAST_LINES = 6


class Sample(NamedTuple):
    """What a run on some processes has shown.

    Attributes:
        step_sec: of one step, median.
        all_reduce: seconds of one all-reduce by its bytes; empty for one process, and where it was not timed.
        gradient_bytes: that all workers average in a step.
        device: what it computed on.
        untimed: why several processes' all-reduces were not timed; empty where they were.
    """

    step_sec: float
    all_reduce: dict[int, float]
    gradient_bytes: int
    device: str
    untimed: str = ""

    def all_reduce_sec(self) -> float:
        """Of the step's gradients: the line through the smallest and the largest message; 0 where none was timed."""
        if not self.all_reduce:
            return 0.0
        (small, fast), (large, slow) = sorted(self.all_reduce.items())[:: max(1, len(self.all_reduce) - 1)][:2]
        per_byte = max(0.0, (slow - fast) / (large - small))
        return max(0.0, fast + per_byte * (self.gradient_bytes - small))


def short(config: TrainConfig, workers: int, mode: str, steps: int, backend: str) -> TrainConfig:
    """The run that is measured: `steps` of them, with the batch of one worker for each (weak) or shared out (strong).

    Args:
        config: of the preset.
        workers: processes.
        mode: weak or strong.
        steps: to the end; at least LINES.
        backend: gloo or nccl, and with it the CPU or a GPU for each.
    """
    batch = config.batch_size * (workers if mode == "weak" else 1)
    images = batch * config.d_steps
    far = 1000.0 * steps * images
    return config.replace(
        {
            "batch_size": batch,
            "kimg": steps * images / 1000,
            "stats_kimg": max(1, steps // LINES) * images / 1000,
            "checkpoint_kimg": far,
            "sample_kimg": far,
            "metrics": "none",
            "metrics_kimg": 0,
            "backend": backend,
        }
    )


def measure(
    config: TrainConfig, workers: int, folder: Path, data_dir: Path, doing: Callable[[], None], placement: Placement
) -> Sample:
    """Runs the trainer on so many processes, and reads what it noted.

    Args:
        config: of `short`.
        workers: processes.
        folder: to be made, for the run.
        data_dir: shards; prepared there when missing.
        doing: called again and again while it runs.
        placement: of the processes.

    Raises:
        InputError: the trainer did not come to its end.
    """
    folder.mkdir(parents=True)
    (folder / "asked.json").write_text(config.to_json(), "utf-8")
    with LocalRun.start(job(workers, folder, data_dir, placement), folder / "train.log") as run:
        while run.exit_code is None:
            doing()
            time.sleep(_POLL_SEC)
    if run.exit_code:
        last = run.log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
        raise InputError(str(run.log), f"the trainer ended with {run.exit_code}: {' | '.join(last)}", fix="mend that")
    return read_sample(StatsTail(folder / "stats.jsonl").new_lines(), config)


def read_sample(lines: list[dict[str, Any]], config: TrainConfig) -> Sample:
    """What a run's lines of statistics tell."""
    start = next(line for line in lines if line.get("event") == "start")
    rates = [line["images_per_sec"] for line in lines if "event" not in line][1:]
    fabric = start["fabric"]
    return Sample(
        step_sec=config.step_images / statistics.median(rates),
        all_reduce={point["size_bytes"]: point["median_sec"] for point in fabric["points"]},
        gradient_bytes=start["gradient_bytes"]["g"] + config.d_steps * start["gradient_bytes"]["d"],
        device=start["device"],
        untimed=fabric["reason"] if start["world_size"] > 1 and not fabric["points"] else "",
    )


def job(workers: int, folder: Path, data_dir: Path, placement: Placement) -> JobSpec:
    """The launch of one measurement; a pinned number of threads, because torchrun's own depends on the processes."""
    return JobSpec(
        name="scaling",
        backend=placement.backend,
        num_nodes_min=1,
        num_nodes_max=1,
        processes_per_node=workers,
        rendezvous=Rendezvous(standalone=True),
        env={"OMP_NUM_THREADS": str(placement.threads), "GANGWAY_CONTEXT": json.dumps({"run_id": folder.name})},
        max_restarts=0,
        argv=(
            "train", "--config", str(folder / "asked.json"), "--run-dir", str(folder), "--data", str(data_dir),
            "--fabric-min-gbps", _ANY_FABRIC,
        ),
    )  # fmt: skip
