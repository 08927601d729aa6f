"""Lustre sizes against FSx's own rule, and what the two storage components declare."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from components.aws.storage import LustreFileSystem, RunBucket, plan_lustre
from components.findings import InputError

TIERS = (125, 250, 500, 1000)


def accepted_by_fsx(capacity_gib: int) -> bool:
    """The rule of the FSx for Lustre guide for PERSISTENT_2 on SSD."""
    return capacity_gib == 1200 or (capacity_gib > 0 and capacity_gib % 2400 == 0)


@given(st.integers() | st.integers(-5000, 50000) | st.integers(0, 100).map(lambda n: n * 1200), st.sampled_from(TIERS))
@example(0, 125)
@example(1, 125)
@example(1200, 125)
@example(1201, 125)
@example(3600, 125)
def test_any_size_is_accepted_or_mended(capacity_gib: int, tier: int) -> None:
    if accepted_by_fsx(capacity_gib):
        assert plan_lustre(capacity_gib, tier).capacity_gib == capacity_gib
        return
    with pytest.raises(InputError) as caught:
        plan_lustre(capacity_gib, tier)
    assert caught.value.place == "gangway:storage.capacity_gib"
    assert caught.value.value == capacity_gib
    mended = int(re.fullmatch(r"set capacity_gib: (\d+)", caught.value.fix)[1])  # type: ignore[index]  # None fails the test
    assert accepted_by_fsx(mended)
    assert capacity_gib <= mended < max(capacity_gib, 0) + 2400, "the next size up, not just any"
    assert plan_lustre(mended, tier).capacity_gib == mended


@given(st.integers(-100, 5000))
def test_any_throughput_is_a_tier_or_mended_to_the_nearest(throughput: int) -> None:
    if throughput in TIERS:
        assert plan_lustre(2400, throughput).throughput_mbps_per_tib == throughput
        return
    with pytest.raises(InputError) as caught:
        plan_lustre(2400, throughput)
    assert caught.value.place == "gangway:storage.throughput_mbps_per_tib"
    mended = int(caught.value.fix.removeprefix("set throughput_mbps_per_tib: "))
    assert abs(mended - throughput) == min(abs(tier - throughput) for tier in TIERS)


def test_the_file_system_and_its_link_to_s3(make: Callable[..., Any]) -> None:
    made = make(LustreFileSystem, capacity_gib=9600, throughput_mbps_per_tib=500)
    system, link = made.one("LustreFileSystem"), made.one("DataRepositoryAssociation")
    assert system.type == "aws:fsx/lustreFileSystem:LustreFileSystem"
    expected = {
        "deploymentType": "PERSISTENT_2",
        "storageType": "SSD",
        "storageCapacity": 9600,
        "perUnitStorageThroughput": 500,
        "subnetIds": "subnet-1",
        "securityGroupIds": ["sg-1"],
        "dataCompressionType": "LZ4",
    }
    assert {key: system.inputs[key] for key in expected} == expected
    assert not {"importPath", "exportPath"} & set(system.inputs), "those belong to older deployment types"
    assert link.inputs["fileSystemId"] == system.id
    assert link.inputs["dataRepositoryPath"] == "s3://bucket/prefix"
    assert link.inputs["fileSystemPath"] == "/data"
    assert link.inputs["batchImportMetaDataOnCreate"] is True
    assert link.inputs["s3"] == {"autoImportPolicy": {"events": ["NEW", "CHANGED", "DELETED"]}}


def test_without_a_source_nothing_is_linked(make: Callable[..., Any]) -> None:
    assert not make(LustreFileSystem, source=None).of("DataRepositoryAssociation")


def test_a_size_fsx_refuses_stops_the_component(make: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="not a size FSx for Lustre offers"):
        make(LustreFileSystem, capacity_gib=1000)


def test_the_run_bucket_is_private_and_versioned(make: Callable[..., Any]) -> None:
    made = make(RunBucket)
    bucket, block, versions = made.one("Bucket"), made.one("BucketPublicAccessBlock"), made.one("BucketVersioning")
    switches = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    assert {key: block.inputs[key] for key in switches} == dict.fromkeys(switches, True)
    assert block.inputs["bucket"] == versions.inputs["bucket"] == bucket.id
    assert versions.inputs["versioningConfiguration"] == {"status": "Enabled"}
