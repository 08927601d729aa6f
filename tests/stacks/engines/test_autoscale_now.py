"""What `gangway job` says of the number of nodes: by the images that are done and the time that is left."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from components.core.findings import InputError
from stacks.config.stack_config import StackConfig
from stacks.engines import autoscale_now
from stacks.engines.autoscale_now import autoscale_line, check_scaled, scale, why_unknown
from stacks.engines.scaling import Change, GroupState

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]


def edit(values: dict[str, Any]) -> None:
    """One to eight nodes, with networks that more of them train faster."""
    values["gangway:job"] = {
        "preset": "r3gan-imagenet64",
        "kimg": 20_000,
        "max_hours": 300,
        "settings": {"batch_size": 4096},
        "autoscale": {"deadline": "2035-02-01T00:00:00Z"},
    }
    values["gangway:cluster"]["nodes"] = {"min": 1, "max": 8}


def test_a_running_job_is_told_by_what_it_has_done(edited: Edited) -> None:
    config, late = edited(edit), datetime(2035, 2, 1, tzinfo=UTC) - timedelta(hours=5)
    assert "would have 8 nodes" in autoscale_line(config, 0, late)
    assert "would have 1 node" in autoscale_line(config, 19_900_000, late)
    assert "the deadline was 2035-02-01" in autoscale_line(config, 0, late + timedelta(hours=6))


def test_groups_are_asked_once_for_what_the_job_lacks(edited: Edited, monkeypatch: pytest.MonkeyPatch) -> None:
    config, late = edited(edit), datetime(2035, 2, 1, tzinfo=UTC) - timedelta(hours=5)
    asked: list[Change] = []
    group = GroupState("demo-0", most=8, asked=2, in_service=2)
    monkeypatch.setattr(autoscale_now, "groups_of", lambda region, names: [group._replace(name=names[0])])
    monkeypatch.setattr(autoscale_now, "carry_out", lambda region, change, now: asked.append(change))
    outputs = {"group_names": ["demo-0"]}
    (line,) = scale(config, outputs, 0, late)
    assert [(change.was, change.nodes) for change in asked] == [(2, 8)]
    assert "was to have 2 nodes, and now 8" in line
    group = group._replace(changed_at=late - timedelta(minutes=1), changed_why="4 to 2")
    last, why = scale(config, outputs, 0, late)
    assert "4 to 2" in last
    assert "nothing was changed" in why
    over = scale(config, outputs, 0, late + timedelta(hours=6))
    assert "the deadline was" in over[-1]
    assert len(asked) == 1


def test_what_cannot_be_scaled_is_refused(edited: Edited) -> None:
    config = edited(edit)
    with pytest.raises(InputError, match="not up"):
        scale(config, {}, 0, datetime(2035, 1, 1, tzinfo=UTC))
    with pytest.raises(InputError, match="nobody makes the call"):
        check_scaled(config.model_copy(update={"provider": "gcp"}))
    with pytest.raises(InputError, match="what to scale by"):
        check_scaled(edited(lambda values: None))


def test_progress_that_nobody_knows_is_said_where_something_hangs_on_it(edited: Edited) -> None:
    config, now = edited(edit), datetime(2035, 1, 1, tzinfo=UTC)
    assert why_unknown(config, now - timedelta(hours=5), now) == ""
    assert "no record" in why_unknown(config, None, now)
    assert "2034-12-31 17:00" in why_unknown(config, now - timedelta(hours=7), now)
    assert "future" in why_unknown(config, now + timedelta(hours=1), now)

    def by_speed(values: dict[str, Any]) -> None:
        edit(values)
        values["gangway:job"]["autoscale"] = {"images_per_sec": 400}

    assert why_unknown(edited(by_speed), None, now) == ""
