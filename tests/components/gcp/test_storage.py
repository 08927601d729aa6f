"""What the storage components declare: a file system that may be filled, a share, a bucket that keeps and hides."""

import re
from collections.abc import Iterator
from typing import Any

import pulumi
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_filestore_tiers, load_lustre_tiers
from gangway.components.catalog.schema import SizeRange
from gangway.components.core.fields import LustreDeployment
from gangway.components.core.findings import InputError
from gangway.components.estimate.storage_sizes import sizes_around
from gangway.components.gcp.storage import (
    LOGIN_USER,
    Filestore,
    HeadFiles,
    ImageRegistry,
    LustreFileSystem,
    RunBucket,
    import_request,
    plan_filestore,
    plan_lustre,
)
from tests.components.fixture_types import Make, Mistakes

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


def test_the_file_system(make: Make, lustre_args: Any, labels: dict[str, str]) -> None:
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


def test_lustre_may_read_the_bucket_it_imports_from_and_no_other(make: Make, lustre_args: Any) -> None:
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


def test_that_right_is_another_stacks_too_and_stays(declare: Make, lustre_args: Any) -> None:
    """The agent is the project's: one stack's end must not take from the other what it imports from."""
    kept: dict[str, bool] = {}

    def look(args: pulumi.ResourceTransformationArgs) -> None:
        kept[args.type_.rpartition(":")[2]] = bool(args.opts.retain_on_delete)

    declare(lambda: LustreFileSystem("demo", lustre_args, pulumi.ResourceOptions(transformations=[look])))
    assert [kind for kind, stays in kept.items() if stays] == ["BucketIAMMember"]
    assert "Instance" in kept


def test_what_clients_mount(declare_seen: Make, lustre_args: Any) -> None:
    assert declare_seen(LustreFileSystem, lustre_args).seen == {
        "mount_point": "${Instance.demo-lustre.mountPoint}",
        "dns_name": "${Instance.demo-lustre.mountPoint}",
        "mount_name": "demo",
        "file_system_id": "${Instance.demo-lustre.id}",
    }


@pytest.fixture
def answer_with(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Has the recording answer for every resource with these outputs too."""
    from gangway.stacks import recording

    answer = recording.PlaceholderCloud.__call__

    def run(**outputs: Any) -> None:
        def with_outputs(self: Any, token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
            made, usual = answer(self, token, name, inputs)
            return made, {**usual, **outputs}

        monkeypatch.setattr(recording.PlaceholderCloud, "__call__", with_outputs)

    return run


def test_the_address_is_what_stands_before_the_at(declare_seen: Make, lustre_args: Any, answer_with: Make) -> None:
    answer_with(mountPoint="10.0.0.2@tcp:/demo")
    assert declare_seen(LustreFileSystem, lustre_args).seen["dns_name"] == "10.0.0.2"


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
    make: Make, lustre_args: Any, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        make(LustreFileSystem, {**lustre_args, **changes})


def test_the_share(make: Make, filestore_args: Any, labels: dict[str, str], api_mistakes: Mistakes) -> None:
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


def test_the_share_is_mounted_by_its_address(declare_seen: Make, filestore_args: Any, answer_with: Make) -> None:
    assert declare_seen(Filestore, filestore_args).seen["mount_point"] == ":/gangway"
    answer_with(networks=[{"ipAddresses": ["10.9.0.2"]}])
    assert declare_seen(Filestore, filestore_args).seen["mount_point"] == "10.9.0.2:/gangway"


def test_its_servers_may_answer_those_who_wait_for_a_lock(
    make: Make,
    filestore_args: Any,
    monkeypatch: pytest.MonkeyPatch,
    api_mistakes: Mistakes,
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


def test_every_tier_of_the_catalogue_is_the_apis(api_mistakes: Mistakes) -> None:
    from gangway.components.catalog.loader import load_filestore_tiers

    tiers = [tier.api_tier for tier in load_filestore_tiers().values()]
    assert tiers
    assert [api_mistakes("file.v1", "Instance", {"tier": tier}) for tier in tiers] == [[]] * len(tiers)
    assert api_mistakes("file.v1", "Instance", {"tier": "SSD"})


@pytest.fixture
def bucket_args(labels: dict[str, str]) -> dict[str, Any]:
    return {"project": "lab", "region": "us-east5", "kms_key_name": KEY, "tags": labels}


def test_the_run_bucket_is_private_and_versioned(make: Make, bucket_args: Any, labels: dict[str, str]) -> None:
    bucket = make(RunBucket, bucket_args).one("Bucket").inputs
    assert bucket["uniformBucketLevelAccess"] is True
    assert bucket["publicAccessPrevention"] == "enforced"
    assert bucket["versioning"] == {"enabled": True}
    assert bucket["softDeletePolicy"] == {"retentionDurationSeconds": 604800}
    assert bucket["encryption"] == {"defaultKmsKeyName": KEY}
    assert (bucket["location"], bucket["labels"]) == ("us-east5", labels)
    assert "forceDestroy" not in bucket, "what outlives the nodes is not deleted along with them"


def test_what_is_current_never_expires(make: Make, bucket_args: Any, api_mistakes: Mistakes) -> None:
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


@pytest.mark.parametrize("key", [None, "projects/lab/locations/us-east5/keyRings/r/cryptoKeys/k"])
def test_it_is_closed_and_goes_with_the_stack(
    make: Make, labels: dict[str, str], key: str | None, api_mistakes: Mistakes
) -> None:
    args = {"project": "lab", "region": "us-east5", "kms_key_name": key, "tags": labels}
    bucket = make(HeadFiles, args).one("Bucket").inputs
    assert bucket["forceDestroy"] is True
    assert "versioning" not in bucket, "an earlier version would be left behind"
    assert bucket["softDeletePolicy"] == {"retentionDurationSeconds": 0}
    assert (bucket["uniformBucketLevelAccess"], bucket["publicAccessPrevention"]) == (True, "enforced")
    assert bucket.get("encryption") == ({"defaultKmsKeyName": key} if key else None)
    assert (bucket["location"], bucket["labels"]) == ("us-east5", labels)
    body = {
        "iamConfiguration": {"publicAccessPrevention": bucket["publicAccessPrevention"]},
        "softDeletePolicy": bucket["softDeletePolicy"],
        "labels": bucket["labels"],
    }
    assert api_mistakes("storage.v1", "Bucket", body) == []


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


@example(125, 36_000)
@given(
    st.sampled_from(sorted(load_lustre_tiers())),
    st.integers(1, 50_000_000) | st.integers(1, 5000).map(lambda n: 9000 * n),
)
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


def test_the_repository(make: Make, labels: dict[str, str], api_mistakes: Mistakes) -> None:
    args: Any = {"project": "lab", "region": "us-east5", "kms_key_name": KEY, "tags": labels}
    repository = make(ImageRegistry, args).one("Repository").inputs
    assert (repository["repositoryId"], repository["location"]) == ("demo-trainer", "us-east5")
    assert (repository["kmsKeyName"], repository["labels"]) == (KEY, labels)
    assert repository["dockerConfig"] == {"immutableTags": False}, "`up` pushes the same tag again"
    assert repository["vulnerabilityScanningConfig"] == {"enablementConfig": "INHERITED"}
    keep, delete = repository["cleanupPolicies"]
    assert (keep["action"], keep["mostRecentVersions"]) == ("KEEP", {"keepCount": 40})
    assert (delete["action"], delete["condition"]) == ("DELETE", {"tagState": "ANY", "olderThan": "1209600s"})
    named = ("format", "mode", "dockerConfig", "vulnerabilityScanningConfig", "kmsKeyName", "labels")
    policies = {policy["id"]: policy for policy in repository["cleanupPolicies"]}
    body = {**{key: repository[key] for key in named}, "cleanupPolicies": policies}
    assert api_mistakes("artifactregistry.v1", "Repository", body) == []


def test_what_others_need_of_it(declare_seen: Make, labels: dict[str, str]) -> None:
    made = declare_seen(ImageRegistry, {"project": "lab", "region": "us-east5", "tags": labels})
    assert made.seen == {
        "repository_url": "${Repository.demo-trainer.registryUri}/trainer",
        "repository_id": "${Repository.demo-trainer.id}",
        "registry_host": "us-east5-docker.pkg.dev",
    }
    assert LOGIN_USER == "oauth2accesstoken"
    assert "kmsKeyName" not in made.one("Repository").inputs
