"""Google's own: who is asked to leave, how a node hears of it, and the methods that Google publishes."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.images.node.gcp.notices import LEAVE_TAG
from gangway.jobs.systemd.scaling.base import Change
from tests.google_methods import published

NAMES = ["demo-0-on-demand", "demo-1-spot"]
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def to(nodes: int) -> Change:
    return Change(NAMES[0], 4, nodes, "why")


def asked_to_leave(gce: Any) -> list[str]:
    return sorted(name for name, tags in gce.tags.items() if LEAVE_TAG in tags)


def test_the_newest_nodes_are_asked_and_none_is_ended(gcp_world: Any) -> None:
    then = gcp_world.scaler.carry_out(to(2), NOW)
    gce = gcp_world.cloud
    assert asked_to_leave(gce) == ["demo-0-c", "demo-0-d"]
    assert "demo-0-c, demo-0-d save and then leave" in then
    assert gce.tags["demo-0-d"] == ["gangway-node", LEAVE_TAG], "its other tags are its firewall rules"
    assert gce.groups[NAMES[0]]["targetSize"] == 4
    assert set(gce.groups[NAMES[0]]["instances"]) == {"demo-0-a", "demo-0-b", "demo-0-c", "demo-0-d"}
    first = gcp_world.scaler.get_groups(NAMES)[0]
    assert (first.asked, first.in_service) == (2, 2), "who was asked counts no more"


def test_what_does_not_run_goes_first_for_it_has_nothing_to_save(gcp_world: Any) -> None:
    gce = gcp_world.cloud
    gce.groups[NAMES[0]].update(targetSize=6)
    gce.groups[NAMES[0]]["instances"].update({"demo-0-e": "STAGING", "demo-0-f": "PROVISIONING"})
    gcp_world.scaler.carry_out(Change(NAMES[0], 6, 5, "why"), NOW)
    assert (gce.groups[NAMES[0]]["targetSize"], asked_to_leave(gce)) == (5, [])
    gcp_world.scaler.carry_out(Change(NAMES[0], 5, 3, "why"), NOW)
    assert (gce.groups[NAMES[0]]["targetSize"], asked_to_leave(gce)) == (4, ["demo-0-d"])
    assert sorted(gce.groups[NAMES[0]]["instances"]) == ["demo-0-a", "demo-0-b", "demo-0-c", "demo-0-d"]


def test_another_decision_while_nodes_leave_counts_them(gcp_world: Any) -> None:
    gce = gcp_world.cloud
    gcp_world.scaler.carry_out(to(2), NOW)
    gcp_world.scaler.carry_out(Change(NAMES[0], 2, 3, "why"), NOW)
    assert gce.groups[NAMES[0]]["targetSize"] == 5, "two of them leave by themselves"
    gcp_world.scaler.carry_out(Change(NAMES[0], 3, 1, "why"), NOW)
    assert asked_to_leave(gce) == ["demo-0-b", "demo-0-c", "demo-0-d"]
    assert gcp_world.asked == 2, "one of the five is yet to come, and is no instance"


def test_the_last_change_is_the_newest_of_this_group(gcp_world: Any) -> None:
    gce = gcp_world.cloud
    gce.clock = "2029-12-31T20:00:00.000-04:00"
    gcp_world.scaler.carry_out(to(6), NOW)
    gce.clock = "2030-01-02T00:00:00.000+00:00"
    gce._operate("compute.instanceGroupManagers.resize", "instanceGroupManagers/demo-1-spot")
    gce._operate("setTags", "instances/demo-00-x")
    first = gcp_world.scaler.get_groups(NAMES)[0]
    assert first.changed_at == NOW
    assert first.last_change == "last changed 2030-01-01 00:00 UTC: resized, by ops@example.com"


def test_a_refusal_is_told_in_googles_words(gcp_world: Any) -> None:
    gcp_world.cloud.denied.add("setTags")
    with pytest.raises(InputError) as told:
        gcp_world.scaler.carry_out(to(2), NOW)
    assert "demo-0-c" in told.value.place
    assert "403: Required permission for demo-0-c" in str(told.value)


@pytest.mark.slow
def test_every_call_is_a_method_that_google_publishes(gcp_world: Any) -> None:
    gce = gcp_world.cloud
    gce.groups[NAMES[0]]["instances"]["demo-0-e"] = "STAGING"
    gcp_world.scaler.get_groups(NAMES)
    for nodes in (6, 2):
        gcp_world.scaler.carry_out(to(nodes), NOW)
    found = {method for call in gce.asked("compute") for method in published(call)}
    assert all(published(call) for call in gce.asked("compute"))
    assert found == {
        "compute.instanceGroupManagers.get",
        "compute.instanceGroupManagers.listManagedInstances",
        "compute.instanceGroupManagers.resize",
        "compute.instanceGroupManagers.deleteInstances",
        "compute.instances.get",
        "compute.instances.setTags",
        "compute.zoneOperations.list",
    }
