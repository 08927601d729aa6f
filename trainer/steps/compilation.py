"""torch.compile for a step's losses, tried before it is trusted: where it fails or computes otherwise, a run goes on
without it and says why. PyTorch/XLA compiles by itself.

The whole loss is one graph, its penalty included (`DLoss.functional`: torch.func differentiates inside the graph), then
wrapped for data parallelism. The trial is the passes that training makes (`Phase.run`), on the first step's own images,
micro-batch by micro-batch, both ways; it compares what they add up to, and nothing of it stays. Where a later shape
fails to compile, that pass and all that follow are uncompiled.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainer.config.train_config import TrainConfig
from trainer.core.errors import TrainerError
from trainer.core.torch_private import compile_gradients_inside, compiled_call, compiler_failures, set_compiled_call
from trainer.distributed.world import World
from trainer.networks.base import Network
from trainer.run.state import TrainState
from trainer.steps.batch import Batch
from trainer.steps.phase import Phase

_CLOSE = {"fp32": 1e-3}
_NEAR = 5e-2
"""Largest relative difference of a pass's gradients, compiled against not; the wider one with 16 bits and less."""
_VARIANTS = 64
"""Of one compiled loss: with and without penalties, and progressive networks' resolutions."""

_TIMES, _TIMES_WITH_GRAPHS = 1, 3
"""That a pass is tried: CUDA graphs warm up in the first of a shape, are recorded in the second, then replayed."""

Phases = Sequence[Phase[Any]]


class Pass(NamedTuple):
    """One way through one phase's loss: `name` is for sentences, `run` adds up its gradients over this worker's share,
    in networks that learn while others rest.
    """

    name: str
    run: Callable[[], None]
    learning: Sequence[Network]
    resting: Sequence[Network]


class Compilation:
    """All losses, compiled or not (`phases` empty). `choice` is what is done now, and why; the same on every worker."""

    def __init__(self, choice: str, phases: Phases = ()) -> None:
        self.choice, self._phases, self._failure = choice, phases, ""
        for phase in phases:
            self._guard(phase.loss, phase.label)

    @property
    def on(self) -> bool:
        """Whether the losses are compiled at present."""
        return bool(self._phases)

    def given_up(self, world: World, images: int) -> bool:
        """Whether a compilation has failed on any worker since the last call: then all, who call this together, go on
        without.
        """
        if not self._phases:
            return False
        failures = [text for text in world.gather(self._failure) if text]
        if failures:
            _uncompile(self._phases)
            self.choice, self._phases = f"off: given up before {images:,} images, since {failures[0]}", ()
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
                _uncompile(self._phases)
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


def compile_losses(phases: Phases, state: TrainState, batch: Batch, config: TrainConfig, world: World) -> Compilation:
    """Compiles a step's losses in place where configuration and device want it; all workers call it together. The
    losses come before `World.wrap`; `state` is what the first step begins with, `batch` is for the trial.
    """
    if why_not := _why_not(config, world):
        return Compilation(f"off: {why_not}")
    passes = list(_passes(phases, state, batch, config))
    expected = [_gradients(each) for each in passes]
    compile_gradients_inside(_VARIANTS)
    # Under data parallelism the graphs of a pass must not wait for its averages: those are outside of them.
    options: dict[str, Any] = {"mode": "reduce-overhead"} if config.cuda_graphs else {}
    for phase in phases:
        phase.differentiate_inside(on=True)
        phase.loss.compile(fullgraph=True, dynamic=False, **options)
    times = _TIMES_WITH_GRAPHS if config.cuda_graphs else _TIMES
    failure = _compare(passes, expected, _CLOSE.get(config.precision, _NEAR), times)
    failures = [text for text in world.gather(failure) if text]
    if failures:
        _uncompile(phases)
        return Compilation(f"off: tried, and {failures[0]}")
    graphs = " with CUDA graphs" if config.cuda_graphs else ""
    choice = f"on{graphs}: asked for ({config.compile}), and every pass's gradients agree with those without"
    return Compilation(choice, phases)


def _uncompile(phases: Phases) -> None:
    for phase in phases:
        set_compiled_call(phase.loss, None)
        phase.differentiate_inside(on=False)


def _why_not(config: TrainConfig, world: World) -> str:
    if config.compile == "off":
        return "not asked for"
    if world.on_xla:
        return "PyTorch/XLA compiles by itself"
    if config.activation_checkpointing:
        return "blocks that are recomputed run uncompiled"
    if config.shard != "ddp" and world.control is not None:
        return "sharded networks run uncompiled"
    if config.compile == "auto" and world.device.type == "cpu":
        return "on a CPU it was measured slower (DCGAN 32x32: 741 images/s instead of 859; --compile on tries it)"
    return ""


def _first_line(error: Exception) -> str:
    error = getattr(error, "inner_exception", error)  # that of the compiler's part which has failed
    return f"{type(error).__name__}: {(str(error).strip() or type(error).__name__).splitlines()[0]}"


def _passes(phases: Phases, state: TrainState, batch: Batch, config: TrainConfig) -> Iterator[Pass]:
    """Every kind of pass that a step makes."""
    for phase in phases:
        learning, resting = ([state.roles[name].network for name in names] for names in (phase.roles, phase.resting))

        for penalised, words in phase.variants.items():
            if penalised or len(phase.variants) == 1 or config.r1_interval > 1:
                run = partial(_run, phase, batch, state, penalised=penalised)
                yield Pass(f"{phase.label}{words}", run, learning, resting)


def _run(phase: Phase[Any], batch: Batch, state: TrainState, *, penalised: bool) -> None:
    """Losses are not scaled: a first scale of fp16 may be too large, which its steps bear and a comparison does not."""
    for micro in phase.inputs(batch, state, state.images):
        terms = phase.run(phase.loss, micro.inputs, penalised=penalised, settle=None)
        torch.autograd.backward(micro.weight * terms.total)


def _gradients(each: Pass) -> Tensor:
    """All gradients of one pass over the share in a row, float32 on the CPU; none is left behind."""
    for network in each.learning:
        network.zero_grad()
    for network in each.resting:  # as in the step
        network.learn(on=False)
    try:
        each.run()
    finally:
        for network in each.resting:
            network.learn(on=True)
    parameters = [parameter for network in each.learning for parameter in network.parameters()]
    row = torch.cat([p.grad.flatten().float().cpu() for p in parameters if p.grad is not None])
    for network in each.learning:
        network.zero_grad()
    return row


def _compare(passes: Sequence[Pass], expected: Sequence[Tensor], tolerance: float, times: int) -> str:
    """Why the compiled losses cannot be trusted; empty when they can. All passes go by `times` over, in a step's order:
    one may overwrite what another has left in the graphs' memory.
    """
    for each, wanted in [*zip(passes, expected, strict=True)] * times:
        try:
            found = _gradients(each)
        except Exception as error:  # the compiler has many, its own and its backends'
            return f"{each.name} does not compile: {_first_line(error)}"
        difference = float((found - wanted).norm() / wanted.norm().clamp(min=1e-12))
        if not difference <= tolerance:
            return f"{each.name} then has other gradients (relative difference {difference:.1e})"
    return ""
