"""EncryptionKey: the vault, the key and who may use it; and the registry, which does without."""

from collections.abc import Callable
from typing import Any

import pytest
from pulumi_azure_native import managedidentity

from gangway.components.azure.identity import EncryptionKey
from gangway.components.azure.names import guid
from gangway.components.azure.policies import KEY_USER
from gangway.components.azure.registry import ImageRegistry


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
    assert disks["identity"] == {"type": "SystemAssigned"}, "the API's text has no other for new ones"


def test_two_identities_may_use_it_and_on_the_key_alone(make: Callable[..., Any], args: dict[str, Any]) -> None:
    made = make(EncryptionKey, args)
    of_disks, own = made.of("RoleAssignment")
    for grant in (of_disks, own):
        assert grant.inputs["roleDefinitionId"].endswith(KEY_USER)
        assert grant.inputs["scope"] == "${Key.demo-data.id}"
    assert own.inputs["principalId"] == "${UserAssignedIdentity.demo-key.principalId}"
    # The set's own, which is there when the set is; disks wait for both.
    assert of_disks.inputs["principalId"] == "${DiskEncryptionSet.demo-disks.identity.principalId}"


def test_nothing_is_encrypted_before_azure_heeds_who_may_use_the_key(
    declare: Callable[..., Any], args: dict[str, Any]
) -> None:
    def program() -> None:
        key = EncryptionKey("demo", {**args, "role_wait_sec": 300})  # type: ignore[typeddict-item]  # a dict of them
        for user, waits in (("account", key.identity_id), ("machine", key.disk_encryption_set_id)):
            managedidentity.UserAssignedIdentity(user, resource_group_name=waits)

    made = declare(program)
    waits = {wait.name: wait for wait in made.of("Settling")}
    assert set(waits) == {"demo-disks-heeded", "demo-key-heeded"}
    users = {identity.name: identity.dependencies for identity in made.of("UserAssignedIdentity")}
    assert waits["demo-key-heeded"].urn in users["account"]
    assert waits["demo-disks-heeded"].urn in users["machine"]
    (grant,) = [one for one in made.of("RoleAssignment") if one.name == "demo-disks-use"]
    assert grant.urn in waits["demo-disks-heeded"].dependencies


def test_a_grant_that_outlives_the_stack_is_in_the_way_of_no_other(
    make: Callable[..., Any], args: dict[str, Any]
) -> None:
    """Azure refuses the GUID of an assignment for another place: the next stack of that name has a vault of its own."""
    grant = make(EncryptionKey, args).of("RoleAssignment")[1].inputs
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
