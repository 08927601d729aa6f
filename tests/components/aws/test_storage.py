"""What the two storage components declare: file system, links to S3, logs; a bucket that keeps and hides."""

import json
from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from gangway.components.aws.storage import LustreFileSystem, RunBucket, bucket_policy
from gangway.components.core.findings import InputError

KEY = "arn:aws:kms:us-east-2:1:key/x"


def test_the_file_system(make: Callable[..., Any]) -> None:
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


def test_the_data_set_is_only_read_and_runs_go_both_ways_without_deletions(make: Callable[..., Any]) -> None:
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
    declare: Callable[..., Any], example_args: dict[str, dict[str, Any]]
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


def test_without_a_source_only_runs_are_linked(make: Callable[..., Any]) -> None:
    (link,) = make(LustreFileSystem, source=None).of("DataRepositoryAssociation")
    assert link.inputs["fileSystemPath"] == "/runs"


def test_efa_and_provisioned_metadata(make: Callable[..., Any]) -> None:
    system = make(LustreFileSystem, capacity_gib=9600, throughput_mbps_per_tib=500, efa=True, metadata_iops=12000).one(
        "LustreFileSystem"
    )
    assert system.inputs["efaEnabled"] is True
    assert system.inputs["metadataConfiguration"] == {"mode": "USER_PROVISIONED", "iops": 12000}


def test_scratch_sends_nothing_that_scratch_cannot_have(declare: Callable[..., Any], tags: dict[str, str]) -> None:
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


def test_events_go_to_a_log_group_of_the_name_fsx_wants(make: Callable[..., Any]) -> None:
    made = make(LustreFileSystem)
    group = made.one("LogGroup").inputs
    assert (group["name"], group["retentionInDays"], group["kmsKeyId"]) == ("/aws/fsx/demo", 30, KEY)
    log = made.one("LustreFileSystem").inputs["logConfiguration"]
    assert log == {"level": "WARN_ERROR", "destination": "${LogGroup.demo-lustre.arn}"}


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
    assert made.one("BucketOwnershipControls").inputs["rule"] == {"objectOwnership": "BucketOwnerEnforced"}


def test_nothing_is_answered_without_tls(make: Callable[..., Any]) -> None:
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
def test_objects_are_encrypted_with_the_given_key_or_s3s_own(
    make: Callable[..., Any], key: str | None, rule: dict[str, Any]
) -> None:
    made = make(RunBucket, kms_key_arn=key)
    assert made.one("BucketServerSideEncryptionConfiguration").inputs["rules"] == [rule]


def test_what_is_current_never_expires(make: Callable[..., Any]) -> None:
    (rule,) = make(RunBucket).one("BucketLifecycleConfiguration").inputs["rules"]
    assert rule["noncurrentVersionExpiration"] == {"noncurrentDays": 30}
    assert rule["abortIncompleteMultipartUpload"] == {"daysAfterInitiation": 7}
    assert rule["filter"] == {}, "an empty prefix counts as no filter to the provider"
    assert not {"expiration", "transitions"} & set(rule)
