"""The statistics line, over all workers; seconds count from the session's start, so that a lost line loses none."""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError, diverged
from gangway.trainer.data.loader import MASK
from gangway.trainer.distributed.sharded_modules import gradients, whole
from gangway.trainer.distributed.world import World
from gangway.trainer.phases.phase import Role
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.power.carbon_start import start_decision
from gangway.trainer.power.energy import EnergyReading, NoMeter, choose_readers, merge, read_all
from gangway.trainer.power.forecast import Forecast, read_forecast
from gangway.trainer.records.cost_carbon import price
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.steps.noise_scale import NO_LOOKS, Looks, NoiseScale
from gangway.trainer.steps.state import TrainState
from gangway.trainer.telemetry.devices import Load, find_gpu, load
from gangway.trainer.telemetry.flops import StepFlops

Energy = dict[str, EnergyReading]


class ResourceMeter:
    """One session's figures of machines, by the first worker's clock; a missing or stuck meter gives None, not zero."""

    def __init__(self, loads: Sequence[Load], now: float) -> None:
        self._loads, self._time = loads, now
        self._joules: dict[str, float] = {}

    def since(self, loads: Sequence[Load], energy: Energy, now: float) -> dict[str, Any]:
        """The figures since the last call; `energy` is of all devices since the session began."""
        elapsed_sec = now - self._time
        cores = sum(each.cores for each in loads)
        busy_sec = _cpu_sec(loads) - _cpu_sec(self._loads)
        gpu_gib = _known(each.gpu_gib for each in loads)
        gpu_busy = _known(each.gpu_utilisation for each in loads)
        figures = {
            "cores": cores,
            "rss_gib": sum(each.rss_gib for each in loads),
            "host_memory_gib": sum(each.host_memory_gib for each in loads),
            "host_memory_share": max(_known(each.host_memory_share for each in loads), default=None),
            "cpu_utilisation": busy_sec / elapsed_sec / cores,
            "cpu_wait_share": self._cpu_wait_share(loads, busy_sec),
            "neighbour_cores": self._neighbour_cores(loads, elapsed_sec),
            "gpu_gib": sum(gpu_gib) if gpu_gib else None,
            "gpu_memory_share": max(_known(each.gpu_memory_share for each in loads), default=None),
            "gpu_utilisation": sum(gpu_busy) / len(gpu_busy) if gpu_busy else None,
            "read_bytes_per_sec": self._read_bytes_per_sec(loads, elapsed_sec),
            "watts": self._watts(energy, elapsed_sec),
        }
        self._loads, self._time = loads, now
        return figures

    def _cpu_wait_share(self, loads: Sequence[Load], busy_sec: float) -> float | None:
        now, before = (_known(each.cpu_wait_sec for each in those) for those in (loads, self._loads))
        if len(now) < len(loads) or len(before) < len(self._loads):
            return None
        waited_sec = max(0.0, sum(now) - sum(before))  # threads that have ended count no longer
        return waited_sec / (waited_sec + busy_sec) if waited_sec else 0.0

    def _neighbour_cores(self, loads: Sequence[Load], elapsed_sec: float) -> float | None:
        """Returns None where a node's kernel does not count, or its counters stop or go back."""
        cores = 0.0
        before, after = _hosts(self._loads), _hosts(loads)
        for node in {each.node for each in loads}:
            if node not in before or node not in after:
                return None
            busy_sec, all_sec = (now - then for now, then in zip(after[node], before[node], strict=True))
            if all_sec <= 0 or busy_sec < 0:
                return None
            own_sec = _cpu_sec(_of(node, loads)) - _cpu_sec(_of(node, self._loads))
            # A container's quota is less than the processors: others' use of the rest does not slow it.
            beside = max(0, round(all_sec / elapsed_sec) - sum(each.cores for each in _of(node, loads)))
            cores += max(0.0, (busy_sec - own_sec) / elapsed_sec - beside)
        return cores

    def _read_bytes_per_sec(self, loads: Sequence[Load], elapsed_sec: float) -> float | None:
        now, before = (_known(each.read_bytes for each in those) for those in (loads, self._loads))
        if len(now) < len(loads) or len(before) < len(loads) or sum(now) < sum(before):
            return None
        return (sum(now) - sum(before)) / elapsed_sec

    def _watts(self, energy: Energy, elapsed_sec: float) -> float | None:
        """Returns None where a device has no meter or model, or its meter is stuck, as the sum would be incomplete."""
        joules = {device: reading.joules for device, reading in energy.items() if reading.joules is not None}
        used = [all_of_it - self._joules.get(device, 0.0) for device, all_of_it in joules.items()]
        self._joules = joules
        known = used and len(used) == len(energy)
        return sum(used) / elapsed_sec if known and min(used) > 0 else None


def _of(node: int, loads: Sequence[Load]) -> list[Load]:
    return [each for each in loads if each.node == node]


def _hosts(loads: Sequence[Load]) -> dict[int, tuple[float, float]]:
    return {each.node: each.host_sec for each in loads if each.host_sec is not None}


def _cpu_sec(loads: Sequence[Load]) -> float:
    return sum(each.cpu_sec for each in loads)


def _known(figures: Iterator[float | None]) -> list[float]:
    return [figure for figure in figures if figure is not None]


def usd_per_hour(context: RunContext, capacity: Sequence[str]) -> float | None:
    """Returns the price of all nodes by their kind; None where one has none."""
    prices = [price(kind, context)[1].value for kind in capacity]
    known = [each for each in prices if each is not None]
    return sum(known) if known and len(known) == len(prices) else None


class GridIntensity:
    """Grams of CO2e per kWh: from the launcher's forecast file while it reaches, else the launcher's figure."""

    def __init__(self, context: RunContext) -> None:
        self._forecast: Forecast | None = None
        where = str(start_decision().get("forecast", ""))
        if not where.startswith(("http://", "https://")) and where and Path(where).is_file():
            with contextlib.suppress(TrainerError):  # no longer what the launcher has read
                self._forecast = read_forecast(where)
        self._given = None if context.intensity_g_per_kwh is None else context.intensity_g_per_kwh.value

    def now(self, moment: datetime | None = None) -> float | None:
        """Returns it for a moment or now; None where unknown."""
        moment = moment or datetime.now(UTC)
        forecast = None if self._forecast is None else self._forecast.mean(moment, moment + timedelta(seconds=1))
        return self._given if forecast is None else forecast


_STARVED = 0.3
"""Share of their time for which threads had no core, from which on it is told: a run is then half as slow again."""
_MUST_BE_FINITE = ("loss_", "grad_norm_")  # How the names of such figures begin


class Stalls(NamedTuple):
    """What steps have waited for since the session began, on one worker, seconds; fields are keys of a line."""

    loader_stall_sec: float  # for images
    checkpoint_stall_sec: float  # for a copy of the state, or for the save before
    telemetry_sec: float  # for statistics lines, sample grids and whoever follows the run
    metrics_sec: float = 0.0  # for quality metrics, which no step waits for: a line's rates leave them out
    allreduce_wait_sec: float | None = None  # for other workers' gradients; None where nobody measures that
    controller_sec: float | None = None  # for a controller, that it decided and that it was carried out


class _Own(NamedTuple):
    now: float
    sums: list[float]
    order: int
    energy: dict[str, EnergyReading]
    load: Load
    stalls: Stalls
    phase_sec: dict[str, float]
    looks: Looks
    g_per_kwh: float | None


class StatisticsLine:
    """The figures of one session, after `images`, whose clock starts now; `capacity` is each node's kind, or empty."""

    def __init__(
        self,
        config: TrainConfig,
        world: World,
        context: RunContext,
        images: int,
        flops: StepFlops,
        capacity: Sequence[str] = (),
    ) -> None:
        self._config, self._world, self.flops = config, world, flops
        self._readers = choose_readers(world.local_rank, find_gpu(world), context)
        if world.on_xla:
            self._readers.append(NoMeter(f"xla{world.local_rank}", "no energy counter of XLA's devices is read"))
        self._last_images, self._last_metrics_sec, self._looks_sec = images, 0.0, 0.0
        self._wanted, self._grid, self._noise = context.num_nodes, GridIntensity(context), NoiseScale()
        self._usd_per_hour = usd_per_hour(context, capacity or [""] * world.num_nodes)
        begun = world.gather((time.monotonic(), load(world)), tuple[float, Load])
        # The first worker's clock for all, so that all workers decide the same by a line.
        self._began = self._last_time = begun[0][0]
        self._resources = ResourceMeter([each for _, each in begun], self._began)
        self._waits = _Waits(len(begun))

    def line(self, state: TrainState, sums: Accumulator, stalls: Stalls, looks: Looks = NO_LOOKS) -> Any:
        """Returns a line of a step, equal on all workers; `sums` and `looks` are this worker's since the last one."""
        everyone = self._world.gather(self._measure_own(sums, stalls, looks), _Own)
        now, workers = everyone[0].now, len(everyone)
        waits = self._waits.after([own.stalls for own in everyone])
        energy = merge([own.energy for own in everyone])
        joules = [reading.joules for reading in energy.values() if reading.joules is not None]
        stepping_sec = now - self._last_time - (waits["metrics_sec"] - self._last_metrics_sec)
        images_per_sec = (state.images - self._last_images) / stepping_sec
        self._looks_sec += max(own.looks.sec for own in everyone)
        last, given = state.images - state.config.step_images, state.config.schedules.given  # of the last step
        line: dict[str, Any] = {
            "images": state.images,
            "step": state.step,
            "kimg": state.images / 1000,
            "wall_sec": now - self._began,
            "images_per_sec": images_per_sec,
            **sums.means([own.sums for own in everyone[self._world.last_stage]]),
            "order": f"{sum(own.order for own in everyone[self._world.last_stage]) & MASK:016x}",
            "augment_p": float(state.augment_p),
            "resolution": state.phase.resolution,
            **({"scheduled": {name: schedule.at(last) for name, schedule in given.items()}} if given else {}),
            **{
                f"grad_norm_{phase.key}": _grad_norm([state.roles[name] for name in phase.roles], self._world)
                for phase in sums.phases
            },
            "noise_scale": self._noise.after([own.looks for own in everyone]),
            "noise_scale_sec": self._looks_sec,
            "world_size": workers,
            "on_cpu": self._world.device.type == "cpu",
            "nodes": self._world.num_nodes,
            "nodes_wanted": self._wanted,
            "mfu": self.flops.utilisation(images_per_sec, workers),
            **self._resources.since([own.load for own in everyone], energy, now),
            **waits,
            "phase_sec": {key: max(own.phase_sec.get(key, 0.0) for own in everyone) for key in everyone[0].phase_sec},
            "usd_per_hour": self._usd_per_hour,
            "g_per_kwh": everyone[0].g_per_kwh,
            "energy_joules": sum(joules) if joules else None,
            "energy": {device: list(reading) for device, reading in energy.items()},
        }
        self._last_time, self._last_images, self._last_metrics_sec = now, state.images, waits["metrics_sec"]
        return line

    def _measure_own(self, sums: Accumulator, stalls: Stalls, looks: Looks) -> _Own:
        return _Own(
            time.monotonic(),
            sums.tolist(),
            sums.order,
            read_all(self._readers, self._world.node_rank),
            load(self._world),
            stalls,
            sums.clock.means(),
            looks,
            self._grid.now(),
        )


def is_finite(line: dict[str, Any]) -> bool:
    """Whether losses and gradients are finite."""
    return all(math.isfinite(line[key]) for key in line if key.startswith(_MUST_BE_FINITE))


def check_finite(line: dict[str, Any]) -> None:
    """Raises TrainerError where a loss or a gradient's norm is no longer finite."""
    for key in line:
        if key.startswith(_MUST_BE_FINITE) and not math.isfinite(line[key]):
            raise diverged(f"{key} at step {line['step']}, {line['images']} images", str(line[key]))


def starvation_note(line: Mapping[str, Any]) -> str:
    """Returns a sentence on threads that waited for a core; empty where they did not."""
    if (line["cpu_wait_share"] or 0.0) < _STARVED:
        return ""
    return (
        f"note: this run's threads waited {100 * line['cpu_wait_share']:.0f} % of their time for a core: other work "
        "is on this machine, or the workers' threads (OMP_NUM_THREADS each) are more than its cores, or than a "
        "container's share of them"
    )


class _Waits:
    """Sums per line the longest wait of any worker, since all wait for it; it need not be the same worker each time."""

    def __init__(self, workers: int) -> None:
        self._before = [Stalls(0.0, 0.0, 0.0)] * workers
        self._sums = dict.fromkeys(Stalls._fields, 0.0)

    def after(self, stalls: list[Stalls]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for place, key in enumerate(Stalls._fields):
            of_each = [(now[place], then[place]) for now, then in zip(stalls, self._before, strict=True)]
            grown = [now - (then or 0.0) for now, then in of_each if now is not None]
            self._sums[key] += max(grown, default=0.0)
            found[key] = self._sums[key] if grown else None
        self._before = stalls
        return found


def _grad_norm(roles: Sequence[Role], world: World) -> float:
    """Returns 0 for a step that fp16 skipped for too large gradients."""
    every = [gradient for role in roles for gradient in gradients(role.network)]
    norm = world.norm_over_stages(float(whole(torch.nn.utils.get_total_norm(every))))
    return norm if math.isfinite(norm) or not roles[0].scale.enabled else 0.0
