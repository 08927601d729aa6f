"""A whole step as one CUDA graph: a step of small networks starts hundreds of kernels, and a graph all at once.

The first steps are eager and timed. Then one is recorded, compared with the same step made eagerly, and timed: the
faster way is kept. Steps with and without penalties are a graph each; inputs and Python's counters stay outside.
Several workers decide together: gradients are averaged inside the graph (gangway.trainer.distributed.averages).
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.averages import FlatAverage
from gangway.trainer.distributed.world import World
from gangway.trainer.phases.batch import Batch, Micro
from gangway.trainer.phases.phase import Phase, ema_parts
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import Game, adapt, first_failure, is_penalised, make, play, step

WARM_UP, TIMED = 4, 8
"""Steps of the more common kind for choosing kernels and allocating memory, and for timing each way."""
_GAIN = 1.05  # How many times as fast a graph must be, as it keeps a step's memory
_ROOM = 0.9  # Usable share of the device's memory
# Largest relative difference between a graph's gradients and an eager step's; the larger one with 16 bits, and always
# for the weights' changes: Adam makes a full step of any gradient however small.
_CLOSE, _NEAR = {"fp32": 1e-3}, 5e-2

Meanwhile = Callable[[], object]
Recorder = Callable[[Callable[[], None]], Callable[[], None]]
"""Records a function's computation, and returns its replay."""
Inputs = Mapping[tuple[str, int], Sequence[Micro[Any]]]  # Micro-batches by a phase's key and the number of its batch


@dataclass(frozen=True)
class _Recorded:
    replay: Callable[[], None]
    inputs: Inputs
    signs: Tensor
    sums: Accumulator
    gradients: Sequence[tuple[nn.Parameter, Tensor]]


class StepGraph:
    """Makes the steps of one segment; `choice` is the way, with its reason. `measured`: graphs only where faster."""

    def __init__(self, config: TrainConfig, record: Recorder, *, measured: bool, why_not: str = "") -> None:
        self._config, self._record, self._measured, self._judged = config, record, measured, not measured
        self._on, self._common_kind = not why_not, config.r1_interval == 1
        self._made = Counter[bool]()
        self._recorded: dict[bool, _Recorded] = {}
        self._eager_sec, self._graph_sec, self._peak_bytes = list[float](), list[float](), 0
        self.choice = f"off: {why_not}" if why_not else "off so far: the first steps are made as ever"

    def step(self, state: TrainState, batch: Batch, game: Game, sums: Accumulator, meanwhile: Meanwhile) -> None:
        """Makes one step; see `gangway.trainer.steps.step.step`."""
        kind = is_penalised(state)
        if self._on and not self._made:
            _use_tensor_lr(state)
        if kind in self._recorded:
            self._time(self._graph_sec, kind, lambda: self._replay(kind, state, batch, game, sums, meanwhile))
            self._judge(game.world)
        elif self._on and self._is_ready(kind):
            self._try_recording(kind, state, batch, game, sums, meanwhile)
        else:
            self._time(self._eager_sec, kind, lambda: step(state, batch, game, sums, meanwhile))
            if self._on:  # Now, since each line of statistics resets torch's peak.
                self._peak_bytes = max(self._peak_bytes, _peak_bytes())
        self._made[kind] += 1

    def _is_ready(self, kind: bool) -> bool:
        if kind != self._common_kind:
            return self._judged and self._common_kind in self._recorded and self._made[kind] > 0
        both = self._config.r1_interval == 1 or self._made[not kind] > 0  # the other kind takes more memory
        return both and self._made[kind] >= WARM_UP + (TIMED if self._measured else 0)

    def _time(self, sec: list[float], kind: bool, make_one: Callable[[], None]) -> None:
        warm = kind in self._recorded or self._made[kind] >= WARM_UP
        if self._judged or not self._on or kind != self._common_kind or not warm:
            make_one()
            return
        _finish()
        begun = time.perf_counter()
        make_one()
        _finish()
        sec.append(time.perf_counter() - begun)

    def _judge(self, world: World) -> None:
        if self._judged or len(self._graph_sec) < TIMED:
            return
        self._judged = True
        everyone = world.gather([median(self._eager_sec), median(self._graph_sec)])
        eager, graph = map(max, zip(*everyone, strict=True))
        found = f"a step takes {eager * 1e3:.2f} ms as ever, {graph * 1e3:.2f} ms from a graph"
        if eager >= _GAIN * graph:
            self.choice = f"on: measured, {found}"
        else:
            self._give_up(f"measured, {found}")

    def close(self) -> None:
        """Frees the graphs after the last step: NCCL does not leave a group while a graph holds its collectives."""
        self._on = False
        for each in self._recorded.values():
            for parameter, gradient in each.gradients:
                if parameter.grad is gradient:  # the last step's, which the next line may report
                    parameter.grad = gradient.clone()
        self._recorded.clear()

    def _give_up(self, why: str) -> None:
        self.close()
        self.choice = f"off: {why}"

    def _try_recording(
        self, kind: bool, state: TrainState, batch: Batch, game: Game, sums: Accumulator, meanwhile: Meanwhile
    ) -> None:
        state.follow_schedules()
        attempt = self._attempt(kind, state, batch, game)
        if isinstance(attempt, str):
            self._give_up(attempt)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            step(state, batch, game, sums, meanwhile)
            return
        step(state, batch, game, sums, meanwhile)
        differs = attempt.found.difference(_Outcome(state, attempt.before), self._config)
        if failure := first_failure(differs, game.world):
            self._give_up(f"tried, and {failure}")
            return
        self._recorded[kind] = attempt.graph
        if not self._measured:
            self.choice = "on: asked for, and a step from a graph agrees with the same made as ever"

    def _attempt(self, kind: bool, state: TrainState, batch: Batch, game: Game) -> "_Attempt | str":
        """Returns a graph with its undone result, or why not, as text: an error's frames would keep memory."""
        inside = game._replace(losses={key: game.world.flat(loss) for key, loss in game.losses.items()})
        for loss in inside.losses.values():
            if isinstance(loss, FlatAverage):
                loss.warm_up()
        before, graph, failure = None, None, _too_large(state, self._peak_bytes)
        if not failure:
            try:
                before = _Snapshot(state)
                with before.restored(state):
                    graph = self._record_step(kind, state, batch, inside)
            except _UnrecordedError as error:
                failure = f"tried, and {error}"
        if failure := first_failure(failure, game.world):
            return failure
        assert before is not None, "a failure returns earlier"
        assert graph is not None, "likewise"
        try:
            with before.restored(state):
                graph.replay()
                return _Attempt(graph, before, _Outcome(state, before))
        except _UnrecordedError as error:
            return f"tried, and {error}"

    def _record_step(self, kind: bool, state: TrainState, batch: Batch, game: Game) -> _Recorded:
        inputs = {key: [_copy(micro) for micro in micros] for key, micros in _inputs(state, batch, game)}
        own, signs = Accumulator(game.phases, game.world.device), torch.zeros((), device=game.world.device)

        def whole() -> None:
            own.clear()
            batches = Counter[str]()

            def feed(phase: Phase[Any], _: int) -> Iterable[Micro[Any]]:
                batches[phase.key] += 1
                return inputs[phase.key, batches[phase.key] - 1]

            missing: list[Callable[[], None]] = []
            signs.copy_(play(state, feed, game, own, missing, penalised=kind, meanwhile=lambda: None))
            make(missing)
            if self._averages_inside:
                state.update_ema()

        replay = self._record(whole)
        parameters = [parameter for role in state.learners for parameter in role.network.parameters()]
        gradients = [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
        return _Recorded(replay, inputs, signs, own, gradients)

    @property
    def _averages_inside(self) -> bool:
        return not self._config.ema_rampup and self._config.schedules.ema_kimg is None

    def _replay(
        self, kind: bool, state: TrainState, batch: Batch, game: Game, sums: Accumulator, meanwhile: Meanwhile
    ) -> None:
        graph = self._recorded[kind]
        state.follow_schedules()
        for key, micros in _inputs(state, batch, game, sums.saw):
            for here, micro in zip(graph.inputs[key], micros, strict=True):
                for into, tensor in zip(_tensors(here), _tensors(micro), strict=True):
                    into.copy_(tensor)
        meanwhile()
        graph.replay()
        # Each graph has its own memory for gradients, which the other graph may overwrite.
        for parameter, gradient in graph.gradients:
            parameter.grad = gradient
        sums.add_all(graph.sums)
        sums.close_step(penalised=kind)
        state.advance()
        if not self._averages_inside:
            state.update_ema()
        adapt(state, game, graph.signs)


def step_graph(config: TrainConfig, world: World) -> StepGraph:
    """Returns how a segment makes its steps; all workers choose the same."""
    why_not = _why_not(config, world)
    return StepGraph(config, cuda_recorder(), measured=config.step_graph == "auto", why_not=why_not)


def _why_not(config: TrainConfig, world: World) -> str:
    is_sharded = config.shard != "ddp" and world.control is not None
    reasons = {
        "not asked for": config.step_graph == "off",
        f"a step on {world.device.type} is none of kernels that CUDA starts": world.device.type != "cuda",
        "the stages of a pipeline meet between the passes of a step": world.is_pipelined,
        "sharded networks are gathered between the passes of a step": is_sharded,
        "its blocks are recomputed": config.activation_checkpointing,
        "its passes are graphs of their own (cuda_graphs)": config.cuda_graphs,
        "these networks grow": config.architecture == "progressive",
        "beta2 has a schedule, and would be a constant of the graph": "beta2" in config.schedules.given,
    }
    return next((why for why, applies in reasons.items() if applies), "")


def cuda_recorder() -> Recorder:
    """Records graphs that are replayed in turn, so that they share memory."""
    pools: list[Any] = []

    def record(body: Callable[[], None]) -> Callable[[], None]:
        if not pools:
            pools.append(torch.cuda.graph_pool_handle())
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as the loader's, may call CUDA meanwhile.
        with torch.cuda.graph(graph, pools[0], capture_error_mode="thread_local"):
            body()
        return graph.replay

    return record


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _peak_bytes() -> int:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0


def _too_large(state: TrainState, peak: int) -> str:
    if not torch.cuda.is_available():
        return ""
    total = torch.cuda.get_device_properties().total_memory
    copies = 2 * sum(tensor.nbytes for tensor in _changing(state))
    if 2 * peak + copies <= _ROOM * total:
        return ""
    return f"a graph would hold a step's {peak / 2**30:.3g} GiB a second time, on {total / 2**30:.3g} GiB"


def _inputs(
    state: TrainState, batch: Batch, game: Game, saw: Callable[[int], object] = lambda _: None
) -> Iterator[tuple[tuple[str, int], Sequence[Micro[Any]]]]:
    for phase in game.phases:
        for number, images in enumerate(phase.positions(game.config, state.images)):
            if phase.batches:
                saw(batch.order(images))
            yield (phase.key, number), list(phase.inputs(batch, state, images))


def _tensors(micro: Micro[Any]) -> list[Tensor]:
    return [each for each in micro.inputs if each is not None]


def _copy(micro: Micro[Any]) -> Micro[Any]:
    values = [None if each is None else each.clone() for each in micro.inputs]
    return Micro(type(micro.inputs)(*values), micro.weight, micro.images, micro.last)


def _use_tensor_lr(state: TrainState) -> None:
    """Moves step sizes into tensors, as numbers would be constants of the graph; from the first step on."""
    for role in state.learners:
        for group in role.learner.param_groups:
            group["capturable"] = True
            if not isinstance(group["lr"], Tensor):
                device = group["params"][0].device
                group["lr"] = torch.tensor(group["lr"], dtype=torch.float32, device=device)


class _UnrecordedError(Exception):
    """A step that a graph cannot hold, or for which there is no memory; its text says which."""


class _Snapshot:
    def __init__(self, state: TrainState) -> None:
        try:
            self._values = [tensor.detach().clone() for tensor in _changing(state)]
        except torch.OutOfMemoryError as error:
            raise _UnrecordedError("it cannot be tried: no memory for a second copy of the state") from error
        self.weights = self._values[: len(_weights(state))]
        self._scales = [role.scale.state_dict() for role in state.learners]

    @contextmanager
    def restored(self, state: TrainState) -> Iterator[None]:
        """A block after which the state is restored. Raises _UnrecordedError for what CUDA or torch cannot record."""
        try:
            yield
        except Exception as error:  # of CUDA, of torch, or an assertion of either: no graph can hold it
            for role in state.learners:  # half a step leaves them inconsistent
                role.scale = role.scale.copy_scale()
            message = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise _UnrecordedError(f"it cannot be recorded: {message}") from error
        finally:
            with torch.no_grad():
                for tensor, value in zip(_changing(state), self._values, strict=True):
                    tensor.copy_(value)
            for role, scale in zip(state.learners, self._scales, strict=True):
                role.scale.load_state_dict(scale)


class _Outcome:
    def __init__(self, state: TrainState, before: _Snapshot) -> None:
        gradients = [parameter.grad for parameter in _weights(state) if parameter.grad is not None]
        self._gradients = _row(gradients)
        self._changes = _row([now - was for now, was in zip(_weights(state), before.weights, strict=True)])

    def difference(self, eager: "_Outcome", config: TrainConfig) -> str:
        exact = config.deterministic
        for what, found, wanted, bound in (
            ("gradients", self._gradients, eager._gradients, 0.0 if exact else _CLOSE.get(config.precision, _NEAR)),
            ("weights", self._changes, eager._changes, 0.0 if exact else _NEAR),
        ):
            if found.shape != wanted.shape or not torch.equal(found.isfinite(), wanted.isfinite()):
                return f"a step from it has other {what}"
            found, wanted = found.nan_to_num(0, 0, 0), wanted.nan_to_num(0, 0, 0)
            difference_share = float((found - wanted).norm() / wanted.norm().clamp(min=1e-12))
            if not difference_share <= bound:
                return f"a step from it has other {what} (relative difference {difference_share:.1e})"
        return ""


class _Attempt(NamedTuple):
    graph: _Recorded
    before: _Snapshot
    found: _Outcome


def _row(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten().float() for tensor in tensors])


def _weights(state: TrainState) -> list[Tensor]:
    return [parameter for role in state.learners for parameter in role.network.parameters()]


def _changing(state: TrainState) -> list[Tensor]:
    averages = [parameter for each in ema_parts(state.roles.values()).values() for parameter in each.parameters()]
    entries = [entry for role in state.learners for entry in role.learner.state.values()]
    moments = [value for entry in entries for value in entry.values() if isinstance(value, Tensor)]
    return [*_weights(state), *averages, *moments]
