"""What the storage components declare: a file system that may be filled, a share, a bucket that keeps and hides."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from gangway.components.core.findings import InputError
from gangway.components.gcp.storage import Filestore, LustreFileSystem, RunBucket

KEY = "projects/lab/locations/us-east5/keyRings/r/cryptoKeys/k"
NETWORK = "projects/lab/global/networks/demo"


@pytest.fixture
def lustre_args(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "project": "lab",
        "zone": "us-east5-a",
        "stack": "demo",
        "capacity_gib": 18000,
        "throughput_mbps_per_tib": 500,
        "network": NETWORK,
        "source": "gs://data/celeba",
        "kms_key_name": KEY,
        "tags": labels,
    }


@pytest.fixture
def filestore_args(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "project": "lab",
        "zone": "us-east5-a",
        "capacity_gib": 2560,
        "network": "demo",
        "client_cidr": "10.42.0.0/20",
        "tags": labels,
    }


def test_the_file_system(make: Callable[..., Any], lustre_args: Any, labels: dict[str, str]) -> None:
    system = make(LustreFileSystem, lustre_args).one("Instance")
    assert system.type == "gcp:lustre/instance:Instance"
    assert system.inputs == {
        "project": "lab",
        "location": "us-east5-a",
        "instanceId": "demo-lustre",
        "filesystem": "demo",
        "capacityGib": "18000",
        "perUnitStorageThroughput": "500",
        "network": NETWORK,
        "gkeSupportEnabled": False,
        "kmsKey": KEY,
        "description": "demo: data and runs",
        "labels": labels,
    }


def test_lustre_may_read_the_bucket_it_imports_from_and_no_other(make: Callable[..., Any], lustre_args: Any) -> None:
    made = make(LustreFileSystem, lustre_args)
    agent, member = made.one("ServiceIdentity"), made.one("BucketIAMMember")
    assert agent.inputs == {"project": "lab", "service": "lustre.googleapis.com"}
    assert member.inputs == {
        "bucket": "data",
        "role": "roles/storage.objectViewer",
        "member": "${ServiceIdentity.demo-lustre.member}",
    }
    bare = make(LustreFileSystem, {**lustre_args, "source": None})
    assert not bare.of("ServiceIdentity")
    assert not bare.of("BucketIAMMember")


def test_that_right_is_another_stacks_too_and_stays(declare: Callable[..., Any], lustre_args: Any) -> None:
    """The agent is the project's: one stack's end must not take from the other what it imports from."""
    kept: dict[str, bool] = {}

    def look(args: pulumi.ResourceTransformationArgs) -> None:
        kept[args.type_.rpartition(":")[2]] = bool(args.opts.retain_on_delete)

    declare(lambda: LustreFileSystem("demo", lustre_args, pulumi.ResourceOptions(transformations=[look])))
    assert [kind for kind, stays in kept.items() if stays] == ["BucketIAMMember"]
    assert "Instance" in kept


def test_what_clients_mount(declare: Callable[..., Any], lustre_args: Any) -> None:
    seen: dict[str, str] = {}

    def program() -> None:
        system = LustreFileSystem("demo", lustre_args)
        for key in ("mount_point", "dns_name", "mount_name", "file_system_id"):
            getattr(system, key).apply(lambda value, key=key: seen.update({key: value}))

    made = declare(program)
    assert seen == {
        "mount_point": "${Instance.demo-lustre.mountPoint}",
        "dns_name": "${Instance.demo-lustre.mountPoint}",
        "mount_name": "demo",
        "file_system_id": "${Instance.demo-lustre.id}",
    }
    (own,) = [r for r in made.resources if r.type == "gangway:gcp:LustreFileSystem"]
    assert made.outputs[own.urn] == set(seen)
    assert {r.parent for r in made.resources if r is not own} == {own.urn}


def test_the_address_is_what_stands_before_the_at(
    declare: Callable[..., Any], lustre_args: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gangway.stacks import recording

    seen: list[str] = []
    answer = recording.PlaceholderCloud.__call__

    def with_address(self: Any, token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        made, outputs = answer(self, token, name, inputs)
        return made, {**outputs, "mountPoint": "10.0.0.2@tcp:/demo"}

    monkeypatch.setattr(recording.PlaceholderCloud, "__call__", with_address)
    declare(lambda: LustreFileSystem("demo", lustre_args).dns_name.apply(seen.append))
    assert seen == ["10.0.0.2"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"capacity_gib": 9600}, "not a size Managed Lustre offers"),
        ({"efa": True}, "not a setting of Google Cloud Managed Lustre"),
        ({"deployment": "scratch"}, "not a setting of Google Cloud Managed Lustre"),
        ({"runs": "gs://runs/demo"}, "it exports on demand only"),
    ],
)
def test_what_managed_lustre_has_not_stops_the_component(
    make: Callable[..., Any], lustre_args: Any, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        make(LustreFileSystem, {**lustre_args, **changes})


def test_the_share(
    make: Callable[..., Any], filestore_args: Any, labels: dict[str, str], api_mistakes: Callable[..., list[str]]
) -> None:
    share = make(Filestore, filestore_args).one("Instance")
    assert (share.type, share.inputs["tier"], share.inputs["labels"]) == (
        "gcp:filestore/instance:Instance",
        "BASIC_SSD",
        labels,
    )
    files = share.inputs["fileShares"]
    assert files["capacityGb"] == 2560
    with pytest.raises(InputError, match="Google's own keys alone"):
        make(Filestore, {**filestore_args, "kms_key_name": KEY})
    zonal = make(Filestore, {**filestore_args, "kms_key_name": KEY, "tier": "zonal"})
    assert zonal.one("Instance").inputs["kmsKeyName"] == KEY
    assert files["nfsExportOptions"] == [
        {"ipRanges": ["10.42.0.0/20"], "accessMode": "READ_WRITE", "squashMode": "NO_ROOT_SQUASH"}
    ]
    body = {**{key: share.inputs[key] for key in ("tier", "labels", "networks")}, "fileShares": [files]}
    assert api_mistakes("file.v1", "Instance", body) == []


def test_the_share_is_mounted_by_its_address(
    declare: Callable[..., Any], filestore_args: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gangway.stacks import recording

    seen: list[str] = []
    answer = recording.PlaceholderCloud.__call__

    def with_address(self: Any, token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        made, outputs = answer(self, token, name, inputs)
        return made, {**outputs, "networks": [{"ipAddresses": ["10.9.0.2"]}]}

    declare(lambda: Filestore("demo", filestore_args).mount_point.apply(seen.append))
    monkeypatch.setattr(recording.PlaceholderCloud, "__call__", with_address)
    declare(lambda: Filestore("demo", filestore_args).mount_point.apply(seen.append))
    assert seen == [":/gangway", "10.9.0.2:/gangway"]


def test_its_servers_may_answer_those_who_wait_for_a_lock(
    make: Callable[..., Any],
    filestore_args: Any,
    monkeypatch: pytest.MonkeyPatch,
    api_mistakes: Callable[..., list[str]],
) -> None:
    from gangway.stacks import recording

    answer = recording.PlaceholderCloud.__call__

    def with_range(self: Any, token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        made, outputs = answer(self, token, name, inputs)
        return made, {**outputs, "networks": [{"ipAddresses": ["10.9.0.2"], "reservedIpRange": "10.9.0.0/29"}]}

    assert not make(Filestore, filestore_args).of("Firewall"), "nobody locks on it"
    monkeypatch.setattr(recording.PlaceholderCloud, "__call__", with_range)
    rule = make(Filestore, {**filestore_args, "client_tags": ["demo-fabric"]}).one("Firewall").inputs
    assert (rule["sourceRanges"], rule["targetTags"]) == (["10.9.0.0/29"], ["demo-fabric"]), "the servers alone"
    assert (rule["network"], rule["direction"]) == (filestore_args["network"], "INGRESS")
    assert [allowed["protocol"] for allowed in rule["allows"]] == ["tcp", "udp"], "lockd's ports are any"
    same = ("network", "description", "direction", "sourceRanges", "targetTags")
    body = {key: rule[key] for key in same}
    body["allowed"] = [{"IPProtocol": allowed["protocol"]} for allowed in rule["allows"]]
    assert api_mistakes("compute.v1", "Firewall", body) == []


def test_every_tier_of_the_catalogue_is_the_apis(api_mistakes: Callable[..., list[str]]) -> None:
    from gangway.components.catalog.loader import load_filestore_tiers

    tiers = [tier.api_tier for tier in load_filestore_tiers().values()]
    assert tiers
    assert [api_mistakes("file.v1", "Instance", {"tier": tier}) for tier in tiers] == [[]] * len(tiers)
    assert api_mistakes("file.v1", "Instance", {"tier": "SSD"})


@pytest.fixture
def bucket_args(labels: dict[str, str]) -> dict[str, Any]:
    return {"project": "lab", "region": "us-east5", "kms_key_name": KEY, "tags": labels}


def test_the_run_bucket_is_private_and_versioned(
    make: Callable[..., Any], bucket_args: Any, labels: dict[str, str]
) -> None:
    bucket = make(RunBucket, bucket_args).one("Bucket").inputs
    assert bucket["uniformBucketLevelAccess"] is True
    assert bucket["publicAccessPrevention"] == "enforced"
    assert bucket["versioning"] == {"enabled": True}
    assert bucket["softDeletePolicy"] == {"retentionDurationSeconds": 604800}
    assert bucket["encryption"] == {"defaultKmsKeyName": KEY}
    assert (bucket["location"], bucket["labels"]) == ("us-east5", labels)
    assert "forceDestroy" not in bucket, "what outlives the nodes is not deleted along with them"


def test_what_is_current_never_expires(
    make: Callable[..., Any], bucket_args: Any, api_mistakes: Callable[..., list[str]]
) -> None:
    bucket = make(RunBucket, {**bucket_args, "kms_key_name": None}).one("Bucket").inputs
    overwritten, unfinished = bucket["lifecycleRules"]
    assert overwritten == {
        "action": {"type": "Delete"},
        "condition": {"daysSinceNoncurrentTime": 30, "withState": "ARCHIVED"},
    }
    assert unfinished == {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 7}}
    assert "encryption" not in bucket
    # The provider's `withState: ARCHIVED` is the API's `isLive: false`.
    rules = [
        {"action": overwritten["action"], "condition": {"daysSinceNoncurrentTime": 30, "isLive": False}},
        unfinished,
    ]
    body = {
        "lifecycle": {"rule": rules},
        "iamConfiguration": {"publicAccessPrevention": bucket["publicAccessPrevention"]},
        "softDeletePolicy": bucket["softDeletePolicy"],
        "storageClass": bucket["storageClass"],
    }
    assert api_mistakes("storage.v1", "Bucket", body) == []
