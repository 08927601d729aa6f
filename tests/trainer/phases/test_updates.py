"""Updates that wait for averages which still travel: made once, in time, and to the bits of those made at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.world import World
from gangway.trainer.phases.losses import DLoss, GLoss
from gangway.trainer.phases.updates import get_update
from gangway.trainer.records.run_record import RunRecord
from gangway.trainer.steps.state import TrainState

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
