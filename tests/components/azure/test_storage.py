"""RunBucket: no keys, no strangers, and it outlives the stack."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.azure.identity import EncryptionKey, ResourceGroup
from gangway.components.azure.storage import RunBucket


@pytest.fixture
def args(place: dict[str, Any]) -> dict[str, Any]:
    return {key: place[key] for key in ("resource_group_name", "location", "zone", "tags")}


KEY = {
    "key_name": "data", "key_url": "https://v/keys/data/1", "vault_uri": "https://v/", "vault_id": "/vault",
    "identity_id": "/identity",
}  # fmt: skip


def test_an_account_that_knows_no_keys_and_no_public(
    make: Callable[..., Any], args: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
    made = make(RunBucket, args)
    assert arm_mistakes(made) == []
    account = made.one("StorageAccount").inputs
    for off in ("allowBlobPublicAccess", "allowSharedKeyAccess", "allowCrossTenantReplication", "isLocalUserEnabled"):
        assert account[off] is False, off
    assert account["enableHttpsTrafficOnly"] is True
    assert account["minimumTlsVersion"] == "TLS1_2"
    assert account["networkRuleSet"] == {"bypass": "AzureServices", "defaultAction": "Allow"}
    assert made.one("BlobContainer").inputs["publicAccess"] == "None"


def test_with_subnets_it_answers_to_nobody_else(
    make: Callable[..., Any], args: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
    made = make(RunBucket, {**args, "subnet_ids": ["/subnet"], "allowed_ips": ["203.0.113.7"]})
    assert arm_mistakes(made) == []
    rules = made.one("StorageAccount").inputs["networkRuleSet"]
    assert rules["defaultAction"] == "Deny"
    assert [rule["virtualNetworkResourceId"] for rule in rules["virtualNetworkRules"]] == ["/subnet"]
    assert [rule["iPAddressOrRange"] for rule in rules["ipRules"]] == ["203.0.113.7"]


def test_addresses_alone_close_it_too(make: Callable[..., Any], args: dict[str, Any]) -> None:
    rules = make(RunBucket, {**args, "allowed_ips": ["203.0.113.7"]}).one("StorageAccount").inputs["networkRuleSet"]
    assert rules["defaultAction"] == "Deny"


@pytest.mark.parametrize(("zone", "sku"), [("1", "Standard_ZRS"), ("", "Standard_LRS")])
def test_three_zones_where_the_region_has_them(
    make: Callable[..., Any], args: dict[str, Any], zone: str, sku: str
) -> None:
    assert make(RunBucket, {**args, "zone": zone}).one("StorageAccount").inputs["sku"] == {"name": sku}


def test_every_version_is_kept_for_a_time(make: Callable[..., Any], args: dict[str, Any]) -> None:
    made = make(RunBucket, args)
    service = made.one("BlobServiceProperties").inputs
    assert service["isVersioningEnabled"] is True
    assert service["deleteRetentionPolicy"] == service["containerDeleteRetentionPolicy"] == {"enabled": True, "days": 7}
    (rule,) = made.one("ManagementPolicy").inputs["policy"]["rules"]
    assert set(rule["definition"]["actions"]) == {"version"}, "nothing current ever expires"
    assert made.one("BlobServiceProperties").urn in made.one("ManagementPolicy").dependencies


def test_a_key_of_ones_own(
    make: Callable[..., Any], args: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
    made = make(RunBucket, {**args, "key": KEY})
    assert arm_mistakes(made) == []
    account = made.one("StorageAccount").inputs
    assert account["encryption"]["keySource"] == "Microsoft.Keyvault"
    assert account["encryption"]["encryptionIdentity"] == {"encryptionUserAssignedIdentity": "/identity"}
    assert "keyVersion" not in account["encryption"]["keyVaultProperties"], "the newest"


@pytest.mark.parametrize(
    ("component", "goes"), [(RunBucket, []), (ResourceGroup, []), (EncryptionKey, ["demo-disks", "demo-disks-use"])]
)
def test_runs_stay_when_the_stack_goes_and_so_does_what_opens_them(
    make: Callable[..., Any],
    place: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    component: Any,
    goes: list[str],
) -> None:
    from pulumi.runtime import mocks

    kept: dict[str, bool] = {}
    register = mocks.MockMonitor.RegisterResource

    def noting(self: Any, request: Any) -> Any:
        if request.custom:
            kept[f"{request.name} {request.type}"] = request.retainOnDelete
        return register(self, request)  # type: ignore[no-untyped-call]  # the SDK's mocks have no types

    monkeypatch.setattr(mocks.MockMonitor, "RegisterResource", noting)
    make(component, {**place, "tenant_id": "11111111-1111-1111-1111-111111111111"})
    assert len(kept) > len(goes)
    assert [name.partition(" ")[0] for name, stays in kept.items() if not stays] == goes
