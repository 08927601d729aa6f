"""Checks on Google Cloud against an HTTP stand-in; every request is a published method of Google's APIs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.components.gcp.tpu.api import TpuError
from gangway.live.permissions.needs import actions_of_up
from gangway.live.preflight import gcp
from gangway.live.preflight.check import Answer, State
from gangway.live.preflight.gcp import get_checks
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.stacks.providers.gcp.settings import GcpConfig
from tests.google_methods import published

P, REGION, ZONE = "my-project", "us-central1", "us-central1-a"
COMPUTE = f"/compute.googleapis.com/compute/v1/projects/{P}"
PROJECT = f"/cloudresourcemanager.googleapis.com/v3/projects/{P}"
SERVICES = f"/serviceusage.googleapis.com/v1/projects/{P}/services:batchGet"
MACHINES = f"{COMPUTE}/aggregated/machineTypes"
OBJECTS = "/storage.googleapis.com/storage/v1/b/my-bucket/o"
ASSETS = f"/cloudasset.googleapis.com/v1/projects/{P}:searchAllResources"
Checked = Callable[..., dict[str, Answer]]


@pytest.fixture(scope="module")
def plans(repo: Path) -> Callable[[str], Plan]:
    made: dict[str, Plan] = {}

    def get(name: str) -> Plan:
        if name not in made:
            made[name] = make_plan(from_file(repo / "stacks" / f"Pulumi.{name}.yaml"))
        return made[name]

    return get


def limits(*metrics: str, limit: float = 100000, usage: float = 0) -> dict[str, Any]:
    return {"quotas": [{"metric": metric, "limit": limit, "usage": usage} for metric in metrics]}


def offered(*zones: str) -> dict[str, Any]:
    return {"items": {f"zones/{zone}": {"machineTypes": [{"name": "m"}]} for zone in zones}}


@pytest.fixture
def good(cloud: Any, plans: Any) -> Any:
    """An account with everything for gcp-a3-spot."""
    plan = plans("gcp-a3-spot")
    used = sorted({str(one.inputs["service"]) for one in plan.resources if "projects/service:Service" in one.type})
    gpus = ["PREEMPTIBLE_NVIDIA_H100_MEGA_GPUS", "NVIDIA_H100_MEGA_GPUS"]
    account = plan.config.section(GcpConfig).billing_account
    billing = f"/cloudbilling.googleapis.com/v1/billingAccounts/{account}"
    cloud.answers = {
        PROJECT: {"state": "ACTIVE"},
        f"{PROJECT}:testIamPermissions": {"permissions": list(actions_of_up(plan))},
        SERVICES: {
            "services": [{"name": f"x/{name}", "state": "ENABLED"} for name in ["compute.googleapis.com", *used]]
        },
        f"{COMPUTE}/regions/{REGION}": limits(*gpus, "PREEMPTIBLE_LOCAL_SSD_GB", "LOCAL_SSD_TOTAL_GB"),
        COMPUTE: limits("GPUS_ALL_REGIONS", "NETWORKS"),
        MACHINES: offered(ZONE),
        OBJECTS: {"items": [{"name": "digits/1.png"}]},
        billing: {"open": True},
        f"{billing}:testIamPermissions": {"permissions": ["billing.budgets.create"]},
        ASSETS: {"results": []},
    }
    return cloud


@pytest.fixture
def checked(good: Any, rest: Any, plans: Any, outcomes: Any) -> Checked:
    def run(changes: dict[str, Any], name: str = "gcp-a3-spot") -> dict[str, Answer]:
        good.answers.update(changes)
        found: dict[str, Answer] = outcomes(get_checks(plans(name), rest))
        return found

    return run


def states(found: dict[str, Answer]) -> dict[str, State]:
    return {name: answer.result.state for name, answer in found.items()}


def test_a_project_with_everything_is_fine_but_for_quotas_that_no_api_shows(checked: Checked, good: Any) -> None:
    found = states(checked({}))
    unknown = [name for name, state in found.items() if state is not State.OK]
    assert [name.partition(" in ")[0] for name in unknown] == ["quota of Managed Lustre's capacity, by tier,"]
    foreign = [(call.method, call.path, call.query) for call in good.calls if not published(call)]
    assert foreign == []


@pytest.mark.parametrize(
    ("changes", "subject", "state", "words"),
    [
        ({PROJECT: {"state": "DELETE_REQUESTED"}}, "project my-project", State.ERROR, "DELETE_REQUESTED"),
        ({PROJECT: 403}, "project my-project", State.UNKNOWN, "no permission: refused"),
        ({SERVICES: {"services": []}}, "APIs", State.WARNING, "gcloud services enable artifactregistry"),
        ({f"{PROJECT}:testIamPermissions": {}}, "permissions", State.ERROR, "compute.networks.create"),
        ({COMPUTE: limits("NETWORKS", limit=5)}, "quota NETWORKS in", State.ERROR, "9 needed, limit 5"),
        ({COMPUTE: limits("NETWORKS", limit=12, usage=5)}, "quota NETWORKS in", State.WARNING, "5 in use"),
        ({COMPUTE: limits("OTHER")}, "quota NETWORKS in", State.UNKNOWN, "gcloud compute project-info describe"),
        ({MACHINES: offered("us-central1-c")}, "machine type a3", State.ERROR, "cluster.zone: us-central1-c"),
        ({MACHINES: offered("us-east4-a")}, "machine type a3", State.ERROR, "zones with it: us-east4-a"),
        ({OBJECTS: {}}, "data gs://", State.WARNING, "no object begins with 'digits'"),
        ({OBJECTS: 404}, "data gs://", State.ERROR, "the bucket does not exist"),
        ({OBJECTS: 403}, "data gs://", State.UNKNOWN, "no permission"),
    ],
)
def test_what_is_missing(checked: Checked, changes: Any, subject: str, state: State, words: str) -> None:
    found = next(answer for name, answer in checked(changes).items() if name.startswith(subject))
    assert found.result.state is state
    assert words in f"{found.result.answer} {found.result.fix}"


def test_a_closed_or_foreign_billing_account(checked: Checked, good: Any) -> None:
    path = next(path for path in good.answers if "billingAccounts" in path and ":" not in path)
    subject = f"billing account {path.rpartition('/')[2]}"
    assert checked({path: {"open": False}})[subject].result.state is State.ERROR
    lacking = checked({path: {"open": True}, f"{path}:testIamPermissions": {}})[subject]
    assert lacking.result.fix == "ask for the role Costs Manager on it"


def test_another_stack_with_the_identity_is_named_from_every_page(checked: Checked, good: Any) -> None:
    rows = [{"name": "//c/n-1", "labels": {"gangway-stack": "gcp-a3-spot"}}, {"name": "//c/other", "labels": {}}]
    found = checked({ASSETS: {"results": rows}})["resources with the label gcp-a3-spot"]
    assert found.result.answer.startswith("n-1: this stack is up")


def test_slices_and_their_reservation(checked: Checked) -> None:
    types = f"/tpu.googleapis.com/v2/projects/{P}/locations/us-east5-a/acceleratorTypes"
    found = checked({types: {"acceleratorTypes": [{"name": "x/v5p-64"}]}}, "gcp-v5p-multislice")
    assert found["TPU v5p-64"].result.state is State.OK
    reservation = next(answer for name, answer in found.items() if name.startswith("reservation "))
    assert reservation.result.state is State.UNKNOWN, "reservations of slices may be elsewhere"
    assert checked({types: {}}, "gcp-v5p-multislice")["TPU v5p-64"].result.state is State.ERROR


def test_slices_of_a_kubernetes_cluster_are_machines(checked: Checked) -> None:
    found = checked({MACHINES: offered("us-west4-a")}, "gke-tpu-v5e")
    assert found["machine type ct5lp-hightpu-4t"].result.state is State.OK


def test_one_api_that_hangs_leaves_the_rest(good: Any, rest: Any, plans: Any, outcomes: Any) -> None:
    good.hanging = {PROJECT}
    found = outcomes(get_checks(plans("gcp-a3-spot"), rest), patience_sec=1.0)
    good.released.set()
    assert "no answer" in found["project my-project"].result.answer
    assert found["APIs"].result.state is State.OK


def test_no_credentials(plans: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_url: str) -> Any:
        raise TpuError("no Application Default Credentials")

    monkeypatch.setattr(gcp, "open_session", refuse)
    with pytest.raises(InputError, match="gcloud auth application-default login"):
        get_checks(plans("gcp-a3-spot"))
