"""What in a ladder disagrees with the rest of a stack."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.offerings import zone_names
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.core.findings import Finding
from gangway.components.gcp.capacity import OFFERED, LadderContext, capacity_findings, rung_from_args

MACHINES = cast("dict[str, GcpMachineType]", load_provider("gcp").machines)
RESERVED = {"kind": "reservation", "id": "ours"}
FLEX: dict[str, Any] = {"kind": "flex-start", "max_hours": 24}
SPOT = {"kind": "spot"}
ON_DEMAND = {"kind": "on-demand"}


def zones_with(machine_type: str) -> list[str]:
    offered = MACHINES[machine_type].offered
    assert offered is not None
    assert offered.zones.value is not None
    return [name for region, zones in offered.zones.value.items() for name in zone_names("gcp", region, zones)]


def find(rungs: Sequence[dict[str, Any]], machine_type: str = "a3-megagpu-8g", **changes: Any) -> list[Finding]:
    values: dict[str, Any] = {
        "machine": MACHINES[machine_type],
        "zone": zones_with(machine_type)[0],
        "zone_assumed": False,
        "num_nodes_min": 2,
        "num_nodes_max": 2,
        "max_hours": 12,
        **changes,
    }
    found = capacity_findings([rung_from_args(rung) for rung in rungs], LadderContext(**values))
    return [finding for finding in found if finding.code not in ("capacity.rungs-apart", "capacity.flex-start-once")]


def only(findings: list[Finding]) -> tuple[str, str, str]:
    (finding,) = findings
    return finding.severity.value, finding.code, finding.path.removeprefix("gangway:cluster.")


def test_a_ladder_that_fits_says_nothing() -> None:
    assert find([FLEX, SPOT, ON_DEMAND]) == []


@given(st.sampled_from(sorted(MACHINES)), st.sampled_from(OFFERED))
def test_what_is_not_sold_is_an_error_with_what_is(machine_type: str, kind: str) -> None:
    rung: dict[str, Any] = {"reservation": RESERVED, "flex-start": FLEX, "spot": SPOT, "on-demand": ON_DEMAND}[kind]
    errors = [finding for finding in find([rung], machine_type) if finding.severity == "error"]
    sold = MACHINES[machine_type].capacity.value
    assert [finding.code for finding in errors] == ([] if kind in sold else ["capacity.not-sold"])
    for finding in errors:
        assert finding.path == "gangway:cluster.capacity[0].kind"
        assert all(word in finding.fix for word in sold)


def test_an_a3_ultra_is_not_sold_on_demand() -> None:
    (finding,) = find([ON_DEMAND], "a3-ultragpu-8g")
    assert "a3-ultragpu-8g cannot be had as on-demand" in finding.message
    assert MACHINES["a3-ultragpu-8g"].capacity.dated in finding.message


def test_another_zone_is_an_error_where_nodes_must_be_close() -> None:
    own, other = zones_with("a3-megagpu-8g")[:2]
    elsewhere = {**SPOT, "zones": [other]}
    assert only(find([elsewhere])) == ("error", "capacity.zones-with-fabric", "capacity[0].zones")
    assert find([{**SPOT, "zones": [own]}]) == []
    assert only(find([elsewhere], "g2-standard-96", zone="us-central1-a")) == (
        "warning",
        "capacity.several-zones",
        "capacity[0].zones",
    )


def test_a_reservation_elsewhere_moves_the_cluster() -> None:
    other = zones_with("a3-megagpu-8g")[1]
    moved, placed = find([{**RESERVED, "zone": other}])
    assert only([moved]) == ("error", "capacity.other-zone", "capacity[0].zone")
    assert moved.fix == f"set gangway:cluster.zone: {other}"
    assert only([placed]) == ("info", "capacity.no-placement-policy", "capacity[0]")
    assert find([RESERVED], "a2-highgpu-8g") == [], "nothing places its nodes anyway"


def test_a_reservation_in_a_zone_that_nobody_named() -> None:
    zone = zones_with("a2-highgpu-8g")[0]
    (finding,) = find([RESERVED], "a2-highgpu-8g", zone_assumed=True)
    assert only([finding]) == ("warning", "capacity.zone-unnamed", "capacity[0].zone")
    assert f"{zone} is assumed" in finding.message
    assert find([SPOT], "a2-highgpu-8g", zone_assumed=True) == [], "only what is reserved is somewhere already"
    assert find([{**RESERVED, "zone": zone}], "a2-highgpu-8g", zone_assumed=True) == []


def test_the_same_reservation_twice() -> None:
    findings = [finding for finding in find([RESERVED, SPOT, RESERVED]) if finding.severity == "error"]
    assert only(findings) == ("error", "capacity.same-reservation", "capacity[2].id")


@pytest.mark.parametrize(("name", "value"), [("max_usd_per_hour", 25.0), ("allocation", "lowest-price")])
def test_a_setting_without_a_counterpart_is_not_ignored_in_silence(name: str, value: Any) -> None:
    (finding,) = find([{**SPOT, name: value}])
    assert only([finding]) == ("warning", "capacity.ignored-setting", f"capacity[0].{name}")
    assert str(value) in finding.message
    assert finding.fix == f"remove {name}"


@pytest.mark.parametrize(
    ("rungs", "machine_type", "num_nodes", "told"),
    [
        ([SPOT, ON_DEMAND], "a3-megagpu-8g", 4, True),
        ([SPOT], "a3-megagpu-8g", 4, False),
        ([SPOT, ON_DEMAND], "a3-megagpu-8g", 1, False),
        ([SPOT, ON_DEMAND], "g2-standard-96", 4, False),
    ],
)
def test_rungs_are_placed_each_by_itself(
    rungs: list[dict[str, Any]], machine_type: str, num_nodes: int, told: bool
) -> None:
    zone = zones_with(machine_type)[0]
    context = LadderContext(MACHINES[machine_type], zone, False, 1, num_nodes, 12)
    found = capacity_findings([rung_from_args(rung) for rung in rungs], context)
    assert [(f.severity.value, f.path) for f in found if f.code == "capacity.rungs-apart"] == (
        [("info", "gangway:cluster.capacity")] if told else []
    )


def test_flex_start_ends_before_the_job() -> None:
    (finding,) = find([FLEX], max_hours=36)
    assert only([finding]) == ("warning", "capacity.flex-start-too-short", "capacity[0].max_hours")
    assert "ends with its last checkpoint" in finding.message
    assert finding.fix == "set max_hours: 36"
    (finding,) = find([FLEX, SPOT], max_hours=200)
    assert "goes on with the next rung" in finding.message
    assert finding.fix == "set gangway:job.max_hours: 24", "a week is the longest there is"


@pytest.mark.parametrize(("rungs", "told"), [([FLEX, SPOT], True), ([SPOT, FLEX], False), ([SPOT], False)])
def test_flex_start_is_asked_for_once(rungs: list[dict[str, Any]], told: bool) -> None:
    machine = MACHINES["a3-megagpu-8g"]
    context = LadderContext(machine, zones_with(machine.name)[0], False, 2, 2, 12)
    found = capacity_findings([rung_from_args(rung) for rung in rungs], context)
    once = [finding for finding in found if finding.code == "capacity.flex-start-once"]
    assert [finding.path for finding in once] == (["gangway:cluster.capacity[0]"] if told else [])
    if told:
        assert "after 24 h all are gone" in once[0].message
        assert "pulumi up --replace" in once[0].fix


def test_flex_start_brings_all_nodes_or_none() -> None:
    assert only(find([FLEX], num_nodes_max=4)) == ("info", "capacity.flex-start-together", "capacity[0]")
    assert find([SPOT, FLEX], num_nodes_max=4) == [], "behind another rung it is asked for what is missing"
