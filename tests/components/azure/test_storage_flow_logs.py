"""FlowLogStore: an account without keys, and one identity that writes into it."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.azure.policies import BLOB_CONTRIBUTOR
from gangway.components.azure.storage import FlowLogStore


@pytest.fixture
def args(place: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in place.items() if key != "zone"}


def test_an_account_of_its_own_without_keys(
    make: Callable[..., Any], args: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
    made = make(FlowLogStore, args)
    assert arm_mistakes(made) == []
    account = made.one("StorageAccount")
    assert account.name == "demoflows", "not that of the runs"
    assert account.inputs["allowSharedKeyAccess"] is False
    assert account.inputs["sku"] == {"name": "Standard_LRS"}


def test_who_writes_may_write_there_and_nowhere_else(make: Callable[..., Any], args: dict[str, Any]) -> None:
    made = make(FlowLogStore, args)
    grant = made.one("RoleAssignment").inputs
    assert grant["roleDefinitionId"].endswith(BLOB_CONTRIBUTOR)
    assert grant["scope"] == "${StorageAccount.demoflows.id}"
    assert grant["principalId"] == "${UserAssignedIdentity.demo-flows.principalId}"


def test_the_log_waits_until_its_identity_may_write(make: Callable[..., Any], args: dict[str, Any]) -> None:
    made = make(FlowLogStore, {**args, "role_wait_sec": 300})
    wait = made.one("Settling")
    assert made.one("RoleAssignment").urn in wait.dependencies
    assert wait.inputs["what"] == "Azure heeds the roles of the flow log's identity"
    assert make(FlowLogStore, args).of("Settling") == []


def test_under_the_stacks_own_key_where_there_is_one(
    make: Callable[..., Any], args: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
    key = {"key_name": "data", "key_url": "https://v/keys/data/1", "vault_uri": "https://v/", "vault_id": "/vault",
           "identity_id": "/identity"}  # fmt: skip
    made = make(FlowLogStore, {**args, "key": key})
    assert arm_mistakes(made) == []
    assert made.one("StorageAccount").inputs["encryption"]["keyVaultProperties"]["keyName"] == "data"
