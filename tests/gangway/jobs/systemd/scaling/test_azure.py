"""Azure's own: the number in a tag, Microsoft's published calls, and the head that acts on it."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from gangway.components.azure.capacity import FallbackConfig, FallbackGroup
from gangway.components.core.findings import InputError
from gangway.components.estimate.autoscale import Decision
from gangway.images.node.azure.api import AzureApi
from gangway.images.node.azure.fallback import WANTED_TAG, reconcile_once
from gangway.jobs.systemd.scaling.azure import AzureScaler
from gangway.jobs.systemd.scaling.base import AT_TAG, WHY_TAG, Change, GroupState, get_change

NAMES = ["demo-0-on-demand", "demo-1-spot"]
SUBSCRIPTION, CLIENT = "00000000-0000-0000-0000-000000000001", "11111111-2222-3333-4444-555555555555"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
TYPE = "Standard_ND96isr_H100_v5"


def look(azure_vm: Any, folder: Path, *, held: bool = False) -> list[int]:
    """The head's look after it; the sizes after that."""
    groups = tuple(FallbackGroup(name, "spot", TYPE) for name in NAMES)
    config = asdict(FallbackConfig(SUBSCRIPTION, "demo-rg", True, groups, window=1))
    reconcile_once(AzureApi(CLIENT, azure_vm.url, azure_vm.url), config, folder / "fill.json", held=held)
    return [azure_vm.sets[name]["capacity"] for name in NAMES]


def means(states: Sequence[GroupState], nodes: int) -> Change | str:
    """What a wanted number of nodes means now."""
    return get_change(states, Decision(nodes, "why", reached=True, possible=True), 1, 900, NOW)


def apart(azure_vm: Any, session: requests.Session) -> AzureScaler:
    """Where one scale set at a time is filled."""
    url = f"{azure_vm.url}/management.azure.com"
    return AzureScaler(session, SUBSCRIPTION, "demo-rg", together=False, is_held=False, api_url=url)


def test_the_number_stands_in_a_tag_with_when_and_why(azure_world: Any) -> None:
    then = azure_world.scaler.carry_out(Change(NAMES[0], 4, 6, "6 nodes: enough"), NOW)
    assert "head" in then
    tags = azure_world.cloud.tags
    assert (tags[WANTED_TAG], tags[WHY_TAG]) == ("6", "4 to 6: 6 nodes: enough")
    assert datetime.fromisoformat(tags[AT_TAG]) == NOW
    assert tags["gangway-nodes"] == "8", "others stay"
    assert [call.method for call in azure_world.cloud.calls].count("PATCH") == 1
    assert azure_world.cloud.sets[NAMES[0]]["capacity"] == 4, "sizes are the head's"


@pytest.mark.parametrize(("nodes", "sizes"), [(6, [6, 0]), (2, [2, 0])])
def test_the_head_acts_on_it_at_its_next_look(azure_world: Any, tmp_path: Path, nodes: int, sizes: list[int]) -> None:
    azure_world.scaler.carry_out(Change(NAMES[0], 4, nodes, "why"), NOW)
    assert look(azure_world.cloud, tmp_path) == sizes


def test_while_launches_are_held_the_head_lets_nodes_go_alone(azure_world: Any, tmp_path: Path) -> None:
    azure_world.scaler.carry_out(Change(NAMES[0], 4, 6, "why"), NOW)
    assert look(azure_world.cloud, tmp_path, held=True) == [4, 0]
    azure_world.scaler.carry_out(Change(NAMES[0], 4, 3, "why"), NOW)
    assert look(azure_world.cloud, tmp_path, held=True) == [3, 0]


def test_nobody_is_sent_away_who_would_not_hear_of_it(azure_world: Any, session: requests.Session) -> None:
    """Azure's notice is not for spot."""
    azure_world.cloud.sets[NAMES[0]]["model"] = {"priority": "Spot"}
    states = azure_world.scaler.get_groups(NAMES)
    stays = means(states, 2)
    assert isinstance(stays, str)
    assert "without notice" in stays
    assert isinstance(means(states, 6), Change)
    # Where the sets take turns, it is the filled one's nodes that would go.
    azure_world.cloud.sets[NAMES[0]].update(model={"priority": "Regular"}, capacity=0)
    azure_world.cloud.sets[NAMES[1]]["capacity"] = 4
    assert apart(azure_world.cloud, session).get_groups(NAMES)[0].why_not_in
    assert not azure_world.scaler.get_groups(NAMES)[0].why_not_in


def test_sets_that_hold_nothing_are_left_alone(azure_world: Any) -> None:
    azure_world.cloud.sets[NAMES[0]].update(capacity=0, machines={})
    found = means(azure_world.scaler.get_groups(NAMES), 2)
    assert isinstance(found, str)
    assert "is empty" in found


@pytest.mark.parametrize("tags", [{}, {"gangway-nodes": "8"}, {"gangway-nodes": "8", "gangway-nodes-min": "few"}])
def test_tags_that_somebody_took_away_are_told(azure_world: Any, tags: dict[str, str]) -> None:
    azure_world.cloud.tags = tags
    with pytest.raises(InputError, match="tags do not say how many") as told:
        azure_world.scaler.get_groups(NAMES)
    assert told.value.fix


def test_who_is_not_let_in_is_told_in_azures_words(azure_world: Any) -> None:
    azure_world.cloud.tokens.clear()
    with pytest.raises(InputError) as told:
        azure_world.scaler.get_groups(NAMES)
    assert "401: InvalidAuthenticationToken" in str(told.value)
    assert told.value.fix.startswith("az login")


def published(call: Any) -> tuple[str, str]:
    """Method and path of Microsoft's own clients for a call."""
    from azure.mgmt.compute.operations import _operations as compute
    from azure.mgmt.resource.resources.operations import _operations as resources

    _, _, subscription, _, group, _, _, _, name, *below = call.path.split("/")[1:]
    place = {"resource_group_name": group, "subscription_id": subscription}
    if call.method == "PATCH":
        scope = call.path.removeprefix("/management.azure.com/").partition("/providers/Microsoft.Resources/")[0]
        request = resources.build_tags_update_at_scope_request(scope)
    elif below:
        request = compute.build_virtual_machine_scale_set_vms_list_request(virtual_machine_scale_set_name=name, **place)
    else:
        request = compute.build_virtual_machine_scale_sets_get_request(vm_scale_set_name=name, **place)
    return request.method, request.url.partition("?")[0]


def test_every_call_is_one_of_microsofts_own_clients(azure_world: Any) -> None:
    azure_world.scaler.get_groups(NAMES)
    azure_world.scaler.carry_out(Change(NAMES[0], 4, 6, "why"), NOW)
    calls = azure_world.cloud.asked("management.azure.com")
    assert {call.method for call in calls} == {"GET", "PATCH"}
    for call in calls:
        method, path = published(call)
        assert (call.method, call.path) == (method, f"/management.azure.com{path}")
