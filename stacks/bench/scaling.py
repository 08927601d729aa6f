"""A scaling study: what 1 to N processes on this machine measured, and what machines of the catalogue should do.

Measurements are rounds, in each of which every number of processes has its turn, so that a slow minute of the machine
harms all alike; efficiencies are ratios within a round. The projection is a model (components.scaling) and is kept
apart: in the results, in the table and in the plot.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from components.catalog import PROVIDERS, MachineType, load_provider
from components.findings import InputError, nearest_hint
from components.scaling import (
    AmdahlFit,
    Links,
    Spread,
    StepModel,
    efficiency,
    fit_amdahl,
    links_of,
    measured_efficiency,
    step_sec,
)
from stacks.bench.scaling_runs import Sample

__all__ = ["Measured", "Projection", "Study", "machine_named", "project", "study"]

Mode = Literal["weak", "strong"]
MAX_WORKERS = 512


@dataclass(frozen=True)
class Measured:
    """One number of processes.

    Attributes:
        mode: weak or strong.
        workers: processes, with a thread each.
        step_sec: seconds of a step, over the rounds.
        efficiency: over the rounds.
        all_reduce_sec: of a step's gradients, median over the rounds.
        model_sec: what the fit says of it.
    """

    mode: Mode
    workers: int
    step_sec: Spread
    efficiency: Spread
    all_reduce_sec: float
    model_sec: float


@dataclass(frozen=True)
class Projection:
    """Machines of one type, by the model alone.

    Attributes:
        machine_type: of the catalogue.
        mode: weak or strong.
        points: workers, seconds of a step, efficiency.
        links: what the all-reduce travels over.
    """

    machine_type: str
    mode: Mode
    points: tuple[tuple[int, float, float], ...]
    links: Links


@dataclass(frozen=True)
class Study:
    """What came of it.

    Attributes:
        measured: by mode and number of processes.
        fit: of strong scaling; None where it was not measured.
        gradient_bytes: that workers average in a step.
        device: of the measurements.
        step: of one accelerator, behind the projections.
        step_source: where its compute time comes from.
        projections: of machines of the catalogue.
    """

    measured: tuple[Measured, ...]
    fit: AmdahlFit | None
    gradient_bytes: int
    device: str
    step: StepModel
    step_source: str
    projections: tuple[Projection, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON data; measured and projected under keys of their own."""
        return {
            "measured": {
                "provenance": "measured",
                "device": self.device,
                "gradient_bytes": self.gradient_bytes,
                "points": [asdict(one) for one in self.measured],
            },
            "fit": None if self.fit is None else {"provenance": "estimated", **asdict(self.fit)},
            "projected": {
                "provenance": "estimated",
                "step": asdict(self.step),
                "step_source": self.step_source,
                "machines": [
                    {
                        "machine_type": one.machine_type,
                        "mode": one.mode,
                        "links": asdict(one.links),
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
    machines: Sequence[MachineType],
) -> Study:
    """Evaluates the rounds and projects.

    Args:
        rounds: each a sample by mode and number of processes, that of one process included in each mode.
        batch: images of a step of one worker that is alone.
        images_per_sec: of one accelerator that is alone; None for this machine's own.
        assumed: of the projection: share of a step's compute during which gradients travel, and share that more workers
            do not shorten. The fitted share is not taken for it: processes of one machine wait for each other's memory
            and cores too, which accelerators with their own do not.
        machines: to project to.
    """
    keys = list(rounds[0])
    steps = {key: [one[key].step_sec for one in rounds] for key in keys}
    waits = {key: statistics.median([one[key].all_reduce_sec() for one in rounds]) for key in keys}
    strong = {workers: statistics.median(steps[mode, workers]) for mode, workers in keys if mode == "strong"}
    fit = fit_amdahl(strong, {n: waits["strong", n] for n in strong}) if len(strong) > 1 else None
    measured = tuple(_measured(mode, workers, steps, waits, fit) for mode, workers in keys)
    first = rounds[0][keys[0]]
    own = batch / statistics.median(steps[keys[0][0], 1])
    step = StepModel(
        compute_sec=batch / (images_per_sec or own),
        gradient_bytes=first.gradient_bytes,
        overlap=assumed[0],
        serial_share=assumed[1],
    )
    given = f"assumed: --images-per-sec {images_per_sec:g}" if images_per_sec else ""
    source = given or f"measured: {own:,.0f} images/s of one process on this machine, {first.device}"
    modes = list(dict.fromkeys(mode for mode, _ in keys))
    projections = tuple(project(machine, mode, step, batch) for machine in machines for mode in modes)
    return Study(measured, fit, first.gradient_bytes, first.device, step, source, projections)


def _measured(
    mode: Mode,
    workers: int,
    steps: Mapping[tuple[Mode, int], Sequence[float]],
    waits: Mapping[tuple[Mode, int], float],
    fit: AmdahlFit | None,
) -> Measured:
    own, one = steps[mode, workers], steps[mode, 1]
    wait = waits[mode, workers]
    model = fit.step_sec(workers, wait) if fit is not None and mode == "strong" else statistics.median(one) + wait
    spread = Spread(statistics.median(own), min(own), max(own))
    return Measured(mode, workers, spread, measured_efficiency(one, own, workers, mode), wait, model)


def project(machine: MachineType, mode: Mode, step: StepModel, batch: int) -> Projection:
    """Powers of two up to MAX_WORKERS accelerators; of strong scaling, up to as many as the batch has images."""
    links = links_of(machine)
    most = MAX_WORKERS if mode == "weak" else min(MAX_WORKERS, batch)
    counts = [2**power for power in range(most.bit_length())]
    points = tuple((n, step_sec(step, links, n, mode), efficiency(step, links, n, mode)) for n in counts)
    return Projection(machine.name, mode, points, links)


def machine_named(name: str, find: Callable[[Any], Any] = load_provider) -> MachineType:
    """The machine type of that name, of any provider.

    Raises:
        InputError: there is none.
    """
    known: dict[str, MachineType] = {}
    for provider in PROVIDERS:
        known |= find(provider).machines
    if name not in known:
        raise InputError("--machines", "no such machine type", value=name, fix=nearest_hint(name, known))
    return known[name]
