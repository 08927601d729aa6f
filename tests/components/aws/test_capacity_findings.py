"""Findings about a ladder: each conflict is told with its path, its value and the change that mends it."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.capacity import LadderContext, capacity_findings, rung_from_args
from gangway.components.catalog.loader import load
from gangway.components.core.findings import Finding, Severity

NOW = datetime(2026, 6, 30, 12, 0, tzinfo=UTC)
CONTEXT = LadderContext(
    machine=load().machine("p4d.24xlarge"),
    zone="us-east-2a",
    zone_assumed=False,
    num_nodes_min=4,
    num_nodes_max=4,
    max_hours=10,
    now=NOW,
)
PLAIN = replace(CONTEXT, machine=load().machine("g5.xlarge"))
BLOCK = {"kind": "capacity-block", "id": "cr-0123456789abcdef0", "ends_at": "2026-07-02T11:30:00Z"}
RESERVATION = {"kind": "reservation", "id": "cr-0123456789abcdef1"}
SPOT: dict[str, Any] = {"kind": "spot"}
ON_DEMAND: dict[str, Any] = {"kind": "on-demand"}


def found(*rungs: dict[str, Any], context: LadderContext = CONTEXT) -> dict[str, Finding]:
    """The findings by code, without the information about placement."""
    findings = capacity_findings([rung_from_args(rung) for rung in rungs], context)
    by_code = {finding.code: finding for finding in findings if finding.severity is not Severity.INFO}
    assert len(by_code) == sum(finding.severity is not Severity.INFO for finding in findings)
    assert all(finding.fix for finding in by_code.values())
    return by_code


def every(*rungs: dict[str, Any]) -> dict[str, Finding]:
    """All findings by code; of several alike the last."""
    return {finding.code: finding for finding in capacity_findings([rung_from_args(rung) for rung in rungs], CONTEXT)}


def test_a_ladder_that_fits_is_only_explained() -> None:
    rungs = [BLOCK, RESERVATION, {**SPOT, "zones": ["us-east-2a"]}, ON_DEMAND]
    findings = capacity_findings([rung_from_args(rung) for rung in rungs], CONTEXT)
    assert [(finding.severity, finding.code, finding.path) for finding in findings] == [
        (Severity.INFO, "capacity.no-placement-group", "gangway:cluster.capacity[0]"),
        (Severity.INFO, "capacity.block-start", "gangway:cluster.capacity[0].starts_at"),
        (Severity.INFO, "capacity.behind-block", "gangway:cluster.capacity[0]"),
        (Severity.INFO, "capacity.no-placement-group", "gangway:cluster.capacity[1]"),
    ]
    assert "their own placement" in findings[0].message
    assert capacity_findings([rung_from_args(RESERVATION)], PLAIN) == [], "no fabric, no group to explain"


def test_what_is_behind_a_block_is_filled_before_and_after_it() -> None:
    """An owner must not wonder who pays for on-demand nodes before the block has begun."""
    told = every(BLOCK, ON_DEMAND)["capacity.behind-block"]
    assert told.severity is Severity.INFO
    assert "before and after, the next rung (on-demand)" in told.message
    assert told.fix.startswith("write starts_at")
    started = every({**BLOCK, "starts_at": "2026-07-01T11:30:00Z"}, ON_DEMAND)["capacity.behind-block"]
    assert "from 2026-07-01T12:30:00+00:00 on and after its end, the next rung" in started.message
    assert started.fix.startswith("without the rungs behind it")
    first = every(SPOT, {**BLOCK, "starts_at": "2026-07-01T11:30:00Z"}, ON_DEMAND)["capacity.behind-block"]
    assert "before and after" in first.message, "the last rung makes up for the first as well"
    alone = capacity_findings([rung_from_args(BLOCK), rung_from_args(RESERVATION)], CONTEXT)
    assert "capacity.behind-block" not in {finding.code for finding in alone}, "reserved capacity costs nothing more"


def test_reserved_capacity_whose_zone_nobody_has_named() -> None:
    """Bought for a zone that only the offering knows, it would stand empty in another one."""
    assumed = replace(CONTEXT, zone_assumed=True)
    (finding,) = found(RESERVATION, context=assumed).values()
    assert (finding.severity, finding.code) == (Severity.WARNING, "capacity.zone-unnamed")
    assert finding.path == "gangway:cluster.capacity[0].zone"
    assert "us-east-2a is assumed" in finding.message
    bought = {**BLOCK, "id": None, "purchase": True, "offering_id": "cbo-0123456789abcdef0", "upfront_usd": 16000}
    bought = {"starts_at": "2026-06-30T11:30:00Z", **bought}
    finding = found(bought, context=assumed)["capacity.zone-unnamed"]
    assert finding.severity is Severity.ERROR
    assert "on what has been paid" in finding.message
    assert not found({**RESERVATION, "zone": "us-east-2a"}, context=assumed)
    assert not found(SPOT, context=assumed)


@pytest.mark.parametrize("rung", [BLOCK, RESERVATION])
def test_reserved_capacity_in_another_zone(rung: dict[str, Any]) -> None:
    (finding,) = found({**rung, "zone": "us-east-2b"}).values()
    assert (finding.severity, finding.code) == (Severity.ERROR, "capacity.other-zone")
    assert finding.path == "gangway:cluster.capacity[0].zone"
    assert "us-east-2b" in finding.message
    assert finding.fix == "set gangway:cluster.zone: us-east-2b"
    assert not found({**rung, "zone": "us-east-2a"})


@pytest.mark.parametrize("zones", [["us-east-2a", "us-east-2b"], ["us-east-2c"]])
def test_other_zones_break_the_fabric_and_cost_the_rest(zones: list[str]) -> None:
    (finding,) = found(ON_DEMAND, {**SPOT, "zones": zones}).values()
    assert (finding.severity, finding.code) == (Severity.ERROR, "capacity.zones-with-fabric")
    assert finding.path == "gangway:cluster.capacity[1].zones"
    assert finding.fix == "set zones: [us-east-2a], or leave it out"
    (finding,) = found({**ON_DEMAND, "zones": zones}, context=PLAIN).values()
    assert (finding.severity, finding.code) == (Severity.WARNING, "capacity.several-zones")
    assert "billed" in finding.message


@pytest.mark.parametrize(
    ("machine", "other", "words"),
    [
        ("p4d.24xlarge", "p5.48xlarge", "accelerator H100x8 and A100x8, EFA interfaces 32 and 4"),
        ("g5.xlarge", "g5.12xlarge", "accelerators 4 and 1"),
        ("g6e.12xlarge", "g6e.24xlarge", "EFA interfaces 2 and 1"),
        ("p5.48xlarge", "p6e-gb200.36xlarge", "architecture arm64 and x86_64"),
    ],
)
def test_machines_that_do_not_go_together(machine: str, other: str, words: str) -> None:
    context = replace(CONTEXT, machine=load().machine(machine))
    (finding,) = found({**SPOT, "machine_types": [other]}, context=context).values()
    assert (finding.severity, finding.code) == (Severity.ERROR, "capacity.mixed-machines")
    assert finding.path == "gangway:cluster.capacity[0].machine_types"
    assert words in finding.message
    assert finding.fix == f"remove {other}"


def test_machines_that_go_together() -> None:
    rung = {**SPOT, "machine_types": ["g5.2xlarge", "g5.4xlarge"], "allocation": "lowest-price"}
    assert not found(rung, context=PLAIN)


def test_an_allocation_with_nothing_to_choose_is_said_to_be_unused() -> None:
    (finding,) = found({**SPOT, "allocation": "capacity-optimized"}).values()
    assert (finding.severity, finding.code) == (Severity.WARNING, "capacity.allocation-unused")
    assert finding.path == "gangway:cluster.capacity[0].allocation"
    assert not found(SPOT), "the default is nobody's setting"


def test_a_block_has_a_fixed_size_and_comes_first() -> None:
    findings = found(ON_DEMAND, BLOCK, context=replace(CONTEXT, num_nodes_min=2))
    assert set(findings) == {"capacity.block-size", "capacity.block-waits"}
    size, waits = findings["capacity.block-size"], findings["capacity.block-waits"]
    assert (size.severity, size.path) == (Severity.ERROR, "gangway:cluster.nodes")
    assert "2 to 4" in size.message
    assert size.fix.startswith("set nodes: {min: 4, max: 4}")
    assert (waits.severity, waits.path) == (Severity.WARNING, "gangway:cluster.capacity[1]")
    assert not found(RESERVATION, BLOCK), "what is above is paid too"


def test_a_block_without_an_end_cannot_be_stopped_in_time() -> None:
    (finding,) = found({"kind": "capacity-block", "id": "cr-0123456789abcdef0"}).values()
    assert (finding.severity, finding.code) == (Severity.WARNING, "capacity.block-end")
    assert finding.path == "gangway:cluster.capacity[0].ends_at"


@pytest.mark.parametrize(("behind", "then"), [([], "last checkpoint"), ([ON_DEMAND], "next rung")])
def test_a_block_shorter_than_the_job(behind: list[dict[str, Any]], then: str) -> None:
    (finding,) = found({**BLOCK, "ends_at": "2026-06-30T18:40:00Z"}, *behind).values()
    assert (finding.severity, finding.code) == (Severity.WARNING, "capacity.block-too-short")
    assert "2026-06-30T18:00:00+00:00" in finding.message
    assert "6.0 h from now, and the job may run 10 h" in finding.message
    assert then in finding.message
    assert finding.fix.startswith("set gangway:job.max_hours: 6.0,")


def test_a_blocks_start_is_told_unless_it_has_begun() -> None:
    unknown = every(BLOCK)["capacity.block-start"]
    assert (unknown.severity, unknown.path) == (Severity.INFO, "gangway:cluster.capacity[0].starts_at")
    assert "suspends the group" in unknown.message
    assert unknown.fix.startswith("write starts_at")
    coming = every({**BLOCK, "starts_at": "2026-07-01T11:30:00Z"})["capacity.block-start"]
    assert "no node before 2026-07-01T11:30:00+00:00" in coming.message
    assert "capacity.block-start" not in every({**BLOCK, "starts_at": "2026-06-30T11:30:00Z"})


def test_a_blocks_hours_count_from_its_start() -> None:
    """Bought days ahead, a day is still a day."""
    block = {**BLOCK, "starts_at": "2026-07-03T12:00:00Z", "ends_at": "2026-07-03T18:40:00Z"}
    (finding,) = found(block).values()
    assert finding.code == "capacity.block-too-short"
    assert "6.0 h from its start, and the job may run 10 h" in finding.message
    assert not found({**block, "ends_at": "2026-07-03T22:40:00Z"})
    assert "capacity.block-ended" in found({**block, "ends_at": "2026-07-03T12:30:00Z"}), "nothing of it can be used"


def test_a_block_that_is_over() -> None:
    (finding,) = found({**BLOCK, "ends_at": "2026-06-30T12:40:00Z"}).values()
    assert (finding.severity, finding.code) == (Severity.ERROR, "capacity.block-ended")
    assert "2026-06-30T12:40:00+00:00" in finding.message


@given(st.integers(-100, 3000))
def test_every_end_is_over_too_short_or_enough(minutes: int) -> None:
    end = NOW + timedelta(minutes=minutes)
    findings = found({**BLOCK, "ends_at": end})
    codes = set(findings)
    usable = minutes - 40
    if usable <= 0:
        assert codes == {"capacity.block-ended"}
    else:
        assert codes == ({"capacity.block-too-short"} if usable < 600 else set())
    mended = [re.search(r"max_hours: ([\d.]+)", finding.fix) for finding in findings.values()]
    for match in filter(None, mended):
        assert not found({**BLOCK, "ends_at": end}, context=replace(CONTEXT, max_hours=float(match[1])))


def test_a_purchase_stands_in_the_plan_with_its_price() -> None:
    rung = {
        "kind": "capacity-block",
        "purchase": True,
        "offering_id": "cbo-0123456789abcdef0",
        "upfront_usd": 16000,
        "starts_at": "2026-07-01T11:30:00Z",
        "ends_at": "2026-07-02T11:30:00Z",
    }
    (finding,) = found(rung).values()
    assert (finding.severity, finding.code) == (Severity.WARNING, "capacity.block-purchase")
    assert "buys cbo-0123456789abcdef0 for 16,000.00 USD" in finding.message
    assert "destroy" in finding.message


def test_one_reservation_is_one_rung() -> None:
    (finding,) = found(RESERVATION, ON_DEMAND, RESERVATION).values()
    assert (finding.severity, finding.code) == (Severity.ERROR, "capacity.same-reservation")
    assert finding.path == "gangway:cluster.capacity[2].id"
    assert "rung 0" in finding.message
