"""What machines may do: the roles, the places they are on, and nothing wider."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from gangway.components.azure.identity import HeadIdentity, NodeIdentity
from gangway.components.azure.policies import ACR_PULL, BLOB_READER, LOG_WRITER, SECRET_USER
from gangway.components.core.findings import InputError

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


def test_a_node_has_four_roles_where_they_are_for(
    make: Callable[..., Any], whole: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
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
def test_a_machine_writes_records_and_deletes_none(
    make: Callable[..., Any], args: dict[str, Any], component: Any
) -> None:
    """No role on the container is one of Azure's own, which all delete, and ours has two data actions."""
    made = make(component, args)
    assert all(role.startswith("${RoleDefinition.") for role, scope in grants(made) if scope == RUNS)
    (permission,) = role_of(made, "runs")["permissions"]
    blobs = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
    assert permission == {"actions": [], "dataActions": [f"{blobs}/read", f"{blobs}/write"]}


def test_a_node_that_stays_has_no_right_on_the_group(make: Callable[..., Any], args: dict[str, Any]) -> None:
    made = make(NodeIdentity, args)
    assert {each.name for each in made.of("RoleDefinition")} == {"demo-node-runs"}
    assert {scope for _, scope in grants(made)} == {"/registry", RUNS, "/rule"}


def test_data_needs_the_account_it_is_in(make: Callable[..., Any], whole: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="source_account_id"):
        make(NodeIdentity, {**whole, "data_source_account_id": None})


@pytest.mark.parametrize(("fills", "scrapes"), [(True, True), (True, False), (False, True)])
def test_a_head_fills_scale_sets_and_finds_workers_if_it_has_to(
    make: Callable[..., Any], args: dict[str, Any], arm_mistakes: Callable[[Any], list[str]], fills: bool, scrapes: bool
) -> None:
    made = make(HeadIdentity, {**args, "fills_groups": fills, "scrapes": scrapes})
    assert arm_mistakes(made) == []
    (permission,) = role_of(made, "fill")["permissions"]
    assert ("Microsoft.Compute/virtualMachineScaleSets/write" in permission["actions"]) is fills
    assert ("Microsoft.Network/networkInterfaces/read" in permission["actions"]) is scrapes


def test_a_head_that_does_neither_has_no_right_on_the_group(make: Callable[..., Any], args: dict[str, Any]) -> None:
    assert {each.name for each in make(HeadIdentity, args).of("RoleDefinition")} == {"demo-head-runs"}


@pytest.mark.parametrize("component", [NodeIdentity, HeadIdentity])
def test_machines_read_the_two_secrets_that_are_theirs(
    make: Callable[..., Any], args: dict[str, Any], component: Any
) -> None:
    keys = {"member_secret_id": "/vaults/v/secrets/member-key", "signing_secret_id": "/vaults/v/secrets/signing-key"}
    made = make(component, {**args, **keys})
    assert sorted(scope for role, scope in grants(made) if role == SECRET_USER) == sorted(keys.values())


def test_assignments_have_names_that_stay(
    make: Callable[..., Any], whole: dict[str, Any], args: dict[str, Any]
) -> None:
    def names(component: Any, values: dict[str, Any]) -> list[str]:
        made = make(component, values)
        return [grant.inputs["roleAssignmentName"] for grant in made.of("RoleAssignment")]

    node, head = names(NodeIdentity, whole), names(HeadIdentity, args)
    assert node == names(NodeIdentity, whole)
    assert len({*node, *head}) == len(node) + len(head)
    assert all(str(UUID(name)) == name for name in (*node, *head))


def test_two_stacks_of_one_name_in_a_subscription_are_in_nobodys_way(
    make: Callable[..., Any], whole: dict[str, Any]
) -> None:
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


def test_every_assignment_is_of_the_identity_itself(make: Callable[..., Any], whole: dict[str, Any]) -> None:
    for grant in make(NodeIdentity, whole).of("RoleAssignment"):
        assert grant.inputs["principalId"] == "${UserAssignedIdentity.demo-node.principalId}"
        assert grant.inputs["principalType"] == "ServicePrincipal"


@pytest.mark.parametrize(("written", "waited"), [(300, 60), (20, 20)])
def test_a_role_of_our_own_is_assigned_only_when_azure_knows_it(
    make: Callable[..., Any], whole: dict[str, Any], args: dict[str, Any], written: float, waited: float
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


def test_without_seconds_nothing_is_waited_for(make: Callable[..., Any], whole: dict[str, Any]) -> None:
    assert not make(NodeIdentity, whole).of("Settling")
