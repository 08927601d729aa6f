"""A stack on Google Cloud that uses what exists, under the real Pulumi engine: it leaves all of that as it was."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gangway.stacks.loading.loader import from_file
from gangway.stacks.providers.gcp.existing import get_existing
from tests.engine.existing_resources import Cloud, Mistake, changed, check_refused, put, without

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

Edit = Callable[[dict[str, Any]], None]
STACK = Path(__file__).parents[2] / "stacks" / "Pulumi.gcp-existing.yaml"
NETWORK, SUBNETWORK = "gcp:compute/network:Network", "gcp:compute/subnetwork:Subnetwork"
LUSTRE, KEY, ACCOUNT = (
    "gcp:lustre/instance:Instance",
    "gcp:kms/cryptoKey:CryptoKey",
    "gcp:serviceaccount/account:Account",
)
FILESTORE = "gcp:filestore/instance:Instance"
REPOSITORY, BUCKET = "gcp:artifactregistry/repository:Repository", "gcp:storage/bucket:Bucket"
LOG_BUCKET = "gcp:logging/projectBucketConfig:ProjectBucketConfig"
GRANTS = ("IamMember", "IAMMember", "IamPolicy", "IamBinding")


def link(name: str) -> str:
    return f"https://www.googleapis.com/compute/v1/{name}"


def subnetwork(network: str, cidr: str) -> dict[str, Any]:
    return {
        "network": link(network),
        "ipCidrRange": cidr,
        "privateIpGoogleAccess": True,
        "secondaryIpRanges": [{"rangeName": "pods", "ipCidrRange": "10.64.0.0/14"}],
        "labels": {},
    }


def existing_cloud() -> Cloud:
    """All that the shipped stack file names, in good order."""
    existing = get_existing(from_file(STACK))
    network, rails = existing.network or "", existing.fabric_subnetworks
    lustre = {
        "network": network,
        "state": "ACTIVE",
        "capacityGib": "18000",
        "perUnitStorageThroughput": "500",
        "mountPoint": "10.60.0.5@tcp:/data",
        "labels": {"owner": "storage"},
    }
    return {
        (NETWORK, network): {"selfLink": link(network)},
        (SUBNETWORK, existing.subnetwork or ""): subnetwork(network, "10.20.0.0/22"),
        **{(NETWORK, rail.network): {"selfLink": link(rail.network)} for rail in rails},
        **{
            (SUBNETWORK, rail.subnetwork): subnetwork(rail.network, f"10.30.{at}.0/24") for at, rail in enumerate(rails)
        },
        (LUSTRE, existing.file_system or ""): lustre,
        (KEY, existing.kms_key or ""): {
            "purpose": "ENCRYPT_DECRYPT",
            "primaries": [{"name": "1", "state": "ENABLED"}],
            "labels": {"owner": "security"},
        },
        **{(ACCOUNT, email): {"email": email, "disabled": False} for email in existing.accounts.values()},
        (REPOSITORY, existing.repository or ""): {
            "format": "DOCKER",
            "mode": "STANDARD_REPOSITORY",
            "dockerConfigs": [{"immutableTags": False}],
            "labels": {"owner": "platform"},
        },
        (BUCKET, existing.run_bucket or ""): {"location": "US-CENTRAL1", "retentionPolicies": [], "labels": {"a": "b"}},
        (LOG_BUCKET, existing.log_bucket or ""): {"retentionDays": 400},
    }


@pytest.fixture
def engine(make_engine: Any, running_plugin: Any) -> Iterator[Any]:
    made = make_engine("gcp-existing")
    with running_plugin("gcp", made.cloud) as plugin:
        made.env["PULUMI_DEBUG_PROVIDERS"] = f"gcp:{plugin.port}"
        yield made


def test_a_stack_leaves_what_exists_as_it_was(engine: Any) -> None:
    before = put(engine, existing_cloud())
    put_by_others = engine.put("my-gan-runs", "others/record.json")
    engine.applied("up")
    made = [one for one in engine.resources() if one["urn"]]
    types = {one["type"] for one in made}
    assert not types & {NETWORK, SUBNETWORK, LUSTRE, KEY, REPOSITORY, LOG_BUCKET}
    accounts = [one["inputs"]["accountId"] for one in made if one["type"] == ACCOUNT]
    assert accounts == ["gcp-existing-stop"], "not of machines"
    names = {id_ for _, id_ in existing_cloud()}
    grants = [one for one in made if one["type"].endswith(GRANTS)]
    assert grants, "the accounts read what the stack makes"
    assert not [one for one in grants if names & {str(value) for value in one["inputs"].values()}]
    assert set(engine.applied("up", "--expect-no-changes").changes) == {"same"}
    engine.applied("destroy")
    assert {file: file.read_text("utf-8") for file in before} == before
    assert put_by_others.exists()
    assert not [one for one in engine.resources() if one["urn"]]


OTHER = "projects/net-host/regions/europe-west4/subnetworks/gpu"
MISTAKES: dict[str, Mistake] = {
    "another region": (None, {"subnetwork": OTHER}, ["gangway:gcp.existing.subnetwork", OTHER, "us-central1"]),
    "another project": (
        None,
        {"service_accounts.nodes": "gpu-node@other-lab.iam.gserviceaccount.com"},
        ["gangway:gcp.existing.service_accounts.nodes", "in project other-lab", "my-project"],
    ),
    "no such subnetwork": (
        without(SUBNETWORK, "/gpu"),
        {},
        ["gangway:gcp.existing.subnetwork: cannot look up", "notFound", "compute.subnetworks.get"],
    ),
    "another network": (
        changed(SUBNETWORK, "/gpu", network=link("projects/net-host/global/networks/old")),
        {},
        ["gangway:gcp.existing.subnetwork: in the network projects/net-host/global/networks/old"],
    ),
    "a full subnetwork": (
        changed(SUBNETWORK, "/gpu", ipCidrRange="10.20.0.0/29"),
        {},
        ["gangway:gcp.existing.subnetwork: 4 addresses of 10.20.0.0/29", "need 5", "expand its range"],
    ),
    "a file system of another size": (
        changed(LUSTRE, "data", capacityGib="36000"),
        {},
        ["gangway:storage.capacity_gib: not that of the existing file system", "set capacity_gib: 36000"],
    ),
    "a destroyed key": (
        changed(KEY, "data", primaries=[{"name": "1", "state": "DESTROYED"}]),
        {},
        ["gangway:gcp.existing.kms_key: its primary version is DESTROYED"],
    ),
    "a disabled account": (
        changed(ACCOUNT, "gpu-node", disabled=True),
        {},
        ["gangway:gcp.existing.service_accounts.nodes: it is disabled", "gcloud iam service-accounts enable"],
    ),
    "a repository for packages": (
        changed(REPOSITORY, "gan", format="PYTHON"),
        {},
        ["gangway:gcp.existing.repository: its format is PYTHON", "DOCKER"],
    ),
    "a bucket elsewhere": (
        changed(BUCKET, "my-gan-runs", location="EUROPE-WEST4"),
        {},
        ["gangway:gcp.existing.run_bucket: in europe-west4", "a bucket in us-central1 or US"],
    ),
    "a bucket that keeps everything": (
        changed(BUCKET, "my-gan-runs", retentionPolicies=[{"isLocked": True, "retentionPeriod": "86400"}]),
        {},
        ["gangway:gcp.existing.run_bucket: it keeps every object for 86400 s"],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_does_not_fit_is_one_message_and_no_resource(
    engine: Any, set_value: Callable[..., Edit], mistake: str
) -> None:
    check_refused(engine, set_value, "gcp", existing_cloud(), MISTAKES[mistake])


def test_a_cluster_of_kubernetes_in_a_shared_vpc_leaves_all_of_it(make_engine: Any) -> None:
    """With the share of the host project, two secondary ranges, a repository and a service account."""
    engine, existing = make_engine("gke-a3-jobset"), get_existing(from_file(STACK))
    share = "projects/net-host/locations/us-central1-a/instances/share"
    keys = {
        "network": existing.network,
        "subnetwork": existing.subnetwork,
        "pods_range": "pods",
        "services_range": "services",
        "file_system": share,
        "repository": existing.repository,
        "service_accounts": {"nodes": existing.accounts["nodes"]},
    }
    engine.change(lambda config: config["gangway:gcp"].update(existing=keys))
    engine.change(lambda config: config["gangway:cluster"].update(machine_type="g2-standard-48"))
    cloud = existing_cloud()
    ranges = [{"rangeName": name, "ipCidrRange": f"10.{at}.0.0/16"} for at, name in enumerate(("pods", "services"), 64)]
    cloud[SUBNETWORK, str(existing.subnetwork)]["secondaryIpRanges"] = ranges
    network = {"network": existing.network, "ipAddresses": ["10.60.0.9"], "connectMode": "PRIVATE_SERVICE_ACCESS"}
    network |= {"modes": ["MODE_IPV4"], "reservedIpRange": "", "pscConfigs": []}
    shares = {"name": "gan", "capacityGb": 2560, "nfsExportOptions": [], "sourceBackup": ""}
    cloud[FILESTORE, share] = {"networks": [network], "fileShares": [shares]}
    before = put(engine, cloud)
    engine.applied("up")
    made = [one for one in engine.resources() if one["urn"]]
    assert not {one["type"] for one in made} & {NETWORK, SUBNETWORK, FILESTORE, REPOSITORY}
    volumes = [str(one["inputs"]) for one in made if one["type"].endswith(":PersistentVolume")]
    assert volumes
    assert all("10.60.0.9" in one for one in volumes)
    assert set(engine.applied("up", "--expect-no-changes").changes) == {"same"}
    engine.applied("destroy")
    assert {file: file.read_text("utf-8") for file in before} == before
    assert not [one for one in engine.resources() if one["urn"]]
