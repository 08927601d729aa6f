"""What machines may do: each grant where it belongs, nothing wider than its reason."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.gcp.identity import (
    AGENT_DOMAINS,
    GROUP_PERMISSIONS,
    ON_REQUEST,
    PROJECT_WIDE,
    EncryptionKey,
    HeadIdentity,
    NodeIdentity,
    ProjectServices,
    account_id,
    filesystem_name,
    get_agent,
    get_bucket,
    get_prefix,
    head_permissions,
    node_permissions,
    plan_services,
)
from tests.components.fixture_types import Make, Mistakes

OWN_GROUPS = "resource.matchTagId('tagKeys/1', 'tagValues/2')"
REPOSITORY = "projects/lab/locations/us-east5/repositories/demo-trainer"


@pytest.fixture
def args() -> dict[str, Any]:
    return {"project": "lab", "stack": "demo", "run_bucket_name": "runs", "repository_id": REPOSITORY}


@pytest.fixture
def node(make: Make, args: dict[str, Any]) -> Any:
    """A node with everything a node may have."""
    full: Any = {**args, "data_source": "gs://data/celeba/", "groups_condition": OWN_GROUPS}
    return make(NodeIdentity, full)


@pytest.fixture
def head(make: Make, args: dict[str, Any]) -> Any:
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


def test_the_head_reads_what_up_writes_for_it(head: Any, make: Make, args: Any) -> None:
    granted = {member.inputs["bucket"]: member.inputs["role"] for member in head.of("BucketIAMMember")}
    assert granted == {"files": "roles/storage.objectViewer", "runs": "roles/storage.objectUser"}
    alone = make(HeadIdentity, args).of("BucketIAMMember")
    assert [member.inputs["bucket"] for member in alone] == ["runs"], "without a second rung there is nothing to read"


def test_a_grant_on_a_bucket_has_no_condition(node: Any, head: Any) -> None:
    """Who may not list the whole bucket gets "forbidden" for an object that is not there, and cannot look for one."""
    grants = [*node.of("BucketIAMMember"), *head.of("BucketIAMMember")]
    assert len(grants) == 4
    assert not [grant for grant in grants if "condition" in grant.inputs]


def test_a_node_that_only_trains_has_no_role_of_ours(make: Make, args: Any) -> None:
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
        for member in made.each("IAMMember"):
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


@pytest.mark.parametrize("component", [NodeIdentity, HeadIdentity])
def test_the_address_is_known_when_all_grants_are(declare_seen: Make, args: Any, component: type[Any]) -> None:
    kind = component.__name__.removesuffix("Identity").lower()
    assert declare_seen(component, args).seen["service_account_email"] == f"${{Account.demo-{kind}.email}}"


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [("gs://b", "b", ""), ("gs://b/", "b", ""), ("gs://b/a/c/", "b", "a/c"), ("gs://b/a", "b", "a")],
)
def test_a_url_taken_apart(url: str, bucket: str, prefix: str) -> None:
    assert (get_bucket(url), get_prefix(url)) == (bucket, prefix)


STACKS = st.from_regex(r"\A[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z")


@given(STACKS, st.sampled_from(["node", "head", "stop"]))
def test_a_service_account_has_an_id_google_takes(stack: str, role: str) -> None:
    name = account_id(stack, role)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])", name)
    assert 6 <= len(name) <= 30
    assert name.endswith(f"-{role}")


def test_what_fits_is_kept_and_what_does_not_stays_apart() -> None:
    assert (account_id("demo", "node"), account_id("a", "x")) == ("demo-node", "gangway-a-x")
    long = ["a-stack-that-is-called-so-a", "a-stack-that-is-called-so-b"]
    assert len({account_id(stack, "node") for stack in long}) == 2
    assert len({filesystem_name(stack) for stack in long}) == 2


def test_only_what_the_stack_has_is_enabled() -> None:
    plain, full = plan_services(), plan_services(*ON_REQUEST)
    assert "compute.googleapis.com" in plain
    assert "lustre.googleapis.com" not in plain
    assert "serviceusage.googleapis.com" in plain, "calls are charged to the project, which this API is asked about"
    assert set(plan_services("lustre")) - set(plain) == {"lustre.googleapis.com", "servicenetworking.googleapis.com"}
    assert set(plain) < set(full)
    assert full == sorted(set(full))


def test_apis_are_enabled_and_left_enabled(declare: Make) -> None:
    seen: list[str] = []

    def program() -> None:
        made = ProjectServices("demo", {"project": "lab", "services": plan_services("tpu")})
        made.project.apply(seen.append)

    made = declare(program)
    services = made.of("Service")
    assert {s.inputs["service"] for s in services} == set(plan_services("tpu"))
    assert {s.inputs["disableOnDestroy"] for s in services} == {False}
    assert {s.inputs["project"] for s in services} == {"lab"}
    assert seen == ["lab"]


@pytest.mark.parametrize("service", sorted(AGENT_DOMAINS))
def test_an_agent_is_named_by_the_projects_number(service: str) -> None:
    assert get_agent(service, "42") == f"serviceAccount:service-42@{AGENT_DOMAINS[service]}.iam.gserviceaccount.com"


@pytest.fixture
def key_args(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "project": "lab",
        "project_number": "123456789012",
        "region": "us-east5",
        "services": ["lustre", "filestore", "tpu"],
        "agents": {"storage": "serviceAccount:s@gs", "logging": "serviceAccount:c@logging"},
        "tags": labels,
    }


def test_the_key(make: Make, key_args: Any, api_mistakes: Mistakes) -> None:
    made = make(EncryptionKey, key_args)
    key = made.one("CryptoKey").inputs
    assert key["keyRing"] == made.one("KeyRing").id
    assert key["rotationPeriod"] == "7776000s"
    assert key["destroyScheduledDuration"] == "2592000s"
    body = {name: key[name] for name in ("purpose", "rotationPeriod", "destroyScheduledDuration", "labels")}
    assert api_mistakes("cloudkms.v1", "CryptoKey", body) == []


def test_only_the_agents_of_what_is_used_may_use_it(make: Make, key_args: Any) -> None:
    made = make(EncryptionKey, key_args)
    members = {m.name.removeprefix("demo-"): m.inputs for m in made.of("CryptoKeyIAMMember")}
    assert {name: member["member"] for name, member in members.items()} == {
        "artifactregistry": "${ServiceIdentity.demo-artifactregistry.member}",
        "compute": "serviceAccount:service-123456789012@compute-system.iam.gserviceaccount.com",
        "filestore": "${ServiceIdentity.demo-filestore.member}",
        "logging": "serviceAccount:c@logging",
        "lustre": "${ServiceIdentity.demo-lustre.member}",
        "pubsub": "${ServiceIdentity.demo-pubsub.member}",
        "storage": "serviceAccount:s@gs",
        "tpu": "${ServiceIdentity.demo-tpu.member}",
    }
    assert {member["role"] for member in members.values()} == {"roles/cloudkms.cryptoKeyEncrypterDecrypter"}
    asked = {identity.name: identity.inputs["service"] for identity in made.of("ServiceIdentity")}
    assert asked["demo-filestore"] == "file.googleapis.com", "the API's name, not the part's"
    assert {member["cryptoKeyId"] for member in members.values()} == {made.one("CryptoKey").id}


def test_its_name_is_what_others_take(declare_seen: Make, key_args: Any) -> None:
    made = declare_seen(EncryptionKey, {**key_args, "services": []})
    assert made.seen["key_name"] == "${CryptoKey.demo-data.id}"
    assert len(made.of("CryptoKeyIAMMember")) == 5


@pytest.mark.parametrize("wait_sec", [120, 0])
def test_its_name_comes_after_the_wait_for_its_users(declare: Make, key_args: Any, wait_sec: int) -> None:
    key_args |= {"services": [], "grant_wait_sec": wait_sec}
    seen: list[str] = []
    made = declare(lambda: EncryptionKey("demo", key_args).key_name.apply(seen.append))
    assert seen == ["${CryptoKey.demo-data.id}"]
    waits = made.of("Settling")
    assert len(waits) == (1 if wait_sec else 0)
    for wait in waits:
        assert wait.inputs["what"] == "Google heeds the key's users"
        assert {user.urn for user in made.of("CryptoKeyIAMMember")} <= wait.dependencies
