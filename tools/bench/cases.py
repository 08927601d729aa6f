"""The benchmarks: each takes a folder to work in and gives its figures, on a GPU too where there is one.

They run the trainer's own command line (`tools.bench.runs`), with everything that a user's run does.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from types import MappingProxyType

from gangway.trainer.config.presets import preset
from gangway.trainer.config.values.metric_names import FD_ENL0
from gangway.trainer.core.host import WAIT_POLICY
from gangway.trainer.records.quantity import Quantity
from tools.bench.measuring import TITLES, Bench, absent, ahead, medians
from tools.bench.results import Result
from tools.bench.runs import Loop, Side, environment, pace, train_preset, train_whole
from tools.bench.speed import against_textbook, narrow

_BATCH, _WIDTH = 64, 16
"""Small, so that threads meet often for little work."""
_PLACES = ("alone", "beside a busy process")
_PASSIVE, _SPINNING, _SINGLE = "passive", "spinning", "one thread"
_SPINS = "GOMP_SPINCOUNT"
_VARIABLES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        _PASSIVE: {WAIT_POLICY: "PASSIVE", _SPINS: "0"},
        # libgomp's default where neither variable is set, see gangway.trainer.core.host.wait_passively
        _SPINNING: {_SPINS: "300000"},
        _SINGLE: {},
    }
)
_BUSY = """
import json, sys, time
with open(sys.argv[1], "a", buffering=1) as lines:
    while True:
        print(json.dumps({"images": 0, "time": time.time()}), file=lines)
        for _ in range(2_000_000):
            pass
"""


def waiting(bench: Bench) -> Iterator[Result]:
    """Threads that sleep while they wait, against threads that spin and against one thread."""
    if bench.threads < 2:
        yield from absent("waiting", "a single core, on which no thread waits for another")
        return
    rates = bench.in_turn([_side(bench, how, place) for place in _PLACES for how in _VARIABLES])
    titles = iter(TITLES["waiting"])
    for place in _PLACES:
        passive, spinning, single = (_name(how, place) for how in _VARIABLES)
        parts = medians({name: rates[name] for name in (passive, spinning, single)})
        yield ahead(bench, next(titles), rates, passive, spinning, parts=parts)
        yield ahead(bench, next(titles), rates, passive, single)


def _side(bench: Bench, how: str, place: str) -> Side:
    config = bench.sized(_BATCH).replace({"ngf": _WIDTH, "ndf": _WIDTH})
    name, threads = _name(how, place), 1 if how == _SINGLE else bench.threads
    side = bench.side(name, config, threads=threads, variables=_VARIABLES[how])
    neighbours = [_busy(bench, how)] if place == _PLACES[1] else []
    return Side(name, [*side.loops, *neighbours])


def _busy(bench: Bench, how: str) -> Loop:
    """A process that takes a core during its side's turns and shows no images."""
    stats = bench.work_dir / f"busy-{how.replace(' ', '-')}" / "stats.jsonl"
    stats.parent.mkdir(parents=True)
    return Loop([sys.executable, "-c", _BUSY, str(stats)], environment(1), stats)


def _name(how: str, place: str) -> str:
    return f"{how}, {place}"


def two_processes(bench: Bench) -> Iterator[Result]:
    """Two processes with a thread each against one such process: at the same global batch, and at twice it."""
    one, two, twice, silent = "one process", "two processes", "two processes, batch 128 each", "two silent processes"
    whole, half = bench.config, bench.sized(bench.config.batch_size // 2)
    sides = (
        bench.side(silent, half, half, threads=1),
        bench.side(two, whole, processes=2, threads=1),
        bench.side(one, whole, threads=1),
        bench.side(twice, bench.sized(2 * whole.batch_size), processes=2, threads=1),
    )
    rates = bench.in_turn(sides)
    together, each, apart = TITLES["processes"]
    yield ahead(bench, together, rates, two, one, 1.8, medians(rates))
    note = "global batch 256: half the averages and waits for as many images"
    yield ahead(bench, each, rates, twice, one, note=note)
    note = "a bound of this machine: its cores share memory and clock; nothing is averaged here"
    yield ahead(bench, apart, rates, silent, one, note=note)


def peer(bench: Bench) -> Iterator[Result]:
    """Ours against a hand-tuned loop (tools.bench.tuned), with the number of threads factored out."""
    titles = iter(TITLES["peer"])
    for processes in (1, 2):
        sides = []
        for precision in ("fp32", "bf16"):
            config = bench.config.replace({"precision": precision})
            words = f"{precision}, {processes} processes"
            sides.append(bench.side(f"ours, {words}", config, processes=processes, threads=1))
            sides.append(bench.peer("tuned", f"tuned, {words}", config, processes=processes, threads=1))
        rates = bench.in_turn(sides)
        for ours, theirs in (sides[:2], sides[2:]):
            parts = medians({side.name: rates[side.name] for side in (ours, theirs)})
            yield ahead(bench, next(titles), rates, ours.name, theirs.name, 1.2, parts)


def overheads(bench: Bench) -> Iterator[Result]:
    """The cost of checkpoints and telemetry by the run's own counters, with the preset's intervals."""
    config = preset("dcgan-cifar10")
    changes = {name: getattr(config, name) for name in ("checkpoint_kimg", "sample_kimg", "stats_kimg")}
    lines = bench.run("overheads", bench.config.replace({**changes, "checkpoint_kimg": 5}))
    wall = lines[-1]["wall_sec"]
    for name, key in zip(TITLES["overheads"], ("checkpoint_stall_sec", "telemetry_sec"), strict=True):
        share = lines[-1][key] / wall * 100
        found = {"seconds": lines[-1][key], "of seconds": wall}
        yield Result(name, share, "%", "<= 1 %", bench.judged(share <= 1, seconds=True), found)


def start(bench: Bench) -> Iterator[Result]:
    """From the command to the end of the first step, without compilation, data prepared."""
    times = []
    for round_ in range(bench.rounds):
        bench.report(f"start-{round_}")
        config = bench.config
        size = config.batch_size / 1000
        one_step = config.replace({"kimg": size, "stats_kimg": size})
        began = time.time()
        lines = train_whole(one_step, bench.work_dir / f"start-{round_}", bench.data_dir, threads=bench.threads)
        times.append(lines[0]["time"] - began)
    found = median(times)
    (name,) = TITLES["start"]
    yield Result(name, found, "s", "<= 8 s", bench.judged(found <= 8, rounds=True))


def gpu(bench: Bench) -> Iterator[Result]:
    """One process on the GPU: images per second and model FLOP/s utilisation; no value without one."""
    import torch

    if not torch.cuda.is_available():
        yield from absent("gpu", "no CUDA device here; the same case runs where there is one")
        return
    for batch_size, name in zip((128, 1024), TITLES["gpu"], strict=True):
        changes = {"precision": "bf16", "batch_size": batch_size, "stats_kimg": 51.2}
        lines = bench.run(f"gpu-{batch_size}", bench.config.replace(changes))
        found, share = pace(lines), lines[-1].get("mfu")  # of the last line's speed
        parts = {} if share is None else {"mfu": share / lines[-1]["images_per_sec"] * found}
        yield Result(name, found, "images/s", "", None, parts)


def features(bench: Bench) -> Iterator[Result]:
    """Features of the quality metrics against torch-fidelity's own extraction, same network, same images."""
    from tools.bench.feature_speed import feature_speed

    bench.report("features")
    speed = feature_speed(rounds=bench.rounds)
    found = {"ours images/s": speed.ours, "torch-fidelity images/s": speed.torch_fidelity}
    note = "weights of random values in the true shapes: speed does not depend on them"
    (name,) = TITLES["features"]
    yield Result(name, speed.ratio, "x", ">= 1 x", bench.judged(speed.ratio >= 1, rounds=True), found, note)


def quality(bench: Bench) -> Iterator[Result]:
    """The preset dcgan-digits, whole, on two workers of a thread: how long, how much better, and are they digits."""
    import torch

    from gangway.trainer.metrics.evaluate import evaluate_newest

    bench.report("dcgan-digits, all of it")
    run_dir = bench.work_dir / "digits"
    began = time.monotonic()
    train_preset("dcgan-digits", run_dir, processes=2, threads=1)
    seconds = time.monotonic() - began
    whole, distances, samples, digits = TITLES["quality"]
    yield Result(whole, seconds, "s", "<= 300 s", seconds <= 300)
    torch.set_num_threads(1)
    records = evaluate_newest(run_dir, run_dir / "data", None, ("fd-enl0", "digits-classes"))
    found = {judged.name: judged for judged in records}
    distance = found[FD_ENL0]
    parts = {"untrained": _known(distance.untrained), "trained": _known(distance.trained)}
    better = parts["untrained"] / parts["trained"]
    yield Result(distances, better, "x", ">= 3 x", better >= 3, parts)
    share = _known(found["digits recognised"].trained) * 100
    yield Result(samples, share, "%", ">= 80 %", share >= 80)
    classes = _known(found["digit classes"].trained)
    yield Result(digits, classes, "", ">= 9", classes >= 9)


def _known(quantity: Quantity) -> float:
    assert quantity.value is not None, "the metric has just been computed"
    return quantity.value


CASES: Mapping[str, Callable[[Bench], Iterator[Result]]] = MappingProxyType(
    {
        "textbook": against_textbook,
        "narrow": narrow,
        "peer": peer,
        "processes": two_processes,
        "waiting": waiting,
        "overheads": overheads,
        "start": start,
        "features": features,
        "quality": quality,
        "gpu": gpu,
    }
)
"""By the name that `--only` takes."""
