"""Averages travel while a backward, and the pass after it, compute: by the order of events in a profiler's trace."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.torch_private import all_reduce_in_graphs
from gangway.trainer.distributed.averages import InGraphAverage, averages_first

TRACED = """
import json, sys
from pathlib import Path
import torch
from torch.profiler import ProfilerActivity, profile, record_function
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.shards import open_matching
from gangway.trainer.distributed import averages
from gangway.trainer.distributed.world import start_world
from gangway.trainer.steps.state import TrainState
from gangway.trainer.phases.batch import Batch
from gangway.trainer.steps.step import new_game, get_phases, step
from gangway.trainer.phases.updates import Accumulator

averages._LARGEST_MB = float(sys.argv[3])
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


TRACED_LOSSES = """
import json, sys
from pathlib import Path
import torch
from torch.profiler import ProfilerActivity, profile
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.torch_private import all_reduce_in_graphs
from gangway.trainer.data.shards import open_matching
from gangway.trainer.distributed.world import start_world
from gangway.trainer.steps.state import TrainState
from gangway.trainer.phases.batch import Batch
from gangway.trainer.steps.compilation import compile_losses
from gangway.trainer.steps.step import get_phases

config = TrainConfig.from_file(Path(sys.argv[1]))
with start_world("gloo") as world:
    found, events = {}, []
    for mode in ("off", "on"):
        state = TrainState.create(config, world.device)
        batch, phases = Batch(config, world, open_matching(config, Path(sys.argv[2]))), get_phases(state)
        compiled = compile_losses(phases, state, batch, config.replace({"compile": mode}), world)
        for phase in phases:
            networks = [state.roles[name].network for name in phase.roles]
            (micro,) = phase.inputs(batch, state, 0)
            for trace in (False, True):
                for network in networks:
                    network.zero_grad()
                with profile(activities=[ProfilerActivity.CPU]) as profiled:
                    terms = phase.run(compiled.losses[phase.key], micro.inputs, penalised=True, settle=None)
                    (micro.weight * terms.total).backward()
                    world.settle(compiled.losses[phase.key])
            row = torch.cat([p.grad.flatten() for network in networks for p in network.parameters()])
            found[f"{phase.key} {mode}"] = row.double().tolist()
            if mode == "on" and phase.key == "d":
                events = [(each.name, each.time_range.start, each.time_range.end) for each in profiled.events()]
        batch.close()
    if world.rank == 0:
        content = {"choice": compiled.choice, "gradients": found, "events": sorted(events, key=lambda each: each[1])}
        Path(sys.argv[3]).write_text(json.dumps(content))
"""


@pytest.mark.slow
def test_averages_travel_while_a_compiled_backward_computes(
    torchrun: Callable[..., Any], families: dict[str, tuple[TrainConfig, Path]], tmp_path: Path
) -> None:
    """Two processes, code made by the compiler; the discriminator has its penalty. The first of its two messages
    leaves before the last gradients are there, and both networks' are the averages that uncompiled losses have.
    """
    config, data = families["dcgan"]
    # Two shares, of 8 and 7. On a CPU the compiler takes no gradient through the augmentation's padding (torch 2.15).
    config = config.replace({"ndf": 32, "ngf": 32, "r1_interval": 1, "batch_size": 15, "augment": "none"})
    script, file, told = tmp_path / "traced.py", tmp_path / "config.json", tmp_path / "told.json"
    script.write_text(TRACED_LOSSES)
    file.write_text(config.to_json())
    code, text = torchrun(str(script), str(file), str(data), str(told), PYTHONPATH=str(Path.cwd())).finish()
    assert code == 0, text
    content = json.loads(told.read_text())
    assert content["choice"].endswith("averages between workers included"), content["choice"]
    for phase in "dg":
        off, on = (torch.tensor(content["gradients"][f"{phase} {mode}"]) for mode in ("off", "on"))
        assert float((on - off).norm() / off.norm()) < 1e-4, phase
    events = content["events"]
    (backward,) = [event for event in events if event[0] == "CompiledFunctionBackward"]
    messages = [event for event in events if event[0] == "gloo:all_reduce"]
    computed = [event for event in events if event[0] == "aten::convolution_backward" and backward[1] < event[1]]
    assert len(messages) == 2
    assert backward[1] < messages[0][1] < computed[-1][1]
    assert not [event for event in events if "wait_tensor" in event[0] and event[1] < computed[-1][1]]


def test_what_learns_travels_in_two_messages_and_what_is_frozen_does_not() -> None:
    layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    layers[0].weight.requires_grad_(False)
    first, second = InGraphAverage(layers)._messages
    learning = [name for name, parameter in layers.named_parameters() if parameter.requires_grad]
    assert first + second == learning
    sizes = [sum(layers.get_parameter(name).numel() for name in names) for names in (first, second)]
    assert min(sizes) >= sum(sizes) / 3


def test_an_average_is_sent_before_what_it_does_not_need_and_averages_keep_their_order() -> None:
    aten, graph = torch.ops.aten, torch.fx.Graph()
    early, late = graph.placeholder("early"), graph.placeholder("late")
    other = graph.call_function(aten.relu.default, (late,))
    ready = graph.call_function(aten.relu.default, (early,))
    send = all_reduce_in_graphs()
    first, second = (graph.call_function(send, (node, "sum", "0")) for node in (ready, other))
    graph.output((first, second))
    averages_first(graph)
    graph.lint()
    assert list(graph.nodes)[:-1] == [early, late, ready, first, other, second]


def test_a_graph_without_averages_stays_as_it_is() -> None:
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU(), nn.Tanh())).graph
    before = list(graph.nodes)
    averages_first(graph)
    assert list(graph.nodes) == before
