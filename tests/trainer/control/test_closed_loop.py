"""What every policy that learns a machine does in a closed loop."""

from dataclasses import replace
from typing import Literal

import pytest

from gangway.trainer.config.values.control import Objective
from tests.trainer.control import rooms

Policy = Literal["learned", "model"]


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "intervals"), [("learned", 120), ("model", 60)])
@pytest.mark.parametrize("start", rooms.WRONG)
@pytest.mark.parametrize("objective", ["time", "cost", "energy", "carbon"])
@pytest.mark.parametrize("seed", range(3))
def test_it_ends_near_the_best_setting(
    policy: Policy, intervals: int, start: rooms.Start, objective: Objective, seed: int
) -> None:
    loop = rooms.loop_of(policy, start, intervals, objective, seed)
    history = loop.run().history
    assert loop.kept(history) >= 0.9 * loop.best(rooms.ALLOWED)
    assert loop.made(history) > 1.1


@pytest.mark.parametrize(("policy", "intervals"), [("learned", 60), ("model", 40)])
def test_without_a_noise_scale_the_batch_stays(policy: Policy, intervals: int) -> None:
    machine, knobs = rooms.BATCH_TOO_SMALL
    history = rooms.loop_of(policy, (replace(machine, noise_scale=None), knobs), intervals).run().history
    assert {each.knobs.batch_size for each in history} == {knobs.batch_size}
