"""Google Cloud's list by label: answers of Cloud Asset Inventory, hand-made in the shape of its REST reference."""

from typing import Any

import pytest

from gangway.cli.costs.bills import run_audit
from gangway.components.core.findings import InputError
from gangway.finops.audit.classify_orphans import Billed
from gangway.finops.audit.gcp import list_gcp, open_web, price_region, state_keys
from gangway.finops.audit.state import State, StateResource
from gangway.finops.prices.source import Web, plain_session

PROJECT, STACK, ZONE = "my-project", "gcp-a3-spot", "us-central1-a"
COMPUTE = f"//compute.googleapis.com/projects/{PROJECT}"
LABELS = {"gangway-stack": STACK, "team": "ml"}


def asset(kind: str, name: str, resource: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    versions = [] if resource is None else [{"version": "v1", "resource": resource}]
    return {
        "name": name,
        "assetType": kind,
        "displayName": name.rpartition("/")[2],
        "location": ZONE,
        "labels": LABELS,
        "versionedResources": versions,
        **more,
    }


def node(name: str, **more: Any) -> dict[str, Any]:
    resource = {
        "machineType": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{ZONE}/machineTypes/a3-highgpu-8g",
        "scheduling": {"provisioningModel": "SPOT"},
    }
    return asset(
        "compute.googleapis.com/Instance", f"{COMPUTE}/zones/{ZONE}/instances/{name}", resource, state="RUNNING", **more
    )


def disk(name: str) -> dict[str, Any]:
    resource = {"sizeGb": "730", "type": f"projects/{PROJECT}/zones/{ZONE}/diskTypes/pd-balanced"}
    return asset("compute.googleapis.com/Disk", f"{COMPUTE}/zones/{ZONE}/disks/{name}", resource)


GROUP = StateResource(
    "gcp:compute/instanceGroupManager:InstanceGroupManager",
    f"projects/{PROJECT}/zones/{ZONE}/instanceGroupManagers/gcp-a3-spot-0-spot-1",
    {
        "baseInstanceName": "gcp-a3-spot-0",
        "zone": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{ZONE}",
    },
)


def listing(rest: Any) -> Any:
    return list_gcp(Web(plain_session(), lambda _: None), PROJECT, STACK, rest.url)


def verdicts(rest: Any, *resources: StateResource) -> dict[str, str]:
    outcome = run_audit(STACK, "gcp", State(resources, "test"), listing(rest))
    return {each.resource.id.rpartition("projects/")[2]: each.verdict for each in outcome.judged}


def test_every_page_is_read_and_the_label_is_the_very_one(rest: Any) -> None:
    rest.pages = [
        {"results": [node("a-0001")], "nextPageToken": "more"},
        {"results": [node("a-0002"), node("other", labels={"gangway-stack": f"{STACK}-2"})]},
    ]
    found = listing(rest)
    assert [each.name for each in found.resources] == ["a-0001", "a-0002"]
    first, second = rest.asked
    assert first["path"] == f"/v1/projects/{PROJECT}:searchAllResources"
    assert first["params"]["query"] == f"labels.gangway-stack={STACK}"
    assert "versionedResources" in first["params"]["readMask"]
    assert "pageToken" not in first["params"]
    assert second["params"]["pageToken"] == "more"
    assert found.asked == "project my-project"


def test_nodes_of_a_group_in_the_state_belong_to_it_and_so_do_their_disks(rest: Any) -> None:
    rest.pages = [
        {"results": [node("gcp-a3-spot-0-x7k2"), disk("gcp-a3-spot-0-x7k2"), node("by-hand"), disk("by-hand")]}
    ]
    here = f"{PROJECT}/zones/{ZONE}"
    assert verdicts(rest, GROUP) == {
        f"{here}/instances/gcp-a3-spot-0-x7k2": "belongs",
        f"{here}/disks/gcp-a3-spot-0-x7k2": "belongs",
        f"{here}/instances/by-hand": "orphan",
        f"{here}/disks/by-hand": "orphan",
    }
    assert set(verdicts(rest).values()) == {"orphan"}


def test_an_orphan_has_its_price(rest: Any) -> None:
    rest.pages = [{"results": [node("by-hand"), disk("left-over")]}]
    outcome = run_audit(STACK, "gcp", State((), "test"), listing(rest))
    machine, volume = outcome.orphans
    assert machine.hourly_usd == pytest.approx(50.609541)
    assert volume.hourly_usd == pytest.approx(0.10)
    assert machine.bill[0].source


@pytest.mark.parametrize(
    ("kind", "name", "resource", "state", "billed"),
    [
        (
            "tpu.googleapis.com/Node",
            "//tpu.googleapis.com/projects/p/locations/us-east5-a/nodes/n",
            {"acceleratorType": "v5p-8", "schedulingConfig": {"spot": True}},
            "READY",
            (Billed("v5p-8", kind="slice", market="spot"),),
        ),
        ("compute.googleapis.com/Instance", f"{COMPUTE}/zones/z/instances/i", {"machineType": "x/m"}, "TERMINATED", ()),
        ("compute.googleapis.com/Network", f"{COMPUTE}/global/networks/n", None, "", ()),
        ("cloudkms.googleapis.com/CryptoKey", "//cloudkms.googleapis.com/projects/p/k", {}, "", (Billed("kms-key"),)),
        ("lustre.googleapis.com/Instance", "//lustre.googleapis.com/projects/p/locations/z/instances/l", {}, "", None),
    ],
)
def test_what_is_billed_as_what(
    rest: Any, kind: str, name: str, resource: dict[str, Any] | None, state: str, billed: Any
) -> None:
    rest.pages = [{"results": [asset(kind, name, resource, state=state)]}]
    assert listing(rest).resources[0].billed == billed


def test_the_run_bucket_and_keys_are_expected_to_stay_and_a_deleted_tpu_is_gone(rest: Any) -> None:
    rest.pages = [
        {
            "results": [
                asset(
                    "storage.googleapis.com/Bucket",
                    f"//storage.googleapis.com/{STACK}-runs-1a2b",
                    location="us-central1",
                ),
                asset(
                    "cloudkms.googleapis.com/CryptoKey",
                    "//cloudkms.googleapis.com/projects/1/locations/l/keyRings/r/cryptoKeys/k",
                ),
                asset(
                    "tpu.googleapis.com/Node",
                    "//tpu.googleapis.com/projects/p/locations/z/nodes/n",
                    {},
                    state="DELETING",
                ),
            ]
        }
    ]
    outcome = run_audit(STACK, "gcp", State((), "test"), listing(rest))
    assert {row.judged.resource.kind for row in outcome.kept} == {
        "storage.googleapis.com/Bucket",
        "cloudkms.googleapis.com/CryptoKey",
    }
    assert outcome.counts == {"kept": 2, "gone": 1}


def test_a_bucket_and_a_key_of_the_state_are_known_whatever_the_project_is_called(rest: Any) -> None:
    key = "projects/my-project/locations/l/keyRings/r/cryptoKeys/k"
    rest.pages = [
        {
            "results": [
                asset("storage.googleapis.com/Bucket", "//storage.googleapis.com/data"),
                asset(
                    "cloudkms.googleapis.com/CryptoKey",
                    "//cloudkms.googleapis.com/projects/4711/locations/l/keyRings/r/cryptoKeys/k",
                ),
                node("one"),
            ]
        }
    ]
    link = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances/one"
    known = (
        StateResource("gcp:storage/bucket:Bucket", "data", {}),
        StateResource("gcp:kms/cryptoKey:CryptoKey", key, {}),
        StateResource("gcp:compute/instance:Instance", "one", {"selfLink": link}),
    )
    assert set(verdicts(rest, *known).values()) == {"in-state"}


def test_nodes_of_a_queued_request_are_known_by_its_outputs() -> None:
    request = StateResource(
        "pulumi-python:dynamic/queued_tpu:QueuedTpuRequest",
        "projects/p/locations/us-east5-a/queuedResources/train",
        {"node_names": ["train-0", "train-1"]},
    )
    assert {"locations/us-east5-a/nodes/train-0", "locations/us-east5-a/nodes/train-1"} <= state_keys(request)


def test_a_zone_lies_in_a_region() -> None:
    assert [price_region(place) for place in ("us-central1-a", "europe-west4", "global", "us")] == [
        "us-central1",
        "europe-west4",
        "global",
        "us",
    ]


def test_a_refusal_names_the_api_and_the_role(rest: Any) -> None:
    rest.status = 403
    rest.pages = [
        {"error": {"code": 403, "message": "Cloud Asset API has not been used", "status": "PERMISSION_DENIED"}}
    ]
    with pytest.raises(InputError, match="request failed") as caught:
        listing(rest)
    assert "Cloud Asset API has not been used" in str(caught.value)
    assert "gcloud services enable cloudasset.googleapis.com --project my-project" in caught.value.fix


def test_without_credentials_the_way_in_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError

    def nobody(**_: Any) -> Any:
        raise DefaultCredentialsError("none")  # type: ignore[no-untyped-call]  # google-auth has no types

    monkeypatch.setattr(google.auth, "default", nobody)
    with pytest.raises(InputError, match="gcloud auth application-default login"):
        open_web(PROJECT)
