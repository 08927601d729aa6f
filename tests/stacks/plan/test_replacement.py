"""What an update does to resources: followed from one to the next, and told apart by what they are."""

import gzip
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.catalog.replaces import load
from gangway.stacks.base.registry import get_provider
from gangway.stacks.base.rule import kind
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.replacement import Effect, Update
from gangway.stacks.recording import PlannedResource, Recording

STACKS = sorted(Path(__file__).parents[3].glob("stacks/Pulumi.*.yaml"))
FSX, VPC, SUBNET = "aws:fsx/lustreFileSystem:LustreFileSystem", "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"
TEMPLATE, GROUP = "aws:ec2/launchTemplate:LaunchTemplate", "aws:autoscaling/group:Group"
INSTANCE, BUCKET = "aws:ec2/instance:Instance", "aws:s3/bucket:Bucket"

Resources = dict[str, dict[str, Any]]


def one(type_: str, name: str, /, **inputs: Any) -> Resources:
    urn = f"urn:pulumi:s::gangway::gangway:aws:Parent${type_}::{name}"
    return {urn: {"urn": urn, "type": type_, "name": name, "inputs": inputs}}


def effects(before: Resources, now: Resources, provider: str = "aws", **options: Any) -> dict[str, Effect]:
    """By resource and path."""
    update = Update(get_provider(provider), before, now, **options)
    return {f"{now[urn]['name']} {p.path}": p.effect for urn in update.changed() for p in update.properties(urn)}


def test_what_names_a_replaced_resource_is_replaced_in_turn() -> None:
    def stack(cidr: str) -> Resources:
        return {
            **one(VPC, "net", cidrBlock=cidr),
            **one(SUBNET, "inner", vpcId="${Vpc.net.id}", cidrBlock="10.0.0.0/20"),
            **one(FSX, "fs", subnetIds="${Subnet.inner.id}", tags={"team": "a"}),
            **one(BUCKET, "runs", bucket="runs"),
        }

    assert effects(stack("10.0.0.0/16"), stack("10.0.0.0/8")) == {
        "net cidrBlock": Effect.REPLACED,
        "inner vpcId": Effect.REPLACED,
        "fs subnetIds": Effect.DATA_LOST,
    }


def test_user_data_names_what_it_mounts() -> None:
    def stack(deployment: str) -> Resources:
        text = b64encode(gzip.compress(b"mount ${LustreFileSystem.fs.dnsName}")).decode()
        return {**one(FSX, "fs", deploymentType=deployment), **one(TEMPLATE, "nodes", userData=text)}

    assert effects(stack("SCRATCH_2"), stack("PERSISTENT_2")) == {
        "fs deploymentType": Effect.DATA_LOST,
        "nodes userData": Effect.NEW_NODES,
    }


def test_a_new_version_of_a_template_reaches_who_follows_its_latest() -> None:
    def stack(data: str) -> Resources:
        follow = {"version": "${LaunchTemplate.nodes.latestVersion}"}
        return {
            **one(TEMPLATE, "nodes", userData=data),
            **one(GROUP, "group", launchTemplate=follow),
            **one("aws:eks/nodeGroup:NodeGroup", "pool", launchTemplate=follow),
        }

    assert effects(stack("a"), stack("b")) == {
        "nodes userData": Effect.NEW_NODES,
        "group launchTemplate.version": Effect.IN_PLACE,
        "pool launchTemplate.version": Effect.NODES_RESTARTED,
    }


@pytest.mark.parametrize(
    ("type_", "name", "inputs", "effect"),
    [
        (INSTANCE, "s-head", ("ami", "a", "b"), Effect.HEAD_REPLACED),
        (INSTANCE, "s-node", ("ami", "a", "b"), Effect.NODES_RESTARTED),
        (INSTANCE, "s-node", ("instanceType", "a", "b"), Effect.NODES_RESTARTED),
        (INSTANCE, "s-node", ("monitoring", True, False), Effect.IN_PLACE),
        (GROUP, "group", ("maxSize", 1, 2), Effect.IN_PLACE),
        (GROUP, "group", ("name", "a", "b"), Effect.NODES_RESTARTED),
        ("aws:sqs/queue:Queue", "queue", ("name", "a", "b"), Effect.UNKNOWN),
    ],
)
def test_what_a_resource_is_decides(type_: str, name: str, inputs: tuple[str, Any, Any], effect: Effect) -> None:
    path, before, now = inputs
    assert effects(one(type_, name, **{path: before}), one(type_, name, **{path: now})) == {f"{name} {path}": effect}


def test_another_region_replaces_everything_in_the_cloud() -> None:
    stack = {**one(FSX, "fs"), **one(VPC, "net"), **one("gangway:aws:Parent", "component")}
    assert effects(stack, stack, moves=True) == {"fs region": Effect.DATA_LOST, "net region": Effect.REPLACED}
    assert effects(stack, stack) == {}


def test_removed_machines_and_data() -> None:
    before = {**one(FSX, "fs"), **one(INSTANCE, "s-head"), **one(VPC, "net"), **one(BUCKET, "b", forceDestroy=True)}
    update = Update(get_provider("aws"), before, {})
    found = {before[urn]["name"]: update.effect_of_removal(urn) for urn in before}
    kept = {"net": Effect.IN_PLACE, "b": Effect.IN_PLACE}
    assert found == {"fs": Effect.DATA_LOST, "s-head": Effect.NODES_RESTARTED, **kept}


def test_options_of_the_resource_count() -> None:
    before, now = (
        one(VPC, "net", enableDnsSupport=True, tags={}),
        one(VPC, "net", enableDnsSupport=False, tags={"a": "b"}),
    )
    [urn] = now
    planned = PlannedResource(
        urn, VPC, "net", "", True, {}, "", replace_on_changes=("enableDnsSupport",), ignore_changes=("tags",)
    )
    assert effects(before, now, planned=[planned]) == {"net enableDnsSupport": Effect.REPLACED}


def test_tags_with_another_input_are_no_tags_only() -> None:
    before = {**one(VPC, "net", tags={"a": "1"}), **one(FSX, "fs", tags={"a": "1"}, storageCapacity=2)}
    now = {**one(VPC, "net", tags={"a": "2"}), **one(FSX, "fs", tags={"a": "2"}, storageCapacity=4)}
    update = Update(get_provider("aws"), before, now)
    assert {now[urn]["name"]: update.is_tags_only(urn) for urn in update.changed()} == {"net": True, "fs": False}


def test_a_secret_that_is_kept_under_another_name_is_another_one() -> None:
    stash, command = "pulumi:index:Stash", "command:remote:Command"
    before = {**one(stash, "key-0", input="[secret]"), **one(command, "node", stdin="[secret]", create="run")}
    now = {**one(stash, "key-1", input="[secret]"), **one(command, "node", stdin="[secret]", create="run")}
    [kept, node] = now
    planned = PlannedResource(node, command, "node", "", True, {}, "", dependencies=frozenset({kept}))
    assert effects(before, now, "hosts", planned=[planned]) == {"node stdin": Effect.NODES_RESTARTED}
    assert effects(before, before, "hosts", planned=[planned]) == {}


def test_a_template_that_gets_other_tags_rolls_over_managed_nodes_alone() -> None:
    def stack(team: str) -> Resources:
        follow = {"version": "${LaunchTemplate.nodes.latestVersion}"}
        return {
            **one(TEMPLATE, "nodes", tagSpecifications=[{"tags": {"team": team}}]),
            **one(GROUP, "group", launchTemplate=follow),
            **one("aws:eks/nodeGroup:NodeGroup", "pool", launchTemplate=follow),
        }

    now = stack("b")
    update = Update(get_provider("aws"), stack("a"), now)
    tags_only = {now[urn]["name"]: update.is_tags_only(urn) for urn in update.changed()}
    assert tags_only == {"nodes": True, "group": True, "pool": False}


@pytest.mark.slow
@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.name.split(".")[1])
def test_every_type_of_a_shipped_stack_is_known(file: Path, recorded: Callable[[StackConfig], Recording]) -> None:
    types = {one.type for one in recorded(from_file(file)).resources if one.custom}
    assert types
    assert [type_ for type_ in types if not type_.startswith("pulumi:") and not load().knows(kind(type_))] == []
