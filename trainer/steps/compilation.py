"""torch.compile for the two losses, tried before it is trusted: where it fails or computes otherwise, a run goes on
without it and says why. PyTorch/XLA compiles by itself.

The whole loss is one graph, its penalty included (`DLoss.functional`: torch.func differentiates inside the graph), then
wrapped for data parallelism. The trial is the passes that training makes (trainer.steps.passes), on the first step's
own images, micro-batch by micro-batch, both ways; it compares what they add up to, and nothing of it stays. Where a
later shape fails to compile, that pass and all that follow are uncompiled.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainer.config.train_config import TrainConfig
from trainer.core.errors import TrainerError
from trainer.core.torch_private import compile_gradients_inside, compiled_call, compiler_failures, set_compiled_call
from trainer.steps.passes import discriminator_pass, generator_pass

if TYPE_CHECKING:
    from trainer.distributed.world import World
    from trainer.run.state import TrainState
    from trainer.steps.batch import Batch
    from trainer.steps.losses import DLoss, GLoss

_CLOSE = {"fp32": 1e-3}
_NEAR = 5e-2
"""Largest relative difference of a pass's gradients, compiled against not; the wider one with 16 bits and less."""
_VARIANTS = 64
"""Of one compiled loss: with and without penalties, and progressive networks' resolutions."""

_TIMES, _TIMES_WITH_GRAPHS = 1, 3
"""That a pass is tried: CUDA graphs warm up in the first of a shape, are recorded in the second, then replayed."""

Pass = Callable[[], None]


class Compilation:
    """Both losses, compiled or not (`losses` None). `choice` is what is done now, and why; the same on every worker."""

    def __init__(self, choice: str, losses: "tuple[DLoss, GLoss] | None" = None) -> None:
        self.choice, self._losses, self._failure = choice, losses, ""
        if losses is not None:
            self._guard(losses[0], "the discriminator's loss")
            self._guard(losses[1], "the generator's loss")

    @property
    def on(self) -> bool:
        """Whether the losses are compiled at present."""
        return self._losses is not None

    def given_up(self, world: "World", images: int) -> bool:
        """Whether a compilation has failed on any worker since the last call: then all, who call this together, go on
        without.
        """
        if self._losses is None:
            return False
        failures = [text for text in world.gather(self._failure) if text]
        if failures:
            _uncompile(*self._losses)
            self.choice, self._losses = f"off: given up before {images:,} images, since {failures[0]}", None
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
                assert self._losses is not None, "it is uncompiled as soon as that is None"
                self._failure = f"{name} does not compile at a later shape: {_first_line(error)}"
                _uncompile(*self._losses)
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
    d_loss: "DLoss", g_loss: "GLoss", state: "TrainState", batch: "Batch", config: TrainConfig, world: "World"
) -> Compilation:
    """Compiles both losses in place where configuration and device want it; all workers call it together. The losses
    come before `World.wrap`; `state` is what the first step begins with, `batch` is for the trial.
    """
    if why_not := _why_not(config, world):
        return Compilation(f"off: {why_not}")
    passes = _passes(d_loss, g_loss, state, batch, config)
    expected = {name: _gradients(name, run, d_loss, g_loss) for name, run in passes.items()}
    compile_gradients_inside(_VARIANTS)
    d_loss.functional = True
    # Under data parallelism the graphs of a pass must not wait for its averages: those are outside of them.
    options: dict[str, Any] = {"mode": "reduce-overhead"} if config.cuda_graphs else {}
    for loss in (d_loss, g_loss):
        loss.compile(fullgraph=True, dynamic=False, **options)
    times = _TIMES_WITH_GRAPHS if config.cuda_graphs else _TIMES
    failure = _compare(passes, expected, d_loss, g_loss, _CLOSE.get(config.precision, _NEAR), times)
    failures = [text for text in world.gather(failure) if text]
    if failures:
        _uncompile(d_loss, g_loss)
        return Compilation(f"off: tried, and {failures[0]}")
    graphs = " with CUDA graphs" if config.cuda_graphs else ""
    choice = f"on{graphs}: asked for ({config.compile}), and every pass's gradients agree with those without"
    return Compilation(choice, (d_loss, g_loss))


def _uncompile(d_loss: "DLoss", g_loss: "GLoss") -> None:
    set_compiled_call(d_loss, None)
    set_compiled_call(g_loss, None)
    d_loss.functional = False


def _why_not(config: TrainConfig, world: "World") -> str:
    if config.compile == "off":
        return "not asked for"
    if world.on_xla:
        return "PyTorch/XLA compiles by itself"
    if config.shard != "ddp" and world.control is not None:
        return "sharded networks run uncompiled"
    if config.compile == "auto" and world.device.type == "cpu":
        return "on a CPU it was measured slower (DCGAN 32x32: 741 images/s instead of 859; --compile on tries it)"
    return ""


def _first_line(error: Exception) -> str:
    error = getattr(error, "inner_exception", error)  # that of the compiler's part which has failed
    return f"{type(error).__name__}: {(str(error).strip() or type(error).__name__).splitlines()[0]}"


def _passes(
    d_loss: "DLoss", g_loss: "GLoss", state: "TrainState", batch: "Batch", config: TrainConfig
) -> dict[str, Pass]:
    """Every kind of pass that the loop makes over a share, by name. Losses are not scaled: a first scale of fp16 may be
    too large, which its steps bear and a comparison does not.
    """

    def of_discriminator(*, penalised: bool) -> None:
        for micro in batch.for_discriminator(state, state.images):
            discriminator_pass(d_loss, state.generator, micro, torch.autograd.backward, penalised=penalised)

    def of_generator() -> None:
        for micro in batch.for_generator(state):
            generator_pass(g_loss, micro, torch.autograd.backward)

    lazy = {"the discriminator's loss": partial(of_discriminator, penalised=False)} if config.r1_interval > 1 else {}
    return {
        "the discriminator's loss with penalties": partial(of_discriminator, penalised=True),
        **lazy,
        "the generator's loss": of_generator,
    }


def _gradients(name: str, run: Pass, d_loss: "DLoss", g_loss: "GLoss") -> Tensor:
    """All gradients of one pass over the share in a row, float32 on the CPU."""
    network: nn.Module = g_loss.generator if name.startswith("the generator") else d_loss.discriminator
    network.zero_grad()
    with _resting(d_loss.discriminator if network is g_loss.generator else None):
        run()
    row = torch.cat([p.grad.flatten().float().cpu() for p in network.parameters() if p.grad is not None])
    network.zero_grad()
    return row


@contextmanager
def _resting(network: nn.Module | None) -> Iterator[None]:
    """As the loop does it in the generator's step."""
    if network is not None:
        network.requires_grad_(False)
    yield
    if network is not None:
        network.requires_grad_(True)


def _compare(
    passes: dict[str, Pass],
    expected: dict[str, Tensor],
    d_loss: "DLoss",
    g_loss: "GLoss",
    tolerance: float,
    times: int,
) -> str:
    """Why the compiled losses cannot be trusted; empty when they can. All passes go by `times` over, in a step's order:
    one may overwrite what another has left in the graphs' memory.
    """
    for name, run in [*passes.items()] * times:
        try:
            found = _gradients(name, run, d_loss, g_loss)
        except Exception as error:  # the compiler has many, its own and its backends'
            d_loss.discriminator.requires_grad_(True)
            return f"{name} does not compile: {_first_line(error)}"
        difference = float((found - expected[name]).norm() / expected[name].norm().clamp(min=1e-12))
        if not difference <= tolerance:
            return f"{name} then has other gradients (relative difference {difference:.1e})"
    return ""
