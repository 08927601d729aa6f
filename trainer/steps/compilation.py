"""torch.compile for a step's losses, tried before it is trusted: where it fails or computes otherwise, a run goes on
without it and says why. PyTorch/XLA compiles by itself.

The whole loss is one graph: the fakes that it judges, its penalties (`DLoss.functional`: torch.func differentiates
inside the graph) and, of several workers, the averages of its gradients, which travel while the backward computes
(trainer.distributed.in_graph_average). The trial is the passes that training makes (`Phase.run`), on the first step's
own images, micro-batch by micro-batch, both ways; it compares what they add up to, and nothing of it stays. Where a
later shape fails to compile, that pass and all that follow are uncompiled.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainer.config.train_config import TrainConfig
from trainer.core.errors import TrainerError
from trainer.core.torch_private import (
    compile_gradients_inside,
    compiled_call,
    compiler_failures,
    order_graphs,
    set_compiled_call,
)
from trainer.distributed.in_graph_average import InGraphAverage, averages_first
from trainer.distributed.world import World
from trainer.networks.base import Network
from trainer.phases.batch import Batch
from trainer.phases.phase import Phase
from trainer.steps.state import TrainState
from trainer.steps.step import is_penalised

_CLOSE = {"fp32": 1e-3}
_NEAR = 5e-2
"""Largest relative difference of a pass's gradients, compiled against not; the wider one with 16 bits and less."""
_VARIANTS = 64
"""Of one compiled loss: with and without penalties, and progressive networks' resolutions."""

_TIMES, _TIMES_WITH_GRAPHS = 1, 3
"""That a pass is tried: CUDA graphs warm up in the first of a shape, are recorded in the second, then replayed."""

Phases = Sequence[Phase[Any]]
Losses = Mapping[str, nn.Module]


class Pass(NamedTuple):
    """One way through one phase's loss: `name` is for sentences; `totals` gives its losses over this worker's share,
    with their weights, in networks that learn while others rest.
    """

    name: str
    totals: Callable[[], Iterator[Tensor]]
    learning: Sequence[Network]
    resting: Sequence[Network]


class Compilation:
    """All losses, compiled or not (`phases` empty). `choice` is what is done now, and why; the same on every worker.
    `losses`, by their phases' keys, are what a step calls: gradients are averaged over workers. `fixed`: graphs of the
    device, or averages, depend on them, so that they stay as they are.
    """

    def __init__(self, choice: str, losses: Losses, phases: Phases = (), *, fixed: bool = False) -> None:
        self.choice, self.losses, self._phases, self._failure = choice, losses, phases, ""
        for phase in phases:
            self._guard(_compiled_part(phase, losses), phase.label)
        self._able = () if fixed else tuple(phases)
        self._calls = {phase.key: compiled_call(_compiled_part(phase, losses)) for phase in phases}
        self._first_choice = choice
        self._known = set[Hashable]()

    @property
    def on(self) -> bool:
        """Whether the losses are compiled at present."""
        return bool(self._phases)

    @property
    def can_switch(self) -> bool:
        """Whether `switch` is possible: only what was tried at the beginning can be on."""
        return bool(self._able)

    def compiles(self, state: TrainState) -> bool:
        """Whether the step that comes from this state is the first compiled one of its shape, and so may take minutes;
        asked once before each step, and answered alike on every worker.
        """
        if not self._phases:
            return False
        config, phase = state.config, state.phase
        sizes = config.batch_size, config.batch_gpu, config.precision
        shape = *sizes, phase.resolution, phase.fade is None, is_penalised(state)
        is_new = shape not in self._known
        self._known.add(shape)
        return is_new

    def switch(self, *, on: bool) -> None:
        """Computes without what is compiled, or with it again; all workers call it together."""
        assert self._able, "`can_switch` was asked"
        if on:
            for phase in self._able:
                set_compiled_call(_compiled_part(phase, self.losses), self._calls[phase.key])
                phase.differentiate_inside(on=True)
            self._phases, self.choice = self._able, self._first_choice
        else:
            _uncompile(self._able, self.losses)
            self._phases, self.choice = (), "off: switched off by the run's controller, which may switch it on again"

    def given_up(self, world: World, images: int) -> bool:
        """Whether a compilation has failed on any worker since the last call: then all, who call this together, go on
        without.
        """
        if not self._phases:
            return False
        failures = [text for text in world.gather(self._failure) if text]
        if failures:
            _uncompile(self._phases, self.losses)
            self.choice, self._phases = f"off: given up before {images:,} images, since {failures[0]}", ()
            self._able = ()
        return bool(failures)

    def _guard(self, loss: nn.Module, name: str) -> None:
        """Has a failing compilation answered by the same pass without it. Data parallelism looks at gradients alone,
        so a worker may do that while the others need not.
        """
        compiled, failures = compiled_call(loss), compiler_failures()
        assert compiled is not None, "compiled before it is guarded"

        def guarded(*inputs: Any) -> Any:
            try:
                return compiled(*inputs)
            except failures as error:
                assert self._phases, "it is uncompiled as soon as there are none"
                self._failure = f"{name} does not compile at a later shape: {_first_line(error)}"
                _uncompile(self._phases, self.losses)
                return loss(*inputs)

        set_compiled_call(loss, guarded)


def check_graphs(config: TrainConfig, device: torch.device) -> None:
    """TrainerError, naming the device, for CUDA graphs elsewhere."""
    if config.cuda_graphs and device.type != "cuda":
        raise TrainerError(
            place="TrainConfig.cuda_graphs",
            problem=f"this worker computes on {device.type}, which has no CUDA graphs",
            value=True,
            allowed="false on this device",
            fix="--cuda-graphs false, or start on a GPU machine",
        )


def compile_losses(
    phases: Phases,
    state: TrainState,
    batch: Batch,
    config: TrainConfig,
    world: World,
    later: Sequence[TrainConfig] = (),
) -> Compilation:
    """Compiles a step's losses where configuration and device want it; all workers call it together. `state` is what
    the first step begins with, `batch` is for the trial; `later` are the configurations of segments that follow.
    """
    if why_not := _why_not(config, world):
        return Compilation(f"off: {why_not}", _wrapped(phases, world))
    inside = _averages_inside((config, *later), world)
    losses: Losses = {phase.key: InGraphAverage(phase.loss) if inside else phase.loss for phase in phases}
    passes = list(_passes(phases, losses, state, batch, config))
    expected = [_gradients(each) for each in passes]
    compile_gradients_inside(_VARIANTS)
    if inside:
        order_graphs(averages_first, b"averages first, 1")
    # The graphs of a pass must not wait for its averages: those are outside of them.
    options: dict[str, Any] = {"mode": "reduce-overhead"} if config.cuda_graphs else {}
    for phase in phases:
        phase.differentiate_inside(on=True)
        losses[phase.key].compile(fullgraph=True, dynamic=False, **options)
    failures = _told(_first_failure(passes), world) if inside else []
    if not failures:
        times = _TIMES_WITH_GRAPHS if config.cuda_graphs else _TIMES
        failures = _told(_compare(passes, expected, _CLOSE.get(config.precision, _NEAR), times), world)
    if failures:
        _uncompile(phases, losses)
        return Compilation(f"off: tried, and {failures[0]}", _wrapped(phases, world))
    graphs = " with CUDA graphs" if config.cuda_graphs else ""
    averages = ", averages between workers included" if inside else ""
    choice = f"on{graphs}: asked for ({config.compile}), and every pass's gradients agree with those without{averages}"
    fixed = inside or config.cuda_graphs
    return Compilation(choice, losses if inside else _wrapped(phases, world), phases, fixed=fixed)


def _averages_inside(configs: Sequence[TrainConfig], world: World) -> bool:
    """Whether the graphs average gradients. In a step of several micro-batches that would be once for each of them, and
    workers whose shares differ may have more of them than others: they would wait for ever.
    """
    return world.control is not None and not any(each.cuda_graphs or each.batch_gpu for each in configs)


def _wrapped(phases: Phases, world: World) -> Losses:
    return {phase.key: world.wrap(phase.loss) for phase in phases}


def _compiled_part(phase: Phase[Any], losses: Losses) -> nn.Module:
    """What is compiled of a phase's loss: all of it, with averages inside."""
    loss = losses[phase.key]
    return loss if isinstance(loss, InGraphAverage) else phase.loss


def _uncompile(phases: Phases, losses: Losses) -> None:
    for phase in phases:
        set_compiled_call(_compiled_part(phase, losses), None)
        phase.differentiate_inside(on=False)


def _told(failure: str, world: World) -> list[str]:
    """What has failed on any worker, on all."""
    return [text for text in world.gather(failure) if text]


def _why_not(config: TrainConfig, world: World) -> str:
    if config.compile == "off":
        return "not asked for"
    if world.on_xla:
        return "PyTorch/XLA compiles by itself"
    if config.activation_checkpointing:
        return "blocks that are recomputed run uncompiled"
    if config.shard != "ddp" and world.control is not None:
        return "sharded networks run uncompiled"
    if world.is_pipelined:
        return "the stages of a pipeline run uncompiled"
    if config.compile == "auto" and world.device.type == "cpu":
        return "on a CPU it was measured slower (DCGAN 32x32: 741 images/s instead of 859; --compile on tries it)"
    return ""


def _first_line(error: Exception) -> str:
    error = getattr(error, "inner_exception", error)  # that of the compiler's part which has failed
    return f"{type(error).__name__}: {(str(error).strip() or type(error).__name__).splitlines()[0]}"


def _passes(phases: Phases, losses: Losses, state: TrainState, batch: Batch, config: TrainConfig) -> Iterator[Pass]:
    """Every kind of pass that a step makes."""
    for phase in phases:
        learning, resting = ([state.roles[name].network for name in names] for names in (phase.roles, phase.resting))

        for penalised, words in phase.variants.items():
            if penalised or len(phase.variants) == 1 or config.r1_interval > 1:
                totals = partial(_totals, phase, losses[phase.key], batch, state, penalised=penalised)
                yield Pass(f"{phase.label}{words}", totals, learning, resting)


def _totals(
    phase: Phase[Any], loss: nn.Module, batch: Batch, state: TrainState, *, penalised: bool
) -> Iterator[Tensor]:
    """Losses are not scaled: a first scale of fp16 may be too large, which its steps bear and a comparison does not."""
    for micro in phase.inputs(batch, state, state.images):
        yield micro.weight * phase.run(loss, micro.inputs, penalised=penalised, settle=None).total


def _first_failure(passes: Sequence[Pass]) -> str:
    """Why a pass does not compile, which shows in its forward; empty where each does. Before backwards exchange
    averages: a worker that could not make one would leave the others waiting.
    """
    for each in passes:
        try:
            with _resting(each):
                next(each.totals())
        except Exception as error:  # the compiler has many, its own and its backends'
            return f"{each.name} does not compile: {_first_line(error)}"
    return ""


@contextmanager
def _resting(each: Pass) -> Iterator[None]:
    """A block in which only what learns in a pass does, as in the step."""
    for network in each.resting:
        network.learn(on=False)
    try:
        yield
    finally:
        for network in each.resting:
            network.learn(on=True)


def _gradients(each: Pass) -> Tensor:
    """All gradients of one pass over the share in a row, float32 on the CPU; none is left behind."""
    for network in each.learning:
        network.zero_grad()
    with _resting(each):
        for total in each.totals():
            torch.autograd.backward(total)
    parameters = [parameter for network in each.learning for parameter in network.parameters()]
    row = torch.cat([p.grad.flatten().float().cpu() for p in parameters if p.grad is not None])
    for network in each.learning:
        network.zero_grad()
    return row


def _compare(passes: Sequence[Pass], expected: Sequence[Tensor], tolerance: float, times: int) -> str:
    """Why the compiled losses cannot be trusted; empty when they can. All passes go by `times` over, in a step's order:
    one may overwrite what another has left in the graphs' memory.
    """
    failure = ""
    for each, wanted in [*zip(passes, expected, strict=True)] * times:
        try:
            found = _gradients(each)
        except Exception as error:  # the compiler has many, its own and its backends'
            return f"{each.name} does not compile: {_first_line(error)}"
        difference = float((found - wanted).norm() / wanted.norm().clamp(min=1e-12))
        if not difference <= tolerance:  # the other workers go on, and wait for this one's part of averages
            failure = failure or f"{each.name} then has other gradients (relative difference {difference:.1e})"
    return failure
