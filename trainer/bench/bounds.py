"""How fast this machine could be at most, measured in the same run: what a missed target is held against.

    python -m trainer.bench.bounds 2

prints the machine's fp32 speed in large matrix products with so many threads, as JSON. A convolution does not run
faster than those. Not a target: nothing here says how fast the trainer is.
"""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainer.bench.runs import environment, rate, train_for
from trainer.config import TrainConfig

__all__ = ["matrix_gflops", "silent_pair"]

_SIZE = 2048
_ROUNDS = 12


def matrix_gflops(threads: int) -> float:
    """GFLOP/s of square fp32 matrix products, the best of some, in a process of its own with so many threads."""
    argv = [sys.executable, "-m", "trainer.bench.bounds", str(threads)]
    done = subprocess.run(argv, env=environment(threads), capture_output=True, text=True, check=True)
    found: float = json.loads(done.stdout)["gflops"]
    return found


def silent_pair(config: TrainConfig, work_dir: Path, data_dir: Path, seconds: float) -> float:
    """Images per second of two runs at once, each with a thread and half the batch, that send each other nothing.

    Args:
        config: whose batch is halved.
        work_dir: for the two runs.
        data_dir: the shards.
        seconds: to measure.
    """
    half = config.replace({"batch_size": config.batch_size // 2, "stats_kimg": config.stats_kimg / 2})

    def run(name: str) -> float:
        return rate(train_for(half, work_dir / name, data_dir, seconds, threads=1))

    with ThreadPoolExecutor(2) as both:
        return sum(both.map(run, ("silent-a", "silent-b")))


def _measured(threads: int) -> float:
    import torch

    torch.set_num_threads(threads)
    left, right = torch.randn(_SIZE, _SIZE), torch.randn(_SIZE, _SIZE)
    times = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - began)
    return 2 * _SIZE**3 / min(times) / 1e9


if __name__ == "__main__":
    print(json.dumps({"gflops": _measured(int(sys.argv[1]))}))
