"""Where machines are sold: what a list proves, and what a plan says of a place that is not in it."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import PROVIDERS, Provider, load_lustre_zones, load_provider, load_tpus
from gangway.components.catalog.offerings import (
    first_zone,
    region_findings,
    service_findings,
    zone_findings,
    zone_names,
)
from gangway.components.catalog.schema import Fact, MachineType, Offered
from gangway.components.catalog.validators import STALE_DAYS
from gangway.components.core.findings import Finding
from gangway.components.gcp.slices import plan_slice, slice_machine

Complete = Literal["zones", "regions", "none"]
OF = date(2026, 11, 1)
TODAY = date(2026, 11, 24)
HERE, ELSEWHERE = "us-east-1", "eu-north-1"
KNOWN = (HERE, "us-west-2", ELSEWHERE)


def machine(complete: Complete, zones: Mapping[str, tuple[str, ...]] | None) -> MachineType:
    fact = Fact[Mapping[str, tuple[str, ...]] | None](value=zones, source="a list", as_of=OF, confidence="documented")
    return (
        load_provider("aws")
        .machines["p5.48xlarge"]
        .model_copy(update={"offered": Offered(zones=fact, complete=complete)})
    )


def in_region(complete: Complete, *, today: date = TODAY, reserved: bool = False) -> Finding:
    sold = machine(complete, {"us-west-2": ("a",), ELSEWHERE: ("a", "b"), "mars-1": ("a",)})
    (finding,) = region_findings(sold, HERE, KNOWN, today, reserved=reserved)
    return finding


@pytest.mark.parametrize("complete", ["zones", "regions"])
def test_a_region_that_a_complete_list_lacks_is_an_error_with_those_that_have_it(complete: Complete) -> None:
    finding = in_region(complete)
    assert (finding.severity.value, finding.code, finding.path) == ("error", "machine.not-in-region", "gangway:region")
    assert finding.message == (
        "us-east-1 does not sell p5.48xlarge: the list (a list, 2026-11-01) has it in us-west-2, eu-north-1 and "
        "1 that is not in the catalogue"
    )
    assert finding.fix == "set gangway:region: us-west-2 or eu-north-1"


def test_regions_of_the_same_part_of_the_world_are_proposed_first() -> None:
    sold = machine("regions", {"us-west-2": (), ELSEWHERE: ()})
    (finding,) = region_findings(sold, "eu-west-1", KNOWN, TODAY)
    assert finding.fix == "set gangway:region: eu-north-1 or us-west-2"


def test_a_list_that_is_not_complete_refuses_nothing() -> None:
    finding = in_region("none")
    assert (finding.severity.value, finding.code) == ("warning", "machine.region-unknown")
    assert finding.message.endswith("; that list is not complete")
    assert "--region us-east-1 --filters Name=instance-type,Values=p5.48xlarge" in finding.fix


def test_an_old_list_and_what_is_reserved_refuse_nothing() -> None:
    last = OF + timedelta(days=STALE_DAYS)
    assert in_region("regions", today=last).severity.value == "error"
    old = in_region("regions", today=last + timedelta(days=1))
    assert (old.severity.value, old.message.rpartition("; ")[2]) == (
        "warning",
        f"that list is {STALE_DAYS + 1} days old",
    )
    reserved = in_region("regions", reserved=True)
    assert reserved.severity.value == "warning"
    assert "its owner knows better" in reserved.message


def test_a_region_that_is_listed_is_worth_no_word() -> None:
    for complete in ("zones", "regions", "none"):
        assert not list(region_findings(machine(complete, {HERE: ()}), HERE, KNOWN, TODAY))


def test_where_nobody_has_a_list_the_plan_says_so() -> None:
    (finding,) = region_findings(machine("none", None), HERE, KNOWN, TODAY)
    assert (finding.severity.value, finding.message) == (
        "warning",
        "whether us-east-1 sells p5.48xlarge is not known: a list",
    )
    without = machine("none", None).model_copy(update={"offered": None})
    (finding,) = region_findings(without, HERE, KNOWN, TODAY)
    assert finding.message.endswith("is not known: no list at hand")
    (finding,) = region_findings(machine("none", {}), HERE, KNOWN, TODAY)
    assert "has it in no region; that list is not complete" in finding.message


@pytest.mark.parametrize(
    ("complete", "severity", "why"),
    [
        (
            "zones",
            "error",
            "us-east-1d does not sell p5.48xlarge: the list (a list, 2026-11-01) has it in us-east-1b",
        ),
        ("regions", "warning", "its letters of zones are one account's, and yours may be others"),
        ("none", "warning", "that list is not complete"),
    ],
)
def test_a_zone_that_is_not_listed(complete: Complete, severity: str, why: str) -> None:
    sold = machine(complete, {HERE: ("b", "c")})
    (finding,) = zone_findings(sold, HERE, "us-east-1d", "gangway:cluster.zone", TODAY)
    assert (finding.severity.value, finding.code) == (severity, "capacity.zone-without-machine")
    assert why in finding.message
    assert finding.fix == "set gangway:cluster.zone: us-east-1b"
    assert not list(zone_findings(sold, HERE, "us-east-1c", "gangway:cluster.zone", TODAY))
    assert not list(zone_findings(sold, ELSEWHERE, "eu-north-1a", "gangway:cluster.zone", TODAY)), "its region is said"
    unsaid = machine(complete, {HERE: ()})
    assert not list(zone_findings(unsaid, HERE, "us-east-1d", "gangway:cluster.zone", TODAY))


@given(st.sampled_from(PROVIDERS), st.data())
def test_a_cluster_without_a_zone_is_put_where_its_machine_is(provider: Provider, data: st.DataObject) -> None:
    catalog = load_provider(provider)
    chosen = catalog.machines[data.draw(st.sampled_from(sorted(catalog.machines)))]
    region = catalog.regions[data.draw(st.sampled_from(sorted(n for n, r in catalog.regions.items() if r.zones)))]
    zone, _ = first_zone(chosen, region)
    assert zone in zone_names(provider, region.name, region.zones)
    found = list(zone_findings(chosen, region.name, zone, "gangway:cluster.zone", TODAY))
    listed = {} if chosen.offered is None else chosen.offered.zones.value or {}
    assert not found or not set(listed[region.name]) & set(region.zones)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_machine_has_a_list_or_says_who_has_none(provider: Provider) -> None:
    catalog = load_provider(provider)
    for each in catalog.machines.values():
        assert each.offered is not None, each.name
        for region in set(each.offered.regions) & set(catalog.regions):
            zones = set((each.offered.zones.value or {})[region])
            assert not zones or zones & set(catalog.regions[region].zones), (each.name, region)


def test_what_proves_is_a_vendors_own_word() -> None:
    """A price list, or what somebody recalls, never refuses a stack."""
    lists = [each.offered for provider in PROVIDERS for each in load_provider(provider).machines.values()]
    for offered in (*lists, *(tpu.offered for tpu in load_tpus().generations.values())):
        assert offered is not None
        assert offered.complete == "none" or offered.zones.confidence == "documented"


def test_a_slice_is_sold_where_its_generation_is() -> None:
    slice_ = slice_machine(plan_slice(accelerator_type="v5p-64"))
    assert slice_.offered == load_tpus().generations["v5p"].offered
    (finding,) = region_findings(slice_, "us-west1", load_provider("gcp").regions, TODAY)
    assert (finding.severity.value, finding.fix) == (
        "error",
        "set gangway:region: us-central1, us-east5 or europe-west4",
    )


@pytest.mark.parametrize(
    ("complete", "zone", "said"),
    [
        ("none", "us-central1-a", ""),
        ("none", "us-central1-d", "warning storage.zone-unknown"),
        ("none", "us-east5-a", "warning storage.zone-unknown"),
        ("zones", "us-central1-d", "error storage.not-in-zone"),
        ("zones", "us-east5-a", "error storage.not-in-zone"),
    ],
)
def test_a_service_is_judged_as_machines_are(complete: Complete, zone: str, said: str) -> None:
    sold = machine(complete, {"us-central1": ("a", "b"), "asia-east1": ("a",)}).offered
    assert sold is not None
    found = list(service_findings("Managed Lustre", sold, "gcp", zone, "gangway:storage.kind", "ask Google", TODAY))
    assert [f"{finding.severity.value} {finding.code}" for finding in found] == ([said] if said else [])
    if said:
        here = zone.startswith("us-central1")
        assert ("has it in us-central1-a, us-central1-b" if here else "has it in 2 other regions") in found[0].message
        fix = "set gangway:cluster.zone: us-central1-a" if here and complete == "zones" else "ask Google"
        assert found[0].fix == fix


def test_zones_of_lustre_are_zones_of_the_catalogue() -> None:
    regions, sold = load_provider("gcp").regions, load_lustre_zones().zones.value
    assert sold
    assert {"us-central1", "europe-west4"} <= sold.keys()
    for name in sold.keys() & regions.keys():
        assert set(sold[name]) <= set(regions[name].zones), name
