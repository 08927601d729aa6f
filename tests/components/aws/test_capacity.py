"""The ladder as EC2 understands it: ids, machine types, zones, and the time a block's nodes stop."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gangway.components.aws.capacity import (
    OFFERED,
    LadderContext,
    QuotaContext,
    block_stop_time,
    capacity_findings,
    check_ladder,
    check_zones,
    helper_quota,
    ladder_quotas,
    ladder_zones,
    load_quotas,
    network_quotas,
    rung_machines,
    storage_quota,
)
from gangway.components.aws.eks_nodes import SYSTEM_MACHINE
from gangway.components.aws.launch import plan_interfaces
from gangway.components.catalog.loader import load, load_provider
from gangway.components.catalog.schema import MachineType
from gangway.components.core.capacity import plan_rung, preferred_zone, rung_from_args
from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding, InputError, Severity

OWN = load().machine("p4d.24xlarge")
SPOT: dict[str, Any] = {"kind": "spot"}
# `owned` or `bought`, and changes -> a capacity block as it is written.
Written = Callable[..., dict[str, Any]]


def test_a_rung_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="id"):
        rung_from_args({"kind": "reservation"})


@given(
    st.sampled_from(["capacity-block", "reservation"]),
    st.from_regex(r"\Acr-[0-9a-f]{8,17}\Z"),
    st.from_regex(r"\Acbo?-[0-9a-f]{8,17}\Z"),
)
def test_ids_as_ec2_gives_them_pass(written: Written, kind: str, id_: str, offering_id: str) -> None:
    check_ladder([rung_from_args({"kind": kind, "id": id_})], OWN)
    check_ladder([rung_from_args(written("bought", offering_id=offering_id))], OWN)


@pytest.mark.parametrize(
    ("rung", "path", "value", "allowed"),
    [
        ({"kind": "reservation", "id": "0123456789abcdef0"}, ".id", "0123456789abcdef0", "cr-0123456789abcdef0"),
        ({"kind": "capacity-block", "id": "cr-XYZ"}, ".id", "cr-XYZ", "cr- and 8 to 17 hexadecimal digits"),
        ({"kind": "capacity-block", "id": "cr-0123456789abcdef0\n"}, ".id", "cr-0123456789abcdef0\n", "cr-"),
        ({"offering_id": "cr-0123456789abcdef0"}, ".offering_id", "cr-0123456789abcdef0", "cbo-"),
    ],
)
def test_an_id_ec2_never_gives_is_refused_by_name(
    written: Written, rung: dict[str, Any], path: str, value: str, allowed: str
) -> None:
    rung = rung if "kind" in rung else written("bought", **rung)
    with pytest.raises(InputError) as caught:
        check_ladder([rung_from_args(SPOT), rung_from_args(rung)], OWN)
    assert caught.value.place == f"gangway:cluster.capacity[1]{path}"
    assert caught.value.value == value
    assert allowed in caught.value.allowed
    assert caught.value.fix.startswith("copy the id")


def test_an_unknown_machine_type_names_the_nearest() -> None:
    rung = rung_from_args({**SPOT, "machine_types": ["p4de.24xlarge", "p5.48xl"]})
    with pytest.raises(InputError) as caught:
        check_ladder([rung], OWN)
    assert caught.value.place == "gangway:cluster.capacity[0].machine_types[1]"
    assert caught.value.value == "p5.48xl"
    assert caught.value.fix == "did you mean 'p5.48xlarge'?"


def test_a_rungs_machines_begin_with_the_clusters_own(written: Written) -> None:
    for types in (["p4de.24xlarge", "p5.48xlarge"], ["p4de.24xlarge", "p4d.24xlarge", "p5.48xlarge"]):
        rung = rung_from_args({**SPOT, "machine_types": types})
        for form in (rung, plan_rung(rung)):
            names = [machine.name for machine in rung_machines(form, OWN)]
            assert names == ["p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge"]
    assert rung_machines(rung_from_args(written("bought")), OWN) == (OWN,)


def test_the_ladder_says_in_which_zones_it_needs_subnets() -> None:
    rungs = [
        rung_from_args({"kind": "reservation", "id": "cr-0123456789abcdef0", "zone": "us-east-2b"}),
        rung_from_args({**SPOT, "zones": ["us-east-2c", "us-east-2a"]}),
        rung_from_args({"kind": "on-demand"}),
    ]
    assert ladder_zones(rungs, "us-east-2a") == ("us-east-2a", "us-east-2b", "us-east-2c")
    assert ladder_zones([], "us-east-2a") == ("us-east-2a",)


def test_reserved_capacity_says_which_zone_the_cluster_must_be_in(written: Written) -> None:
    reservation = rung_from_args({"kind": "reservation", "id": "cr-0123456789abcdef0", "zone": "us-east-2b"})
    elsewhere = rung_from_args(written("bought", zone="us-east-2c"))
    spot = rung_from_args({**SPOT, "zones": ["us-east-2a"]})
    zone, why = preferred_zone([spot, reservation, elsewhere]) or ("", "")
    assert (zone, why) == ("us-east-2b", "gangway:cluster.capacity[1], a reservation, is there")
    assert preferred_zone([spot, rung_from_args(written("bought"))]) is None


@pytest.mark.parametrize(
    ("rung", "path"),
    [
        ({**SPOT, "zones": ["us-east-2a", "us-east-2x"]}, "zones[1]"),
        ({"kind": "capacity-block", "id": "cr-0123456789abcdef0", "zone": "us-east-2x"}, "zone"),
        ({"kind": "reservation", "id": "cr-0123456789abcdef0", "zone": "us-east-2x"}, "zone"),
    ],
)
def test_a_zone_that_is_not_there_is_refused_by_name(rung: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        check_zones([rung_from_args(rung)], ["us-east-2a", "us-east-2b"])
    assert caught.value.place == f"gangway:cluster.capacity[0].{path}"
    assert caught.value.value == "us-east-2x"
    assert caught.value.allowed == "us-east-2a, us-east-2b"
    assert caught.value.fix.startswith("did you mean 'us-east-2")


def test_a_blocks_nodes_stop_forty_minutes_before_its_end() -> None:
    """EC2 begins to end them 30 minutes before; ours are asked 10 minutes earlier."""
    end = datetime(2026, 7, 1, 11, 30, tzinfo=UTC)
    assert block_stop_time(end) == datetime(2026, 7, 1, 10, 50, tzinfo=UTC)
    assert block_stop_time(end, timedelta(minutes=25)) == datetime(2026, 7, 1, 10, 35, tzinfo=UTC)


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)),
    st.integers(-720, 720),
    st.integers(0, 600),
)
def test_the_stop_is_in_utc_and_always_before_ec2s_own(moment: datetime, offset: int, lead: int) -> None:
    end = moment.replace(tzinfo=timezone(timedelta(minutes=offset)))
    stop = block_stop_time(end, timedelta(minutes=lead))
    assert stop.tzinfo is UTC
    assert end - stop == timedelta(minutes=30 + lead)


CATALOG = load_provider("aws")
MACHINES = list(CATALOG.machines.values())
CONTEXT = QuotaContext("us-east-2", 4)
RUNGS: dict[str, dict[str, Any]] = {
    "capacity-block": {"kind": "capacity-block", "id": "cr-0123456789abcdef0"},
    "reservation": {"kind": "reservation", "id": "cr-0123456789abcdef0"},
    "spot": {"kind": "spot"},
    "on-demand": {"kind": "on-demand"},
}
PURCHASE: dict[str, Any] = {
    "kind": "capacity-block",
    "purchase": True,
    "offering_id": "cbo-0123456789abcdef0",
    "upfront_usd": 16000,
    "starts_at": "2026-12-01T11:30:00Z",
    "ends_at": "2026-12-02T11:30:00Z",
}


def messages(machine: MachineType, rungs: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Place and words of each finding."""
    found = ladder_quotas([rung_from_args(rung) for rung in rungs], machine, CONTEXT)
    return [(one.path.removeprefix("gangway:cluster.capacity"), one.message) for one in found]


def get_machine(name: str) -> MachineType:
    return CATALOG.machine(name, "machine_type")


NEED = re.compile(r"([\d,]+) vCPUs of the quota (L-\w+) \((.*)\) in us-east-2, for 4 nodes; ")


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_machine_names_a_quota_or_a_reason_on_every_kind_of_rung(machine: MachineType) -> None:
    assert set(RUNGS) == set(OFFERED)
    for kind, rung in RUNGS.items():
        ((path, message),) = messages(machine, [rung])
        assert path == "[0]"
        if kind in ("capacity-block", "reservation"):
            assert message.startswith("no quota: ")
            continue
        need = NEED.match(message)
        assert need is not None, message
        assert need[1] == f"{machine.vcpus.value * 4:,}"
        assert need[3] == load_quotas().quotas[need[2]].name.value
        assert need[3].startswith("All " if kind == "spot" else "Running On-Demand ")
        assert re.search(rf"\b{machine.name[0].upper()}", need[3].removeprefix("All ")), "of another family"


def test_spot_and_on_demand_are_counted_apart_and_nothing_twice() -> None:
    found = messages(get_machine("p5.48xlarge"), [RUNGS["spot"], RUNGS["on-demand"], RUNGS["spot"]])
    assert [path for path, _ in found] == ["[0]", "[1]"]
    assert "768 vCPUs of the quota L-7212CCBC (All P Spot Instance Requests)" in found[0][1]
    assert "768 vCPUs of the quota L-417A185B (Running On-Demand P instances)" in found[1][1]


def test_the_largest_type_of_all_rungs_counts() -> None:
    further = {**RUNGS["on-demand"], "machine_types": ["g5.48xlarge"]}
    (found,) = messages(get_machine("g5.xlarge"), [RUNGS["on-demand"], further])
    assert found[0] == "[1]"
    assert found[1].startswith("768 vCPUs of the quota L-DB2E81BA")


def test_spot_of_p5_names_the_quota_that_it_had_before() -> None:
    assert "still lists L-C4BD4855 counts p5en there" in messages(get_machine("p5en.48xlarge"), [RUNGS["spot"]])[0][1]
    assert "L-C4BD4855" not in messages(get_machine("p4d.24xlarge"), [RUNGS["spot"]])[0][1]
    assert "L-C4BD4855" not in messages(get_machine("p5en.48xlarge"), [RUNGS["on-demand"]])[0][1]


def test_a_block_counts_when_it_is_bought() -> None:
    bought = messages(get_machine("p5.48xlarge"), [PURCHASE])[0][1]
    assert bought.startswith("768 vCPUs of the quota L-DA6814F2 (Concurrent P5 Capacity Blocks per account)")
    assert "when it was bought" in messages(get_machine("p5.48xlarge"), [RUNGS["capacity-block"]])[0][1]
    assert "none for capacity blocks of g5" in messages(get_machine("g5.xlarge"), [PURCHASE])[0][1]


def test_a_reservation_says_which_quota_it_took_its_share_of() -> None:
    assert (
        "L-2C3B7624 (Running On-Demand Trn instances)"
        in messages(get_machine("trn1.32xlarge"), [RUNGS["reservation"]])[0][1]
    )


def test_the_table_is_whole_and_its_codes_have_the_form() -> None:
    table = load_quotas()
    used = {
        *(code for row in table.instances for code in (row.on_demand, row.spot)),
        *table.former_spot.values(),
        *table.blocks.values(),
        *table.lustre.values(),
        *("L-F678F1CE", "L-FE5A380F", "L-0263D0A3", "L-DF5E4CA3"),
    }
    assert used == set(table.quotas)
    assert all(re.fullmatch(r"L-[0-9A-F]{8}", code) for code in used)
    families = {machine.name.partition(".")[0] for machine in MACHINES}
    assert set(table.blocks) | set(table.former_spot) <= families
    assert all(quota.name.seen_on for quota in table.quotas.values()), "a source without a day"
    letters = [each for row in table.instances for each in row.letters]
    assert len(letters) == len(set(letters))


def test_every_head_and_system_machine_counts_as_a_standard_one() -> None:
    services = CATALOG.get_services("aws")
    heads = {name.removeprefix("instance-") for name in services if name.startswith("instance-")}
    assert heads | {SYSTEM_MACHINE} == set(load_quotas().helper_vcpus)
    for name in heads:
        message = helper_quota("gangway:head.machine_type", name, 3, "heads", CONTEXT).message
        assert message.startswith("6 vCPUs of the quota L-1216C47A (Running On-Demand Standard ")


def test_the_network_counts_its_way_out_and_the_interfaces_of_efa() -> None:
    p5, g5 = get_machine("p5.48xlarge"), get_machine("g5.xlarge")
    assert len(list(network_quotas(g5, Egress.ENDPOINTS, CONTEXT))) == 1
    assert len(list(network_quotas(g5, Egress.NAT, CONTEXT))) == 3
    interfaces = list(network_quotas(p5, Egress.NAT, CONTEXT))[-1].message
    assert interfaces.startswith(
        f"{4 * len(plan_interfaces(p5))} of the quota L-DF5E4CA3 (Network interfaces per Region)"
    )


def test_a_file_system_counts_by_its_deployment() -> None:
    assert storage_quota("persistent", 9600, CONTEXT).message.startswith("9,600 GiB of the quota L-8F1B9C74")
    assert storage_quota("scratch", 1200, CONTEXT).message.startswith("1,200 GiB of the quota L-AD2FC696")


def test_the_commands_are_of_the_quotas_service_and_region() -> None:
    (found,) = ladder_quotas([rung_from_args(RUNGS["spot"])], get_machine("g6e.12xlarge"), CONTEXT)
    which = "--region us-east-2 --service-code ec2 --quota-code L-3819A6DF"
    assert f"`aws service-quotas get-service-quota {which} --query Quota.Value` shows the limit" in found.message
    assert f"`aws service-quotas request-service-quota-increase {which} --desired-value 192`" in found.fix
    assert "--service-code fsx" in storage_quota("scratch", 1200, CONTEXT).message


@pytest.mark.parametrize("kind", RUNGS)
def test_a_machine_of_an_unknown_family_is_said_to_have_no_known_quota(kind: str) -> None:
    """As one that the user has added to the catalogue."""
    mine = MACHINES[0].model_copy(update={"name": "x900.48xlarge"})
    (finding,) = ladder_quotas([rung_from_args(RUNGS[kind])], mine, CONTEXT)
    assert "x900 machines is not known" in finding.message


def test_a_head_of_an_unknown_type_is_said_to_have_no_known_quota() -> None:
    assert "not known" in helper_quota("gangway:head.machine_type", "x900.small", 1, "the head", CONTEXT).message


NOW = datetime(2026, 6, 30, 12, 0, tzinfo=UTC)
LADDER_CONTEXT = LadderContext(
    machine=load().machine("p4d.24xlarge"),
    zone="us-east-2a",
    zone_assumed=False,
    num_nodes_min=4,
    num_nodes_max=4,
    max_hours=10,
    now=NOW,
)
PLAIN = replace(LADDER_CONTEXT, machine=load().machine("g5.xlarge"))
BLOCK = {"kind": "capacity-block", "id": "cr-0123456789abcdef0", "ends_at": "2026-07-02T11:30:00Z"}
RESERVATION = {"kind": "reservation", "id": "cr-0123456789abcdef1"}
ON_DEMAND: dict[str, Any] = {"kind": "on-demand"}


def found(*rungs: dict[str, Any], context: LadderContext = LADDER_CONTEXT) -> dict[str, Finding]:
    """The findings by code, without the information about placement."""
    findings = capacity_findings([rung_from_args(rung) for rung in rungs], context)
    by_code = {finding.code: finding for finding in findings if finding.severity is not Severity.INFO}
    assert len(by_code) == sum(finding.severity is not Severity.INFO for finding in findings)
    assert all(finding.fix for finding in by_code.values())
    return by_code


def every(*rungs: dict[str, Any]) -> dict[str, Finding]:
    """All findings by code; of several alike the last."""
    return {
        finding.code: finding for finding in capacity_findings([rung_from_args(rung) for rung in rungs], LADDER_CONTEXT)
    }


def test_a_ladder_that_fits_is_only_explained() -> None:
    rungs = [BLOCK, RESERVATION, {**SPOT, "zones": ["us-east-2a"]}, ON_DEMAND]
    findings = capacity_findings([rung_from_args(rung) for rung in rungs], LADDER_CONTEXT)
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
    alone = capacity_findings([rung_from_args(BLOCK), rung_from_args(RESERVATION)], LADDER_CONTEXT)
    assert "capacity.behind-block" not in {finding.code for finding in alone}, "reserved capacity costs nothing more"


def test_reserved_capacity_whose_zone_nobody_has_named() -> None:
    """Bought for a zone that only the offering knows, it would stand empty in another one."""
    assumed = replace(LADDER_CONTEXT, zone_assumed=True)
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
    context = replace(LADDER_CONTEXT, machine=load().machine(machine))
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
    findings = found(ON_DEMAND, BLOCK, context=replace(LADDER_CONTEXT, num_nodes_min=2))
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
        assert not found({**BLOCK, "ends_at": end}, context=replace(LADDER_CONTEXT, max_hours=float(match[1])))


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
