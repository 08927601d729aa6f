"""The head's look after the ladder: real decisions against groups in small."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.gcp.node_pool import FallbackConfig, FallbackGroup
from gangway.images.node.gcp import fallback as gcp_fallback
from gangway.images.node.gcp.api import GoogleApi

GROUPS = (
    FallbackGroup("demo-0-spot", "us-central1-a", "spot", "resize", None),
    FallbackGroup("demo-1-flex", "us-central1-a", "flex-start", "resize-request", 3600),
    FallbackGroup("demo-2-on-demand", "us-central1-c", "on-demand", "resize", None),
)
CONFIG_URI, ENDED_URI = "gs://b/demo/fallback.json", "gs://b/demo/job/ended-1"
HELD_URI = "gs://b/demo/job/breaker/held.json"


@pytest.fixture
def head(gce: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """A head node: its one look, with two of three counts before it. All groups are empty but the first, set to 2."""
    config = FallbackConfig("acme-ml", 2, GROUPS, window=3).to_json() | {"ended_uri": ENDED_URI}
    gce.objects["b/demo/fallback.json"] = json.dumps(config).encode()
    gce.groups.clear()
    for group, size in zip(GROUPS, (2, 0, 0), strict=True):
        gce.add_group(group.name, size, {})
    monkeypatch.setenv("GANGWAY_METADATA_URL", gce.url)
    monkeypatch.setenv("GANGWAY_API_URL", gce.url)
    monkeypatch.setenv("GANGWAY_STATE_DIR", str(tmp_path / "state"))
    return lambda: gcp_fallback.main([CONFIG_URI, HELD_URI])


def sizes(gce: Any) -> list[int]:
    return [gce.groups[group.name]["targetSize"] for group in GROUPS]


def requests(gce: Any) -> list[tuple[int, str]]:
    return [(request["resizeBy"], request["state"]) for request in gce.groups["demo-1-flex"]["requests"]]


def test_a_group_without_capacity_is_filled_below_after_enough_looks(
    gce: Any, head: Callable[[], int], published: Callable[[Any], set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert [head(), head()] == [0, 0]
    assert requests(gce) == [], "two counts are not enough"
    assert head() == 0
    assert requests(gce) == [(2, "ACCEPTED")]
    assert gce.groups["demo-1-flex"]["requests"][0]["requestedRunDuration"] == {"seconds": "3600"}
    # As the journal has it, and its shipper the event's fields.
    assert [json.loads(line) for line in capsys.readouterr().err.splitlines()] == [
        {"event": "ladder-changed", "reason": "demo-1-flex (flex-start): 0 -> 2 nodes"}
    ]
    # The request waits, and counts as the group's size: one group grows at a time, after counts of its own.
    for _ in range(3):
        assert head() == 0
    assert (requests(gce), sizes(gce)) == ([(2, "ACCEPTED")], [2, 0, 2])
    assert all(published(call) for call in gce.calls)


def test_what_comes_back_above_makes_the_groups_below_smaller(gce: Any, head: Callable[[], int]) -> None:
    flex = gce.groups["demo-1-flex"]
    flex["requests"] = [
        {"name": "r1", "resizeBy": 1, "state": "ACCEPTED"},
        {"name": "r0", "resizeBy": 9, "state": "FAILED"},
    ]
    gce.groups["demo-2-on-demand"]["targetSize"] = 2
    gce.groups["demo-0-spot"]["instances"] = {"a": "RUNNING", "b": "RUNNING", "c": "STOPPING"}
    for _ in range(3):
        assert head() == 0
    assert requests(gce) == [(1, "CANCELLED"), (9, "FAILED")]
    assert sizes(gce) == [2, 0, 0]


def test_a_group_of_requests_that_has_nodes_is_made_smaller_by_its_size(gce: Any, head: Callable[[], int]) -> None:
    gce.groups["demo-1-flex"] |= {"targetSize": 2, "instances": {"x": "RUNNING", "y": "RUNNING"}}
    gce.groups["demo-0-spot"]["instances"] = {"a": "RUNNING", "b": "RUNNING"}
    for _ in range(3):
        assert head() == 0
    assert sizes(gce) == [2, 0, 0]


def test_a_node_that_only_boots_counts(gce: Any, head: Callable[[], int]) -> None:
    gce.groups["demo-0-spot"]["instances"] = {"a": "RUNNING", "b": "RUNNING"}
    for _ in range(4):
        assert head() == 0
    assert sizes(gce) == [2, 0, 0]
    assert not [call for call in gce.asked("compute") if "resize" in call.path and call.method == "POST"]


def test_nothing_is_filled_while_launches_are_held(
    gce: Any, head: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    gce.objects["b/demo/job/breaker/held.json"] = b"{}\n"
    assert [head() for _ in range(4)] == [0] * 4
    assert (requests(gce), sizes(gce)) == ([], [2, 0, 0])
    assert f"launches are held ({HELD_URI} exists): no groups are filled" in capsys.readouterr().err
    del gce.objects["b/demo/job/breaker/held.json"]
    assert [head() for _ in range(3)] == [0] * 3
    assert requests(gce) == [(2, "ACCEPTED")]


def test_nothing_is_filled_for_a_job_that_has_ended(
    gce: Any, head: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    gce.objects["b/demo/job/ended-1"] = b"0 done\n"
    for _ in range(4):
        assert head() == 0
    assert gce.asked("compute") == []
    assert f"the job has ended ({ENDED_URI} exists): no groups are filled" in capsys.readouterr().err


def test_more_hours_continue_a_job_that_has_ended(gce: Any, head: Callable[[], int]) -> None:
    """`up` writes the new mark into the head's file."""
    gce.objects["b/demo/job/ended-1"] = b"6 hours over\n"
    for _ in range(3):
        assert head() == 0
    config = json.loads(gce.objects["b/demo/fallback.json"]) | {"ended_uri": "gs://b/demo/job/ended-2"}
    gce.objects["b/demo/fallback.json"] = json.dumps(config).encode()
    for _ in range(3):
        assert head() == 0
    assert requests(gce) == [(2, "ACCEPTED")]


def test_a_head_before_its_groups_waits(gce: Any, head: Callable[[], int], capsys: pytest.CaptureFixture[str]) -> None:
    gce.objects.clear()
    assert head() == 0
    assert f"{CONFIG_URI} has no groups yet" in capsys.readouterr().err


def test_a_running_job_is_known_without_the_right_to_list_all(gce: Any, head: Callable[[], int]) -> None:
    """Its mark is missing, and that has to be told from one that may not be seen."""
    gce.hides_missing = True
    assert [head(), head(), head()] == [0, 0, 0]
    assert requests(gce) == [(2, "ACCEPTED")]


def test_who_may_not_look_says_which_right_is_missing(
    gce: Any, head: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    gce.denied.add("storage.objects.list")
    assert [head(), head(), head()] == [1, 1, 1]
    assert (requests(gce), sizes(gce)) == ([], [2, 0, 0])
    said = capsys.readouterr().err
    assert "not allowed to fill the groups" in said
    assert "storage.objects.list" in said


def test_an_api_that_refuses_is_asked_again(
    gce: Any, head: Callable[[], int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gce.denied.add("resizeRequests")
    assert [head(), head(), head()] == [0, 0, 1]
    said = json.loads(capsys.readouterr().err)
    assert said["event"] == "ladder-not-kept"
    assert "will retry in a minute: 403" in said["reason"]
    gce.denied.clear()
    assert head() == 0
    assert requests(gce) == [(2, "ACCEPTED")]


@pytest.mark.parametrize("left", ["", "{", "[[1]]", "[[1, 2, 3, 4]]"])
def test_counts_that_are_of_other_groups_or_none_are_forgotten(
    gce: Any, head: Callable[[], int], tmp_path: Path, left: str
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/fill.json").write_text(left)
    assert [head(), head()] == [0, 0]
    assert requests(gce) == []
    assert json.loads((tmp_path / "state/fill.json").read_text()) == [[0, 0, 0]] * 2


def test_after_a_change_it_counts_anew(gce: Any, google: GoogleApi, head: Callable[[], int], tmp_path: Path) -> None:
    for _ in range(3):
        head()
    assert json.loads((tmp_path / "state/fill.json").read_text()) == []
