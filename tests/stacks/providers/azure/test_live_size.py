"""What a scale set is set to now, before it is changed. The refusal itself is shown under the real engine."""

from typing import Any

import pulumi
import pytest

from gangway.stacks.providers.azure.live_size import live_size

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
