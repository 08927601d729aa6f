"""Applies decisions, to the process at once or as a segment from the next step; knows the machines' limits."""

import math
from collections.abc import Mapping

import torch

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import Bounds
from gangway.trainer.control.guardrails import Machine
from gangway.trainer.control.interval import Decision, Knobs, Value
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.host import usable_cores
from gangway.trainer.data.loader import Reading
from gangway.trainer.distributed.world import World
from gangway.trainer.networks.precision import choose, slower_here
from gangway.trainer.phases.batch import Batch
from gangway.trainer.power.limits import Limiter
from gangway.trainer.steps.compilation import Compilation

SEGMENT_KNOBS = ("batch_size", "batch_gpu", "precision")
"""Knobs that change what a step computes: a new value is a new segment, recorded, and exact when resumed."""
CLUSTER_KNOBS = ("nodes",)
"""Knobs that no process of the run can turn: the wish is only reported, see docs/controller.md."""


class Actuators:
    """The knobs of one session. Without `limiter` power is fixed."""

    def __init__(self, config: TrainConfig, reading: Reading, world: World, limiter: Limiter | None) -> None:
        self._world, self.limiter, self._power_share = world, limiter, 1.0
        self._compiled: Compilation | None = None
        self.reading = reading
        self.start = self.knobs(config)

    def compiles_with(self, compiled: Compilation) -> None:
        """Sets the losses that `compile` switches."""
        self._compiled = compiled
        self.start = self.start._replace(compile=self._is_compiled)

    @property
    def _is_compiled(self) -> str:
        return "on" if self._compiled is not None and self._compiled.on else "off"

    def knobs(self, config: TrainConfig) -> Knobs:
        """Returns the current knobs, in a segment with this configuration."""
        return Knobs(
            batch_size=config.batch_size,
            batch_gpu=config.batch_gpu,
            precision=config.precision,
            loader_threads=self.reading.threads_for(gpu=self._world.device.type == "cuda"),
            prefetch=self.reading.prefetch,
            threads=torch.get_num_threads(),
            power_share=self._power_share,
            nodes=self._world.num_nodes,
            compile=self._is_compiled,
        )

    def restore(self, decided: Mapping[str, Value], batch: Batch) -> dict[str, str]:
        """Sets what earlier sessions decided; returns, by knob, why one cannot be set. All workers call it together."""
        now, troubles = self.start, dict[str, str]()
        for name in ("loader_threads", "prefetch", "threads", "power_share"):
            if decided.get(name, getattr(now, name)) != getattr(now, name):
                try:
                    self.turn(name, decided[name], batch)
                except TrainerError as error:
                    troubles[name] = error.problem
        can_switch = self._compiled is not None and self._compiled.can_switch
        if can_switch and decided.get("compile") == "off" and now.compile == "on":
            self._switch("off")
        return troubles

    def turn(self, knob: str, value: Value, batch: Batch) -> None:
        """Sets a knob of the process; all workers call it together. Raises TrainerError on every rank."""
        match knob:
            case "loader_threads":
                self.reading = self.reading._replace(threads=int(value))
                batch.read_with(self.reading)
            case "prefetch":
                self.reading = self.reading._replace(prefetch=int(value))
                batch.read_with(self.reading)
            case "threads":
                torch.set_num_threads(int(value))
            case "power_share":
                share = float(value)
                trouble = "power is nobody's to limit here" if self.limiter is None else self.limiter.set_share(share)
                self._power_share = 1.0 if trouble else share  # after one the limiter puts all back, now or at the end
                if trouble:
                    fix = "leave watts out of bounds"
                    raise TrainerError(place="power_share", problem=trouble, value=f"{share:g}", fix=fix)
            case "compile":
                self._switch(str(value))
            case _:
                raise AssertionError(f"{knob} is no knob of the process")

    def _switch(self, value: str) -> None:
        if self._compiled is None or not self._compiled.can_switch:  # a later shape has failed to compile
            raise TrainerError(
                place="compile", problem="the losses are not compiled", value=value, fix="leave compile out of bounds"
            )
        self._compiled.switch(on=value == "on")


def get_changes(decision: Decision, lr_factor: float) -> Mapping[str, Value]:
    """Returns the segment fields of a decision; step sizes scale with the root of the batch (Malladi et al. 2022)."""
    if decision.knob != "batch_size":
        return {decision.knob: decision.value}
    factor = math.sqrt(float(decision.value) / float(decision.was))
    return {"batch_size": decision.value, "lr_factor": lr_factor * factor}


def get_machine(
    world: World,
    config: TrainConfig,
    actuators: Actuators,
    bounds: Bounds,
    fixed: tuple[str, ...],
    fatal: tuple[tuple[str, Value, Value], ...] = (),
) -> Machine:
    """Returns this session's limits; all workers call it together. `fixed` knobs cannot be turned now."""

    def trouble(precision: str) -> str:
        try:
            choose(precision, world.device)
            config.replace({"precision": precision})
        except TrainerError as error:
            return error.problem or str(error).split("\n", maxsplit=1)[0]
        return slower_here(precision, world.device)

    cores = min(world.gather(usable_cores()))
    troubles = {each: trouble(each) for each in bounds.precision if each != config.precision}
    refused = {name: why for each in world.gather(troubles) for name, why in each.items() if why}  # on any worker
    return Machine(
        cores=cores,
        local_workers=world.world_size // world.num_nodes,
        workers=world.world_size,
        group=config.group,
        on_cpu=world.device.type == "cpu",
        limit_watts=None if (limiter := actuators.limiter) is None else limiter.limit_watts,
        power_floor=1.0 if limiter is None else limiter.floor,
        fixed=fixed,
        refused=tuple(refused.items()),
        fatal=fatal,
    )
