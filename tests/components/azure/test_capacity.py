"""The ladder as virtual machine scale sets understand it."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.capacity import (
    HEAD_ACTIONS,
    HEAD_QUOTAS,
    OFFERED,
    REGIONAL_QUOTA,
    SPOT_QUOTA,
    UP_TO_ON_DEMAND,
    FallbackConfig,
    FallbackGroup,
    LadderContext,
    QuotaContext,
    ScaleSetFields,
    capacity_findings,
    check_ladder,
    ladder_quotas,
    plan_fallback,
    plan_scale_set,
    rung_zones,
)
from gangway.components.azure.policies import head_actions
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import AzureMachineType
from gangway.components.core.capacity import (
    PERIOD_SEC,
    WINDOW,
    OnDemand,
    Spot,
    plan_ladder,
    plan_rung,
    preferred_zone,
    rung_from_args,
)
from gangway.components.core.findings import Finding, InputError
from gangway.images.node.fill_order import plan_fill, reconcile

MACHINES = cast("dict[str, AzureMachineType]", load_provider("azure").machines)
H100, NC = "Standard_ND96isr_H100_v5", "Standard_NC24ads_A100_v4"
GROUP = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/lab"
    "/providers/Microsoft.Compute/capacityReservationGroups/ours"
)
RESERVED: dict[str, Any] = {"kind": "reservation", "id": GROUP}
SPOT = {"kind": "spot"}
ON_DEMAND = {"kind": "on-demand"}


def check(*rungs: dict[str, Any]) -> None:
    check_ladder([rung_from_args(rung) for rung in rungs])


def plan(rung: dict[str, Any], machine_type: str) -> ScaleSetFields:
    return plan_scale_set(plan_rung(rung_from_args(rung)), MACHINES[machine_type])


@pytest.mark.parametrize(
    ("rung", "machine_type", "expected"),
    [
        (SPOT, H100, ScaleSetFields("Spot", "Delete", -1.0, None, True)),
        ({**SPOT, "max_usd_per_hour": 40}, H100, ScaleSetFields("Spot", "Delete", 40.0, None, True)),
        (ON_DEMAND, H100, ScaleSetFields("Regular", None, None, None, True)),
        (ON_DEMAND, NC, ScaleSetFields("Regular", None, None, None, False)),
        (RESERVED, NC, ScaleSetFields("Regular", None, None, GROUP, False)),
    ],
)
def test_each_kind_of_rung(rung: dict[str, Any], machine_type: str, expected: ScaleSetFields) -> None:
    assert plan(rung, machine_type) == expected


RUNGS = st.sampled_from([RESERVED, SPOT, ON_DEMAND]) | st.floats(0.00001, 1000).map(
    lambda usd: {**SPOT, "max_usd_per_hour": usd}
)


@given(RUNGS, st.sampled_from(sorted(MACHINES)))
def test_what_excludes_each_other_never_stands_together(rung: dict[str, Any], machine_type: str) -> None:
    fields = plan(rung, machine_type)
    profile = fields.profile()
    spot, reserved = rung["kind"] == "spot", rung["kind"] == "reservation"
    assert profile["priority"] == ("Spot" if spot else "Regular")
    assert ("eviction_policy" in profile) == ("billing_profile" in profile) == spot
    assert ("capacity_reservation" in profile) == reserved
    # Azure takes no reservation in a single placement group, and InfiniBand nothing else.
    assert not (reserved and fields.single_placement_group)
    assert reserved or fields.single_placement_group == (MACHINES[machine_type].infiniband is not None)


@given(st.floats(0.00001, 1000))
def test_a_price_cap_is_rounded_down_to_what_azure_takes(usd: float) -> None:
    cap = plan({**SPOT, "max_usd_per_hour": usd}, H100).max_price
    assert cap is not None
    assert Decimal(repr(usd)) - Decimal("0.00001") < Decimal(repr(cap)) <= Decimal(repr(usd))
    assert Decimal(repr(cap)) % Decimal("0.00001") == 0
    assert cap != UP_TO_ON_DEMAND


def test_the_profile_is_in_pulumis_spelling() -> None:
    assert plan({**SPOT, "max_usd_per_hour": 40}, H100).profile() == {
        "priority": "Spot",
        "eviction_policy": "Delete",
        "billing_profile": {"max_price": 40.0},
    }
    assert plan(RESERVED, NC).profile() == {
        "priority": "Regular",
        "capacity_reservation": {"capacity_reservation_group": {"id": GROUP}},
    }


@pytest.mark.parametrize(
    "rung", [{"kind": "capacity-block", "id": "cr-0123456789abcdef0"}, {"kind": "flex-start", "max_hours": 24}]
)
def test_what_only_others_sell_is_refused(rung: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="Azure has no such capacity") as caught:
        check(SPOT, rung)
    assert caught.value.place == "gangway:cluster.capacity[1].kind"
    assert caught.value.allowed == ", ".join(OFFERED)
    assert caught.value.fix == "set gangway:cluster.capacity[1]: {kind: on-demand}", "never what Azure lacks as well"


@pytest.mark.parametrize("id_", [GROUP, GROUP.lower(), GROUP.replace("lab", "a.b_c-(d)")])
def test_a_group_by_its_id(id_: str) -> None:
    check({**RESERVED, "id": id_}, SPOT, ON_DEMAND)


@pytest.mark.parametrize(
    "id_",
    [
        "ours",
        "cr-0123456789abcdef0",
        GROUP.replace("Groups/ours", "s/ours"),
        f"{GROUP}/capacityReservations/h100",
        f"{GROUP} ",
        GROUP.removeprefix("/"),
    ],
)
def test_what_is_no_id_of_a_group_is_refused(id_: str) -> None:
    with pytest.raises(InputError, match="no id of a capacity reservation group") as caught:
        check({**RESERVED, "id": id_})
    assert (caught.value.place, caught.value.value) == ("gangway:cluster.capacity[0].id", id_)


@pytest.mark.parametrize("kind", ["spot", "on-demand"])
def test_a_scale_set_has_one_size(kind: str) -> None:
    with pytest.raises(InputError, match="one scale set, which has one size") as caught:
        check({"kind": kind, "machine_types": [NC]})
    assert caught.value.place == "gangway:cluster.capacity[0].machine_types"
    assert caught.value.fix == "remove machine_types"


def test_a_price_below_azures_smallest_is_refused() -> None:
    with pytest.raises(InputError, match="takes no such price") as caught:
        check({**SPOT, "max_usd_per_hour": 0.000009})
    assert caught.value.place == "gangway:cluster.capacity[0].max_usd_per_hour"
    assert caught.value.allowed == "US dollars, from 0.00001 on"


def test_the_zones_of_a_rung() -> None:
    assert rung_zones(rung_from_args(SPOT), "1") == ("1",)
    assert rung_zones(rung_from_args(SPOT), "") == ()
    assert rung_zones(rung_from_args({**SPOT, "zones": ["2", "3"]}), "1") == ("2", "3")
    assert rung_zones(rung_from_args({**RESERVED, "zone": "3"}), "1") == ("3",)
    assert rung_zones(plan_rung(rung_from_args({**RESERVED, "zone": "3"})), "1") == ("3",)


def test_a_reservation_draws_the_cluster_into_its_zone() -> None:
    rungs = [rung_from_args(rung) for rung in ({**SPOT, "zones": ["2"]}, {**RESERVED, "zone": "3"})]
    assert preferred_zone(rungs) == ("3", "gangway:cluster.capacity[1], a reservation, is there")
    assert preferred_zone(rungs[:1]) is None
    assert preferred_zone([rung_from_args(RESERVED)]) is None


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
    twice = [{**RESERVED, "zone": "1"}, SPOT, {**RESERVED, "zone": "1", "id": GROUP.swapcase()}]
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


FAMILY = "Standard NDSH100v5 Family vCPUs"


def find_quotas(
    rungs: Sequence[dict[str, Any]], machine_type: str = H100, head_type: str | None = None
) -> list[Finding]:
    context = QuotaContext("eastus", 4, head_type)
    return list(ladder_quotas([rung_from_args(rung) for rung in rungs], MACHINES[machine_type], context))


@pytest.mark.parametrize(
    ("rungs", "quotas"),
    [
        ([SPOT, ON_DEMAND, SPOT], ["[0]", SPOT_QUOTA, "[1]", FAMILY, "", REGIONAL_QUOTA]),
        ([ON_DEMAND, ON_DEMAND], ["[0]", FAMILY, "", REGIONAL_QUOTA]),
        ([SPOT], ["[0]", SPOT_QUOTA]),
    ],
)
def test_each_quota_is_told_once(rungs: list[dict[str, Any]], quotas: list[str]) -> None:
    told = find_quotas(rungs)
    assert [finding.path for finding in told] == [f"gangway:cluster.capacity{place}" for place in quotas[::2]]
    for finding, quota in zip(told, quotas[1::2], strict=True):
        assert finding.message.startswith(f"384 vCPUs of the quota {quota!r} in eastus, for 4 nodes")
        assert "`az vm list-usage --location eastus" in finding.message


@pytest.mark.parametrize("machine_type", sorted(MACHINES))
def test_every_machine_names_a_quota_or_a_reason_on_every_kind_of_rung(machine_type: str) -> None:
    for rung in (RESERVED, SPOT, ON_DEMAND):
        first = find_quotas([rung], machine_type)[0]
        assert first.path == "gangway:cluster.capacity[0]"
        needs = f"{MACHINES[machine_type].vcpus.value * 4:,} vCPUs of the quota"
        assert first.message.startswith("no quota: " if rung is RESERVED else needs)
    assert {"reservation", "spot", "on-demand"} == set(OFFERED)


def test_the_head_has_a_quota_of_its_own_and_counts_in_the_regions() -> None:
    spot, head, region = find_quotas([SPOT], head_type="Standard_D4s_v5")
    assert (head.path, region.path) == ("gangway:head.machine_type", "gangway:cluster.capacity")
    assert head.message.startswith("4 vCPUs of the quota 'Standard DSv5 Family vCPUs' in eastus, for the head node")
    assert region.message.startswith("4 vCPUs of the quota 'Total Regional vCPUs' in eastus, for the head node")
    assert "the portal calls it Total Regional Spot vCPUs" in spot.message
    both = find_quotas([ON_DEMAND], head_type="Standard_D4s_v5")[-1]
    assert both.message.startswith("388 vCPUs of the quota 'Total Regional vCPUs' in eastus, for 4 nodes on demand and")


def test_every_head_that_the_catalogue_knows_has_a_quota() -> None:
    services = load_provider("azure").get_services("azure")
    assert {name.removeprefix("instance-") for name in services if name.startswith("instance-")} == set(HEAD_QUOTAS)


@pytest.mark.parametrize(
    ("machine_type", "query"),
    [
        ("Standard_ND96isr_H200_v5", " --query \"[?name.value=='standardNDISRH200V5Family']\""),
        (H100, ""),
    ],
)
def test_a_quota_that_nobody_has_seen_printed_is_looked_up_by_azures_own_word(machine_type: str, query: str) -> None:
    found = find_quotas([ON_DEMAND], machine_type)[0]
    assert f"`az vm list-usage --location eastus{query}` shows the limit" in found.message


def test_every_quota_family_has_been_seen_somewhere() -> None:
    """By what is printed, or by what `az vm list-skus` calls it: never from memory."""
    families = [machine.quota_family for machine in MACHINES.values()]
    assert {family.confidence for family in families} == {"documented"}
    assert all(family.value.endswith("vCPUs") or family.value.startswith("standard") for family in families)


MIN, MAX = 2, 4


def ladder(groups: int, *, together: bool = True) -> FallbackConfig:
    names = tuple(FallbackGroup(f"g{n}", "spot", "m") for n in range(groups))
    return FallbackConfig("s", "g", together, names)


Situation = tuple[FallbackConfig, tuple[int, int], list[list[int]], list[int]]


@st.composite
def situations(draw: st.DrawFn, together: bool) -> Situation:
    groups, least = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    counts = st.lists(st.integers(0, 8), min_size=groups, max_size=groups)
    history = draw(st.lists(counts, min_size=1, max_size=WINDOW + 2))
    most = least + draw(st.integers(0, 3))
    return ladder(groups, together=together), (least, most), history, draw(counts)


@given(situations(True))
def test_over_ethernet_the_first_group_is_asked_for_every_node_and_the_others_fill_up(
    situation: Situation,
) -> None:
    config, (least, most), history, sizes = situation
    look = reconcile(config, (least, most), history, sizes)
    assert look.sizes[0] == most, "evicted nodes are not replaced by Azure"
    if len(history) < WINDOW:
        assert look.sizes[1:] == tuple(sizes[1:]), "too soon to tell"
    else:
        assert look.sizes[1:] == plan_fill(least, history[-WINDOW:], sizes)[1:]
    assert look.forget is (look.sizes[1:] != tuple(sizes[1:]))


def test_a_first_group_without_capacity_is_made_up_for_though_it_is_asked_again() -> None:
    config = ladder(2)
    history: list[list[int]] = []
    sizes = [0, 0]
    for _ in range(WINDOW):
        history.append([0, 0])
        # Azure refuses the first group each time: its size stays at 0.
        sizes = [0, reconcile(config, (MIN, MAX), history, sizes).sizes[1]]
    assert sizes == [0, MIN]


@given(situations(False), st.integers(0, 3))
def test_over_infiniband_one_group_has_all_nodes(situation: Situation, active: int) -> None:
    config, (least, most), history, sizes = situation
    active %= len(sizes)
    look = reconcile(config, (least, most), history, sizes, active)
    assert look.sizes[look.active] == most
    assert sum(look.sizes) == most, "nodes of two scale sets cannot talk"
    assert look.forget is (look.active != active)
    held = any(count[active] >= least for count in history[-WINDOW:])
    if held or len(history) < WINDOW:
        assert look.active == active, "a job that runs is not moved"
    else:
        assert look.active == (active + 1) % len(sizes)


def minutes(offers: list[list[int]]) -> list[int]:
    """The active group, minute by minute, as each group has that many nodes to give: the head's script in small."""
    history: list[list[int]] = []
    active, sizes, shown = 0, [0] * len(offers[0]), []
    for offered in offers:
        history = [*history, [min(size, there) for size, there in zip(sizes, offered, strict=True)]][-WINDOW:]
        look = reconcile(ladder(len(offered), together=False), (MIN, MAX), history, sizes, active)
        history, active, sizes = [] if look.forget else history, look.active, list(look.sizes)
        shown.append(active)
    return shown


def test_the_next_group_has_its_turn_when_the_first_has_too_few() -> None:
    shown = minutes([[1, 4]] * 30)
    assert shown.index(1) == WINDOW - 1
    assert set(shown[WINDOW:]) == {1}


def test_after_the_last_comes_the_first_again() -> None:
    shown = minutes([[0, 1]] * 3 * WINDOW)
    assert [shown[0], shown[WINDOW], shown[2 * WINDOW]] == [0, 1, 0]


def test_a_job_stays_where_it_runs_though_the_first_group_is_back() -> None:
    assert minutes([[0, 4]] * 20 + [[4, 4]] * 20)[-1] == 1


def test_a_group_that_flaps_is_not_given_up() -> None:
    assert set(minutes(([[4, 4]] + [[0, 4]] * (WINDOW - 2)) * 5)) == {0}


def test_the_head_is_told_everything_but_the_number_of_nodes_as_json() -> None:
    rungs = plan_ladder((Spot(kind="spot"), OnDemand(kind="on-demand")))
    config = plan_fallback("sub", "gangway-demo", "Standard_ND96isr_H100_v5", rungs, ["a", "b"], together=False)
    machine = {"machine_type": "Standard_ND96isr_H100_v5"}
    assert json.loads(json.dumps(config.to_json())) == {
        "version": 1, "subscription_id": "sub", "resource_group_name": "gangway-demo",
        "together": False, "period_sec": PERIOD_SEC, "window": WINDOW,
        "groups": [{"name": "a", "kind": "spot", **machine}, {"name": "b", "kind": "on-demand", **machine}],
    }  # fmt: skip


def test_the_heads_identity_may_do_it() -> None:
    assert HEAD_ACTIONS
    assert set(HEAD_ACTIONS) <= set(head_actions(fills_groups=True, scrapes=False))
