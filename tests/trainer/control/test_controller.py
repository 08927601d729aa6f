"""What a controller says when its session begins."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gangway.trainer.config.values.control import ControlSettings
from gangway.trainer.control.controller import Controller
from gangway.trainer.control.guardrails import Machine, failures
from gangway.trainer.control.interval import Interval, Knobs
from gangway.trainer.distributed.world import World

START = Knobs(64, loader_threads=1)
LIMITED = START._replace(power_share=0.8)


@pytest.mark.parametrize(
    ("before", "is_told"),
    [(LIMITED, True), (START, False)],  # the session before had it; or could not set it either, and has said so
)
def test_what_cannot_be_set_again_is_told_once(tmp_path: Path, before: Knobs, is_told: bool) -> None:
    events, said = list[dict[str, Any]](), list[str]()
    controller = Controller(
        ControlSettings(),
        cast(World, SimpleNamespace(rank=0)),
        Machine(4),
        START,
        0,
        tmp_path,
        [Interval(0, 10.0, 100.0, LIMITED), Interval(64, 10.0, 100.0, before)],
        lambda event, images, **details: events.append(details),
        said.append,
    )
    now = START._replace(loader_threads=2)
    controller.begin(START, {"power_share": 0.8, "loader_threads": 2}, now, 64, {"power_share": "no leave"})
    assert said[0] == "controller: loader_threads is 2, as an earlier session decided, not 1"
    assert [(each["value"], each["was"], each["outcome"]) for each in events] == [(0.8, 1.0, "failed")] * is_told
    assert failures(controller._history, "power_share") == is_told
