"""RunBucket: no keys, no strangers, and it outlives the stack."""

from typing import Any

import pytest

from gangway.components.azure.identity import EncryptionKey, ResourceGroup
from gangway.components.azure.policies import BLOB_CONTRIBUTOR
from gangway.components.azure.storage import FlowLogStore, RunBucket, Watcher, plan_watcher
from gangway.components.core.findings import InputError
from tests.components.fixture_types import Make, Mistakes


@pytest.fixture
def args(place: dict[str, Any]) -> dict[str, Any]:
    return {key: place[key] for key in ("resource_group_name", "location", "zone", "tags")}


KEY = {
    "key_name": "data", "key_url": "https://v/keys/data/1", "vault_uri": "https://v/", "vault_id": "/vault",
    "identity_id": "/identity",
}  # fmt: skip


def test_an_account_that_knows_no_keys_and_no_public(make: Make, args: dict[str, Any], arm_mistakes: Mistakes) -> None:
    made = make(RunBucket, args)
    assert arm_mistakes(made) == []
    account = made.one("StorageAccount").inputs
    for off in ("allowBlobPublicAccess", "allowSharedKeyAccess", "allowCrossTenantReplication", "isLocalUserEnabled"):
        assert account[off] is False, off
    assert account["enableHttpsTrafficOnly"] is True
    assert account["minimumTlsVersion"] == "TLS1_2"
    assert account["networkRuleSet"] == {"bypass": "AzureServices", "defaultAction": "Allow"}
    assert made.one("BlobContainer").inputs["publicAccess"] == "None"


def test_with_subnets_it_answers_to_nobody_else(make: Make, args: dict[str, Any], arm_mistakes: Mistakes) -> None:
    made = make(RunBucket, {**args, "subnet_ids": ["/subnet"], "allowed_ips": ["203.0.113.7"]})
    assert arm_mistakes(made) == []
    rules = made.one("StorageAccount").inputs["networkRuleSet"]
    assert rules["defaultAction"] == "Deny"
    assert [rule["virtualNetworkResourceId"] for rule in rules["virtualNetworkRules"]] == ["/subnet"]
    assert [rule["iPAddressOrRange"] for rule in rules["ipRules"]] == ["203.0.113.7"]


def test_addresses_alone_close_it_too(make: Make, args: dict[str, Any]) -> None:
    rules = make(RunBucket, {**args, "allowed_ips": ["203.0.113.7"]}).one("StorageAccount").inputs["networkRuleSet"]
    assert rules["defaultAction"] == "Deny"


@pytest.mark.parametrize(("zone", "sku"), [("1", "Standard_ZRS"), ("", "Standard_LRS")])
def test_three_zones_where_the_region_has_them(make: Make, args: dict[str, Any], zone: str, sku: str) -> None:
    assert make(RunBucket, {**args, "zone": zone}).one("StorageAccount").inputs["sku"] == {"name": sku}


def test_every_version_is_kept_for_a_time(make: Make, args: dict[str, Any]) -> None:
    made = make(RunBucket, args)
    service = made.one("BlobServiceProperties").inputs
    assert service["isVersioningEnabled"] is True
    assert service["deleteRetentionPolicy"] == service["containerDeleteRetentionPolicy"] == {"enabled": True, "days": 7}
    (rule,) = made.one("ManagementPolicy").inputs["policy"]["rules"]
    assert set(rule["definition"]["actions"]) == {"version"}, "nothing current ever expires"
    assert made.one("BlobServiceProperties").urn in made.one("ManagementPolicy").dependencies


def test_a_key_of_ones_own(make: Make, args: dict[str, Any], arm_mistakes: Mistakes) -> None:
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
    make: Make,
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


ONE, TWO = "11111111-0000-0000-0000-111111111111", "22222222-0000-0000-0000-222222222222"
ID = f"/subscriptions/{ONE}/resourceGroups/net-hub/providers/Microsoft.Network/networkWatchers/nw-eastus"


def test_azures_own_of_the_region_where_nobody_names_one() -> None:
    assert plan_watcher(None, "eastus", ONE) == Watcher("NetworkWatcherRG", "NetworkWatcher_eastus", by_azure=True)


@pytest.mark.parametrize("written", [ID, ID.replace("resourceGroups", "resourcegroups"), "net-hub/nw-eastus"])
def test_one_that_is_named(written: str) -> None:
    assert plan_watcher(written, "eastus", ONE) == Watcher("net-hub", "nw-eastus", by_azure=False)


@pytest.mark.parametrize("written", ["nw-eastus", "/nw-eastus", "a/b/c", ID.replace("networkWatchers", "networks"), ""])
def test_what_is_none(written: str) -> None:
    with pytest.raises(InputError, match="not a network watcher") as caught:
        plan_watcher(written, "eastus", ONE)
    assert (caught.value.place, caught.value.value) == ("gangway:azure.network_watcher", written)
    assert "az network watcher list" in caught.value.fix
    assert "NetworkWatcherRG/NetworkWatcher_eastus" in caught.value.fix


def test_one_of_another_subscription() -> None:
    with pytest.raises(InputError, match="its network's own subscription") as caught:
        plan_watcher(ID, "eastus", TWO)
    assert TWO in caught.value.allowed
    assert plan_watcher(ID, "eastus").name == "nw-eastus", "where nobody says which the network is in"


@pytest.fixture
def flow_args(place: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in place.items() if key != "zone"}


def test_an_account_of_its_own_without_keys(make: Make, flow_args: dict[str, Any], arm_mistakes: Mistakes) -> None:
    made = make(FlowLogStore, flow_args)
    assert arm_mistakes(made) == []
    account = made.one("StorageAccount")
    assert account.name == "demoflows", "not that of the runs"
    assert account.inputs["allowSharedKeyAccess"] is False
    assert account.inputs["sku"] == {"name": "Standard_LRS"}


def test_who_writes_may_write_there_and_nowhere_else(make: Make, flow_args: dict[str, Any]) -> None:
    made = make(FlowLogStore, flow_args)
    grant = made.one("RoleAssignment").inputs
    assert grant["roleDefinitionId"].endswith(BLOB_CONTRIBUTOR)
    assert grant["scope"] == "${StorageAccount.demoflows.id}"
    assert grant["principalId"] == "${UserAssignedIdentity.demo-flows.principalId}"


def test_the_log_waits_until_its_identity_may_write(make: Make, flow_args: dict[str, Any]) -> None:
    made = make(FlowLogStore, {**flow_args, "role_wait_sec": 300})
    wait = made.one("Settling")
    assert made.one("RoleAssignment").urn in wait.dependencies
    assert wait.inputs["what"] == "Azure heeds the roles of the flow log's identity"
    assert make(FlowLogStore, flow_args).of("Settling") == []


def test_under_the_stacks_own_key_where_there_is_one(
    make: Make, flow_args: dict[str, Any], arm_mistakes: Mistakes
) -> None:
    key = {"key_name": "data", "key_url": "https://v/keys/data/1", "vault_uri": "https://v/", "vault_id": "/vault",
           "identity_id": "/identity"}  # fmt: skip
    made = make(FlowLogStore, {**flow_args, "key": key})
    assert arm_mistakes(made) == []
    assert made.one("StorageAccount").inputs["encryption"]["keyVaultProperties"]["keyName"] == "data"
