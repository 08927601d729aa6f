"""Workers that have drifted apart are found by what they keep; one alone agrees with itself."""

import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import World
from gangway.trainer.steps import replica_check as agreement
from gangway.trainer.steps.replica_check import check_same, first_difference
from gangway.trainer.steps.state import TrainState

CPU = torch.device("cpu")


class _Group:
    """May be weakly referred to."""


GROUP: Any = _Group()  # Stands for the control group, whose all_gather is replaced


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[torch.Tensor], torch.Tensor]], World]:
    """A world of two, whose other worker has the bit sums that a function makes of this one's."""

    def beside(changed: Callable[[torch.Tensor], torch.Tensor]) -> World:
        def all_gather(everyone: list[torch.Tensor], mine: torch.Tensor, group: object) -> None:
            everyone[0].copy_(mine)
            everyone[1].copy_(changed(mine.clone()))

        monkeypatch.setattr(dist, "all_gather", all_gather)
        return World(0, 0, 2, 0, 1, CPU, "gloo", "a test's", weakref.ref(GROUP))

    return beside


def _stepped(config: TrainConfig) -> TrainState:
    state = TrainState.create(config, CPU)
    for network, optimizer in (
        (state.generator, state.roles["generator"].learner),
        (state.discriminator, state.roles["discriminator"].learner),
    ):
        for parameter in network.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    return state


def test_everything_a_worker_keeps_is_compared_and_named(
    tiny_config: TrainConfig, other: Callable[[Callable[[torch.Tensor], torch.Tensor]], World]
) -> None:
    state = _stepped(tiny_config)
    check_same(other(lambda sums: sums), state)
    places = []
    total = len(list(agreement._named_tensors(state)))
    for number in range(total):
        index = torch.tensor([number])
        with pytest.raises(TrainerError, match="differs between workers") as caught:
            check_same(other(partial(torch.index_add, dim=0, index=index, source=torch.tensor([1]))), state)
        places.append(caught.value.place)
    parameters = len(list(state.generator.parameters())), len(list(state.discriminator.parameters()))
    # Each has a weight, two moments and a gradient; the generator an average besides.
    assert len(set(places)) == total == 5 * parameters[0] + 4 * parameters[1]
    kinds = ("weight generator.", "weight discriminator.", "Adam's exp_avg of generator.", "weight averaged generator.")
    assert all(any(place.startswith(kind) for place in places) for kind in kinds)
    assert places[0] == "weight generator.layers.0.weight"
    assert places[-1].startswith("gradient of discriminator.")


def test_a_lone_worker_agrees_with_itself(tiny_config: TrainConfig) -> None:
    alone = World(0, 0, 1, 0, 1, CPU, "none", "a test's")
    check_same(alone, TrainState.create(tiny_config, CPU))
    assert first_difference(replace(alone, world_size=2, control_ref=weakref.ref(GROUP)), []) is None, (
        "nothing to compare"
    )


TWO_WORKERS = """
import torch
from gangway.trainer.distributed.world import start_world
from gangway.trainer.steps.replica_check import first_difference

with start_world("gloo") as world:
    same, mine = torch.ones(3, 2), torch.ones(2)
    assert first_difference(world, [("same", same), ("mine", mine)]) is None
    if world.rank == 1:
        mine[1] = torch.nextafter(mine[1], torch.tensor(9.0))  # one bit
    name, sums = first_difference(world, [("same", same), ("mine", mine)])
    assert name == "mine" and sums[1] == sums[0] + 1, sums
    print("worker is content")
"""


FOUR_WORKERS = """
import dataclasses, torch
from torch.distributed.tensor import distribute_tensor, Replicate, Shard
from gangway.trainer.distributed.world import get_mesh, start_world
from gangway.trainer.steps.replica_check import first_difference

with start_world("gloo") as world:
    world = dataclasses.replace(world, mesh=get_mesh(4, 2, world.device, "hsdp"))
    assert world.first_with_part == [0, 1, 0, 1] and world.dp_rank == world.rank and world.dp_size == 4
    split = distribute_tensor(torch.arange(6.0), world.mesh, [Replicate(), Shard(0)])
    assert first_difference(world, [("split", split)]) is None
    if world.rank == 3:
        split.to_local()[0] += 1
    name, sums = first_difference(world, [("split", split)])
    assert name == "split" and sums[0] == sums[2] and sums[1] != sums[3], sums
    print("worker is content")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("program", "workers"), [(TWO_WORKERS, 2), (FOUR_WORKERS, 4)])
def test_one_bit_of_the_same_part_is_enough_on_real_workers(
    torchrun: Callable[..., Any], tmp_path: Path, program: str, workers: int
) -> None:
    script = tmp_path / "workers.py"
    script.write_text(program)
    code, output = torchrun(str(script), workers=workers).finish()
    assert (code, output.count("worker is content")) == (0, workers), output
