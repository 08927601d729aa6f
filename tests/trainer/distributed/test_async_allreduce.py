"""Averages travel while a backward, and the pass after it, compute: by the order of events in a profiler's trace."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.config.train_config import TrainConfig

TRACED = """
import json, sys
from pathlib import Path
import torch
from torch.profiler import ProfilerActivity, profile, record_function
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.dataset import open_matching
from gangway.trainer.distributed import async_allreduce
from gangway.trainer.distributed.world import start_world
from gangway.trainer.steps.state import TrainState
from gangway.trainer.phases.batch import Batch
from gangway.trainer.steps.step import new_game, get_phases, step
from gangway.trainer.phases.updates import Accumulator

async_allreduce._LARGEST_MB = float(sys.argv[3])
config = TrainConfig.from_file(Path(sys.argv[1]))
with start_world("gloo") as world:
    state = TrainState.create(config, world.device)
    generator, forward = state.generator, state.generator.forward
    def named(*inputs):
        with record_function("the generator's pass"):
            return forward(*inputs)
    generator.forward = named
    batch, phases = Batch(config, world, open_matching(config, Path(sys.argv[2]))), get_phases(state)
    # As the loop has it: an update that waits for averages is made when the next phase needs it.
    game, sums = new_game(phases, config, world, at_once=lambda: False), Accumulator(phases, world.device)
    for _ in range(2):  # buckets are as large as they stay from the second on
        step(state, batch, game, sums)
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        step(state, batch, game, sums)
    batch.close()
    if world.rank == 0:
        events = [(each.name, each.time_range.start, each.time_range.end) for each in trace.events()]
        Path(sys.argv[4]).write_text(json.dumps(sorted(events, key=lambda each: each[1])))
"""
Events = list[tuple[str, float, float]]


def _traced(torchrun: Callable[..., Any], config: TrainConfig, data: Path, tmp_path: Path, mb: float) -> Events:
    script, file, events = tmp_path / "traced.py", tmp_path / "config.json", tmp_path / "events.json"
    script.write_text(TRACED)
    file.write_text(config.to_json())
    code, text = torchrun(str(script), str(file), str(data), str(mb), str(events), PYTHONPATH=str(Path.cwd())).finish()
    assert code == 0, text
    found: Events = json.loads(events.read_text())
    return found


def _named(events: Events, name: str) -> Events:
    return [event for event in events if event[0] == name]


@pytest.mark.slow
def test_averages_travel_while_the_backward_computes(
    torchrun: Callable[..., Any], families: dict[str, tuple[TrainConfig, Path]], tmp_path: Path
) -> None:
    """With several messages, the first is enqueued before the backward begins its last operation: one thread does both,
    so their order in the trace cannot vary.
    """
    config, data = families["dcgan"]
    config = config.replace({"ndf": 64, "ngf": 64, "r1_interval": 64})
    events = _traced(torchrun, config, data, tmp_path, 0.1)
    sent = _named(events, "c10d::allreduce_")
    assert len(sent) >= 4, "several of each network"
    backwards = [event for event in events if event[0].startswith("autograd::engine::evaluate_function")]
    # Of the discriminator: all that begins before the pass in which the generator learns.
    second_pass = _named(events, "the generator's pass")[1][1]
    of_d = [event for event in backwards if event[1] < second_pass]
    assert sent[0][1] < of_d[-1][1]


@pytest.mark.slow
def test_averages_of_one_network_travel_while_the_other_makes_its_pass(
    torchrun: Callable[..., Any], families: dict[str, tuple[TrainConfig, Path]], tmp_path: Path
) -> None:
    """The generator's pass begins after the discriminator's single message, and before anybody has waited for it: the
    update, which needs the average, comes after both.
    """
    config, data = families["dcgan"]
    config = config.replace({"ndf": 64, "ngf": 64, "r1_interval": 64})
    events = _traced(torchrun, config, data, tmp_path, 25)
    # Sent off by the process itself; gloo's thread may have to wait for a core.
    sent, message = _named(events, "c10d::allreduce_")[0], _named(events, "gloo:all_reduce")[0]
    another_pass = _named(events, "the generator's pass")[1]
    updates = [event for event in events if "Optimizer.step" in event[0]]
    assert sent[1] < another_pass[1] < updates[0][1]
    assert message[2] <= updates[0][1]
