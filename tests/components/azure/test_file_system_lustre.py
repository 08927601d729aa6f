"""Sizes and tiers of Azure Managed Lustre, and the subnet of each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.file_system import GIB_PER_TIB, plan_lustre
from gangway.components.catalog.loader import load_amlfs_subnets, load_amlfs_tiers
from gangway.components.core.fields import LustreDeployment
from gangway.components.core.findings import InputError

TIERS = sorted(load_amlfs_tiers())


@pytest.mark.parametrize(
    ("tib", "tier", "sku", "prefix"),
    [
        (4, 500, "AMLFS-Durable-Premium-500", 27),
        (16, 125, "AMLFS-Durable-Premium-125", 27),
        (24, 250, "AMLFS-Durable-Premium-250", 26),
        (40, 500, "AMLFS-Durable-Premium-500", 26),
        (48, 40, "AMLFS-Durable-Premium-40", 25),
        (128, 250, "AMLFS-Durable-Premium-250", 24),
        (384, 40, "AMLFS-Durable-Premium-40", 23),
    ],
)
def test_a_file_system_and_its_subnet(tib: int, tier: int, sku: str, prefix: int) -> None:
    planned = plan_lustre(tib * GIB_PER_TIB, tier)
    assert (planned.sku, planned.capacity_tib, planned.subnet_prefix_length) == (sku, tib, prefix)
    assert (planned.capacity_gib, planned.throughput_mbps_per_tib) == (tib * GIB_PER_TIB, tier)


@pytest.mark.parametrize(
    ("size", "tier", "nearest", "fix"),
    [
        (1200, 500, "4096 (4 TiB)", 4096),
        (9600, 500, "8192 (8 TiB) and 12288 (12 TiB)", 8192),
        (10240, 500, "8192 (8 TiB) and 12288 (12 TiB)", 12288),
        (16385, 125, "16384 (16 TiB) and 32768 (32 TiB)", 16384),
        (200_000, 250, "131072 (128 TiB)", 131072),
        (442_368, 40, "393216 (384 TiB)", 393216),
    ],
)
def test_a_wrong_size_names_those_around_it(size: int, tier: int, nearest: str, fix: int) -> None:
    with pytest.raises(InputError, match=f"not a size Azure Managed Lustre offers at {tier} MB/s per TiB") as caught:
        plan_lustre(size, tier)
    assert (caught.value.place, caught.value.value) == ("gangway:storage.capacity_gib", size)
    assert caught.value.allowed.endswith(f"nearest: {nearest}")
    assert caught.value.fix.partition(" (")[0] == f"set capacity_gib: {fix}"


@given(st.sampled_from(TIERS), st.integers(1, 2_000_000))
def test_the_fix_is_always_a_size_that_is_taken(tier: int, size: int) -> None:
    try:
        planned = plan_lustre(size, tier)
    except InputError as error:
        fix = int(error.fix.partition(" (")[0].rpartition(" ")[2])
        planned = plan_lustre(fix, tier)
        step = load_amlfs_tiers()[tier].step_tib.value * GIB_PER_TIB
        assert fix != size
        assert abs(fix - size) <= step or fix == step or size > fix, "nothing nearer was passed over"
    else:
        assert planned.capacity_gib == size
    assert planned.throughput_mbps_per_tib == tier
    assert planned.capacity_tib <= load_amlfs_tiers()[tier].largest_tib.value


@given(st.sampled_from(TIERS), st.integers(1, 100), st.integers(1, 100))
def test_a_larger_file_system_never_fits_a_smaller_subnet(tier: int, first: int, second: int) -> None:
    row = load_amlfs_tiers()[tier]
    most = plan_lustre(_largest(tier), tier).capacity_tib // row.step_tib.value
    small, large = sorted(min(count, most) * row.step_tib.value * GIB_PER_TIB for count in (first, second))
    assert plan_lustre(small, tier).subnet_prefix_length >= plan_lustre(large, tier).subnet_prefix_length


def _largest(tier: int) -> int:
    with pytest.raises(InputError) as caught:
        plan_lustre(10**9, tier)
    return int(caught.value.fix.partition(" (")[0].rpartition(" ")[2])


@pytest.mark.parametrize(("tier", "nearest"), [(None, 40), (100, 125), (1000, 500), (200, 250), (50, 40)])
def test_a_wrong_tier_names_the_nearest(tier: int | None, nearest: int) -> None:
    with pytest.raises(InputError, match="not a throughput tier of Azure Managed Lustre") as caught:
        plan_lustre(16384, tier, "here")
    assert (caught.value.place, caught.value.fix) == (
        "here.throughput_mbps_per_tib",
        f"set throughput_mbps_per_tib: {nearest}",
    )
    assert caught.value.allowed == "40, 125, 250, 500"


@pytest.mark.parametrize(
    ("setting", "value"), [("deployment", LustreDeployment.SCRATCH), ("efa", True), ("metadata_iops", 12000)]
)
def test_what_only_fsx_has_is_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(InputError, match="not a setting of Azure Managed Lustre") as caught:
        plan_lustre(16384, 500, "here", **{setting: value})  # type: ignore[arg-type]  # one of them
    assert (caught.value.place, caught.value.fix) == (f"here.{setting}", f"leave {setting} out")
    assert "<" not in str(caught.value), "a value as it is written, no object of ours"


def test_where_a_tier_ends_is_said_and_why() -> None:
    with pytest.raises(InputError) as caught:
        plan_lustre(491520, 40)
    assert "up to 393216 (the tier goes on to 768 TiB, for which Azure documents no size of subnet)" in (
        caught.value.allowed
    )
    with pytest.raises(InputError) as caught:
        plan_lustre(491520, 500)
    assert "up to 131072 (Microsoft's support makes larger ones)" in caught.value.allowed


def test_subnets_are_listed_from_the_smallest_file_system_on() -> None:
    rules = load_amlfs_subnets()
    assert [rule.up_to_tib for rule in rules] == [16, 40, 92, 196, 400]
    assert [rule.prefix_length.value for rule in rules] == [27, 26, 25, 24, 23]
