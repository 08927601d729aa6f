"""The benchmarks themselves: each takes a folder to work in and gives its figures.

What is run is the trainer's own command line (`trainer.bench.runs`), so that a figure holds everything a user's run
does: data, statistics, averages, hash checks. GPU figures come out of the same cases where there is a GPU.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType

from trainer.bench.bounds import matrix_gflops, silent_pair
from trainer.bench.results import Result
from trainer.bench.runs import rate, textbook_rate, train_for, train_preset, train_whole
from trainer.config import TrainConfig
from trainer.figure import Figure
from trainer.presets import preset

__all__ = ["CASES", "TITLES", "Bench", "absent"]

_LOSSES = ("loss_g", "loss_d")
_SAME_LOSSES_STEPS = 30
_SAME_LOSSES = 1e-2
"""Rounding in another order grows with the steps, as all differences do in a game of two networks."""
_REUSING = "textbook, fakes reused"

TITLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "textbook": (
            "Training step in fp32 against the textbook loop",
            "Training step in bf16 against the textbook loop in fp32",
            "Training step in fp32 against the textbook loop that reuses its fakes",
            "The most an fp32 step of the same work could be ahead, were it all one large matrix product",
            f"Largest difference of a loss in the first {_SAME_LOSSES_STEPS} steps against the textbook loop",
        ),
        "processes": (
            "Two gloo processes of a thread each against one, global batch 128",
            "Two such processes of half the batch each that send each other nothing, against one",
        ),
        "overheads": ("Checkpoints' stall, share of the time", "Telemetry, share of the time"),
        "start": ("From the command to the end of the first step",),
        "features": ("Inception features for FID against torch-fidelity",),
        "quality": (
            "dcgan-digits, the whole preset on two workers",
            "FD-ENL0, untrained over trained",
            "Samples that our classifier reads as a digit",
            "Digits among them, of ten",
        ),
        "gpu": ("DCGAN 32x32 in bf16 on one GPU, batch 128", "DCGAN 32x32 in bf16 on one GPU, batch 1024"),
    }
)
"""The figures of each case, in its order: what was not measured is named all the same."""


@dataclass(frozen=True)
class Bench:
    """How much is measured, and where.

    Attributes:
        work_dir: folder for runs and data; its contents are of no use afterwards.
        data_dir: the shards, prepared already.
        seconds: of one measurement.
        rounds: measurements of each side, in turn.
        threads: of a process, where a case does not say otherwise.
        tell: is told what begins.
    """

    work_dir: Path
    data_dir: Path
    seconds: float
    rounds: int
    threads: int
    tell: Callable[[str], None]

    @property
    def config(self) -> TrainConfig:
        """DCGAN at 32x32 in colour and batch 128, as paper P2 has it; no augmentation, which tutorials have not."""
        return preset("dcgan-cifar10").replace(
            {
                "dataset": "photos",
                "augment": "none",
                "kimg": 1e6,
                "stats_kimg": 1.28,
                "sample_kimg": 1e6,
                "checkpoint_kimg": 1e6,
            }
        )

    def trainer(self, name: str, round_: int, changes: Mapping[str, object], *, processes: int = 1) -> float:
        """Images per second of a run with these changes."""
        return rate(self.run(f"{name}-{round_}", changes, processes=processes))

    def run(
        self, name: str, changes: Mapping[str, object], *, processes: int = 1, threads: int | None = None
    ) -> list[dict[str, float]]:
        """Statistics lines of a run with these changes."""
        self.tell(name)
        config = self.config.replace(changes)
        where = self.work_dir / name
        seconds = self.seconds
        return train_for(config, where, self.data_dir, seconds, processes=processes, threads=threads or self.threads)


def absent(case: str, why: str) -> Iterator[Result]:
    """A case's figures without values.

    Args:
        case: its name in `CASES`.
        why: it was not measured.
    """
    for title in TITLES[case]:
        yield Result(title, None, "", "", None, note=f"not measured: {why}")


def against_textbook(bench: Bench) -> Iterator[Result]:
    """Ours against the tutorial's loop, and which part gave what."""
    variants: dict[str, dict[str, object]] = {
        "ours, contiguous": {"channels_last": False},
        "ours": {},
        "ours, bf16": {"precision": "bf16"},
    }
    textbooks = {"textbook": False, _REUSING: True}
    rates: dict[str, list[float]] = {name: [] for name in (*textbooks, *variants)}
    for round_ in range(bench.rounds):
        arguments = (bench.config, bench.work_dir, bench.data_dir, bench.seconds)
        for name, reuse in textbooks.items():
            bench.tell(f"{name}-{round_}")
            rates[name].append(textbook_rate(*arguments, threads=bench.threads, reuse=reuse))
        for name, changes in variants.items():
            rates[name].append(bench.trainer(name.replace(", ", "-"), round_, changes))
    found = {f"{name} images/s": median(values) for name, values in rates.items()}
    base = found["textbook images/s"]
    fp32, bf16 = found["ours images/s"] / base, found["ours, bf16 images/s"] / base
    fast, low, reused, most, same = TITLES["textbook"]
    yield Result(fast, fp32, "x", ">= 1.4 x", fp32 >= 1.4, found)
    yield Result(low, bf16, "x", ">= 2 x", bf16 >= 2)
    less = found["ours images/s"] / found[f"{_REUSING} images/s"]
    note = "another computation: a pass of the generator less, other fakes, so no losses to compare"
    yield Result(reused, less, "x", "", None, {}, note)
    yield _most(bench, most, base, found["ours images/s"])
    off = _largest_difference(bench)
    yield Result(same, off * 100, "%", f"<= {_SAME_LOSSES:.1%}", off <= _SAME_LOSSES)


def _most(bench: Bench, name: str, textbook_rate: float, our_rate: float) -> Result:
    """What the processor's speed in matrix products, the fastest thing it does, leaves for any loop to gain."""
    from trainer.metering.flops import count_step

    bench.tell("matrix products")
    peak, work = matrix_gflops(bench.threads), _known(count_step(bench.config)) / 1e9
    parts = {"matrix products GFLOP/s": peak, "a step's GFLOP/image": work, "ours GFLOP/s": our_rate * work}
    return Result(name, peak / work / textbook_rate, "x", "", None, parts, "a bound of this machine, not ours to reach")


def _largest_difference(bench: Bench) -> float:
    """Relative difference of any loss of any step: ours from a run that writes a line for each step."""
    import torch

    from trainer.bench import textbook
    from trainer.data import ShardedImages

    bench.tell("losses")
    config = bench.config
    size = config.batch_size / 1000
    changes = {"kimg": _SAME_LOSSES_STEPS * size, "stats_kimg": size}
    ours = train_whole(config.replace(changes), bench.work_dir / "losses", bench.data_dir, threads=bench.threads)
    theirs = textbook.steps(config, ShardedImages.open(bench.data_dir), torch.device("cpu"))
    pairs = [(line[name], getattr(step, name)) for line, step in zip(ours, theirs, strict=False) for name in _LOSSES]
    return float(max(abs(found - wanted) / max(abs(wanted), 0.1) for found, wanted in pairs))


def two_processes(bench: Bench) -> Iterator[Result]:
    """Two processes with a thread each against one such process, at the same global batch."""
    one, two = [], []
    for round_ in range(bench.rounds):
        one.append(rate(bench.run(f"one-{round_}", {}, threads=1)))
        two.append(rate(bench.run(f"two-{round_}", {}, processes=2, threads=1)))
    pair = []
    for round_ in range(bench.rounds):
        bench.tell(f"silent-{round_}")
        folder = bench.work_dir / f"silent-{round_}"
        pair.append(silent_pair(bench.config, folder, bench.data_dir, bench.seconds))
    base = median(one)
    found = {"one process images/s": base, "two processes images/s": median(two)}
    together, silent = TITLES["processes"]
    yield Result(together, median(two) / base, "x", ">= 1.8 x", median(two) / base >= 1.8, found)
    note = "a bound of this machine: its cores share memory and clock; nothing is averaged here"
    yield Result(silent, median(pair) / base, "x", "", None, {"two silent processes images/s": median(pair)}, note)


def overheads(bench: Bench) -> Iterator[Result]:
    """What checkpoints and telemetry cost, as the run's own counters have it, in a run with the preset's intervals."""
    config = preset("dcgan-cifar10")
    changes = {name: getattr(config, name) for name in ("checkpoint_kimg", "sample_kimg", "stats_kimg")}
    lines = bench.run("overheads", {**changes, "checkpoint_kimg": 5})
    wall = lines[-1]["wall_sec"]
    for name, key in zip(TITLES["overheads"], ("checkpoint_stall_sec", "telemetry_sec"), strict=True):
        share = lines[-1][key] / wall * 100
        found = {"seconds": lines[-1][key], "of seconds": wall}
        yield Result(name, share, "%", "<= 1 %", share <= 1, found)


def start(bench: Bench) -> Iterator[Result]:
    """From the command to the end of the first step, without compilation, data prepared."""
    times = []
    for round_ in range(bench.rounds):
        bench.tell(f"start-{round_}")
        config = bench.config
        size = config.batch_size / 1000
        one_step = config.replace({"kimg": size, "stats_kimg": size})
        began = time.time()
        lines = train_whole(one_step, bench.work_dir / f"start-{round_}", bench.data_dir, threads=bench.threads)
        times.append(lines[0]["time"] - began)
    found = median(times)
    (name,) = TITLES["start"]
    yield Result(name, found, "s", "<= 8 s", found <= 8)


def gpu(bench: Bench) -> Iterator[Result]:
    """One process on the GPU: images per second and model FLOP/s utilisation; no value without one."""
    import torch

    if not torch.cuda.is_available():
        yield from absent("gpu", "no CUDA device here; the same case runs where there is one")
        return
    for batch_size, name in zip((128, 1024), TITLES["gpu"], strict=True):
        lines = bench.run(f"gpu-{batch_size}", {"precision": "bf16", "batch_size": batch_size, "stats_kimg": 51.2})
        found, share = rate(lines), lines[-1].get("mfu")  # of the last line's speed
        parts = {} if share is None else {"mfu": share / lines[-1]["images_per_sec"] * found}
        yield Result(name, found, "images/s", "", None, parts)


def features(bench: Bench) -> Iterator[Result]:
    """Features of the quality metrics against torch-fidelity's own extraction, same network, same images."""
    from trainer.quality.speed import feature_speed

    bench.tell("features")
    speed = feature_speed(rounds=bench.rounds)
    found = {"ours images/s": speed.ours, "torch-fidelity images/s": speed.torch_fidelity}
    note = "weights of random values in the true shapes: speed does not depend on them"
    (name,) = TITLES["features"]
    yield Result(name, speed.ratio, "x", ">= 1 x", speed.ratio >= 1, found, note)


def quality(bench: Bench) -> Iterator[Result]:
    """The preset dcgan-digits, whole, on two workers of a thread: how long, how much better, and are they digits."""
    import torch

    from trainer.quality.evaluate import evaluate

    bench.tell("dcgan-digits, all of it")
    run_dir = bench.work_dir / "digits"
    began = time.monotonic()
    train_preset("dcgan-digits", run_dir, processes=2, threads=1)
    seconds = time.monotonic() - began
    whole, distances, samples, digits = TITLES["quality"]
    yield Result(whole, seconds, "s", "<= 300 s", seconds <= 300)
    torch.set_num_threads(1)
    record = evaluate(run_dir, run_dir / "data", None, ("fd-enl0", "digits-classes"))
    found = {judged.name: judged for judged in record.quality}
    distance = found["FD-ENL0"]
    parts = {"untrained": _known(distance.untrained), "trained": _known(distance.trained)}
    better = parts["untrained"] / parts["trained"]
    yield Result(distances, better, "x", ">= 3 x", better >= 3, parts)
    share = _known(found["digits recognised"].trained) * 100
    yield Result(samples, share, "%", ">= 80 %", share >= 80)
    classes = _known(found["digit classes"].trained)
    yield Result(digits, classes, "", ">= 9", classes >= 9)


def _known(figure: Figure) -> float:
    assert figure.value is not None, "the metric has just been computed"
    return figure.value


CASES: Mapping[str, Callable[[Bench], Iterator[Result]]] = MappingProxyType(
    {
        "textbook": against_textbook,
        "processes": two_processes,
        "overheads": overheads,
        "start": start,
        "features": features,
        "quality": quality,
        "gpu": gpu,
    }
)
"""By the name that `--only` takes."""
