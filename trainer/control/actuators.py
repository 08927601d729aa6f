"""What carries decisions out in the process: threads, batches read ahead and compiled losses at once, power by its
limiter; batch, precision and micro-batches as a segment that begins with the next step.
"""

import math
from collections.abc import Mapping

import torch

from trainer.config.train_config import TrainConfig
from trainer.control.interval import Decision, Knobs, Value
from trainer.core.errors import TrainerError
from trainer.data.loader import Reading
from trainer.distributed.world import World
from trainer.phases.batch import Batch
from trainer.power.limits import Limiter
from trainer.steps.compilation import Compilation

OF_SEGMENTS = ("batch_size", "batch_gpu", "precision")
"""Knobs that what a step computes depends on: another value is another segment, recorded, and exact when resumed."""
OF_THE_CLUSTER = ("nodes",)
"""Knobs that no process of the run can turn: what is wanted is told, see docs/controller.md."""


class Actuators:
    """The knobs of one session. `limiter` is None where power is nobody's to limit."""

    def __init__(self, config: TrainConfig, reading: Reading, world: World, limiter: Limiter | None) -> None:
        self._world, self._limiter, self._power_share = world, limiter, 1.0
        self._compiled: Compilation | None = None
        self.reading = reading
        self.start = self.knobs(config)

    def compiles_with(self, compiled: Compilation) -> None:
        """Switches the session's losses from now on."""
        self._compiled = compiled
        self.start = self.start._replace(compile=self._is_compiled)

    @property
    def _is_compiled(self) -> str:
        return "on" if self._compiled is not None and self._compiled.on else "off"

    def knobs(self, config: TrainConfig) -> Knobs:
        """As they are, of a segment of this configuration."""
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

    @property
    def power_limits(self) -> tuple[float | None, float]:
        """The least limit of the run's GPUs, W, None where nobody sets it; the least share that all can have."""
        return (None, 1.0) if self._limiter is None else (self._limiter.limit_watts, self._limiter.floor)

    def restore(self, decided: Mapping[str, Value], batch: Batch) -> dict[str, str]:
        """What earlier sessions have decided for the process, by knob; all workers call it together. By knob, why one
        cannot be set: power that somebody else limits by now, say. It stays as the session begins with it.
        """
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
        """Sets one that is the process's own; all workers call it together. TrainerError on every rank: it cannot be
        set.
        """
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
                self._limit(float(value))
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

    def _limit(self, share: float) -> None:
        trouble = "power is nobody's to limit here" if self._limiter is None else self._limiter.set_share(share)
        if trouble:
            self._power_share = 1.0  # The limiter has put all back, or tries so again at the end.
            raise TrainerError(
                place="power_share", problem=trouble, value=f"{share:g}", fix="leave watts out of bounds"
            )
        self._power_share = share


def get_changes(decision: Decision, lr_factor: float) -> Mapping[str, Value]:
    """A segment's fields that a decision about `OF_SEGMENTS` sets, in a segment whose step sizes have that factor. Step
    sizes follow the batch with its square root, which keeps Adam's noise as it was (Malladi et al. 2022).
    """
    if decision.knob != "batch_size":
        return {decision.knob: decision.value}
    factor = math.sqrt(float(decision.value) / float(decision.was))
    return {"batch_size": decision.value, "lr_factor": lr_factor * factor}
