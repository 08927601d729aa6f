"""Updates that wait for averages which still travel: made once, in time, and to the bits of those made at once."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.world import World
from gangway.trainer.phases.losses import DLoss, GLoss, Terms
from gangway.trainer.phases.updates import Accumulator, PhaseClock, get_update
from gangway.trainer.records.run_record import RunRecord
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import get_phases

NOTED = """
import os
from gangway.trainer.run import loop
from gangway.trainer.run.reporter import Reporter
from gangway.trainer.steps.state import TrainState
from gangway.trainer.families.cyclegan import GeneratorsLoss
from gangway.trainer.phases.losses import DLoss, GLoss
from gangway.trainer.distributed.world import World

order = []
def noted(owner, name, what):
    honest = getattr(owner, name)
    def wrapped(*args, **more):
        order.append(what)
        return honest(*args, **more)
    setattr(owner, name, wrapped)

for each in (GLoss, GeneratorsLoss):
    noted(each, "forward", "generates")
noted(TrainState, "update_ema", "updated")
noted(TrainState, "advance", "counted")
settle, is_late, begin, train_one = World.settle, World.is_late, Reporter.begin, loop.train
def settled(loss):
    order.append("settled-g" if isinstance(loss.module, GLoss | GeneratorsLoss) else "settled-d")
    settle(loss)
def begun(*args):
    begin(*args)
    order.clear()  # what was counted before the first step
def and_written(config, run_dir, *more):
    World.is_late = staticmethod((lambda loss: False) if "at-once" in run_dir.name else is_late)
    code = train_one(config, run_dir, *more)
    if os.environ["RANK"] == "0":
        (run_dir / "order.txt").write_text(" ".join(order))
    return code
World.settle, Reporter.begin, loop.train = staticmethod(settled), begun, and_written
"""


@pytest.mark.slow
def test_two_workers_come_to_the_same_bits_whenever_the_update_is_made(
    some_families: dict[str, tuple[TrainConfig, Path]],
    tmp_path: Path,
    torchrun: Callable[..., Any],
    lines_of: Callable[[Path], list[dict[str, Any]]],
    train_each: str,
) -> None:
    """The discriminator's update may wait until the generator has made its fakes; a second session begins anew."""
    argv = []
    for name, (config, data) in some_families.items():
        seldom = {"stats_kimg": 2 * config.step_images / 1000, "checkpoint_kimg": 1.0, "check_gradients_steps": 0}
        base = config.replace({**seldom, "batch_gpu": 4 if name in ("dcgan-ada", "resnet") else 0})
        half: dict[str, object] = {"kimg": config.step_images * (config.total_images // config.step_images // 2) / 1000}
        changes: dict[str, dict[str, object]] = {"late": {}, "at-once": {}, "halves": half}
        for run, change in {**changes, "again": {}}.items():
            path = tmp_path / f"{name}-{run}.json"
            path.write_text(base.replace(change).to_json())
            argv += [str(path), str(tmp_path / f"{name}-{run.replace('again', 'halves')}"), str(data)]
    (tmp_path / "every_run.py").write_text(NOTED + train_each)
    code, output = torchrun(str(tmp_path / "every_run.py"), *argv).finish()
    assert code == 0, output
    for name, (config, _) in some_families.items():
        folders = {run: tmp_path / f"{name}-{run}" for run in ("late", "at-once", "halves")}
        records = {run: RunRecord.read(folder / "run.json") for run, folder in folders.items()}
        assert len(records["halves"].sessions) == 2, name
        late, at_once, halves = (record.state_sha256 for record in records.values())
        assert late == at_once == halves, name
        ticks = [[line for line in lines_of(folders[run]) if "step" in line] for run in ("late", "at-once")]
        for key in ("images", "loss_g", "loss_d", "grad_norm_g", "grad_norm_d", "augment_p", "order"):
            assert [line[key] for line in ticks[0]] == [line[key] for line in ticks[1]], (name, key)
        orders = {run: (folder / "order.txt").read_text() for run, folder in folders.items()}
        steps = config.total_images // config.step_images
        assert orders["late"].count("generates settled-d") == steps, name
        assert "generates settled-d" not in orders["at-once"], name
        assert orders["at-once"].count("settled-d generates") == steps, name
        assert orders["late"].count("counted settled-g updated") == steps, name


def test_an_update_is_made_once_and_when_it_is_asked_for(tiny_config: TrainConfig) -> None:
    world = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "a test's")
    state = TrainState.create(tiny_config, world.device)
    network, loss = state.discriminator, DLoss(state.discriminator, tiny_config)
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = [parameter.clone() for parameter in network.parameters()]
    update = get_update(world, loss, [state.roles["discriminator"]])
    assert all(torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))
    update()
    after = [parameter.clone() for parameter in network.parameters()]
    assert not any(torch.equal(old, new) for old, new in zip(before, after, strict=True))
    update()
    assert all(torch.equal(old, new) for old, new in zip(after, network.parameters(), strict=True))


def test_layers_that_join_after_the_step_take_no_part_in_its_update(
    families: dict[str, tuple[TrainConfig, Path]],
) -> None:
    """Their gradients were zero, which Adam would count as a step of theirs."""
    config, _ = families["progressive"]
    world = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "a test's")
    state = TrainState.create(config, world.device)

    def ages(parameters: list[torch.nn.Parameter]) -> list[float]:
        return [float(state.roles["generator"].learner.state[each].get("step", 0)) for each in parameters]

    sizes = set()
    while state.images < config.total_images:
        idle = state.generator.idle()
        before, others = ages(idle), len(list(state.generator.parameters())) - len(idle)
        for parameter in state.generator.parameters():
            parameter.grad = torch.zeros_like(parameter)
        loss = GLoss(state.generator, state.discriminator, config)
        update = get_update(world, loss, [state.roles["generator"]])
        state.advance()
        update()
        assert ages(idle) == before
        sizes.add(others)
    assert len(sizes) > 1, "it has grown"


def steps(clock: PhaseClock, now: list[float], number: int) -> None:
    """Steps of two phases, of a second and of two, with half a second between steps."""
    for _ in range(number):
        clock.enter("d")
        now[0] += 1.0
        clock.enter("g")
        now[0] += 2.0
        clock.leave()
        now[0] += 0.5


def test_a_phase_lasts_until_the_next_and_the_last_until_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [7.0]
    monkeypatch.setattr("gangway.trainer.phases.updates.time", SimpleNamespace(perf_counter=lambda: now[0]))
    clock = PhaseClock(torch.device("cpu"))
    assert clock.means() == {}
    steps(clock, now, 3)
    assert clock.means() == {"d": 1.0, "g": 2.0}


@pytest.mark.parametrize("device", [None, torch.device("meta")])
def test_elsewhere_nobody_times_them(device: torch.device | None) -> None:
    clock = PhaseClock(device)
    steps(clock, [0.0], 2)
    assert clock.means() == {}


def test_a_gpu_times_some_steps_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = [7.0], list[Any]()

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing
            made.append(self)

        def record(self) -> None:
            self.at = now[0]

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end: "Event") -> float:
            return (end.at - self.at) * 1e3

    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = PhaseClock(torch.device("cuda"))
    steps(clock, now, 33)
    assert len(made) == 3 * 3, "of the first, the 17th and the 33rd step"
    assert clock.means() == {"d": pytest.approx(1.0), "g": pytest.approx(2.0)}
    clock = PhaseClock(torch.device("cuda"))
    assert clock.means() == {}, "no step as ever, as with a graph"


CPU = torch.device("cpu")


def _terms(*means: float) -> Terms:
    return Terms(torch.zeros(()), torch.tensor(means))


def _sums(config: TrainConfig) -> Accumulator:
    small = config.replace({"ngf": 8, "ndf": 8, "z_dim": 2})
    return Accumulator(get_phases(TrainState.create(small, CPU)), CPU)


def test_means_are_per_step_and_penalties_per_step_that_has_one() -> None:
    config = PRESETS["dcgan-digits"]
    sums = _sums(config)
    for step in range(4):
        penalised = step == 0
        sums.add(sums.phases[0], 1.0, _terms(step, 8.0 if penalised else 0.0, 0, 0, 0.5))
        sums.add(sums.phases[1], 1.0, _terms(2.0))
        sums.close_step(penalised=penalised)
    means = sums.cpu().means([sums.tolist()])
    assert means == {"loss_g": 2, "loss_d": 1.5, "r1": 8, "r2": None, "gp": None, "real_sign": 0.5}


def test_a_penalty_is_none_where_no_step_had_it() -> None:
    sums = _sums(PRESETS["dcgan-digits"])
    sums.add(sums.phases[0], 1.0, _terms(1, 0, 0, 0, 0))
    sums.close_step(penalised=False)
    assert sums.means([sums.tolist()])["r1"] is None


def test_steps_of_the_discriminator_and_micro_batches_are_averaged() -> None:
    config: TrainConfig = PRESETS["wgan-gp-cifar10"].replace({"d_steps": 2})
    sums = _sums(config)
    for loss in (1.0, 3.0):
        for weight in (0.25, 0.75):
            sums.add(sums.phases[0], weight, _terms(loss, 0, 0, loss, 0))
    sums.add(sums.phases[1], 1.0, _terms(7.0))
    sums.close_step(penalised=True)
    means = sums.means([sums.tolist()])
    assert (means["loss_d"], means["gp"], means["loss_g"]) == (2, 2, 7)


def test_workers_are_averaged_plainly_because_their_weights_are_in() -> None:
    """5 images over two workers, of losses 1 and 6: the mean of the batch is (3 * 1 + 2 * 6) / 5."""
    config = PRESETS["dcgan-digits"]
    rows = []
    for images, loss in ((3, 1.0), (2, 6.0)):
        sums = _sums(config)
        sums.add(sums.phases[0], images * 2 / 5, _terms(loss, 0, 0, 0, 0))
        sums.close_step(penalised=False)
        rows.append(sums.tolist())
    assert sums.means(rows)["loss_d"] == pytest.approx(3.0)
