"""A stack's identity: no two stacks of an account share it, nor anything that is called, tagged or filtered by it."""

import re
from collections.abc import Iterator, Mapping
from functools import cache, reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.stacks.config.identity import (
    MAX_LENGTH,
    folder_stack,
    is_valid_identity,
    project_name,
    stack_identity,
    without_accents,
)
from gangway.stacks.loading.loader import find_stack_file, from_file
from gangway.stacks.plan.plan import make_plan

STACKS = sorted((Path(__file__).parents[3] / "stacks").glob("Pulumi.*.yaml"))
STACK = "zzstack"
"""A name that occurs in nothing but what is made of it."""

AZURE_LETTERS = 24 - 8
"""Of an account's name, beside the digits that Pulumi adds."""
PROJECTS = st.from_regex(r"[A-Za-z0-9_.-]{1,60}", fullmatch=True)
NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True).filter(lambda name: name[:3] != "sg-")
Found = frozenset[tuple[str, str, str]]

OWN_GROUP = "in the stack's resource group: "
# What may be called the same in both plans, by type and property, and why.
SHARED: Mapping[str, str] = {
    OWN_GROUP + ".*": "Azure's names count within their group, which has digits of its own",
    "kubernetes:.*": "objects of the stack's own cluster",
    "aws:ec2/vpcEndpoint:VpcEndpoint .serviceName": "AWS's own services",
    "aws:cloudwatch/logMetricFilter:LogMetricFilter .logGroupName": "an existing group; filters have the stack's name",
    "aws:eks/addon:Addon .addonName": "within the stack's own cluster",
    "azure-native:monitor:DiagnosticSetting .name": "within the stack's own storage account",
    "azure-native:keyvault:Secret .secretName": "within the stack's own vault",
    "azure-native:monitor:ActionGroup .groupShortName": "shown in messages",
    "azure-native:network:FlowLog .networkWatcherName": "Azure's own, one in a region",
    "azure-native:operationalinsights:Table .(tableName|workspaceName)": "`up` refuses a workspace with the table",
    "azure-native:privatedns:PrivateRecordSet .privateZoneName": "an existing zone; records have the stack's name",
    "azure-native:.* .resourceGroupName": "an existing group, or Azure's own; names in it have digits",
    "azure-native:storage:BlobContainer .(accountName|resourceGroupName)": "the user's account of storage.source",
    "gcp:.* .(kmsKeyName|cryptoKeyName)": "an existing key; that of the stack is a reference",
    "gcp:monitoring/notificationChannel:NotificationChannel .displayName": "an address; many may have it",
    "gcp:storage/bucketObject:BucketObject .name": "within the stack's own bucket",
    "gcp:tags/tagValue:TagValue .shortName": "within the stack's own key",
    "openstack:compute/instance:Instance .(flavorName|imageName)": "the cloud's own",
    "pulumi-python:dynamic/gangway:QueuedTpuRequest .reservation_name": "the user's",
}
NAME_KEY = re.compile(r"\.(?:\w*[nN]ame|accountId|secretId|bucketId|queued_resource_id|repositoryId|instanceId|roleId)")


def texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a resource's inputs with its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from texts(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, f"{path}[]")
    elif isinstance(value, str):
        yield path, value


@cache
def planned(file: Path, project: str, folder: Path) -> tuple[str, Found]:
    """The identity of a shipped stack in a project, and every text that its plan hands to a cloud."""
    home = folder / project
    home.mkdir(exist_ok=True)
    (home / "Pulumi.yaml").write_text(f"name: {project}\nruntime: python\n", "utf-8")
    copied = home / f"Pulumi.{STACK}.yaml"
    copied.write_text(file.read_text("utf-8"), "utf-8")
    config = from_file(copied)
    resources = [resource for resource in make_plan(config).resources if resource.custom]
    assert {r.name for r in resources if r.type.startswith("pulumi:providers:")} <= {config.stack}
    found = ((get_place(r.inputs) + r.type, *each) for r in resources for each in texts({"": r.name, **r.inputs}))
    return config.stack, frozenset(found)


def get_place(inputs: Mapping[str, Any]) -> str:
    """What stands before a resource's type where it is in a group that the stack makes."""
    return OWN_GROUP if "${" in str(inputs.get("resourceGroupName", "")) else ""


def shared_names(one: Found, other: Found) -> set[tuple[str, str, str]]:
    """What is called the same in both, and is no part of something that is not."""
    names = {found for found in one & other if NAME_KEY.fullmatch(found[1]) and found[2]}
    return {found for found in names if not any(re.fullmatch(known, f"{found[0]} {found[1]}") for known in SHARED)}


QUICK = ("aws-g5-dev", "azure-nc-dev", "gcp-v5e-pod", "openstack-gpu")
"""One of each provider in every run, as each stack is planned twice."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, id=file.name, marks=() if file.stem.removeprefix("Pulumi.") in QUICK else pytest.mark.slow)
        for file in STACKS
    ],
)
def test_two_projects_share_nothing_of_a_stack(file: Path, tmp_path: Path) -> None:
    identity, one = planned(file, "speech", tmp_path)
    other_identity, other = planned(file, "vision", tmp_path)
    assert identity != other_identity
    assert any(identity in text for _, _, text in one)
    assert {found for found in one & other if STACK in found[2]} == set(), "made of the stack's name alone"
    assert shared_names(one, other) == set()
    # Nor does any filter, condition or tag hold the stack's bare name, which both have; some names take no dashes.
    spelled = [identity, identity.replace("-", "_"), identity.replace("-", "")[:AZURE_LETTERS]]
    bare = {(kind, path, reduce(lambda text, word: text.replace(word, ""), spelled, text)) for kind, path, text in one}
    assert {found for found in bare if STACK in found[2]} == set()


@given(PROJECTS, NAMES)
@example("one-two-three-four-five-six-seven", "test")  # cut at a dash
@example("...", "dev")
def test_every_identity_fits_every_name(project: str, stack: str) -> None:
    identity = stack_identity(project, stack)
    assert is_valid_identity(identity)
    assert len(identity) <= MAX_LENGTH
    assert project == "gangway" or "--" not in identity


def test_names_that_are_spelled_alike_stay_apart() -> None:
    pairs = [("a", "b-c"), ("a-b", "c"), ("gangway", "a-b-c"), ("gangway", "a-dev"), ("a", "dev"), ("A", "dev")]
    pairs += [("a", "a"), ("a-a", "a"), ("x" * 60, "dev"), ("x" * 61, "dev")]
    pairs += [("gangway", stack_identity(project, stack)) for project, stack in pairs if project != "gangway"]
    assert len({stack_identity(*pair) for pair in pairs}) == len(pairs)


def test_shipped_stacks_are_called_by_their_own_names() -> None:
    for file in STACKS:
        config = from_file(file)
        assert config.stack == config.stack_name == file.name.removeprefix("Pulumi.").removesuffix(".yaml")


def test_the_setting_keeps_former_names_and_either_identity_finds_the_file(tmp_path: Path, demo_file: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: vision\n", "utf-8")
    (tmp_path / "Pulumi.broken.yaml").write_text("config: [", "utf-8")
    path = tmp_path / "Pulumi.dev.yaml"
    path.write_text(demo_file.read_text("utf-8"), "utf-8")
    assert find_stack_file(stack_identity("vision", "dev"), tmp_path) == path
    path.write_text(demo_file.read_text("utf-8") + "  gangway:identity: former\n", "utf-8")
    config = from_file(path)
    assert (config.stack, config.stack_name) == ("former", "dev")
    assert find_stack_file("former", tmp_path) == path
    path.write_text(demo_file.read_text("utf-8") + "  gangway:identity: Former\n", "utf-8")
    with pytest.raises(ExceptionGroup) as raised:
        from_file(path)
    (mistake,) = raised.value.exceptions
    assert isinstance(mistake, InputError)
    assert (mistake.place, mistake.value) == (f"{path}: gangway:identity", "Former")


@pytest.mark.parametrize("text", ["", "name: [a]", "name: {", "- a", "\xff"])
def test_a_project_without_a_name_is_a_mistake(tmp_path: Path, text: str) -> None:
    (tmp_path / "Pulumi.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "Pulumi.yaml"))):
        project_name(tmp_path / "Pulumi.dev.yaml")


def test_a_stack_files_folder_belongs_to_the_project_above(tmp_path: Path) -> None:
    stacks = tmp_path / "stacks"
    stacks.mkdir()
    declared = {"name": "vision", "stackConfigDir": "stacks"}
    (tmp_path / "Pulumi.yaml").write_text(yaml.safe_dump(declared), "utf-8")
    assert project_name(stacks / "Pulumi.dev.yaml") == "vision"
    (tmp_path / "Pulumi.yaml").write_text("name: vision\n", "utf-8")
    assert project_name(stacks / "Pulumi.dev.yaml") == "gangway"


@given(st.text(max_size=60))
def test_a_folder_gives_its_first_stack_a_name_or_is_refused(folder: str) -> None:
    if any(each.isalpha() and not each.isascii() for each in without_accents(folder)):
        with pytest.raises(InputError, match="add --stack "):
            folder_stack(folder)
    else:
        assert is_valid_identity(folder_stack(folder))
