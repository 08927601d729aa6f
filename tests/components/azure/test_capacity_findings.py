"""What in a ladder disagrees with the rest of a stack."""

from collections.abc import Sequence
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.capacity import (
    OFFERED,
    LadderContext,
    capacity_findings,
    rung_from_args,
)
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import AzureMachineType
from gangway.components.core.findings import Finding

MACHINES = cast("dict[str, AzureMachineType]", load_provider("azure").machines)
H100, NC = "Standard_ND96isr_H100_v5", "Standard_NC24ads_A100_v4"
RESERVED: dict[str, Any] = {"kind": "reservation", "id": "/subscriptions/s/ours"}
SPOT = {"kind": "spot"}
ON_DEMAND = {"kind": "on-demand"}
ALWAYS = {"capacity.zone-unpublished"}
"""What is said of every ladder, and looked at by itself."""


def find_all(rungs: Sequence[dict[str, Any]], machine_type: str = H100, **changes: Any) -> list[Finding]:
    values: dict[str, Any] = {
        "machine": MACHINES[machine_type],
        "region": "eastus",
        "region_zones": ("1", "2", "3"),
        "zone": "1",
        "nodes_zone": changes.get("zone", "1"),
        "num_nodes_min": 2,
        "num_nodes_max": 2,
        **changes,
    }
    return capacity_findings([rung_from_args(rung) for rung in rungs], LadderContext(**values))


def find(rungs: Sequence[dict[str, Any]], machine_type: str = H100, **changes: Any) -> list[Finding]:
    return [finding for finding in find_all(rungs, machine_type, **changes) if finding.code not in ALWAYS]


def only(findings: list[Finding]) -> tuple[str, str, str]:
    (finding,) = findings
    return finding.severity.value, finding.code, finding.path.removeprefix("gangway:cluster.")


def test_a_ladder_that_fits_says_nothing() -> None:
    assert find([SPOT]) == []
    assert find([SPOT, ON_DEMAND], NC) == []


@given(st.sampled_from(sorted(MACHINES)), st.sampled_from(OFFERED))
def test_what_is_not_sold_is_an_error_with_what_is(machine_type: str, kind: str) -> None:
    rung = {"reservation": RESERVED, "spot": SPOT, "on-demand": ON_DEMAND}[kind]
    errors = [finding for finding in find([rung], machine_type) if finding.severity == "error"]
    sold = MACHINES[machine_type].capacity.value
    assert [finding.code for finding in errors] == ([] if kind in sold else ["capacity.not-sold"])
    for finding in errors:
        assert finding.path == "gangway:cluster.capacity[0].kind"
        assert all(word in finding.fix for word in sold)


def test_an_h100_cannot_be_reserved_and_says_who_says_so() -> None:
    refused, _ = find([RESERVED])
    assert "Standard_ND96isr_H100_v5 cannot be had as reservation (Azure documentation" in refused.message
    assert MACHINES[H100].capacity.dated in refused.message


@given(st.sampled_from(sorted(MACHINES)), st.integers(1, 512))
def test_how_many_machines_infiniband_connects(machine_type: str, nodes: int) -> None:
    about = [f for f in find([SPOT], machine_type, num_nodes_max=nodes) if f.code == "capacity.placement-group-size"]
    with_fabric = MACHINES[machine_type].infiniband is not None
    expected = [] if not with_fabric or nodes <= 100 else ["warning"] if nodes <= 300 else ["error"]
    assert [finding.severity.value for finding in about] == expected
    assert all(finding.path == "gangway:cluster.nodes" and str(nodes) in finding.message for finding in about)


def test_rungs_with_infiniband_do_not_mix() -> None:
    (finding,) = find([SPOT, ON_DEMAND])
    assert only([finding]) == ("warning", "capacity.rungs-apart", "capacity")
    assert "no InfiniBand connects two" in finding.message
    assert find([SPOT, ON_DEMAND], num_nodes_min=1, num_nodes_max=1) == []


def test_a_zone_that_the_region_does_not_have() -> None:
    (finding,) = find([SPOT], zone="4")
    assert only([finding]) == ("error", "capacity.no-such-zone", "zone")
    assert finding.fix == "set zone: '1', or one of 2, 3", "a number would be no zone's name"
    (finding,) = find([SPOT], zone="1", region_zones=(), region="northcentralus")
    assert finding.message == "northcentralus has no zones"
    assert finding.fix == "remove zone"
    assert only(find([{**SPOT, "zones": ["4"]}])) == ("error", "capacity.no-such-zone", "capacity[0].zones")
    assert find([SPOT], zone="", region_zones=()) == []


def test_whether_a_zone_has_the_size_is_told_to_nobody() -> None:
    unpublished = [finding for finding in find_all([SPOT]) if finding.code == "capacity.zone-unpublished"]
    assert only(unpublished) == ("info", "capacity.zone-unpublished", "zone")
    assert "az vm list-skus --location eastus --size Standard_ND96isr_H100_v5 --zone" in unpublished[0].message
    assert all(finding.code != "capacity.zone-unpublished" for finding in find_all([SPOT], zone=""))


def test_several_zones_are_an_error_with_infiniband_and_slow_without() -> None:
    several = {**SPOT, "zones": ["1", "2"]}
    (finding,) = find([several])
    assert only([finding]) == ("error", "capacity.zones-with-fabric", "capacity[0].zones")
    assert finding.fix == "set zones: ['1'], or write a rung for each"
    assert only(find([several], NC)) == ("warning", "capacity.several-zones", "capacity[0].zones")
    assert find([several], NC, zone="") == [], "there is no zone that it would cross into"


def test_another_zone_is_far_from_the_file_system() -> None:
    assert only(find([{**SPOT, "zones": ["2"]}])) == ("warning", "capacity.several-zones", "capacity[0].zones")
    assert find([{**SPOT, "zones": ["1"]}]) == []
    assert only(find([{**RESERVED, "zone": "2"}], NC)) == ("warning", "capacity.several-zones", "capacity[0].zone")


def test_a_group_must_reserve_where_the_nodes_are() -> None:
    assert only(find([RESERVED], NC)) == ("info", "capacity.reservation-zone", "capacity[0]")
    assert find([{**RESERVED, "zone": "1"}], NC) == []
    assert find([RESERVED], NC, zone="") == []


def test_the_same_group_twice() -> None:
    twice = [{**RESERVED, "zone": "1"}, SPOT, {**RESERVED, "zone": "1", "id": "/subscriptions/S/Ours"}]
    assert only(find(twice, NC)) == ("error", "capacity.same-reservation", "capacity[2].id")


def test_a_setting_without_a_counterpart_is_not_ignored_in_silence() -> None:
    (finding,) = find([{**SPOT, "allocation": "lowest-price", "max_usd_per_hour": 40}])
    assert only([finding]) == ("warning", "capacity.ignored-setting", "capacity[0].allocation")
    assert "lowest-price" in finding.message


def test_a_rung_that_asks_for_what_another_asks_for() -> None:
    (finding,) = [f for f in find([SPOT, ON_DEMAND, SPOT], NC) if f.code != "capacity.rungs-apart"]
    assert only([finding]) == ("warning", "capacity.same-rung", "capacity[2]")
    assert "rung 0" in finding.message
    assert find([SPOT, {**SPOT, "max_usd_per_hour": 3}], NC) == []
    assert find([SPOT, {**SPOT, "zones": ["1"]}], NC) == []
