"""The noise scale against gradients whose own is known, and looks that leave a run as it is."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gangway.trainer.checkpoint.store import state_digests
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.distributed.world import World
from gangway.trainer.networks.precision import LossScale
from gangway.trainer.phases.batch import Batch
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.steps.noise_scale import Looks, NoiseProbe, NoiseScale
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import get_phases, new_game, step

SIZE = 4000
TRUE = 60.0  # tr(Sigma) / |G|^2 of the gradients below
CPU = torch.device("cpu")


class Linear(nn.Module):
    """A loss whose gradient by its one weight is the mean of what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(SIZE))

    def forward(self, shown: Tensor) -> Tensor:
        return (shown @ self.weight).mean()


class LinearPhase:
    """A phase of that loss, which is shown N(G, Sigma) anew in each step."""

    batches, roles = 1, ("linear",)

    def __init__(self, parts: "Parts", seed: int) -> None:
        self.loss, self._parts = Linear(), parts
        self._random = torch.Generator().manual_seed(seed)

    def positions(self, config: TrainConfig, images: int) -> Sequence[int]:
        return [images]

    def inputs(self, batch: object, moment: object, images: int) -> Iterator[Any]:
        noise = torch.randn((self._parts.share, SIZE), generator=self._random)
        shown = 0.02 + 0.02 * TRUE**0.5 * noise
        for part in self._parts.now:
            yield SimpleNamespace(inputs=shown[part])

    def run(self, loss: Any, inputs: Tensor, *, penalised: bool, settle: object) -> Any:
        return SimpleNamespace(total=loss(inputs))


class Parts:
    """The batch that a probe divides."""

    def __init__(self, share: int) -> None:
        self.share = share
        self.now: list[slice] = []

    @contextmanager
    def in_parts(self, parts: list[slice]) -> Iterator[None]:
        self.now = parts
        yield


def looks(config: TrainConfig, number: int, seed: int = 0) -> Looks:
    parts = Parts(config.batch_size)
    phase: Any = LinearPhase(parts, seed)
    role = SimpleNamespace(network=phase.loss)
    state: Any = SimpleNamespace(roles={"linear": role}, config=config, images=0)
    probe, batch = NoiseProbe(config, World.alone(CPU), [phase]), parts
    for _ in range(number):
        probe.look(state, batch)  # type: ignore[arg-type]
    return probe.read()


@pytest.mark.parametrize("batch_size", [4, 17, 64, 500])
def test_it_is_found_whatever_the_batch(tiny_config: TrainConfig, batch_size: int) -> None:
    seen = looks(tiny_config.replace({"batch_size": batch_size}), 30)
    assert seen.number == 30
    assert NoiseScale().after([seen]) == pytest.approx(TRUE, rel=0.15)


def test_what_workers_see_counts_alike(tiny_config: TrainConfig) -> None:
    config, scale = tiny_config.replace({"batch_size": 64}), NoiseScale()
    assert scale.after([looks(config, 15, seed) for seed in range(4)]) == pytest.approx(TRUE, rel=0.15)
    both = scale.after([Looks(), Looks()])
    assert both == scale.after([Looks(), Looks()]), "nothing new was seen, and it is told still"


def test_an_old_look_counts_less_than_a_new_one() -> None:
    scale = NoiseScale()
    scale.after([Looks(1.0, 10.0, 1)])
    for _ in range(20):
        found = scale.after([Looks(1.0, 1000.0, 1)])
    assert found == pytest.approx(1000.0, rel=0.02)


def test_it_is_none_before_a_look_and_where_the_gradient_is_lost_and_no_number_counts() -> None:
    assert NoiseScale().after([Looks()]) is None
    assert NoiseScale().after([Looks(-0.1, 5.0, 3)]) is None
    scale = NoiseScale()
    known = scale.after([Looks(2.0, 10.0, 1)])
    assert known == 5.0
    assert scale.after([Looks(float("nan"), 10.0, 1)]) == known


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dcgan-ada", "resnet", "progressive", "cyclegan"])
def test_a_look_changes_no_bit_of_a_run(name: str, families: dict[str, tuple[TrainConfig, Path]]) -> None:
    config, data = families[name]
    assert trained(config, data, looks=0) == trained(config, data, looks=2)


def trained(config: TrainConfig, data: Path, looks: int) -> dict[str, Any]:
    """Digests of the state after four steps, before each of which it was looked at so often."""
    state, world = TrainState.create(config, CPU), World.alone(CPU)
    shards, phases = ShardedImages.open(data), get_phases(state)
    game, sums, probe = new_game(phases, config, world), Accumulator(phases, CPU), NoiseProbe(config, world, phases)
    torch.manual_seed(0)
    batch = Batch(config, world, shards)
    try:
        for _ in range(4):
            for _ in range(looks):
                probe.look(state, batch)
            step(state, batch, game, sums)
    finally:
        batch.close()
    seen = probe.read()
    assert seen.number == 4 * looks
    assert not looks or (np.isfinite(seen.signal) and seen.noise > 0)
    return {**state_digests(state.state_dict()), "sums": sums.tolist(), "drawn": torch.rand(1).item()}


def due(config: TrainConfig, *, steps: int = 600, has_scale: bool = False) -> list[int]:
    probe: Any = NoiseProbe(config, World.alone(CPU), [LinearPhase(Parts(1), 0)])  # type: ignore[list-item]
    role = SimpleNamespace(scale=LossScale("cpu", enabled=has_scale))
    return [at for at in range(steps) if probe.is_due(SimpleNamespace(step=at, roles={"linear": role}))]


def test_looks_are_rare_by_what_they_cost(tiny_config: TrainConfig) -> None:
    assert due(tiny_config.replace({"batch_size": 64})) == [256, 512]
    large = due(tiny_config.replace({"batch_size": 512}))
    assert large[0] == 32
    assert set(np.diff(large)) == {32}


def test_nobody_looks_where_nothing_could_be_seen(tiny_config: TrainConfig) -> None:
    assert due(tiny_config.replace({"batch_size": 1})) == []
    assert due(tiny_config.replace({"batch_size": 64}), has_scale=True) == []
    assert due(tiny_config.replace({"batch_size": 64, "shard": "fsdp2"})) == []


@pytest.mark.slow
@pytest.mark.parametrize("a_line", [4, 100, 1000])
@pytest.mark.parametrize("look_in_steps", [0.01, 0.5, 5.0, 40.0])
def test_looks_take_no_more_than_their_share_of_the_time(
    tiny_config: TrainConfig, look_in_steps: float, a_line: int
) -> None:
    """Of a machine on which a look takes so many steps' time, the first ten times that."""
    step_sec, number, least = 0.01, 400_000, 16
    probe: Any = NoiseProbe(tiny_config.replace({"batch_size": 1024}), World.alone(CPU), [LinearPhase(Parts(1), 0)])  # type: ignore[list-item]
    role = SimpleNamespace(scale=LossScale("cpu", enabled=False))
    seen, wall_sec, looks_sec = list[int](), 0.0, 0.0
    for at in range(number):
        if probe.is_due(SimpleNamespace(step=at, roles={"linear": role})):
            took = look_in_steps * step_sec * (1 if seen else 10)
            probe._looks, wall_sec, looks_sec = probe._looks + 1, wall_sec + took, looks_sec + took
            seen.append(at)
        wall_sec += step_sec
        if (at + 1) % a_line == 0:
            probe.read()
            probe.after({"wall_sec": wall_sec, "metrics_sec": 0.0, "noise_scale_sec": looks_sec, "step": at + 1})
    later = len([at for at in seen if at >= number // 2])
    assert later * look_in_steps <= 0.006 * number / 2
    assert later >= min(0.5 / least, 0.002 / look_in_steps) * number / 2, "and not much less than they may"
