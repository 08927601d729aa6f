"""torch.compile for a step's losses, with a trial: where it fails or computes something else, the run stays eager.

A whole loss is one graph, with the penalties and, with several workers, the averages of its gradients. The trial makes
training's own passes on the first step's images, compiled and eager, and compares the gradients. Where a later shape
fails to compile, that pass and all later ones are eager.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core import torch_private
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.averages import InGraphAverage, averages_first
from gangway.trainer.distributed.world import World
from gangway.trainer.networks.base import Network
from gangway.trainer.phases.batch import Batch
from gangway.trainer.phases.phase import Phase
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import first_failure, is_penalised, resting

# Largest relative difference between compiled and eager gradients of a pass; the larger one with 16 bits and less.
_CLOSE, _NEAR = {"fp32": 1e-3}, 5e-2
_VARIANTS = 64  # Of one compiled loss: with and without penalties, and progressive networks' resolutions

_TIMES, _TIMES_WITH_GRAPHS = 1, 3
"""Trials of a pass: with a new shape, CUDA graphs warm up in the first, are recorded in the second, then replayed."""

Phases = Sequence[Phase[Any]]
Losses = Mapping[str, nn.Module]


class Pass(NamedTuple):
    """One variant of a phase's loss: `totals` yields its weighted losses over this worker's share."""

    name: str
    totals: Callable[[], Iterator[Tensor]]
    learning: Sequence[Network]
    resting: Sequence[Network]


class Compilation:
    """All losses, compiled or not (`phases` empty); `choice` has the reason. `fixed`: others depend on it."""

    def __init__(self, choice: str, losses: Losses, phases: Phases = (), *, fixed: bool = False) -> None:
        self.choice, self.losses, self._phases, self._failure = choice, losses, phases, ""
        for phase in phases:
            self._guard(_compiled_part(phase, losses), phase.label)
        self._able = () if fixed else tuple(phases)
        self._calls = {phase.key: torch_private.compiled_call(_compiled_part(phase, losses)) for phase in phases}
        self._first_choice = choice
        self._known = set[Hashable]()

    @property
    def on(self) -> bool:
        """Whether the losses are compiled now."""
        return bool(self._phases)

    @property
    def can_switch(self) -> bool:
        """Whether `switch` is possible: only losses that were tried at the start can be compiled."""
        return bool(self._able)

    def compiles(self, state: TrainState) -> bool:
        """Whether the next step is the first compiled one of its shape, and may take minutes; called once per step."""
        if not self._phases:
            return False
        config, phase = state.config, state.phase
        sizes = config.batch_size, config.batch_gpu, config.precision
        shape = *sizes, phase.resolution, phase.fade is None, is_penalised(state)
        is_new = shape not in self._known
        self._known.add(shape)
        return is_new

    def switch(self, *, on: bool) -> None:
        """Turns compilation off or on again; all workers call it together."""
        assert self._able, "`can_switch` was asked"
        if on:
            for phase in self._able:
                torch_private.set_compiled_call(_compiled_part(phase, self.losses), self._calls[phase.key])
                phase.differentiate_inside(on=True)
            self._phases, self.choice = self._able, self._first_choice
        else:
            _uncompile(self._able, self.losses)
            self._phases, self.choice = (), "off: switched off by the run's controller, which may switch it on again"

    def given_up(self, world: World, images: int) -> bool:
        """Whether a compilation failed on any worker since the last call; all then continue eagerly. Collective."""
        if not self._phases:
            return False
        if failure := first_failure(self._failure, world):
            _uncompile(self._phases, self.losses)
            self.choice, self._phases = f"off: given up before {images:,} images, since {failure}", ()
            self._able = ()
        return bool(failure)

    def _guard(self, loss: nn.Module, name: str) -> None:
        compiled, failures = torch_private.compiled_call(loss), torch_private.compiler_failures()
        assert compiled is not None, "compiled before it is guarded"

        def guarded(*inputs: Any) -> Any:
            try:
                return compiled(*inputs)
            except failures as error:
                assert self._phases, "it is uncompiled as soon as there are none"
                self._failure = f"{name} does not compile at a later shape: {_first_line(error)}"
                _uncompile(self._phases, self.losses)
                return loss(*inputs)

        torch_private.set_compiled_call(loss, guarded)


def check_graphs(config: TrainConfig, device: torch.device) -> None:
    """Raises TrainerError for CUDA graphs on another device."""
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
    """Compiles losses where configuration and device allow; collective. `later` are the following segments'."""
    if why_not := _why_not(config, world):
        return Compilation(f"off: {why_not}", _wrapped(phases, world))
    inside = _averages_inside((config, *later), world)
    losses: Losses = {phase.key: InGraphAverage(phase.loss) if inside else phase.loss for phase in phases}
    passes = list(_passes(phases, losses, state, batch, config))
    expected = [_gradients(each) for each in passes]
    torch_private.compile_gradients_inside(_VARIANTS)
    if inside:
        torch_private.order_graphs(averages_first, b"averages first, 1")
    # A pass's CUDA graphs must not wait for its averages, which stay outside of them.
    options: dict[str, Any] = {"mode": "reduce-overhead"} if config.cuda_graphs else {}
    for phase in phases:
        phase.differentiate_inside(on=True)
        losses[phase.key].compile(fullgraph=True, dynamic=False, **options)
    failure = first_failure(_try_forward(passes), world) if inside else ""
    if not failure:
        times = _TIMES_WITH_GRAPHS if config.cuda_graphs else _TIMES
        failure = first_failure(_compare(passes, expected, _CLOSE.get(config.precision, _NEAR), times), world)
    if failure:
        _uncompile(phases, losses)
        return Compilation(f"off: tried, and {failure}", _wrapped(phases, world))
    graphs = " with CUDA graphs" if config.cuda_graphs else ""
    averages = ", averages between workers included" if inside else ""
    choice = f"on{graphs}: asked for ({config.compile}), and every pass's gradients agree with those without{averages}"
    fixed = inside or config.cuda_graphs
    return Compilation(choice, losses if inside else _wrapped(phases, world), phases, fixed=fixed)


def _averages_inside(configs: Sequence[TrainConfig], world: World) -> bool:
    """Whether graphs average gradients: not with micro-batches, as workers with more would wait for ever."""
    return world.control is not None and not any(each.cuda_graphs or each.batch_gpu for each in configs)


def _wrapped(phases: Phases, world: World) -> Losses:
    return {phase.key: world.wrap(phase.loss) for phase in phases}


def _compiled_part(phase: Phase[Any], losses: Losses) -> nn.Module:
    loss = losses[phase.key]
    return loss if isinstance(loss, InGraphAverage) else phase.loss


def _uncompile(phases: Phases, losses: Losses) -> None:
    for phase in phases:
        torch_private.set_compiled_call(_compiled_part(phase, losses), None)
        phase.differentiate_inside(on=False)


def _why_not(config: TrainConfig, world: World) -> str:
    slower = "on a CPU it was measured slower (DCGAN 32x32: 741 images/s instead of 859; --compile on tries it)"
    reasons = {
        "not asked for": config.compile == "off",
        "PyTorch/XLA compiles by itself": world.on_xla,
        "blocks that are recomputed run uncompiled": config.activation_checkpointing,
        "sharded networks run uncompiled": config.shard != "ddp" and world.control is not None,
        "the stages of a pipeline run uncompiled": world.is_pipelined,
        slower: config.compile == "auto" and world.device.type == "cpu",
    }
    return next((why for why, applies in reasons.items() if applies), "")


def _first_line(error: Exception) -> str:
    error = getattr(error, "inner_exception", error)  # the error of the compiler's failed stage
    return f"{type(error).__name__}: {(str(error).strip() or type(error).__name__).splitlines()[0]}"


def _passes(phases: Phases, losses: Losses, state: TrainState, batch: Batch, config: TrainConfig) -> Iterator[Pass]:
    for phase in phases:
        networks = [[state.roles[name].network for name in names] for names in (phase.roles, phase.resting)]
        for penalised, words in phase.variants.items():
            if penalised or len(phase.variants) == 1 or config.r1_interval > 1:
                totals = partial(_totals, phase, losses[phase.key], batch, state, penalised=penalised)
                yield Pass(f"{phase.label}{words}", totals, *networks)


def _totals(
    phase: Phase[Any], loss: nn.Module, batch: Batch, state: TrainState, *, penalised: bool
) -> Iterator[Tensor]:
    """Yields unscaled losses: steps tolerate an initial fp16 scale that is too large, a comparison does not."""
    for micro in phase.inputs(batch, state, state.images):
        yield micro.weight * phase.run(loss, micro.inputs, penalised=penalised, settle=None).total


def _try_forward(passes: Sequence[Pass]) -> str:
    for each in passes:
        try:
            with resting(each.resting):
                next(each.totals())
        except Exception as error:  # the compiler has many, its own and its backends'
            return f"{each.name} does not compile: {_first_line(error)}"
    return ""


def _gradients(each: Pass) -> Tensor:
    for network in each.learning:
        network.zero_grad()
    with resting(each.resting):
        for total in each.totals():
            torch.autograd.backward(total)
    parameters = [parameter for network in each.learning for parameter in network.parameters()]
    row = torch.cat([p.grad.flatten().float().cpu() for p in parameters if p.grad is not None])
    for network in each.learning:
        network.zero_grad()
    return row


def _compare(passes: Sequence[Pass], expected: Sequence[Tensor], tolerance: float, times: int) -> str:
    """Returns why compiled losses are wrong, or empty; `times`, as CUDA graphs may overwrite each other."""
    failure = ""
    for each, wanted in [*zip(passes, expected, strict=True)] * times:
        try:
            found = _gradients(each)
        except Exception as error:  # the compiler has many, its own and its backends'
            return f"{each.name} does not compile: {_first_line(error)}"
        difference = float((found - wanted).norm() / wanted.norm().clamp(min=1e-12))
        if not difference <= tolerance:  # no early return: other workers wait for this one's averages
            failure = failure or f"{each.name} then has other gradients (relative difference {difference:.1e})"
    return failure
