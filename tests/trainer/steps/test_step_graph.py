"""Whole steps from a graph: the same as made as ever, chosen by time, given up with a reason.

On a CPU the recorder is a stand-in that computes what it has recorded anew, in the same places; the last tests, and
`make gpu-gate`, have CUDA's.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data import loader
from gangway.trainer.data.shards import open_matching
from gangway.trainer.distributed.world import World
from gangway.trainer.networks.precision import choose
from gangway.trainer.phases.batch import Batch
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.steps import step_graph
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import get_phases, new_game
from gangway.trainer.steps.step_graph import TIMED, WARM_UP, StepGraph, _Snapshot, cuda_recorder

Families = dict[str, tuple[TrainConfig, Path]]
FIXED = ("dcgan", "dcgan-ada", "resnet", "r3gan", "cyclegan")  # Families whose networks do not grow


def stand_in(state: TrainState) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Recording changes nothing but where gradients are; replaying leaves them there."""

    def recorder(body: Callable[[], None]) -> Callable[[], None]:
        with _Snapshot(state).restored(state):
            body()
        parameters = [parameter for role in state.learners for parameter in role.network.parameters()]
        places = [parameter.grad for parameter in parameters]

        def replay() -> None:
            body()
            for parameter, place in zip(parameters, places, strict=True):
                if place is not None and parameter.grad is not None:
                    place.copy_(parameter.grad)

        return replay

    return recorder


class Run:
    """A run of its own in this process, of which steps are made by a graph or as ever."""

    def __init__(
        self, config: TrainConfig, folder: Path, device: torch.device, world: World | None = None, **graph: Any
    ) -> None:
        self.state = TrainState.create(config, device)
        self.state.use(choose(config.precision, device))
        world, phases = world or World.alone(device), get_phases(self.state)
        self.batch, self.game = Batch(config, world, open_matching(config, folder)), new_game(phases, config, world)
        self.sums = Accumulator(phases, device)
        record = cuda_recorder() if device.type == "cuda" else stand_in(self.state)
        self.graph = StepGraph(config, graph.pop("record", record), **{"measured": False, **graph})

    def steps(self, number: int) -> "Run":
        for _ in range(number):
            self.graph.step(self.state, self.batch, self.game, self.sums, lambda: None)
        return self

    @property
    def gradients(self) -> list[torch.Tensor]:
        every = (p.grad for role in self.state.learners for p in role.network.parameters())
        return [gradient for gradient in every if gradient is not None]


@pytest.fixture
def run_of() -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def make(*args: Any, **graph: Any) -> Run:
        made.append(Run(*args, **graph))
        return made[-1]

    yield make
    for each in made:
        each.batch.close()


def _same(found: Any, wanted: Any, place: str = "state") -> None:
    """As checkpoints have them; optimisers' settings are no state."""
    if isinstance(wanted, dict):
        for key in wanted.keys() - {"param_groups"}:
            _same(found[key], wanted[key], f"{place}.{key}")
    elif isinstance(wanted, list):
        for number, (one, two) in enumerate(zip(found, wanted, strict=True)):
            _same(one, two, f"{place}.{number}")
    elif isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7, msg=lambda text: f"{place}: {text}")
    else:
        assert found == wanted, place


@pytest.mark.slow
@pytest.mark.parametrize("name", FIXED)
def test_steps_from_graphs_are_those_made_as_ever(name: str, families: Families, run_of: Callable[..., Run]) -> None:
    """With penalties in every fourth, so that both graphs are recorded and used in turn; or in all of them."""
    config, folder = families[name]
    every = 1 if config.loss == "wgan-gp" else 4
    # Step sizes that float32 holds to the last bit: what differs by rounding grows from step to step.
    exact = {"lr_g": 2**-12, "lr_d": 2**-12} if config.translates else {}
    config = config.replace({"r1_interval": every, **exact})
    device = torch.device("cpu")
    found = run_of(config, folder, device).steps(20)
    wanted = run_of(config, folder, device, why_not="asked for").steps(20)
    assert found.graph.choice.startswith("on: asked for")
    assert len(found.graph._recorded) == (1 if every == 1 else 2)
    assert wanted.graph.choice == "off: asked for"
    _same(found.state.state_dict(), wanted.state.state_dict())
    _same(found.gradients, wanted.gradients)
    assert found.sums.tolist() == pytest.approx(wanted.sums.tolist(), rel=1e-4)
    assert found.sums._penalised == wanted.sums._penalised
    assert found.sums.order == wanted.sums.order


def test_what_changes_from_step_to_step_is_followed(families: Families, run_of: Callable[..., Run]) -> None:
    """Step sizes, penalties' weights and the averages' half-life are no constants of a graph."""
    config, folder = families["r3gan"]
    first = {"lr_g": 2e-3, "lr_d": 2e-3, "r1_gamma": 2.0, "r2_gamma": 2.0, "ema_kimg": 0.01}
    schedules = {
        name: {"from": value, "to": value / 10, "over_kimg": 0.2, "then": "hold"} for name, value in first.items()
    }
    config = config.replace({**first, "schedules": schedules, "kimg": 0.3, "r1_interval": 2})
    device = torch.device("cpu")
    found = run_of(config, folder, device).steps(16)
    assert found.graph.choice.startswith("on")
    _same(found.state.state_dict(), run_of(config, folder, device, why_not="none").steps(16).state.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph_sec", "said", "kinds"),
    [
        (0.001, "on: measured, a step takes 10.00 ms as ever, 1.00 ms from a graph", 2),
        (0.02, "off: measured, a step takes 10.00 ms as ever, 20.00 ms from a graph", 0),
    ],
)
def test_the_faster_way_goes_on(
    families: Families,
    run_of: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
    graph_sec: float,
    said: str,
    kinds: int,
) -> None:
    config, folder = families["dcgan"]
    run = run_of(config.replace({"r1_interval": 16}), folder, torch.device("cpu"), measured=True)
    now = [0.0]

    def clock() -> float:
        now[0] += graph_sec if run.graph._recorded else 0.01
        return now[0]

    monkeypatch.setattr(step_graph, "time", SimpleNamespace(perf_counter=clock))
    run.steps(WARM_UP + TIMED)
    assert run.graph.choice.startswith("off so far")
    run.steps(40 - WARM_UP - TIMED)
    assert run.graph.choice == said
    assert len(run.graph._recorded) == kinds


def test_a_graph_that_computes_otherwise_is_given_up(families: Families, run_of: Callable[..., Run]) -> None:
    config, folder = families["dcgan"]
    run = run_of(config, folder, torch.device("cpu"))
    honest = stand_in(run.state)

    def wrong(body: Callable[[], None]) -> Callable[[], None]:
        replay = honest(body)

        def replayed() -> None:
            replay()
            run.gradients[0].mul_(2)

        return replayed

    run.graph._record = wrong
    run.steps(12)
    assert run.graph.choice.startswith("off: tried, and a step from it has other gradients (relative difference")
    wanted = run_of(config, folder, torch.device("cpu"), why_not="none").steps(12)
    _same(run.state.state_dict(), wanted.state.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_what_cannot_be_recorded_is_made_as_ever(
    precision: str, families: Families, run_of: Callable[..., Run]
) -> None:
    """Half way through the step, as CUDA refuses it: the run goes on from where it was."""
    config, folder = families["dcgan"]
    config = config.replace({"precision": precision})

    def broken(body: Callable[[], None]) -> Callable[[], None]:
        body()
        raise RuntimeError("operation not permitted when stream is capturing\nmore words")

    run = run_of(config, folder, torch.device("cpu"), record=broken).steps(12)
    reason = "it cannot be recorded: operation not permitted when stream is capturing"
    assert run.graph.choice == f"off: tried, and {reason}"
    wanted = run_of(config, folder, torch.device("cpu"), why_not="none").steps(12)
    _same(run.state.state_dict(), wanted.state.state_dict())


@pytest.mark.slow
def test_a_batch_is_read_once_however_many_a_step_has(
    families: Families, run_of: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A critic of two steps looks at two batches; only the trial reads them once more."""
    config, folder = families["resnet"]
    read, honest = list[int](), loader._read

    def noted(*arguments: Any) -> Any:
        read.append(arguments[-1])  # images seen before the batch
        return honest(*arguments)

    monkeypatch.setattr(loader, "_read", noted)
    run = run_of(config, folder, torch.device("cpu")).steps(WARM_UP + 1)
    assert run.graph._recorded
    read.clear()
    run.steps(6)
    assert len(read) == len(set(read)) > 6, "of each batch"


def test_a_line_after_a_graph_was_given_up_still_knows_the_gradients(
    families: Families, run_of: Callable[..., Run]
) -> None:
    config, folder = families["dcgan"]
    run = run_of(config, folder, torch.device("cpu")).steps(12)
    before = [gradient.clone() for gradient in run.gradients]
    recorded = {gradient.data_ptr() for each in run.graph._recorded.values() for _, gradient in each.gradients}
    run.graph._give_up("for a test")
    _same(run.gradients, before)
    assert recorded.isdisjoint(gradient.data_ptr() for gradient in run.gradients), "the graph's memory is free"


def test_a_deterministic_run_bears_no_difference(families: Families, run_of: Callable[..., Run]) -> None:
    config, folder = families["dcgan"]
    for deterministic, said in ((False, "on: asked for"), (True, "off: tried, and a step from it has other gradients")):
        run = run_of(config.replace({"deterministic": deterministic}), folder, torch.device("cpu"))
        honest = stand_in(run.state)

        def nearly(body: Callable[[], None], run: Run = run, honest: Any = honest) -> Callable[[], None]:
            replay = honest(body)

            def replayed() -> None:
                replay()
                run.gradients[0].mul_(1 + 1e-6)

            return replayed

        run.graph._record = nearly
        run.steps(12)
        assert run.graph.choice.startswith(said)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"step_graph": "off"}, "not asked for"),
        ({"cuda_graphs": True, "compile": "on"}, "cuda_graphs"),
        ({"schedules": {"beta2": {"from": 0.9, "to": 0.99, "over_kimg": 8}}, "beta2": 0.9}, "beta2 has a schedule"),
        ({}, ""),
    ],
)
def test_where_there_is_no_graph_it_is_said(tiny_config: TrainConfig, changes: dict[str, Any], reason: str) -> None:
    found = step_graph._why_not(tiny_config.replace(changes), World.alone(torch.device("cuda", 0)))
    assert reason in found
    assert bool(reason) == bool(found)


def test_several_workers_have_one_unless_networks_are_in_parts(tiny_config: TrainConfig) -> None:
    class Several:
        device, control, is_pipelined = torch.device("cuda", 0), object(), False

    assert step_graph._why_not(tiny_config, Several()) == ""  # type: ignore[arg-type]
    assert "sharded" in step_graph._why_not(tiny_config.replace({"shard": "fsdp2"}), Several())  # type: ignore[arg-type]
    Several.is_pipelined = True
    assert "pipeline" in step_graph._why_not(tiny_config, Several())  # type: ignore[arg-type]


WORKERS = """
import json, runpy, sys
from pathlib import Path
import torch
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.averages import FlatAverage
from gangway.trainer.distributed.world import start_world

config, folder, how = TrainConfig.from_file(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3]
Run = runpy.run_path("tests/trainer/steps/test_step_graph.py")["Run"]
messages, average = [], FlatAverage.average
FlatAverage.average = lambda self: (messages.append(1), average(self))[1]
with start_world("gloo") as world:
    device, seen = torch.device("cpu"), {}

    def refuses(body):
        raise RuntimeError("no memory here")

    for mode in ("graph", "ever"):
        options = {"why_not": "none"} if mode == "ever" else {"measured": how == "measured"}
        if how == "one refuses":  # and the other has recorded, which computes nothing
            options["record"] = refuses if world.rank == 1 else lambda body: body
        run = Run(config, folder, device, world, **options)
        before = len(messages)
        run.steps(40 if how == "measured" else 12)
        weights = [p.flatten() for role in run.state.learners for p in role.network.parameters()]
        sent, row = len(messages) - before, torch.cat(weights).tolist()
        seen[mode] = {"choice": run.graph.choice, "weights": row, "sent": sent}
        run.graph.close()
        run.batch.close()
    everyone = world.gather(seen)
    if world.rank == 0:
        Path(sys.argv[4]).write_text(json.dumps(everyone))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["together", "one refuses", "measured"])
def test_workers_record_try_and_judge_together(
    how: str, torchrun: Callable[..., Any], families: Families, tmp_path: Path
) -> None:
    """Two gloo workers, each with the stand-in: what CUDA and NCCL add is left to `make gpu-gate`."""
    config, folder = families["dcgan"]
    script, file, told = tmp_path / "workers.py", tmp_path / "config.json", tmp_path / "told.json"
    script.write_text(WORKERS)
    file.write_text(config.replace({"r1_interval": 4, "step_graph": "on"}).to_json())
    code, text = torchrun(str(script), str(file), str(folder), how, str(told), PYTHONPATH=str(Path.cwd())).finish()
    assert code == 0, text
    first, second = json.loads(told.read_text())
    assert first == second, "replicas and choices are the same"
    assert first["graph"]["weights"] == pytest.approx(first["ever"]["weights"], rel=1e-4, abs=1e-6)
    choice, sent = first["graph"]["choice"], first["graph"]["sent"]
    assert first["ever"]["sent"] == 0
    if how == "together":
        assert choice.startswith("on: asked for")
        assert sent > 0
    elif how == "one refuses":
        assert choice == "off: tried, and it cannot be recorded: no memory here"
    else:
        assert "measured, a step takes " in choice


def test_a_cpu_has_none(tiny_config: TrainConfig) -> None:
    assert "a step on cpu" in step_graph.step_graph(tiny_config, World.alone(torch.device("cpu"))).choice


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("name", FIXED)
def test_on_a_gpu_it_is_the_same_in_truth(
    name: str, precision: str, families: Families, run_of: Callable[..., Run]
) -> None:
    config, folder = families[name]
    every = 1 if config.loss == "wgan-gp" else 4
    config = config.replace({"r1_interval": every, "precision": precision, "tf32": False})
    found = run_of(config, folder, torch.device("cuda", 0)).steps(24)
    wanted = run_of(config, folder, torch.device("cuda", 0), why_not="none").steps(24)
    assert found.graph.choice.startswith("on"), found.graph.choice
    for one, two in zip(found.state.ema.parameters(), wanted.state.ema.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-2, atol=1e-3)
    assert float(found.state.augment_p) == float(wanted.state.augment_p)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_step_that_waits_cannot_be_recorded_and_the_run_goes_on(
    families: Families, run_of: Callable[..., Run]
) -> None:
    config, folder = families["dcgan"]
    run = run_of(config, folder, torch.device("cuda", 0))
    honest = run.state.update_ema

    def waiting() -> None:
        honest()
        float(next(run.state.ema.parameters()).sum())

    run.state.update_ema = waiting  # type: ignore[method-assign]
    run.steps(16)
    assert run.graph.choice.startswith("off: tried, and it cannot be recorded")
    wanted = run_of(config, folder, torch.device("cuda", 0), why_not="none").steps(16)
    _same(run.state.state_dict(), wanted.state.state_dict())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_no_step_from_a_graph_waits(families: Families, run_of: Callable[..., Run]) -> None:
    for name in FIXED:
        for precision in ("fp32", "fp16"):
            config, folder = families[name]
            run = run_of(config.replace({"precision": precision}), folder, torch.device("cuda", 0))
            run.steps(12)
            torch.cuda.set_sync_debug_mode("error")
            try:
                run.steps(8)
            finally:
                torch.cuda.set_sync_debug_mode("default")
