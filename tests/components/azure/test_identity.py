"""What machines may do: the roles, the places they are on, and nothing wider."""

from typing import Any
from uuid import UUID

import pytest
from pulumi_azure_native import managedidentity

from gangway.components.azure.identity import EncryptionKey, HeadIdentity, MemberKeyVault, NodeIdentity
from gangway.components.azure.policies import ACR_PULL, BLOB_READER, KEY_USER, LOG_WRITER, SECRET_USER, guid
from gangway.components.azure.storage import ImageRegistry
from gangway.components.core.findings import InputError
from tests.components.fixture_types import Make, Mistakes

RUNS = "/accounts/a/blobServices/default/containers/runs"
DATA = "/subscriptions/{}/resourceGroups/data/providers/Microsoft.Storage/storageAccounts/mydata"


@pytest.fixture
def args(place: dict[str, Any]) -> dict[str, Any]:
    wanted = ("subscription_id", "resource_group_name", "location", "stack", "tags")
    return {
        **{key: place[key] for key in wanted},
        "run_container_id": RUNS,
        "repository_id": "/registry",
        "data_collection_rule_id": "/rule",
    }


@pytest.fixture
def whole(args: dict[str, Any]) -> dict[str, Any]:
    account = DATA.format(args["subscription_id"])
    return {**args, "data_source": "az://mydata/images/celeba", "data_source_account_id": account,
            "self_termination": True}  # fmt: skip


def grants(made: Any) -> set[tuple[str, str]]:
    """Role (its GUID, or the reference to one of ours) and scope of each assignment."""
    return {(g.inputs["roleDefinitionId"].rpartition("/")[2], g.inputs["scope"]) for g in made.of("RoleAssignment")}


def test_a_node_has_four_roles_where_they_are_for(make: Make, whole: dict[str, Any], arm_mistakes: Mistakes) -> None:
    made = make(NodeIdentity, whole)
    assert arm_mistakes(made) == []
    group = f"/subscriptions/{whole['subscription_id']}/resourceGroups/gangway-demo"
    assert grants(made) == {
        (ACR_PULL, "/registry"),
        ("${RoleDefinition.demo-node-runs.id}", RUNS),
        (LOG_WRITER, "/rule"),
        (BLOB_READER, f"{whole['data_source_account_id']}/blobServices/default/containers/images"),
        ("${RoleDefinition.demo-node-leave.id}", group),
    }
    role = role_of(made, "leave")
    assert role["assignableScopes"] == [group]
    assert [permission["actions"][-1].rpartition("/")[2] for permission in role["permissions"]] == ["delete"]


def role_of(made: Any, label: str) -> dict[str, Any]:
    """The inputs of one of our own roles."""
    (role,) = (each.inputs for each in made.of("RoleDefinition") if each.name.endswith(f"-{label}"))
    assert isinstance(role, dict)
    return role


@pytest.mark.attack("root of a node", "deletes run records (Azure)")
@pytest.mark.parametrize("component", [NodeIdentity, HeadIdentity])
def test_a_machine_writes_records_and_deletes_none(make: Make, args: dict[str, Any], component: Any) -> None:
    """No role on the container is one of Azure's own, which all delete, and ours has two data actions."""
    made = make(component, args)
    assert all(role.startswith("${RoleDefinition.") for role, scope in grants(made) if scope == RUNS)
    (permission,) = role_of(made, "runs")["permissions"]
    blobs = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
    assert permission == {"actions": [], "dataActions": [f"{blobs}/read", f"{blobs}/write"]}


def test_a_node_that_stays_has_no_right_on_the_group(make: Make, args: dict[str, Any]) -> None:
    made = make(NodeIdentity, args)
    assert {each.name for each in made.of("RoleDefinition")} == {"demo-node-runs"}
    assert {scope for _, scope in grants(made)} == {"/registry", RUNS, "/rule"}


def test_data_needs_the_account_it_is_in(make: Make, whole: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="source_account_id"):
        make(NodeIdentity, {**whole, "data_source_account_id": None})


@pytest.mark.parametrize(("fills", "scrapes"), [(True, True), (True, False), (False, True)])
def test_a_head_fills_scale_sets_and_finds_workers_if_it_has_to(
    make: Make, args: dict[str, Any], arm_mistakes: Mistakes, fills: bool, scrapes: bool
) -> None:
    made = make(HeadIdentity, {**args, "fills_groups": fills, "scrapes": scrapes})
    assert arm_mistakes(made) == []
    (permission,) = role_of(made, "fill")["permissions"]
    assert ("Microsoft.Compute/virtualMachineScaleSets/write" in permission["actions"]) is fills
    assert ("Microsoft.Network/networkInterfaces/read" in permission["actions"]) is scrapes


def test_a_head_that_does_neither_has_no_right_on_the_group(make: Make, args: dict[str, Any]) -> None:
    assert {each.name for each in make(HeadIdentity, args).of("RoleDefinition")} == {"demo-head-runs"}


@pytest.mark.parametrize("component", [NodeIdentity, HeadIdentity])
def test_machines_read_the_two_secrets_that_are_theirs(make: Make, args: dict[str, Any], component: Any) -> None:
    keys = {"member_secret_id": "/vaults/v/secrets/member-key", "signing_secret_id": "/vaults/v/secrets/signing-key"}
    made = make(component, {**args, **keys})
    assert sorted(scope for role, scope in grants(made) if role == SECRET_USER) == sorted(keys.values())


def test_assignments_have_names_that_stay(make: Make, whole: dict[str, Any], args: dict[str, Any]) -> None:
    def names(component: Any, values: dict[str, Any]) -> list[str]:
        made = make(component, values)
        return [grant.inputs["roleAssignmentName"] for grant in made.of("RoleAssignment")]

    node, head = names(NodeIdentity, whole), names(HeadIdentity, args)
    assert node == names(NodeIdentity, whole)
    assert len({*node, *head}) == len(node) + len(head)
    assert all(str(UUID(name)) == name for name in (*node, *head))


def test_two_stacks_of_one_name_in_a_subscription_are_in_nobodys_way(make: Make, whole: dict[str, Any]) -> None:
    """Their groups have digits of their own: so have what is made from them."""
    other = {**whole, "resource_group_name": "gangway-demo2"}
    one, two = make(NodeIdentity, whole), make(NodeIdentity, other)
    for label in ("leave", "runs"):
        for key in ("roleDefinitionId", "roleName"):
            assert role_of(one, label)[key] != role_of(two, label)[key]
    leave = [
        grant.inputs["roleAssignmentName"]
        for made in (one, two)
        for grant in made.of("RoleAssignment")
        if grant.name.endswith("-leave")
    ]
    assert len(set(leave)) == 2
    assert "gangway-demo2" in role_of(two, "leave")["roleName"]


def test_every_assignment_is_of_the_identity_itself(make: Make, whole: dict[str, Any]) -> None:
    for grant in make(NodeIdentity, whole).each("RoleAssignment"):
        assert grant.inputs["principalId"] == "${UserAssignedIdentity.demo-node.principalId}"
        assert grant.inputs["principalType"] == "ServicePrincipal"


@pytest.mark.parametrize(("written", "waited"), [(300, 60), (20, 20)])
def test_a_role_of_our_own_is_assigned_only_when_azure_knows_it(
    make: Make, whole: dict[str, Any], args: dict[str, Any], written: float, waited: float
) -> None:
    """At once it may be refused: RoleDefinitionDoesNotExist. What Azure brings is there already."""
    leaves = make(NodeIdentity, {**whole, "role_wait_sec": written})
    fills = make(HeadIdentity, {**args, "fills_groups": True, "role_wait_sec": written})
    labels = ((leaves, "node-leave"), (leaves, "node-runs"), (fills, "head-fill"), (fills, "head-runs"))
    for made, label in labels:
        (wait,) = (each for each in made.of("Settling") if each.name == f"demo-{label}-known")
        (role,) = (each for each in made.of("RoleDefinition") if each.name == f"demo-{label}")
        assert (wait.name, wait.inputs["seconds"]) == (f"demo-{label}-known", waited)
        assert wait.inputs["awaited"] == [f"${{RoleDefinition.demo-{label}.id}}"]
        assert role.urn in wait.dependencies
        waiting = [grant.name for grant in made.of("RoleAssignment") if wait.urn in grant.dependencies]
        assert waiting == [f"demo-{label}"]


def test_without_seconds_nothing_is_waited_for(make: Make, whole: dict[str, Any]) -> None:
    assert not make(NodeIdentity, whole).of("Settling")


@pytest.fixture
def made(make: Make, place: dict[str, Any]) -> Any:
    args = {name: place[name] for name in ("resource_group_name", "location", "tags")}
    own = {"tenant_id": "11111111-1111-1111-1111-111111111111", "subnet_id": "/subnets/private"}
    return make(MemberKeyVault, {**args, **own, "pem": "PEM", "signing_pem": "SIGN"})


def test_the_vault_answers_the_stacks_subnet_alone(made: Any, arm_mistakes: Mistakes) -> None:
    assert arm_mistakes(made) == []
    properties = made.one("Vault").inputs["properties"]
    acls = properties["networkAcls"]
    assert (acls["defaultAction"], acls["virtualNetworkRules"]) == ("Deny", [{"id": "/subnets/private"}])
    assert properties["enableRbacAuthorization"] is True
    assert "accessPolicies" not in properties


def test_its_name_leaves_room_for_digits_of_its_own(made: Any) -> None:
    """A name that is gone stays taken for a week."""
    assert "vaultName" not in made.one("Vault").inputs
    assert len(made.one("Vault").name) <= 16
    properties = made.one("Vault").inputs["properties"]
    assert (properties["softDeleteRetentionInDays"], properties["enablePurgeProtection"]) == (7, True)


def test_no_key_is_shown_anywhere(made: Any) -> None:
    secrets = made.of("Secret")
    assert [one.inputs["secretName"] for one in secrets] == ["member-key", "signing-key"]
    assert [one.inputs["properties"]["value"]["value"] for one in secrets] == ["PEM", "SIGN"]
    for secret in secrets:
        assert secret.to_json()["inputs"]["properties"]["value"] == "[secret]"


@pytest.fixture
def key_args(place: dict[str, Any]) -> dict[str, Any]:
    wanted = ("subscription_id", "resource_group_name", "location", "stack", "tags")
    return {**{key: place[key] for key in wanted}, "tenant_id": "11111111-1111-1111-1111-111111111111"}


def test_a_vault_that_nobody_comes_into_and_nobody_empties(
    make: Make, key_args: dict[str, Any], arm_mistakes: Mistakes
) -> None:
    made = make(EncryptionKey, key_args)
    assert arm_mistakes(made) == []
    vault = made.one("Vault")
    properties = vault.inputs["properties"]
    for on in ("enableRbacAuthorization", "enablePurgeProtection", "enableSoftDelete"):
        assert properties[on] is True, on
    assert properties["networkAcls"] == {"bypass": "AzureServices", "defaultAction": "Deny"}
    assert "accessPolicies" not in properties
    assert len(vault.name) + 8 <= 24
    assert len(make(EncryptionKey, key_args).one("Vault").name) <= 16


def test_the_key_turns_over_and_disks_follow(make: Make, key_args: dict[str, Any]) -> None:
    made = make(EncryptionKey, key_args)
    (action,) = made.one("Key").inputs["properties"]["rotationPolicy"]["lifetimeActions"]
    assert (action["action"], action["trigger"]) == ({"type": "rotate"}, {"timeAfterCreate": "P90D"})
    disks = made.one("DiskEncryptionSet").inputs
    assert disks["rotationToLatestKeyVersionEnabled"] is True
    assert disks["identity"] == {"type": "SystemAssigned"}, "the API's text has no other for new ones"


def test_two_identities_may_use_it_and_on_the_key_alone(make: Make, key_args: dict[str, Any]) -> None:
    made = make(EncryptionKey, key_args)
    of_disks, own = made.of("RoleAssignment")
    for grant in (of_disks, own):
        assert grant.inputs["roleDefinitionId"].endswith(KEY_USER)
        assert grant.inputs["scope"] == "${Key.demo-data.id}"
    assert own.inputs["principalId"] == "${UserAssignedIdentity.demo-key.principalId}"
    # The set's own, which is there when the set is; disks wait for both.
    assert of_disks.inputs["principalId"] == "${DiskEncryptionSet.demo-disks.identity.principalId}"


def test_nothing_is_encrypted_before_azure_heeds_who_may_use_the_key(declare: Make, key_args: dict[str, Any]) -> None:
    def program() -> None:
        key = EncryptionKey("demo", {**key_args, "role_wait_sec": 300})  # type: ignore[typeddict-item]  # a dict of them
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


def test_a_grant_that_outlives_the_stack_is_in_the_way_of_no_other(make: Make, key_args: dict[str, Any]) -> None:
    """Azure refuses the GUID of an assignment for another place: the next stack of that name has a vault of its own."""
    grant = make(EncryptionKey, key_args).of("RoleAssignment")[1].inputs
    of_its_place = guid(key_args["subscription_id"], key_args["stack"], "key", "use", "${Key.demo-data.id}")
    assert grant["roleAssignmentName"] == of_its_place


@pytest.fixture
def registry(place: dict[str, Any]) -> dict[str, Any]:
    return {key: place[key] for key in ("resource_group_name", "location", "tags")}


def test_a_registry_without_an_admin(make: Make, registry: dict[str, Any], arm_mistakes: Mistakes) -> None:
    made = make(ImageRegistry, registry)
    assert arm_mistakes(made) == []
    inputs = made.one("Registry").inputs
    assert inputs["sku"] == {"name": "Standard"}
    assert (inputs["adminUserEnabled"], inputs["anonymousPullEnabled"]) == (False, False)
    assert "policies" not in inputs


def test_premium_drops_what_no_tag_names(make: Make, registry: dict[str, Any], arm_mistakes: Mistakes) -> None:
    made = make(ImageRegistry, {**registry, "premium": True})
    assert arm_mistakes(made) == []
    inputs = made.one("Registry").inputs
    assert inputs["sku"] == {"name": "Premium"}
    assert inputs["policies"]["retentionPolicy"] == {"days": 14, "status": "enabled"}
