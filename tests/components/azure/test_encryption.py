"""EncryptionKey: the vault, the key and who may use it; and the registry, which does without."""

from collections.abc import Callable
from typing import Any

import pytest

from components.azure.encryption import EncryptionKey
from components.azure.names import guid
from components.azure.policies import KEY_USER
from components.azure.registry import ImageRegistry


@pytest.fixture
def args(place: dict[str, Any]) -> dict[str, Any]:
    wanted = ("subscription_id", "resource_group_name", "location", "stack", "tags")
    return {**{key: place[key] for key in wanted}, "tenant_id": "11111111-1111-1111-1111-111111111111"}


def test_a_vault_that_nobody_comes_into_and_nobody_empties(
    make: Callable[..., Any], args: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
    made = make(EncryptionKey, args)
    assert arm_mistakes(made) == []
    vault = made.one("Vault")
    properties = vault.inputs["properties"]
    for on in ("enableRbacAuthorization", "enablePurgeProtection", "enableSoftDelete"):
        assert properties[on] is True, on
    assert properties["networkAcls"] == {"bypass": "AzureServices", "defaultAction": "Deny"}
    assert "accessPolicies" not in properties
    assert len(vault.name) + 8 <= 24
    assert len(make(EncryptionKey, args).one("Vault").name) <= 16


def test_the_key_turns_over_and_disks_follow(make: Callable[..., Any], args: dict[str, Any]) -> None:
    made = make(EncryptionKey, args)
    (action,) = made.one("Key").inputs["properties"]["rotationPolicy"]["lifetimeActions"]
    assert (action["action"], action["trigger"]) == ({"type": "rotate"}, {"timeAfterCreate": "P90D"})
    disks = made.one("DiskEncryptionSet").inputs
    assert disks["rotationToLatestKeyVersionEnabled"] is True
    assert disks["identity"]["userAssignedIdentities"] == ["${UserAssignedIdentity.demo-key.id}"]


def test_one_identity_may_use_it_and_on_the_key_alone(make: Callable[..., Any], args: dict[str, Any]) -> None:
    made = make(EncryptionKey, args)
    grant = made.one("RoleAssignment")
    assert grant.inputs["roleDefinitionId"].endswith(KEY_USER)
    assert grant.inputs["scope"] == "${Key.demo-data.id}"
    # The set takes the identity from here, which waits for the grant.
    assert grant.urn in made.one("DiskEncryptionSet").dependencies


def test_a_grant_that_outlives_the_stack_is_in_the_way_of_no_other(
    make: Callable[..., Any], args: dict[str, Any]
) -> None:
    """Azure refuses the GUID of an assignment for another place: the next stack of that name has a vault of its own."""
    grant = make(EncryptionKey, args).one("RoleAssignment").inputs
    of_its_place = guid(args["subscription_id"], args["stack"], "key", "use", "${Key.demo-data.id}")
    assert grant["roleAssignmentName"] == of_its_place


@pytest.fixture
def registry(place: dict[str, Any]) -> dict[str, Any]:
    return {key: place[key] for key in ("resource_group_name", "location", "tags")}


def test_a_registry_without_an_admin(
    make: Callable[..., Any], registry: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
    made = make(ImageRegistry, registry)
    assert arm_mistakes(made) == []
    inputs = made.one("Registry").inputs
    assert inputs["sku"] == {"name": "Standard"}
    assert (inputs["adminUserEnabled"], inputs["anonymousPullEnabled"]) == (False, False)
    assert "policies" not in inputs


def test_premium_drops_what_no_tag_names(
    make: Callable[..., Any], registry: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
    made = make(ImageRegistry, {**registry, "premium": True})
    assert arm_mistakes(made) == []
    inputs = made.one("Registry").inputs
    assert inputs["sku"] == {"name": "Premium"}
    assert inputs["policies"]["retentionPolicy"] == {"days": 14, "status": "enabled"}
