"""plan_lustre against FSx's own rules: whatever is asked for is accepted, or mended by what the message says."""

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangway.components.aws.storage import plan_lustre
from gangway.components.core.fields import LustreDeployment
from gangway.components.core.findings import InputError

TIERS = (125, 250, 500, 1000)
EFA_STEPS = {125: 38400, 250: 19200, 500: 9600, 1000: 4800}
SIZES = st.integers() | st.integers(-5000, 90000) | st.integers(0, 100).map(lambda n: n * 1200)
deployments = st.sampled_from(LustreDeployment)
asked_for = st.fixed_dictionaries(
    {
        "capacity_gib": SIZES,
        "throughput_mbps_per_tib": st.none() | st.sampled_from(TIERS) | st.integers(-100, 5000),
        "deployment": deployments,
        "efa": st.booleans(),
        "metadata_iops": st.none() | st.integers(-1, 200_000) | st.sampled_from([1500, 12000, 192_000]),
        "customer_key": st.booleans(),
    }
)


def sizes_of(capacity_gib: int, step: int, smallest: int) -> bool:
    """The rule of the FSx for Lustre guide on SSD."""
    return capacity_gib == smallest or (capacity_gib > 0 and capacity_gib % step == 0)


def mended(asked: dict[str, Any], error: InputError) -> dict[str, Any]:
    """`asked` with the fix that the message names first."""
    if left_out := re.match(r"leave (\w+) out", error.fix):
        name = left_out[1]
        return {**asked, **({"customer_key": False} if name == "kms_key_arn" else {name: None})}
    found = re.match(r"set (\w+): (\w+)", error.fix)
    assert found, error.fix
    return {**asked, found[1]: int(found[2]) if found[2].isdigit() else LustreDeployment(found[2])}


@given(asked_for)
def test_whatever_is_asked_for_is_accepted_or_mended_step_by_step(asked: dict[str, Any]) -> None:
    """A fix mends the place it names; another setting may then turn out wrong, but each only once."""
    places = []
    for _ in range(6):
        try:
            plan = plan_lustre(**asked)
        except InputError as error:
            places.append(error.place)
            asked = mended(asked, error)
        else:
            break
    else:
        pytest.fail(f"still refused after {places}")
    assert len(set(places)) == len(places), places
    assert plan.capacity_gib == asked["capacity_gib"]
    if asked["deployment"] is LustreDeployment.SCRATCH:
        assert (plan.deployment_type, plan.throughput_mbps_per_tib, plan.metadata_mode) == ("SCRATCH_2", None, None)
        assert sizes_of(plan.capacity_gib, 2400, 1200)
        return
    assert plan.deployment_type == "PERSISTENT_2"
    assert plan.throughput_mbps_per_tib in TIERS
    assert (plan.metadata_mode == "USER_PROVISIONED") is (plan.metadata_iops is not None)
    step = EFA_STEPS[plan.throughput_mbps_per_tib] if plan.efa else 2400
    assert sizes_of(plan.capacity_gib, step, step if plan.efa else 1200)


@given(SIZES, st.sampled_from(TIERS), st.booleans())
@example(0, 125, False)
@example(1200, 125, False)
@example(1201, 125, False)
@example(1800, 125, False)
@example(3600, 125, False)
@example(2400, 500, True)
def test_any_size_is_accepted_or_mended_to_the_nearest(capacity_gib: int, tier: int, efa: bool) -> None:
    step = EFA_STEPS[tier] if efa else 2400
    smallest = step if efa else 1200
    if sizes_of(capacity_gib, step, smallest):
        assert plan_lustre(capacity_gib, tier, efa=efa).capacity_gib == capacity_gib
        return
    with pytest.raises(InputError) as caught:
        plan_lustre(capacity_gib, tier, efa=efa)
    assert caught.value.place == "gangway:storage.capacity_gib"
    assert caught.value.value == capacity_gib
    fix = int(caught.value.fix.removeprefix("set capacity_gib: ").partition(" (")[0])
    assert plan_lustre(fix, tier, efa=efa).capacity_gib == fix
    around = [int(word) for word in caught.value.allowed.partition("around this value ")[2].split(" and ")]
    assert fix in around
    assert all(sizes_of(size, step, smallest) for size in around)
    assert len(around) == (1 if capacity_gib < smallest else 2), "both neighbours, where there are two"
    if len(around) == 2:
        assert around[0] < capacity_gib < around[1]
        between = [size for size in (smallest, *range(around[0] + 1, around[0] + 2400)) if around[0] < size < around[1]]
        assert not any(sizes_of(size, step, smallest) for size in between), "no size lies between the neighbours"
    assert abs(fix - capacity_gib) == min(abs(size - capacity_gib) for size in around)


@given(st.integers(-100, 5000))
def test_any_throughput_is_a_tier_or_mended_to_the_nearest(throughput: int) -> None:
    if throughput in TIERS:
        assert plan_lustre(2400, throughput).throughput_mbps_per_tib == throughput
        return
    with pytest.raises(InputError) as caught:
        plan_lustre(2400, throughput)
    assert caught.value.place == "gangway:storage.throughput_mbps_per_tib"
    mended_to = int(caught.value.fix.removeprefix("set throughput_mbps_per_tib: "))
    assert abs(mended_to - throughput) == min(abs(tier - throughput) for tier in TIERS)


def test_a_persistent_file_system_needs_a_tier() -> None:
    with pytest.raises(InputError, match="set throughput_mbps_per_tib: 125"):
        plan_lustre(2400, None)


@pytest.mark.parametrize(
    ("asked", "place", "fix"),
    [
        ({"efa": True}, "efa", "set deployment: persistent, or efa: false"),
        ({"throughput_mbps_per_tib": 250}, "throughput_mbps_per_tib", "leave throughput_mbps_per_tib out"),
        ({"metadata_iops": 1500}, "metadata_iops", "leave metadata_iops out"),
        ({"customer_key": True}, "kms_key_arn", "leave kms_key_arn out"),
    ],
)
def test_what_scratch_cannot_have_is_named(asked: dict[str, Any], place: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_lustre(
            **{"capacity_gib": 2400, "throughput_mbps_per_tib": None, "deployment": LustreDeployment.SCRATCH, **asked}
        )
    assert caught.value.place == f"gangway:storage.{place}"
    assert caught.value.fix.startswith(fix)


def test_metadata_iops_are_mended_to_the_nearest() -> None:
    with pytest.raises(InputError, match="set metadata_iops: 12000, or leave it out"):
        plan_lustre(2400, 125, metadata_iops=17_000)
    assert plan_lustre(2400, 125, metadata_iops=192_000).metadata_iops == 192_000


def test_another_tier_that_takes_the_size_is_offered_with_its_price() -> None:
    with pytest.raises(InputError) as caught:
        plan_lustre(4800, 500, efa=True, region="us-east-1")
    assert caught.value.fix == (
        "set capacity_gib: 9600 ($3,264 a month), or throughput_mbps_per_tib: 1000 with the 4800 GiB ($2,880 a month)"
    )
    assert plan_lustre(4800, 1000, efa=True).capacity_gib == 4800
    with pytest.raises(InputError) as elsewhere:
        plan_lustre(4915, 500, region="eu-north-1")
    assert elsewhere.value.fix == "set capacity_gib: 4800 ($1,632 a month in us-east-1)"
