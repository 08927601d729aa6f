"""The statistics line: progress, losses and use of the machine, over all workers.

Sums of seconds (`..._sec`) count from the session's start, so that a lost line loses nothing.
"""

import math
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import diverged
from gangway.trainer.data.loader import MASK
from gangway.trainer.distributed.sharded_modules import gradients, whole
from gangway.trainer.distributed.world import World
from gangway.trainer.phases.roles import Role
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.power.energy import EnergyReading, NoMeter, choose_readers, merge, read_all
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.steps.noise_scale import NO_LOOKS, Looks, NoiseScale
from gangway.trainer.steps.state import TrainState
from gangway.trainer.telemetry.devices import Load, find_gpu, load
from gangway.trainer.telemetry.flops import StepFlops
from gangway.trainer.telemetry.resources import ResourceMeter
from gangway.trainer.telemetry.running_costs import GridIntensity, usd_per_hour

_STARVED = 0.3
"""Share of their time for which threads had no core, from which on it is told: a run is then half as slow again."""
_MUST_BE_FINITE = ("loss_", "grad_norm_")
"""How the names of such figures begin."""
_WAITS: Mapping[str, str] = MappingProxyType(
    {
        "loader": "loader_stall_sec",
        "checkpoint": "checkpoint_stall_sec",
        "telemetry": "telemetry_sec",
        "metrics": "metrics_sec",
        "allreduce": "allreduce_wait_sec",
        "controller": "controller_sec",
    }
)
"""Fields of `Stalls`, and keys of a line."""


class Stalls(NamedTuple):
    """What steps have waited for since the session began, on one worker, seconds.

    Attributes:
        loader: for images.
        checkpoint: for a copy of the state, or for the save before.
        telemetry: for statistics lines, sample grids and whoever follows the run.
        metrics: for quality metrics, which no step waits for: a line's rates leave them out.
        allreduce: for other workers' gradients; None where nobody measures that.
        controller: for a controller, that it decided and that it was carried out; None without one.
    """

    loader: float
    checkpoint: float
    telemetry: float
    metrics: float = 0.0
    allreduce: float | None = None
    controller: float | None = None


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


class Meters:
    """The figures of one session, whose clock starts at construction.

    `images` were seen before; `capacity` is each node's kind, by rank, empty where unknown.
    """

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
        """Returns a line after a step, equal on every worker.

        `sums` and `looks` are this worker's since the last line; the networks have the last step's gradients.
        """
        everyone = self._world.gather(self._measure_own(sums, stalls, looks), _Own)
        now, workers = everyone[0].now, len(everyone)
        waits = self._waits.after([own.stalls for own in everyone])
        energy = merge([own.energy for own in everyone])
        stepping_sec = now - self._last_time - (waits["metrics_sec"] - self._last_metrics_sec)
        images_per_sec = (state.images - self._last_images) / stepping_sec
        self._looks_sec += max(own.looks.sec for own in everyone)
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
            **_scheduled(state),
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
            "phase_sec": _slowest([own.phase_sec for own in everyone]),
            "usd_per_hour": self._usd_per_hour,
            "g_per_kwh": everyone[0].g_per_kwh,
            **_joules(energy),
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
        self._sums = dict.fromkeys(_WAITS, 0.0)

    def after(self, stalls: list[Stalls]) -> dict[str, Any]:
        """Returns the sums by their names in a line, None where no worker measures them."""
        found: dict[str, Any] = {}
        for name, key in _WAITS.items():
            of_each = [
                (getattr(now, name), getattr(then, name)) for now, then in zip(stalls, self._before, strict=True)
            ]
            grown = [now - (then or 0.0) for now, then in of_each if now is not None]
            self._sums[name] += max(grown, default=0.0)
            found[key] = self._sums[name] if grown else None
        self._before = stalls
        return found


def _slowest(workers: list[dict[str, float]]) -> dict[str, float]:
    return {key: max(each.get(key, 0.0) for each in workers) for key in workers[0]}


def _joules(energy: dict[str, EnergyReading]) -> dict[str, Any]:
    known = [reading.joules for reading in energy.values() if reading.joules is not None]
    return {
        "energy_joules": sum(known) if known else None,
        "energy": {device: list(reading) for device, reading in energy.items()},
    }


def _scheduled(state: TrainState) -> dict[str, dict[str, float]]:
    """Returns scheduled values of the last step; empty without schedules."""
    last, given = state.images - state.config.step_images, state.config.schedules.given
    return {"scheduled": {name: schedule.at(last) for name, schedule in given.items()}} if given else {}


def _grad_norm(roles: Sequence[Role], world: World) -> float:
    """Returns 0 for a step that fp16 skipped for too large gradients."""
    every = [gradient for role in roles for gradient in gradients(role.network)]
    norm = world.norm_over_stages(float(whole(torch.nn.utils.get_total_norm(every))))
    return norm if math.isfinite(norm) or not roles[0].scale.enabled else 0.0
