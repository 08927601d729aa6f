"""Checks on Azure against an HTTP stand-in; paths of compute, storage and providers are those of Microsoft's SDKs."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import azure.mgmt
import pytest

from gangway.components.core.findings import InputError
from gangway.live.preflight.azure import NAMESPACES, get_checks
from gangway.live.preflight.check import Answer, State
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.stacks.providers.azure.settings import AzureConfig

SIZE = "Standard_ND96isr_H100_v5"
EVERYTHING = {"actions": ["*"], "notActions": []}
Checked = Callable[..., dict[str, Answer]]


@pytest.fixture(scope="module")
def plan(repo: Path) -> Plan:
    return make_plan(from_file(repo / "stacks" / "Pulumi.azure-ndv5-spot.yaml"))


@pytest.fixture
def root(plan: Plan) -> str:
    return f"/management.azure.com/subscriptions/{plan.config.section(AzureConfig).subscription_id}"


def usages(limit: float = 10000, used: float = 0) -> dict[str, Any]:
    families = ("Standard NDSH100v5 Family vCPUs", "Standard DSv5 Family vCPUs")
    names = (*families, "Total Regional Low-priority vCPUs", "Total Regional vCPUs")
    return {
        "value": [{"name": {"value": "x", "localizedValue": n}, "limit": limit, "currentValue": used} for n in names]
    }


def skus(*restrictions: dict[str, Any], zones: tuple[str, ...] = ("1", "2")) -> dict[str, Any]:
    rows = [
        {"name": name, "resourceType": "virtualMachines", "locationInfo": [{"zones": list(zones)}], "restrictions": []}
        for name in (SIZE, "Standard_D2s_v5")
    ]
    rows[0]["restrictions"] = list(restrictions)
    return {"value": rows}


@pytest.fixture
def good(cloud: Any, plan: Plan, root: str) -> Any:
    own = plan.config.section(AzureConfig)
    region = plan.config.region
    compute = f"{root}/providers/Microsoft.Compute"
    image = f"{compute}/locations/{region}/publishers/microsoft-dsvm/artifacttypes/vmimage/offers/ubuntu-hpc"
    account = f"/management.azure.com{own.source_account_id}"
    cloud.answers = {
        f"{root}/providers/Microsoft.Authorization/permissions": {"value": [EVERYTHING]},
        **{f"{root}/providers/Microsoft.{name}": {"registrationState": "Registered"} for name in NAMESPACES.values()},
        f"{root}/providers/Microsoft.Features/providers/Microsoft.Compute/features/EncryptionAtHost": {
            "properties": {"state": "Registered"}
        },
        f"{compute}/locations/{region}/usages": usages(),
        f"{compute}/skus": skus(),
        f"{image}/skus/2404/versions": [{"name": "24.04.2026"}],
        account: {"location": "eastus"},
        f"{account}/blobServices/default/containers/images": {"id": "x"},
        "/management.azure.com/providers/Microsoft.ResourceGraph/resources": {"data": []},
    }
    return cloud


@pytest.fixture
def checked(good: Any, rest: Any, plan: Plan, outcomes: Any, root: str) -> Checked:
    def run(changes: dict[str, Any]) -> dict[str, Answer]:
        for path, answer in changes.items():
            (whole,) = [known for known in good.answers if known.endswith(path)]
            good.answers[whole] = answer
        found: dict[str, Answer] = outcomes(get_checks(plan, rest))
        return found

    return run


def test_a_subscription_with_everything_is_fine(checked: Checked) -> None:
    found = checked({})
    assert {name: answer.result for name, answer in found.items() if answer.result.state is not State.OK} == {}
    assert "newest 24.04.2026" in found["machine image microsoft-dsvm:ubuntu-hpc:2404:latest"].result.answer


@pytest.mark.parametrize(
    ("changes", "subject", "state", "words"),
    [
        (
            {"/permissions": {"value": [{**EVERYTHING, "notActions": ["Microsoft.Authorization/*/Write"]}]}},
            "permissions", State.ERROR, "Microsoft.Authorization/roleAssignments/write",
        ),
        (
            {"/permissions": {"value": [
                {**EVERYTHING, "notActions": ["Microsoft.Authorization/*/Write"]},
                {"actions": ["Microsoft.Authorization/*"], "notActions": []},
            ]}},
            "permissions", State.OK, "all ",
        ),
        ({"/permissions": 403}, "permissions", State.UNKNOWN, "no permission"),
        (
            {"/providers/Microsoft.StorageCache": {"registrationState": "NotRegistered"}},
            "resource provider Microsoft.StorageCache", State.ERROR, "az provider register --namespace",
        ),
        (
            {"/EncryptionAtHost": {"properties": {"state": "Pending"}}},
            "feature EncryptionAtHost", State.ERROR, "set encryption_at_host: false",
        ),
        ({"/usages": usages(limit=1)}, "quota 'Total Regional vCPUs'", State.ERROR, "request Total Regional vCPUs"),
        ({"/usages": usages(limit=500, used=400)}, "quota 'Total Regional vCPUs'", State.WARNING, "400 in use"),
        ({"/usages": {"value": []}}, "quota 'Total Regional vCPUs'", State.UNKNOWN, "az vm list-usage"),
        ({"/skus": {"value": []}}, f"machine type {SIZE}", State.ERROR, "eastus has no"),
        (
            {"/skus": skus({"type": "Location", "reasonCode": "NotAvailableForSubscription"})},
            f"machine type {SIZE}", State.ERROR, "NotAvailableForSubscription",
        ),
        (
            {"/skus": skus({"type": "Zone", "restrictionInfo": {"zones": ["2"]}})},
            f"machine type {SIZE}", State.OK, "zones 1",
        ),
        ({"/versions": 404}, "machine image", State.ERROR, "az vm image list"),
        ({"/versions": []}, "machine image", State.ERROR, "there are none"),
        ({"/containers/images": 404}, "data container images", State.ERROR, "does not exist"),
        ({"/resources": {"data": [{"name": "head"}]}}, "resources with the tag", State.WARNING, "head: this stack"),
    ],
)  # fmt: skip
def test_what_is_missing(checked: Checked, changes: Any, subject: str, state: State, words: str) -> None:
    found = next(answer for name, answer in checked(changes).items() if name.startswith(subject))
    assert found.result.state is state
    assert words in f"{found.result.answer} {found.result.fix}"


def test_requests_are_those_of_microsofts_clients(checked: Checked, good: Any) -> None:
    checked({})
    folder = Path(next(iter(azure.mgmt.__path__)))
    sources = [
        each.read_text("utf-8")
        for name in ("compute", "resource", "storage")
        for each in folder.glob(f"{name}/**/*operations*/_operations.py")
    ]
    urls = {url for text in sources for url in re.findall(r'"(/subscriptions/[^"]+)"', text)}
    patterns = [re.compile(re.sub(r"\{\w+\}", "[^/]+", url), re.IGNORECASE) for url in urls]
    known = ("Microsoft.Authorization/", "Microsoft.Features/", "Microsoft.ResourceGraph/")
    for call in good.calls:
        path = call.path.removeprefix("/management.azure.com")
        assert any(each in path for each in known) or any(pattern.fullmatch(path) for pattern in patterns), path
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", call.query["api-version"])


def test_every_kind_of_a_shipped_stack_has_a_provider(plan: Plan) -> None:
    kinds = {one.type.split(":")[1].split("/")[0] for one in plan.resources if one.type.startswith("azure-native:")}
    assert kinds - NAMESPACES.keys() == {"authorization", "resources"}


def test_no_credentials(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess(["az"], 1, "", "Please run 'az login'")
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_options: done)
    with pytest.raises(InputError, match="az login"):
        get_checks(plan)
