"""The check against Microsoft's models finds what it is for, and lets pass what is right."""

from types import ModuleType
from typing import Any

import pytest
from azure.mgmt.compute.models import VirtualMachineScaleSet
from azure.mgmt.monitor.models import ActionGroupResource
from azure.mgmt.network.models import Subnet
from azure.mgmt.storage.models import StorageAccountCreateParameters

from gangway.components.azure.identity import ResourceGroup
from tests.components.fixture_types import Make, Mistakes

ACCOUNT: dict[str, Any] = {
    "resourceGroupName": "g", "accountName": "a", "location": "eastus", "kind": "StorageV2",
    "sku": {"name": "Standard_ZRS"}, "enableHttpsTrafficOnly": True, "minimumTlsVersion": "TLS1_2",
}  # fmt: skip


def test_every_row_of_the_table_is_a_model(arm_models: ModuleType) -> None:
    for key in arm_models.TABLE:
        model = arm_models.get_model(f"azure-native:{key}")
        assert len(arm_models.properties(model)) > 3, key
    assert not set(arm_models.TABLE) & set(arm_models.WITHOUT_MODEL)


def test_what_the_provider_flattens_and_renames_is_where_azure_wants_it(arm_models: ModuleType, as_model: Make) -> None:
    body, mistakes = arm_models.body_of("azure-native:storage:StorageAccount", ACCOUNT)
    assert mistakes == []
    assert body["properties"] == {"supportsHttpsTrafficOnly": True, "minimumTlsVersion": "TLS1_2"}
    account = as_model(StorageAccountCreateParameters, ACCOUNT)
    assert account.properties.enable_https_traffic_only is True
    group = as_model(ActionGroupResource, {"location": "Global", "groupShortName": "g", "enabled": True})
    assert group.group_short_name == "g"
    subnet = as_model(Subnet, {"addressPrefix": "10.0.0.0/24", "natGateway": {"id": "/nat"}})
    assert subnet.properties.nat_gateway.id == "/nat"


@pytest.mark.parametrize(
    ("model", "inputs", "mistake"),
    [
        (StorageAccountCreateParameters, {**ACCOUNT, "enableHttpTrafficOnly": True}, "enableHttpTrafficOnly: unknown"),
        (StorageAccountCreateParameters, {**ACCOUNT, "kind": "StorageV3"}, "'StorageV3' is none of"),
        (StorageAccountCreateParameters, {**ACCOUNT, "enableHttpsTrafficOnly": "yes"}, "'yes' is no bool"),
        (StorageAccountCreateParameters, {k: v for k, v in ACCOUNT.items() if k != "sku"}, "sku: required"),
        (StorageAccountCreateParameters, {**ACCOUNT, "tags": ["a"]}, "is no dict"),
        (Subnet, {"provisioningState": "Succeeded"}, "provisioningState: read-only"),
        (Subnet, {"serviceEndpoints": [{"services": "Microsoft.Storage"}]}, r"serviceEndpoints\[0\].services: unknown"),
        (Subnet, {"natGateway": "/nat"}, "is no object"),
        (VirtualMachineScaleSet, {"location": "x", "sku": {"capacity": 1.5}}, "1.5 is no whole number"),
        (
            VirtualMachineScaleSet,
            {"location": "x", "virtualMachineProfile": {"priority": "Cheap"}},
            "virtualMachineProfile.priority: 'Cheap'",
        ),
        (ActionGroupResource, {"groupShortName": "g"}, "location: required"),
        (ActionGroupResource, {"location": "Global", "groupName": "g"}, "groupName: unknown"),
    ],
)
def test_what_is_wrong_is_found(as_model: Make, model: Any, inputs: dict[str, Any], mistake: str) -> None:
    with pytest.raises(AssertionError, match=mistake):
        as_model(model, inputs)


def test_a_type_that_no_table_knows_is_a_mistake(
    arm_mistakes: Mistakes, make: Make, tags: dict[str, str], arm_models: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    made = make(ResourceGroup, {"location": "eastus", "tags": tags})
    assert arm_mistakes(made) == []
    monkeypatch.setattr(arm_models, "TABLE", {})
    assert arm_mistakes(made) == ["demo-gangway: resources:ResourceGroup is in no table"]
