"""What the two storage components declare: file system, links to S3, logs; a bucket that keeps and hides."""

import json
import re
from typing import Any

import pulumi
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangway.components.aws.storage import (
    ImageRegistry,
    LustreFileSystem,
    RunBucket,
    bucket_policy,
    lifecycle_policy,
    plan_lustre,
)
from gangway.components.core.fields import LustreDeployment
from gangway.components.core.findings import InputError
from tests.components.fixture_types import Make

KEY = "arn:aws:kms:us-east-2:1:key/x"


def test_the_file_system(make: Make) -> None:
    system = make(LustreFileSystem, capacity_gib=9600, throughput_mbps_per_tib=500).one("LustreFileSystem")
    assert system.type == "aws:fsx/lustreFileSystem:LustreFileSystem"
    expected = {
        "deploymentType": "PERSISTENT_2",
        "fileSystemTypeVersion": "2.15",
        "storageType": "SSD",
        "storageCapacity": 9600,
        "perUnitStorageThroughput": 500,
        "metadataConfiguration": {"mode": "AUTOMATIC"},
        "subnetIds": "subnet-1",
        "securityGroupIds": ["sg-1"],
        "dataCompressionType": "LZ4",
        "weeklyMaintenanceStartTime": "7:03:00",
        "automaticBackupRetentionDays": 0,
        "kmsKeyId": KEY,
    }
    assert {key: system.inputs.get(key) for key in expected} == expected
    assert not {"importPath", "exportPath", "rootSquashConfiguration", "efaEnabled"} & set(system.inputs)


def test_the_data_set_is_only_read_and_runs_go_both_ways_without_deletions(make: Make) -> None:
    made = make(LustreFileSystem)
    links = {link.inputs["fileSystemPath"]: link.inputs for link in made.of("DataRepositoryAssociation")}
    assert {link["fileSystemId"] for link in links.values()} == {made.one("LustreFileSystem").id}
    assert all(link["batchImportMetaDataOnCreate"] for link in links.values())
    assert {path: link["dataRepositoryPath"] for path, link in links.items()} == {
        "/data": "s3://bucket/prefix",
        "/runs": "s3://runs/test",
    }
    assert links["/data"]["s3"] == {"autoImportPolicy": {"events": ["NEW", "CHANGED", "DELETED"]}}
    both = {"events": ["NEW", "CHANGED"]}
    assert links["/runs"]["s3"] == {"autoImportPolicy": both, "autoExportPolicy": both}


def test_a_large_file_system_and_a_link_to_many_objects_have_hours(
    declare: Make, example_args: dict[str, dict[str, Any]]
) -> None:
    """The provider gives a link ten minutes; one that reads the names of millions of objects takes over an hour."""
    waits: dict[str, list[float]] = {}

    def look(args: pulumi.ResourceTransformationArgs) -> None:
        given = args.opts.custom_timeouts
        if given is not None:
            hours = [float(str(time).removesuffix("h")) for time in (given.create, given.update, given.delete)]
            waits[args.type_.rpartition(":")[2]] = hours

    example: Any = example_args["LustreFileSystem"]
    declare(lambda: LustreFileSystem("demo", example, pulumi.ResourceOptions(transformations=[look])))
    assert waits.keys() == {"LustreFileSystem", "DataRepositoryAssociation"}
    assert all(min(hours) >= 1.5 for hours in waits.values())


def test_without_a_source_only_runs_are_linked(make: Make) -> None:
    (link,) = make(LustreFileSystem, source=None).of("DataRepositoryAssociation")
    assert link.inputs["fileSystemPath"] == "/runs"


def test_efa_and_provisioned_metadata(make: Make) -> None:
    system = make(LustreFileSystem, capacity_gib=9600, throughput_mbps_per_tib=500, efa=True, metadata_iops=12000).one(
        "LustreFileSystem"
    )
    assert system.inputs["efaEnabled"] is True
    assert system.inputs["metadataConfiguration"] == {"mode": "USER_PROVISIONED", "iops": 12000}


def test_scratch_sends_nothing_that_scratch_cannot_have(declare: Make, tags: dict[str, str]) -> None:
    def program() -> None:
        LustreFileSystem(
            "demo",
            {
                "capacity_gib": 2400,
                "deployment": "scratch",  # type: ignore[typeddict-item]  # as another language passes it
                "subnet_id": "subnet-1",
                "security_group_id": "sg-1",
                "tags": tags,
            },
        )

    made = declare(program)
    inputs = made.one("LustreFileSystem").inputs
    assert inputs["deploymentType"] == "SCRATCH_2"
    assert inputs["fileSystemTypeVersion"] == "2.15", "the default, 2.10, has no links to S3"
    unset = {"perUnitStorageThroughput", "metadataConfiguration", "automaticBackupRetentionDays", "kmsKeyId"}
    assert not unset & set(inputs)
    assert not made.of("DataRepositoryAssociation")
    assert not made.of("LogGroup")


def test_events_go_to_a_log_group_of_the_name_fsx_wants(make: Make) -> None:
    made = make(LustreFileSystem)
    group = made.one("LogGroup").inputs
    assert (group["name"], group["retentionInDays"], group["kmsKeyId"]) == ("/aws/fsx/demo", 30, KEY)
    log = made.one("LustreFileSystem").inputs["logConfiguration"]
    assert log == {"level": "WARN_ERROR", "destination": "${LogGroup.demo-lustre.arn}"}


def test_a_size_fsx_refuses_stops_the_component(make: Make) -> None:
    with pytest.raises(InputError, match="not a size FSx for Lustre offers"):
        make(LustreFileSystem, capacity_gib=1000)


def test_the_run_bucket_is_private_and_versioned(make: Make) -> None:
    made = make(RunBucket)
    bucket, block, versions = made.one("Bucket"), made.one("BucketPublicAccessBlock"), made.one("BucketVersioning")
    switches = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    assert {key: block.inputs[key] for key in switches} == dict.fromkeys(switches, True)
    assert block.inputs["bucket"] == versions.inputs["bucket"] == bucket.id
    assert versions.inputs["versioningConfiguration"] == {"status": "Enabled"}
    assert made.one("BucketOwnershipControls").inputs["rule"] == {"objectOwnership": "BucketOwnerEnforced"}


def test_nothing_is_answered_without_tls(make: Make) -> None:
    policy = json.loads(make(RunBucket).one("BucketPolicy").inputs["policy"])
    assert policy == bucket_policy("${Bucket.demo-runs.arn}")
    (statement,) = policy["Statement"]
    assert (statement["Effect"], statement["Action"], statement["Principal"]) == ("Deny", "s3:*", "*")
    assert statement["Resource"] == ["${Bucket.demo-runs.arn}", "${Bucket.demo-runs.arn}/*"]
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


@pytest.mark.parametrize(
    ("key", "rule"),
    [
        (None, {"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256"}}),
        (
            KEY,
            {
                "applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": KEY},
                "bucketKeyEnabled": True,
            },
        ),
    ],
)
def test_objects_are_encrypted_with_the_given_key_or_s3s_own(make: Make, key: str | None, rule: dict[str, Any]) -> None:
    made = make(RunBucket, kms_key_arn=key)
    assert made.one("BucketServerSideEncryptionConfiguration").inputs["rules"] == [rule]


def test_what_is_current_never_expires(make: Make) -> None:
    (rule,) = make(RunBucket).one("BucketLifecycleConfiguration").inputs["rules"]
    assert rule["noncurrentVersionExpiration"] == {"noncurrentDays": 30}
    assert rule["abortIncompleteMultipartUpload"] == {"daysAfterInitiation": 7}
    assert rule["filter"] == {}, "an empty prefix counts as no filter to the provider"
    assert not {"expiration", "transitions"} & set(rule)


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


def test_the_repository_is_immutable_scanned_and_goes_with_the_stack(make: Make) -> None:
    inputs = make(ImageRegistry).one("Repository").inputs
    assert inputs["imageTagMutability"] == "IMMUTABLE_WITH_EXCLUSION"
    filters = inputs["imageTagMutabilityExclusionFilters"]
    assert filters == [{"filter": tags, "filterType": "WILDCARD"} for tags in ("buildcache", "content-*")]
    assert len(filters) <= 5, "as many as ECR takes"
    assert inputs["imageScanningConfiguration"] == {"scanOnPush": True}
    assert inputs["forceDelete"] is True
    (encryption,) = inputs["encryptionConfigurations"]
    assert encryption == {"encryptionType": "KMS", "kmsKey": "arn:aws:kms:us-east-2:1:key/x"}
    assert "encryptionConfigurations" not in make(ImageRegistry, kms_key_arn=None).one("Repository").inputs


def test_untagged_images_go_after_two_weeks_and_the_newest_stay(make: Make) -> None:
    made = make(ImageRegistry)
    declared = made.one("LifecyclePolicy").inputs
    assert declared["repository"] == "${Repository.demo-trainer.name}"
    assert json.loads(declared["policy"]) == lifecycle_policy()
    untagged, newest = lifecycle_policy()["rules"]
    assert (untagged["selection"]["tagStatus"], untagged["selection"]["countNumber"]) == ("untagged", 14)
    assert newest["selection"] == {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": 20}
    assert untagged["rulePriority"] < newest["rulePriority"], "ECR refuses a rule for any tag that is not the last"
