"""A step's memory, traced tensor by tensor on the meta device; no libraries' workspaces, nor an allocator's reserve."""

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from gangway.trainer.config.step_memory import GIB, StepMemory, images_at_once, images_per_worker
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.torch_private import each_operation
from gangway.trainer.distributed.sharded_modules import tensors
from gangway.trainer.distributed.world import World
from gangway.trainer.networks.precision import Precision
from gangway.trainer.networks.progressive_schedule import shrink
from gangway.trainer.phases.augment import GATES, UNIFORMS
from gangway.trainer.phases.batch import Micro, Unpaired, to_floats
from gangway.trainer.phases.losses import Inputs
from gangway.trainer.phases.phase import Phase, Update
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import get_phases, make, new_game, play

_META = torch.device("meta")
_STEPS = 2  # The second one starts with the gradients of the first
_MICRO_BATCHES = 2  # Likewise
_LOWERED = frozenset({F.conv2d, F.conv3d, F.conv_transpose2d, F.conv_transpose3d, F.linear, torch.matmul})
"""Operations of the networks here that autocast computes in 16 bits."""


class LiveBytes:
    """Bytes of all live tensors passed to `add`. `peak` is their maximum, `beside` the function's value there."""

    def __init__(self, beside: Callable[[], int] = lambda: 0) -> None:
        self.now, self.peak, self.beside = 0, 0, 0
        self._beside = beside
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def add(self, tensor: Tensor) -> None:
        """Counts a tensor's memory once, until it is freed."""
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        if key in self._alive:
            return

        def freed(_: object) -> None:
            del self._alive[key]
            self.now -= size

        self._alive[key] = weakref.ref(storage, freed)
        self.now += size
        if self.now > self.peak:
            self.peak, self.beside = self.now, self._beside()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """A block in which all operations' results are counted."""

        def count(operation: Any, args: Any, kwargs: Any, result: object) -> None:
            for _, each in tensors(result):
                self.add(each)

        with each_operation(count):
            yield


def trace_step(config: TrainConfig, workers: int = 1) -> StepMemory:
    """Traces the peak of a step with penalties on the worker with most images, with networks at their largest size."""
    config = config.within(config.planned[-1])
    with _META:
        state = _state(config)
        weights = [each for role in state.learners for each in role.network.parameters()]
        averages = [each for role in state.roles.values() if role.ema is not None for each in role.ema.parameters()]
        moments = [torch.empty_like(each) for each in weights for _ in range(2)]
        live = LiveBytes(lambda: _bytes(each.grad for each in weights))
        for tensor in (*weights, *averages, *moments):
            live.add(tensor)
        with live.watching():
            for _ in range(_STEPS):
                phases, missing = get_phases(state), list[Update]()
                game, sums = new_game(phases, config, World.alone(_META)), Accumulator(phases, _META)
                feed = _MetaBatch(state, workers).micros
                play(state, feed, game, sums, missing, penalised=True, meanwhile=lambda: None)
                make(missing)
                state.update_ema()
    held = [_bytes(tensors) for tensors in (weights, averages, moments)]
    parameters, average, both_moments, gradients = (each / GIB for each in (*held, live.beside))
    return StepMemory(parameters, average, both_moments, gradients, (live.peak - sum(held) - live.beside) / GIB)


def _bytes(tensors: Iterable[Tensor | None]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors if each is not None)


def _state(config: TrainConfig) -> TrainState:
    state = TrainState.create(config, _META)
    state.images = max(0, config.total_images - 2 * config.step_images)
    state.advance()
    dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[config.precision]
    for role in state.roles.values():
        if dtype is not None:
            role.network.precision = _OnMeta(config.precision, "meta", dtype, config.precision == "fp16", "traced")
    for role in state.learners:
        role.optimizer = torch.optim.SGD(role.network.parameters(), lr=1.0, foreach=False)
    return state


class _MetaBatch:
    def __init__(self, state: TrainState, workers: int) -> None:
        config = state.config
        self._state, self._config = state, config
        self._share, self._at_once = images_per_worker(config, workers), images_at_once(config, workers)
        streams = 2 if config.g_reals == "fresh" or config.translates else 1
        layout = torch.channels_last if config.channels_last and config.frames == 1 else torch.contiguous_format
        self._pixels = [torch.empty(self._share, *config.image_shape, dtype=torch.uint8) for _ in range(streams)]
        self._reals = [to_floats(each).contiguous(memory_format=layout) for each in self._pixels]

    def micros(self, phase: Phase[Any], _: int) -> Iterator[Micro[Any]]:
        config = self._config
        reals = self._reals[-1 if phase.key == "g" else 0]
        uniforms = UNIFORMS + GATES * config.is_gated
        firsts = range(0, self._share, self._at_once)[:_MICRO_BATCHES]
        for first in firsts:
            part = slice(first, min(first + self._at_once, self._share))
            images, last = part.stop - part.start, first == firsts[-1]
            if config.translates:
                yield Micro(Unpaired(*(each[part] for each in self._reals)), 1.0, images, last)
                continue
            drawn = None if config.augment == "none" else torch.empty(images, uniforms)
            yield Micro(
                Inputs(
                    latents=torch.empty(images, config.z_dim),
                    fake_uniforms=drawn,
                    real=shrink(reals[part], self._state.phase),
                    real_uniforms=drawn,
                    labels=torch.zeros(images, dtype=torch.int64) if config.num_classes else None,
                    mix=torch.empty(images, 1),
                ),
                1.0,
                images,
                last,
            )


class _OnMeta(Precision):
    def autocast(self, *, twice: bool) -> contextlib.AbstractContextManager[object]:
        if self.dtype is None or (twice and self.exact_penalty):
            return contextlib.nullcontext()
        return _Lowered(self.dtype)


class _Lowered(TorchFunctionMode):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _LOWERED:
            args = tuple(
                each.to(self._dtype) if isinstance(each, Tensor) and each.dtype == torch.float32 else each
                for each in args
            )
        return func(*args, **(kwargs or {}))
