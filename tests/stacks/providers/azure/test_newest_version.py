"""The newest version of a Marketplace image, from a small Resource Manager."""

from typing import Any

import pytest

from gangway.components.azure.launch import plan_image
from gangway.components.core.lookup import LookupFailedError
from gangway.stacks.providers.azure.lookups import newest_version

IMAGE = plan_image("microsoft-dsvm:ubuntu-hpc:2204")


def newest(token: str = "t") -> str:
    return newest_version("s", "eastus", IMAGE, token)


@pytest.fixture(autouse=True)
def _manager(azure_vm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGWAY_API_URL", azure_vm.url)


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
