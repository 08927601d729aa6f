"""What a scale set is set to now, before it is changed. The refusal itself is shown under the real engine."""

from typing import Any

import pulumi
import pytest

from gangway.components.azure.launch import plan_image
from gangway.components.core.lookup import LookupFailedError
from gangway.stacks.providers.azure.lookups import live_size, newest_version

ID = "/subscriptions/s/resourceGroups/demo-rg-1/providers/Microsoft.Compute/virtualMachineScaleSets/demo-0-spot-1"


@pytest.fixture(autouse=True)
def _manager(azure_vm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGWAY_API_URL", azure_vm.url)


def test_it_is_read(azure_vm: Any) -> None:
    azure_vm.live["demo-0-spot-1"] = 3
    assert live_size(ID, "t") == 3
    assert azure_vm.calls[0].query["api-version"]


def test_one_that_is_gone_holds_nothing_to_lose(azure_vm: Any) -> None:
    azure_vm.tokens["t"] = "https://management.azure.com/"
    assert live_size(ID, "t") is None


def test_what_cannot_be_read_is_not_taken_for_nothing(azure_vm: Any) -> None:
    azure_vm.denied.add("management.azure.com")
    with pytest.raises(pulumi.RunError, match=r"cannot read the number of nodes.*run `az login`"):
        live_size(ID, "t")


IMAGE = plan_image("microsoft-dsvm:ubuntu-hpc:2204")


def newest(token: str = "t") -> str:
    return newest_version("s", "eastus", IMAGE, token)


def test_versions_are_numbers(azure_vm: Any) -> None:
    azure_vm.versions = ["22.04.9", "22.04.10", "22.4.99", "preview"]
    assert newest() == "22.4.99"
    (call,) = azure_vm.calls
    assert call.path.endswith(
        "/locations/eastus/publishers/microsoft-dsvm/artifacttypes/vmimage/offers/ubuntu-hpc/skus/2204/versions"
    )
    assert call.headers["authorization"] == "Bearer t"


def test_a_plan_sends_no_request(azure_vm: Any) -> None:
    assert newest("${getClientToken.token}") == "${newest version of ubuntu-hpc}"
    assert azure_vm.calls == []


def test_missing_versions_are_reported(azure_vm: Any) -> None:
    azure_vm.versions = []
    with pytest.raises(LookupFailedError, match=r"microsoft-dsvm:ubuntu-hpc:2204[^$]*no version found"):
        newest()


def test_a_refusal_is_reported_with_a_fix(azure_vm: Any) -> None:
    azure_vm.denied.add("management.azure.com")
    with pytest.raises(
        LookupFailedError, match=r"(?s)newest version of.*run `az login` as a user with the role Reader"
    ):
        newest()
