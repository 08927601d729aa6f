"""What machines may do: each grant where it belongs, nothing wider than its reason."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.gcp.identity import (
    GROUP_PERMISSIONS,
    PROJECT_WIDE,
    HeadIdentity,
    NodeIdentity,
    get_bucket,
    get_prefix,
    head_permissions,
    node_permissions,
)

OWN_GROUPS = "resource.matchTagId('tagKeys/1', 'tagValues/2')"
REPOSITORY = "projects/lab/locations/us-east5/repositories/demo-trainer"


@pytest.fixture
def args() -> dict[str, Any]:
    return {"project": "lab", "stack": "demo", "run_bucket_name": "runs", "repository_id": REPOSITORY}


@pytest.fixture
def node(make: Callable[..., Any], args: dict[str, Any]) -> Any:
    """A node with everything a node may have."""
    full: Any = {**args, "data_source": "gs://data/celeba/", "groups_condition": OWN_GROUPS}
    return make(NodeIdentity, full)


@pytest.fixture
def head(make: Callable[..., Any], args: dict[str, Any]) -> Any:
    full: Any = {**args, "groups_condition": OWN_GROUPS, "imports": True, "files_bucket_name": "files"}
    return make(HeadIdentity, full)


def test_each_machine_has_an_account_without_a_key(node: Any, head: Any) -> None:
    assert node.one("Account").inputs["accountId"] == "demo-node"
    assert head.one("Account").inputs["accountId"] == "demo-head"
    assert not [r for made in (node, head) for r in made.resources if "Key" in r.type]


def test_a_node_reads_data_and_writes_its_own_runs(node: Any) -> None:
    data, runs = node.of("BucketIAMMember")
    account = "${Account.demo-node.member}"
    assert (data.inputs["bucket"], data.inputs["role"], data.inputs["member"]) == (
        "data",
        "roles/storage.objectViewer",
        account,
    )
    assert (runs.inputs["bucket"], runs.inputs["role"]) == ("runs", "roles/storage.objectUser")


def test_the_head_reads_what_up_writes_for_it(head: Any, make: Callable[..., Any], args: Any) -> None:
    granted = {member.inputs["bucket"]: member.inputs["role"] for member in head.of("BucketIAMMember")}
    assert granted == {"files": "roles/storage.objectViewer", "runs": "roles/storage.objectUser"}
    alone = make(HeadIdentity, args).of("BucketIAMMember")
    assert [member.inputs["bucket"] for member in alone] == ["runs"], "without a second rung there is nothing to read"


def test_a_grant_on_a_bucket_has_no_condition(node: Any, head: Any) -> None:
    """Who may not list the whole bucket gets "forbidden" for an object that is not there, and cannot look for one."""
    grants = [*node.of("BucketIAMMember"), *head.of("BucketIAMMember")]
    assert len(grants) == 4
    assert not [grant for grant in grants if "condition" in grant.inputs]


def test_a_node_that_only_trains_has_no_role_of_ours(make: Callable[..., Any], args: Any) -> None:
    made = make(NodeIdentity, args)
    assert not made.of("IAMCustomRole")
    assert [member.name for member in made.of("BucketIAMMember")] == ["demo-node-runs"]


def test_the_image_is_read_from_its_one_repository(node: Any, head: Any) -> None:
    for made in (node, head):
        member = made.one("RepositoryIamMember").inputs
        assert (member["repository"], member["role"]) == (REPOSITORY, "roles/artifactregistry.reader")


def test_whatever_is_of_the_whole_project_has_its_reason(node: Any, head: Any) -> None:
    granted = set()
    for made in (node, head):
        roles = {f"${{IAMCustomRole.{role.name}.name}}": role for role in made.of("IAMCustomRole")}
        for member in made.of("IAMMember"):
            assert member.inputs["project"] == "lab"
            if "condition" in member.inputs:
                continue
            role = roles.get(member.inputs["role"])
            granted |= {member.inputs["role"]} if role is None else set(role.inputs["permissions"])
    assert granted <= PROJECT_WIDE.keys()
    assert not {"roles/owner", "roles/editor", "roles/viewer"} & PROJECT_WIDE.keys()
    assert "compute.instances.stop" not in granted


@pytest.mark.attack("root of a node", "changes another stack's groups (Google Cloud)")
def test_groups_are_changed_under_the_tag_alone(node: Any, head: Any) -> None:
    """A condition is of a whole grant: what it does not hold for is in another role."""
    for made, kind in ((node, "node"), (head, "head")):
        (role,) = [role for role in made.of("IAMCustomRole") if role.name == f"demo-{kind}-groups"]
        assert tuple(role.inputs["permissions"]) == GROUP_PERMISSIONS
        (member,) = [member for member in made.of("IAMMember") if "condition" in member.inputs]
        assert member.inputs["role"] == f"${{IAMCustomRole.{role.name}.name}}"
        assert member.inputs["condition"]["expression"] == OWN_GROUPS
        assert member.inputs["member"] == f"${{Account.demo-{kind}.member}}"
    assert not set(GROUP_PERMISSIONS) & PROJECT_WIDE.keys()


def test_the_security_page_names_what_reaches_other_stacks(repo: Path) -> None:
    """Rights that change something in the whole project; reading and writing logs is left out."""
    page = (repo / "docs/security-access.md").read_text("utf-8")
    section = page.partition("### Rights on a whole project\n")[2].partition("\n#")[0]
    harmless = ("read only", "only writes", "reads no data")
    reaching = [name for name, reason in PROJECT_WIDE.items() if not any(words in reason for words in harmless)]
    assert {"lustre.instances.importData", "tpu.queuedResources.delete"} <= {*reaching}
    assert [name for name in reaching if f"`{name}`" not in section] == []
    assert "(security-access.md#rights-on-a-whole-project)" in (repo / "docs/security.md").read_text("utf-8")


def test_what_each_may_do() -> None:
    assert node_permissions(releases_slices=False) == ()
    assert all(permission.endswith(".delete") for permission in node_permissions(releases_slices=True))
    plain = head_permissions(fills_groups=False, imports=False)
    assert not [permission for permission in plain if permission.endswith((".update", ".importData"))]
    filling = set(head_permissions(fills_groups=True, imports=False)) - set(plain)
    assert filling == {"compute.zoneOperations.get"}
    importing = set(head_permissions(fills_groups=False, imports=True)) - set(plain)
    assert importing == {"lustre.instances.get", "lustre.instances.importData", "lustre.operations.get"}


def test_what_takes_no_policy_of_its_own(api_document: Callable[[str], dict[str, Any]]) -> None:
    """The reasons of PROJECT_WIDE and of the tag, from the APIs themselves: without them a policy would be plainer."""
    resources = api_document("compute.v1")["resources"]
    assert "setIamPolicy" not in resources["instanceGroupManagers"]["methods"]
    assert "setIamPolicy" in resources["instances"]["methods"], "the question is asked in the right place"
    workflows = api_document("workflows.v1")["resources"]["projects"]["resources"]["locations"]["resources"]
    assert "setIamPolicy" not in workflows["workflows"]["methods"]
    logs = api_document("logging.v2")["resources"]["projects"]["resources"]["logs"]["methods"]
    assert "setIamPolicy" not in logs


def test_a_role_is_a_new_one_for_every_new_account(node: Any) -> None:
    role_id = node.one("IAMCustomRole").inputs["roleId"]
    assert role_id.startswith("demo_node_")
    assert role_id.endswith("niqueId}"), "of the account's number"


def test_the_address_is_known_when_all_grants_are(declare: Callable[..., Any], args: Any) -> None:
    seen: list[str] = []

    def program() -> None:
        NodeIdentity("demo", args).service_account_email.apply(seen.append)
        HeadIdentity("demo", args).service_account_email.apply(seen.append)

    made = declare(program)
    assert sorted(seen) == ["${Account.demo-head.email}", "${Account.demo-node.email}"]
    for kind in ("NodeIdentity", "HeadIdentity"):
        (own,) = [r for r in made.resources if r.type == f"gangway:gcp:{kind}"]
        assert made.outputs[own.urn] == {"service_account_email", "service_account_member"}


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [("gs://b", "b", ""), ("gs://b/", "b", ""), ("gs://b/a/c/", "b", "a/c"), ("gs://b/a", "b", "a")],
)
def test_a_url_taken_apart(url: str, bucket: str, prefix: str) -> None:
    assert (get_bucket(url), get_prefix(url)) == (bucket, prefix)
