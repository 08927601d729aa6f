"""The head's look after the ladder: real decisions against scale sets in small."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.azure import capacity
from gangway.components.azure.capacity import FallbackConfig, FallbackGroup
from gangway.components.azure.policies import ENDED_TAG, LEAST_NODES_TAG, NODES_TAG
from gangway.images.node.azure import fallback as azure_fallback

TYPE = "Standard_ND96isr_H100_v5"
GROUPS = tuple(FallbackGroup(f"demo-{place}-{kind}", kind, TYPE) for place, kind in enumerate(("spot", "on-demand")))
SUBSCRIPTION, CLIENT = "00000000-0000-0000-0000-000000000001", "11111111-2222-3333-4444-555555555555"
RUNS_URL = "https://gwdemo.blob.core.windows.net/runs/demo"
HELD_URL = "https://gwdemo.blob.core.windows.net/runs/demo/job/breaker/held.json"


@pytest.fixture
def head(azure_vm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """A head node: its one look. Both scale sets are empty."""
    azure_vm.sets.clear()
    for group in GROUPS:
        azure_vm.add_set(group.name, 0, {})
    monkeypatch.setenv("GANGWAY_METADATA_URL", azure_vm.url)
    monkeypatch.setenv("GANGWAY_API_URL", azure_vm.url)
    monkeypatch.setenv("GANGWAY_CLIENT_ID", CLIENT)
    monkeypatch.setenv("GANGWAY_STATE_DIR", str(tmp_path / "state"))

    def look(*, together: bool = False) -> int:
        config = FallbackConfig(SUBSCRIPTION, "demo-rg", together, GROUPS, window=3)
        (tmp_path / "capacity.json").write_text(json.dumps(config.to_json()))
        return azure_fallback.main([str(tmp_path / "capacity.json"), RUNS_URL, HELD_URL])

    return look


def sizes(azure_vm: Any) -> list[int]:
    return [azure_vm.sets[group.name]["capacity"] for group in GROUPS]


def patches(azure_vm: Any) -> list[Any]:
    return [call.body for call in azure_vm.asked("management.azure.com") if call.method == "PATCH"]


def run(azure_vm: Any, group: int, states: str) -> None:
    """The machines of a scale set: r runs, s has stopped, f was never made, c is being made."""
    words = {"r": "running", "s": "stopped", "f": "Failed", "c": "starting"}
    azure_vm.sets[GROUPS[group].name]["machines"] = {str(n): words[state] for n, state in enumerate(states)}


def lines(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """What the last looks said: events and their reasons."""
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    return [(line["event"], line["reason"]) for line in said]


def test_the_first_look_asks_for_the_first_scale_sets_nodes(
    azure_vm: Any, head: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert head() == 0
    assert sizes(azure_vm) == [4, 0]
    assert patches(azure_vm) == [{"sku": {"name": TYPE, "tier": "Standard", "capacity": 4}}], "the size, and no more"
    looked, changed = map(json.loads, capsys.readouterr().err.splitlines())
    assert looked == {
        "event": "ladder-looked", "reason": "requested: 2 to 4 nodes", "running": [0, 0], "asked": [0, 0],
    }  # fmt: skip
    assert changed == {"event": "ladder-changed", "reason": "demo-0-spot (spot): 0 -> 4 nodes"}


def test_a_scale_set_without_the_minimum_is_emptied_before_the_next_is_filled(
    azure_vm: Any, head: Callable[..., int], tmp_path: Path
) -> None:
    run(azure_vm, 0, "r")
    seen = []
    for _ in range(4):
        assert head() == 0
        seen.append(sizes(azure_vm))
    assert seen == [[4, 0], [4, 0], [0, 0], [0, 4]]
    state = json.loads((tmp_path / "state/fill.json").read_text())
    assert (state["active"], len(state["history"])) == (1, 1), "counts of before say nothing of what comes"


def test_a_scale_set_that_holds_the_minimum_now_and_then_stays(azure_vm: Any, head: Callable[..., int]) -> None:
    for states in ("r", "rr", "r", "", "rrc"):
        run(azure_vm, 0, states)
        assert head() == 0
    assert sizes(azure_vm) == [4, 0]


def test_after_a_restart_the_head_goes_on_with_the_fullest(azure_vm: Any, head: Callable[..., int]) -> None:
    azure_vm.sets["demo-1-on-demand"]["capacity"] = 4
    run(azure_vm, 1, "rrrr")
    assert head() == 0
    assert (sizes(azure_vm), patches(azure_vm)) == ([0, 4], [])


def test_over_ethernet_the_others_make_up_for_what_lacks(azure_vm: Any, head: Callable[..., int]) -> None:
    run(azure_vm, 0, "r")
    for _ in range(3):
        assert head(together=True) == 0
    assert sizes(azure_vm) == [4, 1]


def test_what_never_ran_or_has_stopped_is_deleted_and_asked_for_again(
    azure_vm: Any, head: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    azure_vm.sets["demo-0-spot"]["capacity"] = 4
    run(azure_vm, 0, "rfsc")
    assert head() == 0
    assert azure_vm.sets["demo-0-spot"]["machines"] == {"0": "running", "3": "starting"}
    assert "demo-0-spot: deleted 1, failed to start or stopped" in capsys.readouterr().err
    assert sizes(azure_vm) == [4, 0], "deleting made it smaller"


def test_no_capacity_is_no_error_and_asked_for_again(
    azure_vm: Any, head: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    azure_vm.without_capacity.add("demo-0-spot")
    assert [head(), head()] == [0, 0]
    assert (len(patches(azure_vm)), sizes(azure_vm)) == (2, [0, 0])
    assert "0 -> 4 nodes: no capacity now" in capsys.readouterr().err
    assert [head(), head()] == [0, 0]
    assert sizes(azure_vm) == [0, 4]


QUOTA = json.dumps(
    {
        "error": {
            "code": "OperationNotAllowed",
            "message": "Operation could not be completed as it results in exceeding approved LowPriorityCores quota. "
            "Additional details - Deployment Model: Resource Manager, Location: eastus, Current Limit: 3",
        }
    }
)


def error(code: str, *details: str) -> str:
    """An answer of Resource Manager's."""
    inner = [{"code": detail, "message": "Allocation failed."} for detail in details]
    return json.dumps({"error": {"code": code, "message": "It failed.", "details": inner}})


@pytest.mark.parametrize(
    ("text", "none"),
    [
        (error("AllocationFailed"), True),
        (error("ZonalAllocationFailed"), True),
        (error("OverconstrainedZonalAllocationRequest"), True),
        (error("SpotPriceGreaterThanProvidedMaxPrice"), True),
        (error("ResourceOperationFailure", "OverconstrainedAllocationRequest"), True),
        (json.dumps({"error": {"code": "Conflict", "message": error("SkuNotAvailable")}}), True),
        (QUOTA, False),
        (error("AllocationFailed", "OperationNotAllowed"), False),
        (error("Conflict"), False),
        ("SkuNotAvailable is what a page of a proxy says", False),
        ("", False),
    ],
)
def test_only_codes_that_mean_it_are_none_to_be_had(text: str, none: bool) -> None:
    assert azure_fallback.is_capacity_error(f"409: PATCH https://management.azure.com/...: {text}") is none


def test_a_quota_is_no_want_of_machines(
    azure_vm: Any, head: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is 409 as well, and would be asked for for ever without a word."""
    azure_vm.refusals["demo-0-spot"] = 409, QUOTA
    assert head() == 1
    _, (event, reason) = lines(capsys)
    assert event == "ladder-refused"
    assert reason.startswith("demo-0-spot (spot): 0 -> 4 nodes: 409: PATCH ")
    assert "exceeding approved LowPriorityCores quota" in reason, "Azure's own words"


def test_a_rung_that_is_refused_takes_no_other_its_turn(azure_vm: Any, head: Callable[..., int]) -> None:
    azure_vm.refusals["demo-0-spot"] = 409, QUOTA
    assert [head() for _ in range(4)] == [1, 1, 0, 0]
    assert sizes(azure_vm) == [0, 4], "the next is filled when the first has not held the minimum"
    azure_vm.sets["demo-1-on-demand"]["capacity"] = 0
    assert [head(together=True) for _ in range(3)] == [1, 1, 1]
    assert sizes(azure_vm) == [0, 2], "and over Ethernet beside it"


def test_machines_that_could_not_be_made_say_why(
    azure_vm: Any, head: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """A size may be accepted and its machines fail afterwards."""
    azure_vm.sets["demo-0-spot"]["capacity"] = 4
    run(azure_vm, 0, "ff")
    azure_vm.why_failed = {"0": ("AllocationFailed", "too few"), "1": ("OSProvisioningTimedOut", "did not finish")}
    assert head() == 1
    said = dict(line for line in lines(capsys) if "failed to start" in line[1])
    assert 'deleted 0, failed to start or stopped ("code": "AllocationFailed", too few)' in said["ladder-changed"]
    assert 'deleted 1, failed to start or stopped ("code": "OSProvisioningTimedOut", did not' in said["ladder-refused"]


def test_what_the_head_may_not_do_is_told(
    azure_vm: Any, head: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    azure_vm.denied.add("PATCH")
    assert head() == 1
    _, (event, reason) = lines(capsys)
    assert (event, "403: PATCH" in reason) == ("ladder-refused", True)
    azure_vm.denied = {"GET"}
    assert head() == 1
    ((event, reason),) = lines(capsys)
    assert event == "ladder-not-kept"
    assert reason.startswith("not allowed to size the groups, will retry in a minute: 403: GET ")


def test_another_number_of_nodes_is_asked_for_from_the_next_look_on(azure_vm: Any, head: Callable[..., int]) -> None:
    """`up` writes it into tags: in the head's own configuration it would be another head."""
    assert (azure_fallback.MOST_TAG, azure_fallback.LEAST_TAG) == (NODES_TAG, LEAST_NODES_TAG)
    assert head() == 0
    azure_vm.tags |= {NODES_TAG: "6", LEAST_NODES_TAG: "3"}
    run(azure_vm, 0, "rr")
    seen = []
    for _ in range(4):
        assert head() == 0
        seen.append(sizes(azure_vm))
    assert seen[0] == [6, 0]
    assert seen[-1] == [0, 6], "two are fewer than three"


@pytest.mark.parametrize(("wanted", "size"), [("3", 3), ("4", 4), ("9", 4), ("1", 2), ("0", 2), ("-5", 2)])
@pytest.mark.parametrize("together", [True, False])
def test_a_number_that_is_asked_for_now_counts_between_least_and_most(
    azure_vm: Any, head: Callable[..., int], wanted: str, size: int, together: bool
) -> None:
    """`gangway job --scale` writes it on the first scale set."""
    azure_vm.tags[azure_fallback.WANTED_TAG] = wanted
    assert head(together=together) == 0
    assert sizes(azure_vm) == [size, 0]
    run(azure_vm, 0, "rrrr"[:size])
    del azure_vm.tags[azure_fallback.WANTED_TAG]
    assert head(together=together) == 0
    assert sizes(azure_vm) == [4, 0], "an `up` has taken it away"


def test_a_smaller_number_pulls_against_no_rung_below(azure_vm: Any, head: Callable[..., int]) -> None:
    run(azure_vm, 0, "r")
    for _ in range(3):
        assert head(together=True) == 0
    assert sizes(azure_vm) == [4, 1]
    azure_vm.tags[azure_fallback.WANTED_TAG] = "2"
    run(azure_vm, 1, "r")
    for _ in range(4):
        assert head(together=True) == 0
    assert sizes(azure_vm) == [2, 1], "the least that there must be is made up for as ever"


def test_while_launches_are_held_who_is_not_wanted_may_go(azure_vm: Any, head: Callable[..., int]) -> None:
    azure_vm.sets[GROUPS[0].name]["capacity"] = 4
    run(azure_vm, 0, "rrrr")
    azure_vm.blobs["gwdemo/runs/demo/job/breaker/held.json"] = b"{}"
    azure_vm.tags[azure_fallback.WANTED_TAG] = "3"
    assert head() == 0
    assert sizes(azure_vm) == [3, 0]
    azure_vm.tags[azure_fallback.WANTED_TAG] = "4"
    assert head() == 0
    assert sizes(azure_vm) == [3, 0], "and nobody comes"


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {NODES_TAG: "4"},
        {NODES_TAG: "many", LEAST_NODES_TAG: "2"},
        {NODES_TAG: "4", LEAST_NODES_TAG: "2", azure_fallback.WANTED_TAG: "a few"},
    ],
)
def test_tags_that_somebody_took_away_are_told(
    azure_vm: Any, head: Callable[..., int], capsys: pytest.CaptureFixture[str], tags: dict[str, str]
) -> None:
    azure_vm.tags = {ENDED_TAG: "job/ended-1", **tags}
    assert head() == 1
    said = capsys.readouterr().err
    assert "demo-0-spot: the tags gangway-nodes-min, gangway-nodes and gangway-nodes-wanted must be numbers" in said
    assert patches(azure_vm) == []


def test_while_launches_are_held_none_is_asked_for_and_who_stopped_is_taken_away(
    azure_vm: Any, head: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    azure_vm.sets[GROUPS[0].name]["capacity"] = 3
    run(azure_vm, 0, "rsf")
    azure_vm.blobs["gwdemo/runs/demo/job/breaker/held.json"] = b"{}"
    assert head() == 0
    assert azure_vm.sets[GROUPS[0].name]["machines"] == {"0": "running"}
    assert patches(azure_vm) == []
    assert "launches are held" in capsys.readouterr().err
    del azure_vm.blobs["gwdemo/runs/demo/job/breaker/held.json"]
    assert head() == 0
    assert sizes(azure_vm) == [4, 0]


def test_nothing_is_filled_for_a_job_that_has_ended(
    azure_vm: Any, head: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    azure_vm.blobs["gwdemo/runs/demo/job/ended-1"] = b"0 done\n"
    assert head() == 0
    assert sizes(azure_vm) == [0, 0]
    assert "the job has ended" in capsys.readouterr().err


def test_more_hours_continue_a_job_that_has_ended(azure_vm: Any, head: Callable[..., int]) -> None:
    """`up` writes the new mark into the tags."""
    assert azure_fallback.ENDED_TAG == ENDED_TAG
    azure_vm.blobs["gwdemo/runs/demo/job/ended-1"] = b"6 hours over\n"
    assert head() == 0
    azure_vm.tags[ENDED_TAG] = "job/ended-2"
    assert head() == 0
    assert sizes(azure_vm) == [4, 0]


def test_a_scale_set_without_the_mark_is_told(
    azure_vm: Any, head: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    del azure_vm.tags[ENDED_TAG]
    assert head() == 1
    assert "demo-0-spot: has no tag gangway-ended; fix: pulumi up" in capsys.readouterr().err
    assert patches(azure_vm) == []


def test_whether_it_has_ended_must_be_known(azure_vm: Any, head: Callable[..., int]) -> None:
    azure_vm.denied.add("blob.core.windows.net")
    assert head() == 1
    assert patches(azure_vm) == []


@pytest.mark.parametrize(
    "left", ["", "[1]", '{"active": 0}', '{"active": 2, "history": []}', '{"active": 0, "history": [[1]]}']
)
def test_a_state_that_is_of_other_groups_or_none_is_forgotten(
    azure_vm: Any, head: Callable[..., int], tmp_path: Path, left: str
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/fill.json").write_text(left)
    azure_vm.sets["demo-1-on-demand"]["capacity"] = 4
    assert head() == 0
    assert json.loads((tmp_path / "state/fill.json").read_text()) == {"active": 1, "history": [[0, 0]]}


def test_every_call_is_with_actions_that_the_head_has() -> None:
    """A look reads, sets the size and deletes machines: the contract names exactly these."""
    assert {action.rpartition("virtualMachineScaleSets/")[2] for action in capacity.HEAD_ACTIONS} == {
        "read",
        "write",
        "virtualMachines/read",
        "virtualMachines/delete",
    }


def published(call: Any) -> tuple[str, str, set[str]]:
    """Method, path and names of the query of Microsoft's own client for a call."""
    from azure.mgmt.compute.operations import _operations as client

    _, _, subscription, _, group, _, _, _, name, *below = call.path.split("/")[1:]
    place = {"resource_group_name": group, "subscription_id": subscription}
    if len(below) == 2:
        request = client.build_virtual_machine_scale_set_vms_delete_request(
            vm_scale_set_name=name, instance_id=below[1], **place
        )
    elif below:
        request = client.build_virtual_machine_scale_set_vms_list_request(
            virtual_machine_scale_set_name=name, expand="instanceView", **place
        )
    elif call.method == "PATCH":
        request = client.build_virtual_machine_scale_sets_update_request(vm_scale_set_name=name, **place)
    else:
        request = client.build_virtual_machine_scale_sets_get_request(vm_scale_set_name=name, **place)
    path, _, query = request.url.partition("?")
    return request.method, path, {pair.partition("=")[0] for pair in query.split("&")}


def test_every_call_is_one_of_microsofts_own_client(azure_vm: Any, head: Callable[..., int]) -> None:
    azure_vm.sets["demo-0-spot"]["capacity"] = 1
    run(azure_vm, 0, "f")
    assert head() == 0
    calls = azure_vm.asked("management.azure.com")
    for call in calls:
        method, path, query = published(call)
        assert (call.method, call.path) == (method, f"/management.azure.com{path}")
        assert call.query.keys() - {"$skiptoken"} <= query
    assert {call.method for call in calls} == {"GET", "PATCH", "DELETE"}
