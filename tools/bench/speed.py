"""Speed of a training step beside a textbook, and beside what a convolution alone reaches, as ratios in one run."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import torch

from gangway.trainer.config.train_config import TrainConfig
from tools.bench.measuring import SAME_LOSSES_STEPS, TITLES, Bench, ahead, medians
from tools.bench.results import Result
from tools.bench.runs import environment, train_whole

_BATCH, _CHANNELS, _SIZE, _KERNEL = 32, 256, 32, 3
_LOSSES = ("loss_g", "loss_d")
_SAME_LOSSES = 1e-2
"""Rounding in another order grows with the steps, as all differences do in a game of two networks."""
_TEXTBOOK, _REUSING = "textbook", "textbook, fakes reused"
_OURS, _CONTIGUOUS, _LOW = "ours", "ours, contiguous", "ours, bf16"


def convolution_gflops(threads: int) -> float:
    """Returns GFLOP/s of an fp32 convolution, the best of several, in a process with this many threads."""
    argv = [sys.executable, "-m", "tools.bench.speed", str(threads)]
    done = subprocess.run(argv, env=environment(threads), capture_output=True, text=True, check=True)
    found: float = json.loads(done.stdout)["gflops"]
    return found


def _measured(threads: int) -> float:

    torch.set_num_threads(threads)
    # Without padding: zeros around the images would be counted and not be computed.
    images = torch.randn(_BATCH, _CHANNELS, *[_SIZE + _KERNEL - 1] * 2).contiguous(memory_format=torch.channels_last)
    kernels = torch.randn(_CHANNELS, _CHANNELS, _KERNEL, _KERNEL).contiguous(memory_format=torch.channels_last)
    times = []
    for _ in range(12):
        began = time.perf_counter()
        torch.nn.functional.conv2d(images, kernels)
        times.append(time.perf_counter() - began)
    return 2 * _BATCH * _SIZE**2 * kernels.numel() / min(times) / 1e9


def against_textbook(bench: Bench) -> Iterator[Result]:
    """Ours against the tutorial's loop at P2's size, with each part's contribution."""
    rates = _rates(bench, bench.config, (_CONTIGUOUS, _OURS, _TEXTBOOK, _LOW, _REUSING))
    fast, low, reused, large, same = TITLES["textbook"]
    yield from _ahead(bench, rates, fast, low)
    note = "another computation: a pass of the generator less, other fakes, so no losses to compare"
    yield ahead(bench, reused, rates, _OURS, _REUSING, note=note)
    yield _at_a_large_convolutions_speed(bench, large, median(rates[_OURS]), median(rates[_TEXTBOOK]))
    off = _largest_difference(bench)
    yield Result(same, off * 100, "%", f"<= {_SAME_LOSSES:.1%}", off <= _SAME_LOSSES)


def narrow(bench: Bench) -> Iterator[Result]:
    """The same at half the width and half the batch."""
    whole = bench.config
    config = bench.sized(whole.batch_size // 2).replace({"ngf": whole.ngf // 2, "ndf": whole.ndf // 2})
    rates = _rates(bench, config, (_CONTIGUOUS, _OURS, _TEXTBOOK, _LOW))
    yield from _ahead(bench, rates, *TITLES["narrow"])


def _rates(bench: Bench, config: TrainConfig, sides: Sequence[str]) -> dict[str, list[float]]:
    changes: Mapping[str, dict[str, object]] = {
        _CONTIGUOUS: {"channels_last": False},
        _OURS: {},
        _LOW: {"precision": "bf16"},
    }
    return bench.in_turn(
        [
            bench.side(side, config.replace(changes[side]))
            if side in changes
            else bench.peer("textbook", side, config, words=("reuse",) if side == _REUSING else ())
            for side in sides
        ]
    )


def _ahead(bench: Bench, rates: Mapping[str, Sequence[float]], fast: str, low: str) -> Iterator[Result]:
    yield ahead(bench, fast, rates, _OURS, _TEXTBOOK, 1.4, medians(rates))
    yield ahead(bench, low, rates, _LOW, _TEXTBOOK, 2)


def _at_a_large_convolutions_speed(bench: Bench, name: str, ours: float, textbook: float) -> Result:
    """What the processor's speed in a large convolution leaves to gain, roughly; `ours` and `textbook` are images per
    second.
    """
    from gangway.trainer.telemetry.flops import count_step

    bench.report("a large convolution")
    peak, counted = convolution_gflops(bench.threads), count_step(bench.config).value
    assert counted is not None, "DCGAN's layers are all counted"
    work = counted / 1e9
    parts = {"large convolution GFLOP/s": peak, "a step's GFLOP/image": work, "ours GFLOP/s": ours * work}
    note = "a measure of this machine; counts products with padding's zeros, which kernels may leave out"
    return Result(name, peak / work / textbook, "x", "", None, parts, note)


def _largest_difference(bench: Bench) -> float:
    from gangway.trainer.data.shards import ShardedImages
    from tools.bench import textbook

    bench.report("losses")
    config = bench.config
    size = config.batch_size / 1000
    changes = {"kimg": SAME_LOSSES_STEPS * size, "stats_kimg": size}
    ours = train_whole(config.replace(changes), bench.work_dir / "losses", bench.data_dir, threads=bench.threads)
    theirs = textbook.steps(config, ShardedImages.open(bench.data_dir), torch.device("cpu"))
    pairs = [(line[name], getattr(step, name)) for line, step in zip(ours, theirs, strict=False) for name in _LOSSES]
    return float(max(abs(found - wanted) / max(abs(wanted), 0.1) for found, wanted in pairs))


if __name__ == "__main__":
    print(json.dumps({"gflops": _measured(int(sys.argv[1]))}))
