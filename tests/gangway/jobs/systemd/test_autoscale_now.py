"""What `gangway job` says of the number of nodes: by the images that are done and the time that is left."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.systemd.autoscale_now import autoscale_line, check_scaled, scale, why_unknown
from gangway.jobs.systemd.scaling.base import Change, GroupState
from gangway.stacks.config.stack_config import StackConfig

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


@pytest.mark.slow
def test_a_running_job_is_told_by_what_it_has_done(edited: Edited) -> None:
    config, late = edited(edit), datetime(2035, 2, 1, tzinfo=UTC) - timedelta(hours=5)
    assert "wants 8 nodes" in autoscale_line(config, 0, late)
    assert "wants 1 node" in autoscale_line(config, 19_900_000, late)
    assert "the deadline was 2035-02-01" in autoscale_line(config, 0, late + timedelta(hours=6))


class Group:
    """A scaler of one group, which does what it is asked for later."""

    def __init__(self, state: GroupState) -> None:
        self.state, self.asked = state, list[Change]()

    def get_groups(self, names: Sequence[str]) -> list[GroupState]:
        return [self.state._replace(name=names[0])]

    def carry_out(self, change: Change, now: datetime) -> str:
        self.asked.append(change)
        return "in a minute"


@pytest.mark.slow
def test_groups_are_asked_once_for_what_the_job_lacks(edited: Edited) -> None:
    config, late = edited(edit), datetime(2035, 2, 1, tzinfo=UTC) - timedelta(hours=5)
    group = Group(GroupState("", most=8, asked=2, in_service=2))
    (told,) = scale(config, group, ["demo-0"], 0, late, dry_run=True)
    assert "would change from 2 to 8 nodes" in told
    assert group.asked == []
    (line,) = scale(config, group, ["demo-0"], 0, late)
    assert [(change.group, change.was, change.nodes) for change in group.asked] == [("demo-0", 2, 8)]
    assert "changed from 2 to 8 nodes" in line
    assert line.endswith("; in a minute")
    group.state = group.state._replace(changed_at=late - timedelta(minutes=1), changed_why="4 to 2")
    last, why = scale(config, group, ["demo-0"], 0, late)
    assert "4 to 2" in last
    assert "nothing was changed" in why
    over = scale(config, group, ["demo-0"], 0, late + timedelta(hours=6))
    assert "the deadline was" in over[-1]
    assert len(group.asked) == 1


def test_what_cannot_be_scaled_is_refused(edited: Edited, gcp_edited: Callable[..., StackConfig]) -> None:
    check_scaled(edited(edit))
    job = {"autoscale": {"images_per_sec": 400}}
    check_scaled(gcp_edited("gcp-a3-spot", job=job))
    check_scaled(gcp_edited("azure-ndv5-spot", job=job))
    with pytest.raises(InputError, match="Gangway cannot resize groups"):
        check_scaled(gcp_edited("openstack-gpu", job=job))
    with pytest.raises(InputError, match="slices"):
        check_scaled(gcp_edited("gcp-v5e-pod", job=job))
    with pytest.raises(InputError, match="with one request"):
        check_scaled(
            gcp_edited("gcp-a3-spot", job=job, cluster={"capacity": [{"kind": "flex-start", "max_hours": 24}]})
        )
    with pytest.raises(InputError, match="no autoscale section"):
        check_scaled(edited(lambda values: None))


def test_progress_that_nobody_knows_is_said_where_something_hangs_on_it(edited: Edited) -> None:
    config, now = edited(edit), datetime(2035, 1, 1, tzinfo=UTC)
    assert why_unknown(config, now - timedelta(hours=5), now) == ""
    assert "no node has reported" in why_unknown(config, None, now)
    assert "2034-12-31 17:00" in why_unknown(config, now - timedelta(hours=7), now)
    assert "future" in why_unknown(config, now + timedelta(hours=1), now)

    def by_speed(values: dict[str, Any]) -> None:
        edit(values)
        values["gangway:job"]["autoscale"] = {"images_per_sec": 400}

    assert why_unknown(edited(by_speed), None, now) == ""


@pytest.mark.slow
def test_a_number_that_hangs_on_progress_that_nobody_knows_says_so(edited: Edited) -> None:
    config, late = edited(edit), datetime(2035, 2, 1, tzinfo=UTC) - timedelta(hours=5)
    unknown = why_unknown(config, None, late)
    assert unknown
    assert unknown not in autoscale_line(config, 0, late)
    doubted = autoscale_line(config, 0, late, unknown)
    assert unknown in doubted
    assert "at 0 images it wants 8 nodes" in doubted
    assert "--scale --images N" in doubted


def bounded(values: dict[str, Any]) -> None:
    edit(values)
    values["gangway:job"]["controller"] = {"bounds": {"usd_per_hour": 0.5}}


def short_of_money(values: dict[str, Any]) -> None:
    edit(values)
    values["gangway:job"]["autoscale"] = {"budget_usd": 0.5}


@pytest.mark.slow
@pytest.mark.parametrize("cannot_be_planned", [bounded, short_of_money])
def test_what_cannot_be_planned_any_more_is_a_line_and_refused_where_it_is_asked_for(
    edited: Edited, cannot_be_planned: Callable[[dict[str, Any]], None]
) -> None:
    """As after a price has risen."""
    config, now = edited(cannot_be_planned), datetime(2035, 1, 1, tzinfo=UTC)
    told = autoscale_line(config, 0, now)
    assert told.startswith("autoscale: unknown: ")
    assert "0.5" in told
    assert "\n" not in told
    group = Group(GroupState("", most=8, asked=2, in_service=2))
    with pytest.raises(InputError):
        scale(config, group, ["demo-0"], 0, now)
    assert group.asked == []
