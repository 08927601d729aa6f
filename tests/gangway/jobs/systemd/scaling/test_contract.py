"""What every provider's scaler does alike: the same ladder, the same numbers wanted, the same ends."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.components.estimate.autoscale import Decision
from gangway.jobs.systemd.autoscale_now import get_scaler, group_names
from gangway.jobs.systemd.scaling.aws import AwsScaler
from gangway.jobs.systemd.scaling.base import Change, find_nodes, get_change, since_change_sec
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.program import get_program

NAMES = ["demo-0-on-demand", "demo-1-spot"]
NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOLD_SEC = 900.0


def wants(nodes: int) -> Decision:
    return Decision(nodes, f"{nodes} nodes: enough", reached=True, possible=True)


def change(world: Any, nodes: int, at: datetime = NOW, scaler: Any = None) -> Change | str:
    """What a wanted number means now, at least one node being kept."""
    return get_change((scaler or world.scaler).get_groups(NAMES), wants(nodes), 1, HOLD_SEC, at)


def test_groups_are_told_as_they_are(world: Any) -> None:
    first, second = world.scaler.get_groups(NAMES)
    assert (first.name, first.most, first.asked, first.in_service) == (NAMES[0], 8, 4, 4)
    assert (second.name, second.asked, second.in_service) == (NAMES[1], 0, 0)
    assert (first.changed_at, first.last_change, first.why_not_in) == (None, "", "")
    assert find_nodes([first, second]) == 4


@pytest.mark.parametrize(("wanted", "becomes"), [(6, 6), (2, 2), (99, 8), (0, 1)])
def test_out_in_over_and_below_what_may_be(world: Any, wanted: int, becomes: int) -> None:
    found = change(world, wanted)
    assert isinstance(found, Change)
    assert (found.was, found.nodes) == (4, becomes)
    world.scaler.carry_out(found, NOW)
    first, second = world.scaler.get_groups(NAMES)
    assert first.asked == becomes
    assert second.asked == 0, "the rungs below are not pulled at"
    assert isinstance(change(world, wanted, NOW + timedelta(days=1)), str), "and that was all"


def test_a_change_holds_the_next_back(world: Any) -> None:
    found = change(world, 2)
    assert isinstance(found, Change)
    world.scaler.carry_out(found, NOW)
    first = world.scaler.get_groups(NAMES)[0]
    assert since_change_sec([first], NOW) == 0
    assert first.last_change.startswith("last changed 2030-01-01 00:00 UTC: ")
    soon = change(world, 6, NOW + timedelta(minutes=14))
    assert isinstance(soon, str)
    assert "14 min" in soon
    assert isinstance(change(world, 6, NOW + timedelta(minutes=15)), Change)


def test_what_is_there_already_is_not_asked_for(world: Any) -> None:
    found = change(world, 4)
    assert isinstance(found, str)
    assert "already has 4" in found


def test_an_open_breaker_lets_nodes_out_and_none_in(world: Any) -> None:
    scaler = world.held()
    out = change(world, 6, scaler=scaler)
    assert isinstance(out, str)
    assert "gangway breaker show" in out
    found = change(world, 3, scaler=scaler)
    assert isinstance(found, Change)
    scaler.carry_out(found, NOW)
    assert world.asked == 3


def test_a_group_that_is_not_there_is_named(world: Any) -> None:
    with pytest.raises(InputError, match=r"demo-0-gone.*does not exist") as told:
        world.scaler.get_groups(["demo-0-gone", NAMES[1]])
    assert told.value.fix


@pytest.mark.parametrize("nodes", [2, 6])
def test_what_the_provider_refuses_changes_nothing(world: Any, nodes: int) -> None:
    found = change(world, nodes)
    assert isinstance(found, Change)
    world.refuse()
    with pytest.raises(InputError) as told:
        world.scaler.carry_out(found, NOW)
    assert "docs/controller.md" in told.value.fix
    assert world.asked == 4


class Nobody:
    """A session for which nothing is there."""

    status_code, text = 404, "{}"

    def __init__(self) -> None:
        self.urls: list[str] = []

    def request(self, method: str, url: str, **_: Any) -> "Nobody":
        self.urls.append(f"{method} {url}")
        return self


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Nobody:
    """Logged in at both clouds."""
    made = Nobody()
    monkeypatch.setattr("gangway.components.core.http_session.open_session", lambda _: made)
    monkeypatch.setattr("gangway.components.gcp.tpu.api.open_session", lambda _: made)
    return made


def test_on_aws_it_is_the_stacks_region(demo_config: StackConfig) -> None:
    names = group_names(demo_config, {"group_names": ["demo-0"]})
    assert isinstance(get_scaler(demo_config, {}, names, is_held=False), AwsScaler)
    with pytest.raises(InputError, match="the stack is not up"):
        group_names(demo_config, {"group_names": None})


def test_on_azure_it_is_the_stacks_resource_group(azure_configs: dict[str, StackConfig], nobody: Nobody) -> None:
    config = azure_configs["azure-ndv5-spot"]
    scaler = get_scaler(config, {"resource_group": "demo-rg"}, ["demo-0"], is_held=False)
    with pytest.raises(InputError, match="does not exist"):
        scaler.get_groups(["demo-0"])
    place = f"/subscriptions/{get_program('azure').plan(config).subscription_id}/resourceGroups/demo-rg/providers"
    assert nobody.urls == [f"GET https://management.azure.com{place}/Microsoft.Compute/virtualMachineScaleSets/demo-0"]


def test_on_google_it_is_the_stacks_project_and_each_rungs_zone(
    gcp_configs: dict[str, StackConfig], nobody: Nobody
) -> None:
    config = gcp_configs["gcp-a3-spot"]
    planned, names = get_program("gcp").plan(config), [f"demo-{rung}" for rung in range(len(config.cluster.capacity))]
    scaler = get_scaler(config, {}, names, is_held=False)
    with pytest.raises(InputError, match="does not exist"):
        scaler.get_groups(names)
    place = f"projects/{planned.project}/zones/{planned.zone}/instanceGroupManagers/demo-0"
    assert nobody.urls == [f"GET https://compute.googleapis.com/compute/v1/{place}"]
