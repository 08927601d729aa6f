"""A scaling study: what 1 to N processes on this machine measured, and what machines of the catalogue should do.

Measurements are rounds, in each of which every number of processes has its turn, so that a slow minute of the machine
harms all alike; efficiencies are ratios within a round. The projection is a model (components.scaling) and is kept
apart: in the results, in the table and in the plot.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from components.scaling import (
    AmdahlFit,
    Links,
    Spread,
    StepModel,
    efficiency,
    fit_amdahl,
    measured_efficiency,
    step_sec,
)
from components.scaling_torus import Torus
from stacks.bench.scaling_devices import Placement
from stacks.bench.scaling_machines import Target
from stacks.bench.scaling_runs import Sample

__all__ = ["NO_RATE", "Measured", "Projection", "Study", "project", "study"]

Mode = Literal["weak", "strong"]
NO_RATE = "a CPU was measured, and its slow steps beside an accelerator's links would scale too well"
"""Why a CPU's own rate is not projected from."""


@dataclass(frozen=True)
class Measured:
    """One number of processes.

    Attributes:
        mode: weak or strong.
        workers: processes.
        step_sec: seconds of a step, over the rounds.
        efficiency: over the rounds.
        all_reduce_sec: of a step's gradients, median over the rounds; None where it could not be timed.
        model_sec: what the fit says of it.
    """

    mode: Mode
    workers: int
    step_sec: Spread
    efficiency: Spread
    all_reduce_sec: float | None
    model_sec: float


@dataclass(frozen=True)
class Projection:
    """Machines of one type, by the model alone.

    Attributes:
        machine_type: of the catalogue, or a TPU generation or slice.
        mode: weak or strong.
        points: workers, seconds of a step, efficiency.
        links: what the all-reduce travels over.
        note: what it leaves out; empty for nothing of its own.
    """

    machine_type: str
    mode: Mode
    points: tuple[tuple[int, float, float], ...]
    links: Links | Torus
    note: str


@dataclass(frozen=True)
class Study:
    """What came of it.

    Attributes:
        measured: by mode and number of processes.
        fit: of strong scaling; None where it was not measured.
        gradient_bytes: that workers average in a step.
        device: of the measurements, as the trainer names it.
        placement: why on that.
        untimed: why no all-reduce was timed; empty where it was.
        step: of one accelerator, behind the projections; None where nothing is known of one.
        step_source: where its compute time comes from, or why there is none.
        projections: of machines of the catalogue.
    """

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
        """As plain JSON data; measured and projected under keys of their own."""
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
    """Evaluates the rounds and projects.

    Args:
        rounds: each a sample by mode and number of processes, that of one process included in each mode.
        batch: images of a step of one worker that is alone.
        images_per_sec: of one accelerator that is alone; None for this machine's own, where that is of a GPU.
        assumed: of the projection: share of a step's compute during which gradients travel, and share that more workers
            do not shorten. The fitted share is not taken for it: processes of one machine wait for each other's memory
            and cores too, which accelerators with their own do not.
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
    measured = tuple(_measured(mode, workers, steps, waits, fit, untimed) for mode, workers in keys)
    own = None if placement.device == "cpu" else batch / statistics.median(steps[keys[0][0], 1])
    rate, source = _rate(images_per_sec, own, first.device)
    step = None
    if rate is not None:
        step = StepModel(batch / rate, first.gradient_bytes, serial_share=assumed[1], overlap=assumed[0])
    modes = list(dict.fromkeys(mode for mode, _ in keys))
    projections = tuple(project(target, mode, step, batch) for target in targets for mode in modes) if step else ()
    return Study(measured, fit, first.gradient_bytes, first.device, placement, untimed, step, source, projections)


def _rate(given: float | None, own: float | None, device: str) -> tuple[float | None, str]:
    """Images a second of one accelerator, and where that comes from; None with the reason where there is none."""
    if given is not None:
        return given, f"assumed: --images-per-sec {given:g}"
    if own is None:
        return None, f"absent: {NO_RATE}"
    return own, f"measured: {own:,.0f} images/s of one process on this machine's {device}, taken for every accelerator"


def _measured(
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
    shown = None if untimed and workers > 1 else wait
    return Measured(mode, workers, spread, measured_efficiency(one, own, workers, mode), shown, model)


def project(target: Target, mode: Mode, step: StepModel, batch: int) -> Projection:
    """All numbers of accelerators that the target has; of strong scaling, up to as many as the batch has images."""
    network = target.network
    counts = [n for n in target.counts if mode == "weak" or n <= batch]
    points = tuple((n, step_sec(step, network, n, mode), efficiency(step, network, n, mode)) for n in counts)
    return Projection(target.name, mode, points, network, target.note)
