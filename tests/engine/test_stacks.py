"""Every stack file under the real Pulumi engine: its whole life, from a preview to an empty cloud."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.engine

IMAGE = "docker-build:index:Image"
PASSWORD = "ecr-password-"
"""How the stand-in's passwords begin."""

POOL = {"aws:autoscaling/group:Group", "aws:ec2/launchTemplate:LaunchTemplate"}
NEEDED_WHILE_LEAVING = (
    "aws:ec2/instance:Instance::",
    "aws:ec2/route:Route::",
    "aws:ec2/routeTableAssociation:RouteTableAssociation::",
    "aws:ec2/vpcEndpoint:VpcEndpoint::",
    "aws:fsx/lustreFileSystem:LustreFileSystem::",
    "aws:s3/bucket:Bucket::",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule::",
)
"""What a node that leaves still uses, as it stands in a URN: the head's store, the way out, where it saves."""

ALWAYS_EXPORTED = {"job", "image", "run_bucket", "group_names", "log_group", "dashboard", "budget_topic_arn"}


def test_a_stack_lives_and_leaves_nothing_behind(engine: Any) -> None:
    """One life for all phases: each `up` from nothing would cost as much as all of them."""
    preview_creates_nothing(engine)
    up_makes_what_it_says(engine)
    exports_are_true(engine)
    password_stays_secret(engine)
    second_up_changes_nothing(engine)
    other_size_changes_the_pool_in_place(engine)
    what_was_deleted_by_hand_is_made_again(engine)
    destroy_leaves_nothing(engine)


def preview_creates_nothing(engine: Any) -> None:
    preview = engine.run("preview")
    assert preview.status == 0, preview.text
    assert set(preview.changes) == {"create"}
    assert "gangway:budget.activate_tag: the budget counts" in preview.text, "findings of severity info are seen too"
    assert engine.resources() == []


def up_makes_what_it_says(engine: Any) -> None:
    up = engine.applied("up")
    custom = {type_token for type_token in up.types("create") if type_token.startswith(("aws:", "docker-build:"))}
    assert {resource["type"] for resource in engine.resources()} == custom > {IMAGE, *POOL}


def exports_are_true(engine: Any) -> None:
    exports = json.loads(engine.plain("stack", "output", "--json"))
    made = {kind: [r for r in engine.resources() if r["type"].endswith(f":{kind}")] for kind in ("Image", "Group")}
    (image,) = made["Image"]
    assert {name for name, value in exports.items() if value} >= ALWAYS_EXPORTED
    assert exports["image"] == exports["job"]["image"]
    assert exports["image"].endswith(f".amazonaws.com/{exports['image'].split('/')[1]}")
    assert exports["image"].endswith(f"@{image['outputs']['digest']}")
    assert set(exports["group_names"]) == {group["outputs"]["name"] for group in made["Group"]}
    assert exports["alarm_topic_arn"].startswith("arn:aws:sns:")


def password_stays_secret(engine: Any) -> None:
    """It reaches the builder and, encrypted, the state; nowhere does it stand in plain text."""
    (image,) = [resource for resource in engine.resources() if resource["type"] == IMAGE]
    password = image["inputs"]["registries"][0]["password"]
    assert password.startswith(PASSWORD)
    assert password in engine.plain("stack", "export", "--show-secrets")
    assert PASSWORD not in engine.plain("stack", "export")
    files = [file for file in engine.state.rglob("*") if file.is_file()]
    assert any(image["urn"].encode() in file.read_bytes() for file in files), "the state is not where it was looked for"
    assert not [file for file in files if PASSWORD.encode() in file.read_bytes()]


def second_up_changes_nothing(engine: Any) -> None:
    """Although the registry gives another password."""
    again = engine.applied("up", "--expect-no-changes")
    assert set(again.changes) == {"same"}
    engine.applied("refresh", "--expect-no-changes")


def other_size_changes_the_pool_in_place(engine: Any) -> None:
    before = {resource["id"] for resource in engine.resources()}
    engine.change(grow)
    preview = engine.run("preview")
    assert set(preview.changes) == {"same", "update"}, preview.text
    more = engine.applied("up")
    assert set(more.changes) == {"same", "update"}
    assert more.types("update") == preview.types("update") >= POOL
    assert {resource["id"] for resource in engine.resources()} == before


def grow(config: dict[str, Any]) -> None:
    """Twice as many nodes, for the global batch has to divide; or a larger disk, where no more than one is allowed."""
    cluster = config["gangway:cluster"]
    if "gangway:storage" in config:
        cluster["nodes"] = {bound: 2 * number for bound, number in cluster["nodes"].items()}
    else:
        cluster["root_volume_gib"] = 400


def what_was_deleted_by_hand_is_made_again(engine: Any) -> None:
    before = engine.resources()
    bucket = next(file for file in engine.cloud.glob("*.json") if "aws:s3/bucket:Bucket" in file.read_text("utf-8"))
    bucket.unlink()
    refresh = engine.applied("refresh")
    assert refresh.changes["delete"] == 1, refresh.text
    engine.applied("up")
    assert len(engine.resources()) == len(before)


def destroy_leaves_nothing(engine: Any) -> None:
    destroy = engine.applied("destroy")
    nodes_are_gone_before_what_they_need(destroy)
    assert engine.resources() == []
    assert json.loads(engine.plain("stack", "export"))["deployment"].get("resources", []) == []


def nodes_are_gone_before_what_they_need(destroy: Any) -> None:
    """Or the last checkpoint and `destroy` would race: a group's end is the end of its nodes."""
    gone = max(place for urn, place in destroy.ended("delete").items() if "$aws:autoscaling/group:Group::" in urn)
    needed = {
        urn: place
        for urn, place in destroy.began("delete").items()
        if any(kind in urn for kind in NEEDED_WHILE_LEAVING)
        or ("iam/rolePolicy:RolePolicy::" in urn and urn.endswith("-node"))
    }
    assert len(needed) > 5
    assert not [urn for urn, place in needed.items() if place < gone]
