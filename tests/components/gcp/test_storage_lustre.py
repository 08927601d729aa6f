"""Sizes, tiers and names of Managed Lustre and Filestore: what is planned exists, what is refused comes with a fix."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_filestore_tiers, load_lustre_tiers
from gangway.components.catalog.schema import SizeRange
from gangway.components.core.fields import LustreDeployment
from gangway.components.core.findings import InputError
from gangway.components.estimate.storage_sizes import sizes_around
from gangway.components.gcp.storage import import_request, plan_filestore, plan_lustre

TIERS: list[SizeRange] = [*load_lustre_tiers().values(), *load_filestore_tiers().values()]


def sizes(tier: SizeRange) -> Iterator[int]:
    """Every size of a tier, counted out."""
    yield from range(tier.smallest_gib.value, tier.step_until_gib.value + 1, tier.step_gib.value)
    large = tier.large_step_gib.value
    first = tier.step_until_gib.value // large * large + large
    yield from range(first, tier.largest_gib.value + 1, large)


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: str(getattr(tier, "tier", None) or tier.smallest_gib.value))
def test_a_tier_of_the_catalogue_is_possible(tier: SizeRange) -> None:
    assert tier.smallest_gib.value % tier.step_gib.value == 0
    assert tier.step_until_gib.value % tier.step_gib.value == 0
    assert tier.largest_gib.value % tier.large_step_gib.value == 0
    assert tier.smallest_gib.value <= tier.step_until_gib.value <= tier.largest_gib.value


@given(st.sampled_from(TIERS), st.data())
def test_a_size_is_taken_or_the_two_around_it_are_named(tier: SizeRange, data: st.DataObject) -> None:
    offered = sorted(sizes(tier))
    wanted = data.draw(st.integers(1, offered[-1] + 50_000) | st.sampled_from(offered))
    below, above = [s for s in offered if s <= wanted][-1:], [s for s in offered if s >= wanted][:1]
    assert sizes_around(tier, wanted) == sorted({*below, *above})


@pytest.mark.parametrize(
    ("tier", "size", "allowed", "fix"),
    [
        (1000, 9001, "nearest: 9000 and 18000", "set capacity_gib: 9000"),
        (1000, 13500, "nearest: 9000 and 18000", "set capacity_gib: 18000"),
        (500, 9600, "nearest: 18000", "set capacity_gib: 18000"),
        (1000, 1_530_001, "nearest: 1530000 and 1584000", "set capacity_gib: 1530000"),
        (250, 99_000_000, "nearest: 40032000", "set capacity_gib: 40032000"),
    ],
)
def test_a_wrong_size_names_the_nearest_below_and_above(tier: int, size: int, allowed: str, fix: str) -> None:
    with pytest.raises(InputError, match=f"not a size Managed Lustre offers at {tier} MB/s per TiB") as caught:
        plan_lustre(size, tier, stack="demo")
    error = caught.value
    assert (error.place, error.allowed) == ("gangway:storage.capacity_gib", allowed)
    assert error.fix.partition(" (")[0] == fix
    nearest = int(fix.rpartition(" ")[2])
    assert plan_lustre(nearest, tier, stack="demo").capacity_gib == nearest


@given(st.sampled_from(sorted(load_lustre_tiers())), st.integers(1, 50_000_000))
def test_the_fix_is_always_a_size_that_is_taken(tier: int, size: int) -> None:
    try:
        planned = plan_lustre(size, tier, stack="demo")
    except InputError as error:
        mended, *others = re.findall(r"(?:capacity_gib|per_tib): ([0-9]+)", error.fix)
        planned = plan_lustre(int(mended), tier, stack="demo")
        # A tier that takes the size as it is, is offered beside it.
        for other in others:
            assert plan_lustre(size, int(other), stack="demo").capacity_gib == size
    else:
        assert planned.capacity_gib == size
    assert planned.throughput_mbps_per_tib == tier


@pytest.mark.parametrize(("tier", "nearest"), [(None, 125), (100, 125), (375, 500), (750, 1000), (5000, 1000)])
def test_a_wrong_tier_names_the_nearest(tier: int | None, nearest: int) -> None:
    with pytest.raises(InputError, match="not a throughput tier") as caught:
        plan_lustre(18000, tier, stack="demo")
    assert caught.value.fix == f"set throughput_mbps_per_tib: {nearest}"
    assert caught.value.allowed == "125, 250, 500, 1000"


@pytest.mark.parametrize(
    ("setting", "value"),
    [("deployment", LustreDeployment.SCRATCH), ("efa", True), ("metadata_iops", 12000), ("export_runs", True)],
)
def test_what_only_fsx_has_is_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(InputError, match="not a setting of Google Cloud Managed Lustre") as caught:
        plan_lustre(18000, 500, "here", stack="demo", **{setting: value})  # type: ignore[arg-type]  # one of them
    assert (caught.value.place, caught.value.fix) == (f"here.{setting}", f"leave {setting} out")


@given(st.from_regex(r"\A[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z"))
def test_every_stack_has_a_file_systems_name(stack: str) -> None:
    name = plan_lustre(9000, 1000, stack=stack).filesystem
    assert re.fullmatch(r"[a-z0-9]{1,8}", name)
    assert plan_lustre(9000, 1000, stack=stack).filesystem == name


def test_long_stacks_that_begin_alike_have_two_names() -> None:
    first, second = (plan_lustre(9000, 1000, stack=f"gcp-a3-spot-{n}").filesystem for n in "ab")
    assert first != second


@pytest.mark.parametrize(
    ("tier", "size", "api_tier"),
    [("basic-hdd", 1024, "BASIC_HDD"), ("basic-ssd", 2560, "BASIC_SSD"), ("zonal", 12800, "ZONAL")],
)
def test_a_share_of_filestore(tier: str, size: int, api_tier: str) -> None:
    planned = plan_filestore(size, tier)
    assert (planned.tier, planned.capacity_gib) == (api_tier, size)


@pytest.mark.parametrize(
    ("tier", "size", "allowed"),
    [("basic-ssd", 1024, "2560"), ("zonal", 1100, "1024 and 1280"), ("zonal", 10000, "9984 and 10240")],
)
def test_a_wrong_size_of_a_share(tier: str, size: int, allowed: str) -> None:
    with pytest.raises(InputError, match=f"Filestore offers in its tier {tier}") as caught:
        plan_filestore(size, tier)
    assert caught.value.allowed == f"nearest: {allowed}"


@pytest.mark.parametrize("tier", ["basic-hdd", "basic-ssd"])
def test_a_key_of_the_stacks_is_for_another_tier(tier: str) -> None:
    with pytest.raises(InputError, match="Google's own keys alone") as caught:
        plan_filestore(2560, tier, customer_key=True)
    error = caught.value
    assert (error.place, error.value) == ("gangway:storage.tier", tier)
    assert (error.allowed, "tier: zonal" in error.fix) == ("zonal with a customer's key", True)
    assert plan_filestore(2560, "zonal", customer_key=True).tier == "ZONAL"


def test_a_wrong_tier_of_a_share() -> None:
    with pytest.raises(InputError, match="not a tier of Filestore") as caught:
        plan_filestore(2560, "premium")
    assert caught.value.allowed == "basic-hdd, basic-ssd, zonal"


@pytest.mark.parametrize("source", ["gs://data/celeba", "gs://data/celeba/"])
def test_the_import_is_one_call_of_the_api(source: str) -> None:
    request = import_request("projects/lab/locations/us-east5-a/instances/demo", source)
    assert request.url == "https://lustre.googleapis.com/v1/projects/lab/locations/us-east5-a/instances/demo:importData"
    assert request.body == {"gcsPath": {"uri": "gs://data/celeba/"}, "lustrePath": {"path": "/data"}}


def test_another_tier_that_takes_the_size_is_offered() -> None:
    with pytest.raises(InputError) as caught:
        plan_lustre(9000, 500, stack="demo")
    assert re.sub(r" \([^)]*\)", "", caught.value.fix) == (
        "set capacity_gib: 18000, or throughput_mbps_per_tib: 1000 with the 9000 GiB"
    )
