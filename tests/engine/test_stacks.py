"""Every stack file under the real Pulumi engine: its whole life, and what a mistake in it leads to."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine


def test_a_preview_creates_nothing(engine: Any) -> None:
    preview = engine.run("preview")
    assert preview.status == 0, preview.text
    assert set(preview.changes) == {"create"}
    assert engine.resources() == []


def test_a_stack_lives_and_leaves_nothing_behind(engine: Any) -> None:
    up = engine.run("up", "--yes", "--skip-preview")
    assert up.status == 0, up.text
    custom = {type_token for type_token in up.types("create") if type_token.startswith("aws:")}
    assert {resource["type"] for resource in engine.resources()} == custom != set()

    exports = json.loads(engine.plain("stack", "output", "--json"))
    assert exports["job"]["image"].startswith(exports["repository_url"] + "@sha256:")
    groups = {r["outputs"]["name"] for r in engine.resources() if r["type"] == "aws:autoscaling/group:Group"}
    assert set(exports["group_names"]) == groups != set()

    again = engine.run("up", "--yes", "--skip-preview", "--expect-no-changes")
    assert again.status == 0, again.text
    assert set(again.changes) == {"same"}

    refresh = engine.run("refresh", "--yes", "--skip-preview", "--expect-no-changes")
    assert refresh.status == 0, refresh.text

    destroy = engine.run("destroy", "--yes", "--skip-preview")
    assert destroy.status == 0, destroy.text
    assert engine.resources() == []
    assert json.loads(engine.plain("stack", "export"))["deployment"].get("resources", []) == []


def test_more_nodes_change_the_pool_in_place(engine: Any) -> None:
    assert engine.run("up", "--yes", "--skip-preview").status == 0
    ids = {resource["id"] for resource in engine.resources()}

    def twice_as_many(config: dict[str, Any]) -> None:
        # Twice, not one more: the global batch has to divide over the workers.
        config["gangway:cluster"]["nodes"] = {k: 2 * v for k, v in config["gangway:cluster"]["nodes"].items()}

    engine.change(twice_as_many)
    preview = engine.run("preview")
    assert set(preview.changes) == {"same", "update"}, preview.text
    more = engine.run("up", "--yes", "--skip-preview")
    assert more.status == 0, more.text
    assert set(more.changes) == {"same", "update"}
    assert more.types("update") == preview.types("update") >= {"aws:autoscaling/group:Group"}
    assert {resource["id"] for resource in engine.resources()} == ids


def test_a_resource_deleted_by_hand_is_missed_and_made_again(engine: Any) -> None:
    assert engine.run("up", "--yes", "--skip-preview").status == 0
    before = engine.resources()
    bucket = next(file for file in engine.cloud.glob("*.json") if "aws:s3/bucket:Bucket" in file.read_text("utf-8"))
    bucket.unlink()
    refresh = engine.run("refresh", "--yes", "--skip-preview")
    assert refresh.changes["delete"] == 1, refresh.text
    up = engine.run("up", "--yes", "--skip-preview")
    assert up.status == 0, up.text
    assert len(engine.resources()) == len(before)


def set_value(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """An edit that sets `a.b.c` in the `gangway:` namespace; None removes it."""

    def edit(config: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        place = {key.removeprefix("gangway:"): entry for key, entry in config.items()} if parents else config
        for parent in parents:
            place = place[parent]
        key = last if parents else f"gangway:{last}"
        if value is None:
            del place[key]
        else:
            place[key] = value

    return edit


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("storage.capacity_gib", 9000, ["gangway:storage.capacity_gib", "got:     9000", "set capacity_gib: 9600"]),
        ("cluster.accelerator", "H100x9", ["gangway:cluster.accelerator", "'H100x9'", "H100x8"]),
        ("cluster.zone", "us-east-2z", ["gangway:cluster.zone", "'us-east-2z'", "us-east-2a"]),
        ("cluster.nodez", 3, ["gangway:cluster.nodez", "unknown key", "did you mean 'nodes'?"]),
        ("budget.emails", [], ["gangway:budget.emails"]),
        ("network", {"cidr": "8.8.0.0/16"}, ["gangway:network.cidr", "'8.8.0.0/16'", "use 10.42.0.0/16"]),
        ("region", "us-west-9", ["gangway:region", "'us-west-9'", "us-west-2"]),
        # Pulumi.yaml's own schema speaks first.
        ("cluster", "two nodes", ["configuration key 'cluster' must be of type 'object'"]),
        ("region", None, ["missing configuration value 'region'"]),
    ],
)
def test_a_mistake_is_one_message_and_no_resource(make_engine: Any, path: str, value: Any, said: list[str]) -> None:
    engine = make_engine("aws-demo")
    engine.change(set_value(path, value))
    # Without a preview before it, so that the first resource would have been made.
    outcome = engine.run("up", "--yes", "--skip-preview")
    assert outcome.status != 0
    for words in said:
        assert words in outcome.text
    assert "Traceback" not in outcome.text
    assert 'File "' not in outcome.text
    assert engine.resources() == []


def test_a_mistake_fails_the_preview_too(make_engine: Any) -> None:
    engine = make_engine("aws-demo")
    engine.change(set_value("storage.capacity_gib", 9000))
    preview = engine.run("preview")
    assert preview.status != 0
    assert "set capacity_gib: 9600" in preview.text
    assert "Traceback" not in preview.text


@pytest.mark.parametrize(
    ("path", "value", "made"),
    [
        ("network", {"egress": "nat"}, "aws:ec2/natGateway:NatGateway"),
        ("storage", {}, "aws:ec2/launchTemplate:LaunchTemplate"),
        ("cluster.capacity", [{"kind": "capacity-block", "id": "cr-0123456789abcdef0"}], "aws:autoscaling/group:Group"),
        ("cluster.capacity", [{"kind": "reservation", "id": "cr-0123456789abcdef0"}], "aws:autoscaling/group:Group"),
    ],
)
def test_what_the_stack_files_do_not_use_comes_up_too(make_engine: Any, path: str, value: Any, made: str) -> None:
    engine = make_engine("aws-demo")
    engine.change(set_value(path, value))
    if path == "storage":  # several nodes without a file system are refused
        engine.change(set_value("cluster.nodes", {"min": 1, "max": 1}))
    up = engine.run("up", "--yes", "--skip-preview")
    assert up.status == 0, up.text
    assert made in {resource["type"] for resource in engine.resources()}
    assert engine.run("destroy", "--yes", "--skip-preview").status == 0
    assert engine.resources() == []
