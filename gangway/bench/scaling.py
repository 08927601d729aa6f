"""A scaling study: 1 to N trainer processes measured here, projections to the catalogue's machines, a plot."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter, ScalarFormatter

from gangway.bench.local import Placement
from gangway.bench.processes import last_words
from gangway.components.catalog.loader import load_tpus
from gangway.components.core.findings import InputError, nearest_hint
from gangway.components.core.job import JobSpec
from gangway.components.estimate.scaling import (
    AmdahlFit,
    Links,
    Spread,
    StepModel,
    Torus,
    efficiency,
    fit_amdahl,
    get_links,
    get_torus,
    measured_efficiency,
    step_sec,
)
from gangway.components.gcp.slices import plan_slice, slice_topologies
from gangway.jobs.local.run import LocalRun, StatsTail, local_job
from gangway.render.drawing import LIGHT, PANEL_INCHES, draw, legend_size
from gangway.stacks.base.registry import sellers
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.records.run_record import RunContext

MAX_WORKERS = 512
_PLACE = "--machines"
_ONE_SLICE = "one slice: the network between slices (DCN) is not modelled"
LINES = 7
"""Lines of statistics per run; the first is discarded."""
_POLL_SEC = 0.1
_ANY_FABRIC_GBPS = 1e-9
NO_RATE = "a CPU was measured: its slow steps with an accelerator's links would scale too well"
"""Why a CPU's rate is not projected."""


@dataclass(frozen=True)
class Target:
    """Machines to project to. `counts`: accelerators, ascending from 1; `note`: what its projection omits."""

    name: str
    network: Links | Torus
    counts: tuple[int, ...]
    note: str = ""


def find_target(name: str) -> Target:
    """Find machines of any provider, or TPU slices. InputError: none, or an unknown bandwidth."""
    machines = {key: one for provider in sellers() for key, one in provider.catalog_here().machines.items()}
    if name in machines:
        return Target(name, get_links(machines[name]), tuple(2**power for power in range(MAX_WORKERS.bit_length())))
    generations = load_tpus().generations
    if name in generations:
        return _slices(name, name, max(size for size in slice_topologies(name) if size <= MAX_WORKERS))
    word, _, number = name.partition("-")
    prefixes = {key: tpu.prefix for tpu in generations.values() for key in (tpu.name, tpu.prefix)}
    if word in prefixes and number.isdecimal():
        try:
            plan = plan_slice(accelerator_type=f"{prefixes[word]}-{number}")
        except InputError as mistake:
            raise InputError(_PLACE, mistake.problem, value=name, allowed=mistake.allowed, fix=mistake.fix) from None
        return _slices(plan.accelerator_type, plan.generation, plan.chips)
    types = [plan_slice(key, chips).accelerator_type for key in generations for chips in slice_topologies(key)]
    raise InputError(
        _PLACE,
        "no such machine type, TPU generation or slice",
        value=name,
        allowed=f"machine types of the catalogue; {', '.join(generations)}; accelerator types such as v5litepod-256",
        fix=nearest_hint(name, [*machines, *generations, *types]),
    )


def _slices(name: str, generation: str, most_chips: int) -> Target:
    shapes = slice_topologies(generation)
    sizes = [size for size in shapes if 1 < size <= most_chips and (size == most_chips or size.bit_count() == 1)]
    torus = get_torus(generation, [shapes[size][0] for size in sizes])
    halves = load_tpus().generations[generation].devices_per_chip.value
    counted = f"; an accelerator is a chip, its {halves} devices together" if halves > 1 else ""
    return Target(name, torus, (1, *sizes), _ONE_SLICE + counted)


class Sample(NamedTuple):
    """A measured run. `step_sec`: of one step, median; `all_reduce`: seconds of one all-reduce by its bytes, empty for
    one process, or if not timed; `gradient_bytes`: averaged by all workers per step; `untimed`: why several processes'
    all-reduces were not timed, else empty.
    """

    step_sec: float
    all_reduce: dict[int, float]
    gradient_bytes: int
    device: str
    untimed: str = ""

    def all_reduce_sec(self) -> float:
        """Of the step's gradients: the line through the smallest and the largest message; 0 if not timed."""
        if not self.all_reduce:
            return 0.0
        (small, fast), (large, slow) = sorted(self.all_reduce.items())[:: max(1, len(self.all_reduce) - 1)][:2]
        per_byte = max(0.0, (slow - fast) / (large - small))
        return max(0.0, fast + per_byte * (self.gradient_bytes - small))


def short(config: TrainConfig, workers: int, mode: str, steps: int, backend: str) -> TrainConfig:
    """The configuration to measure. `mode`: weak (the batch per worker) or strong (shared); `steps`: at least LINES."""
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
    """Run the trainer on so many processes and read its records. InputError: the trainer failed."""
    folder.mkdir(parents=True)
    with LocalRun.start(job(config, workers, folder, data_dir, placement), folder / "train.log") as run:
        while run.exit_code is None:
            doing()
            time.sleep(_POLL_SEC)
    if run.exit_code:
        problem = f"the trainer ended with {run.exit_code}: {last_words(run.log)}"
        raise InputError(str(run.log), problem, fix="fix that")
    return read_sample(StatsTail(folder / "stats.jsonl").new_lines(), config)


def read_sample(lines: list[dict[str, Any]], config: TrainConfig) -> Sample:
    """Evaluate a run's lines of statistics."""
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


def job(config: TrainConfig, workers: int, folder: Path, data_dir: Path, placement: Placement) -> JobSpec:
    """The launch of one measurement, with pinned threads: torchrun's default depends on the number of processes."""
    return local_job(
        "scaling",
        config.document(),
        folder,
        workers,
        on_gpus=placement.device == "cuda",
        threads=placement.threads,
        data_dir=data_dir,
        context=RunContext(run_id=folder.name),
        fabric_min_gbps=_ANY_FABRIC_GBPS,
    )


Mode = Literal["weak", "strong"]


@dataclass(frozen=True)
class Measured:
    """One number of processes. `step_sec`: of a step, over the rounds; `all_reduce_sec`: median, None if untimed."""

    mode: Mode
    workers: int
    step_sec: Spread
    efficiency: Spread
    all_reduce_sec: float | None
    model_sec: float


@dataclass(frozen=True)
class Projection:
    """Machines of one type, by the model alone. `points`: workers, seconds of a step, efficiency."""

    machine_type: str
    mode: Mode
    points: tuple[tuple[int, float, float], ...]
    links: Links | Torus
    note: str


@dataclass(frozen=True)
class Study:
    """`fit`: of strong scaling; `step`: of one accelerator, None if unknown; `step_source`: or why there is none."""

    measured: tuple[Measured, ...]
    fit: AmdahlFit | None
    gradient_bytes: int
    device: str
    placement: Placement
    untimed: str
    step: StepModel | None
    step_source: str
    projections: tuple[Projection, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON data; measured and projected figures have separate keys."""
        return {
            "measured": {
                "provenance": "measured",
                "device": self.device,
                "placement": asdict(self.placement),
                "all_reduce_untimed": self.untimed,
                "gradient_bytes": self.gradient_bytes,
                "points": [asdict(one) for one in self.measured],
            },
            "fit": None if self.fit is None else {"provenance": "estimated", **asdict(self.fit)},
            "projected": {
                "provenance": "estimated",
                "step": None if self.step is None else asdict(self.step),
                "step_source": self.step_source,
                "machines": [
                    {
                        "machine_type": one.machine_type,
                        "mode": one.mode,
                        "links": asdict(one.links),
                        "note": one.note,
                        "points": [
                            dict(zip(("workers", "step_sec", "efficiency"), point, strict=True)) for point in one.points
                        ],
                    }
                    for one in self.projections
                ],
            },
        }


def study(
    rounds: Sequence[Mapping[tuple[Mode, int], Sample]],
    batch: int,
    images_per_sec: float | None,
    assumed: tuple[float, float],
    targets: Sequence[Target],
    placement: Placement,
) -> Study:
    """Evaluate the rounds and project.

    Args:
        rounds: samples by mode and number of processes, each mode with one process.
        batch: images per step of a single worker.
        images_per_sec: of a single accelerator; None for this machine's own GPU.
        assumed: for the projection: share of a step's compute that overlaps gradients, and share that more workers do
            not shorten. The fitted share is not used: processes on one machine compete for memory and cores,
            accelerators do not.
        targets: to project to.
        placement: of the processes.
    """
    keys = list(rounds[0])
    steps = {key: [one[key].step_sec for one in rounds] for key in keys}
    waits = {key: statistics.median([one[key].all_reduce_sec() for one in rounds]) for key in keys}
    strong = {workers: statistics.median(steps[mode, workers]) for mode, workers in keys if mode == "strong"}
    fit = fit_amdahl(strong, {n: waits["strong", n] for n in strong}) if len(strong) > 1 else None
    first = rounds[0][keys[0]]
    untimed = next((sample.untimed for sample in rounds[0].values() if sample.untimed), "")
    measured = tuple(_summarise(mode, workers, steps, waits, fit, untimed) for mode, workers in keys)
    own = None if placement.device == "cpu" else batch / statistics.median(steps[keys[0][0], 1])
    rate, source = _rate(images_per_sec, own, first.device)
    step = None
    if rate is not None:
        step = StepModel(batch / rate, first.gradient_bytes, serial_share=assumed[1], overlap=assumed[0])
    modes = list(dict.fromkeys(mode for mode, _ in keys))
    projections = tuple(project(target, mode, step, batch) for target in targets for mode in modes) if step else ()
    return Study(measured, fit, first.gradient_bytes, first.device, placement, untimed, step, source, projections)


def _rate(given: float | None, own: float | None, device: str) -> tuple[float | None, str]:
    if given is not None:
        return given, f"assumed: --images-per-sec {given:g}"
    if own is None:
        return None, f"absent: {NO_RATE}"
    return own, f"measured: {own:,.0f} images/s of one process on this machine's {device}, taken for every accelerator"


def _summarise(
    mode: Mode,
    workers: int,
    steps: Mapping[tuple[Mode, int], Sequence[float]],
    waits: Mapping[tuple[Mode, int], float],
    fit: AmdahlFit | None,
    untimed: str,
) -> Measured:
    own, one = steps[mode, workers], steps[mode, 1]
    wait = waits[mode, workers]
    model = fit.step_sec(workers, wait) if fit is not None and mode == "strong" else statistics.median(one) + wait
    spread = Spread(statistics.median(own), min(own), max(own))
    all_reduce_sec = None if untimed and workers > 1 else wait
    return Measured(mode, workers, spread, measured_efficiency(one, own, workers, mode), all_reduce_sec, model)


def project(target: Target, mode: Mode, step: StepModel, batch: int) -> Projection:
    """Project to all numbers of accelerators; for strong scaling up to the images in the batch."""
    network = target.network
    counts = [n for n in target.counts if mode == "weak" or n <= batch]
    points = tuple((n, step_sec(step, network, n, mode), efficiency(step, network, n, mode)) for n in counts)
    return Projection(target.name, mode, points, network, target.note)


_BELOW: Mapping[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -0.2), "borderaxespad": 0}
"""Legends are below the axes, where they cover no points."""


def fit_curve(study: Study, mode: Mode, number: int = 65) -> list[tuple[float, float]]:
    """Points of the fitted curve: workers, log-spaced, and efficiency; empty if there is none."""
    points = sorted((one for one in study.measured if one.mode == mode), key=lambda one: one.workers)
    largest = points[-1].workers if points else 1
    if largest == 1 or (mode == "weak" and study.untimed):
        return []
    counts = [one.workers for one in points]
    waits = [one.all_reduce_sec or 0.0 for one in points]
    alone = points[0].step_sec.median
    curve = []
    for n in (largest ** (index / (number - 1)) for index in range(number)):
        wait = float(np.interp(n, counts, waits))
        if mode == "weak":
            curve.append((n, alone / (alone + wait)))
        elif study.fit is not None:
            curve.append((n, alone / (n * study.fit.step_sec(n, wait))))
    return curve


def draw_scaling(study: Study, kind: Literal["png", "svg"]) -> bytes:
    """Draw the plot as bytes of a file of that kind."""
    panels = 2 if study.projections else 1

    def paint(_: object, sheets: Sequence[Axes]) -> None:
        for axes in sheets:
            axes.spines["left"].set(visible=True, color=LIGHT.grid)
            axes.grid(color=LIGHT.grid, linewidth=0.8)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.yaxis.set_major_formatter(PercentFormatter(1))
            axes.axhline(1, color=LIGHT.quiet, linewidth=0.8)
            axes.set_ylim(0, 1.15)
        _draw_measured(sheets[0], study)
        for axes in sheets[1:]:
            _draw_projected(axes, study)

    legends = [_measured_labels(study).values(), _projected_labels(study)][:panels]
    inches = PANEL_INCHES + max(legend_size(list(labels))[1] for labels in legends)
    return draw(paint, kind, LIGHT, inches=inches, panels=panels)


def _draw_measured(axes: Axes, study: Study) -> None:
    axes.set_title(f"measured here ({study.device})")
    axes.set_xlabel("processes")
    axes.set_ylabel("efficiency of a worker")
    labels = _measured_labels(study)
    for index, mode in enumerate(dict.fromkeys(one.mode for one in study.measured)):
        points = [one for one in study.measured if one.mode == mode]
        counts, medians = [one.workers for one in points], [one.efficiency.median for one in points]
        below = [one.efficiency.median - one.efficiency.low for one in points]
        above = [one.efficiency.high - one.efficiency.median for one in points]
        axes.errorbar(
            counts,
            medians,
            [below, above],
            color=LIGHT.series[index],
            fmt={"weak": "o", "strong": "s"}[mode],
            capsize=4,
            label=labels[mode, "measured"],
            zorder=3,
        )
        if curve := fit_curve(study, mode):
            axes.plot(
                *zip(*curve, strict=True),
                color=LIGHT.series[index],
                linewidth=1.4,
                alpha=0.75,
                label=labels[mode, "fit"],
            )
    axes.set_xticks(sorted({one.workers for one in study.measured}))
    axes.legend(**_BELOW)


def _measured_labels(study: Study) -> dict[tuple[Mode, str], str]:
    found: dict[tuple[Mode, str], str] = {}
    for mode in dict.fromkeys(one.mode for one in study.measured):
        found[mode, "measured"] = f"{mode}, measured: median, lowest to highest"
        found[mode, "fit"] = f"{mode}, fit: one alone + all-reduce"
        if mode == "strong" and study.fit is not None:
            beside = "" if study.untimed else " + all-reduce"
            found[mode, "fit"] = f"strong, fit: serial share {study.fit.serial_share:.1%}{beside}"
    return found


def _projected_labels(study: Study) -> list[str]:
    return [f"{one.machine_type}, {one.mode}" for one in study.projections]


def _draw_projected(axes: Axes, study: Study) -> None:
    axes.set_title("projected by the model: not measured", color=LIGHT.quiet)
    axes.set_xlabel("accelerators")
    modes = list(dict.fromkeys(one.mode for one in study.projections))
    machines = list(dict.fromkeys(one.machine_type for one in study.projections))
    labels = _projected_labels(study)
    for one, label in zip(study.projections, labels, strict=True):
        counts, _, efficiencies = zip(*one.points, strict=True)
        colour = LIGHT.series[machines.index(one.machine_type) % len(LIGHT.series)]
        style = ("--", ":")[modes.index(one.mode)]
        axes.plot(counts, efficiencies, style, color=colour, label=label)
    axes.legend(ncols=legend_size(labels)[0], **_BELOW)
