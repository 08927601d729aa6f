"""What replaces what, by the plan of every stack: fixed names are free before they are used again; tags replace none.

What a cloud cannot change on a living resource, and what ids are made of, the engine tests' stand-ins say.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime import register_stack_transformation

from stacks.config.loader import from_file
from stacks.config.stack_config import StackConfig
from stacks.data_guard import delete_named_first
from stacks.planning.plan import run_program
from stacks.planning.recording import PlaceholderCloud, PlannedResource, Recording, _is_secret, record
from stacks.program import build

REPOSITORY = Path(__file__).parents[2]
STACKS = sorted(file.stem.removeprefix("Pulumi.") for file in (REPOSITORY / "stacks").glob("Pulumi.*.yaml"))
SERVICES = {"aws": "aws.Aws", "gcp": "gcp.Gcp", "azure-native": "azure.Azure", "openstack": "openstack.Openstack"}
# By type, where a difference of tags is ignored once the thing is made: tests/engine/test_tags.py.
IGNORED = {
    "gcp:compute/instance:Instance": "bootDisk.initializeParams.labels",
    "gcp:compute/instanceTemplate:InstanceTemplate": "disks[0].labels",
}
TAG_INPUTS = ("labels", "metadata", "resourceLabels", "tagSpecifications", "tags", "userLabels", "volumeTags")


@pytest.fixture(scope="module")
def services() -> Iterator[Mapping[str, Any]]:
    """The stand-ins by package."""
    sys.path.insert(0, str(REPOSITORY / "tests/engine"))
    try:
        names = {package: path.split(".") for package, path in SERVICES.items()}
        yield {
            package: getattr(importlib.import_module(f"standin.{module}"), name)()
            for package, (module, name) in names.items()
        }
    finally:
        sys.path.remove(str(REPOSITORY / "tests/engine"))


def read(stack: str) -> StackConfig:
    return from_file(REPOSITORY / f"stacks/Pulumi.{stack}.yaml")


def collides(resource: PlannedResource, services: Mapping[str, Any]) -> str:
    """An input that replaces the resource by one of the same id; empty where there is none."""
    service = services.get(resource.type.partition(":")[0])
    if service is None or not resource.custom:
        return ""

    def identified(inputs: Mapping[str, Any]) -> str:
        return str(service.identify(resource.type, resource.name, inputs))

    try:
        fixed = identified(resource.inputs) == identified(resource.inputs)
    except KeyError:  # the plugin gives it a name, another one each time
        return ""
    if not fixed or service.goes_first(resource.inputs):
        return ""
    replacing = sorted(service.replaced(resource.type) & resource.inputs.keys())
    same = (key for key in replacing if identified({**resource.inputs, key: "other"}) == identified(resource.inputs))
    return next(same, "")


@pytest.mark.parametrize("stack", STACKS)
def test_a_fixed_name_is_free_before_it_is_taken_again(stack: str, services: Mapping[str, Any]) -> None:
    config = read(stack)

    def program() -> Mapping[str, Any]:
        register_stack_transformation(delete_named_first)
        return build(config)

    declared = record(program, PlaceholderCloud(), stack).resources
    late = {one.urn: collides(one, services) for one in declared if not one.delete_before_replace}
    assert not {urn: key for urn, key in late.items() if key}


def test_the_rule_finds_what_is_made_first(services: Mapping[str, Any]) -> None:
    declared = run_program(read("gcp-v5p-multislice"), PlaceholderCloud()).resources
    secrets = [one for one in declared if one.type == "gcp:secretmanager/secret:Secret"]
    assert {collides(secret, services) for secret in secrets} == {"replication"}, "if it were made first"


def test_an_option_that_is_written_counts() -> None:
    class Named(pulumi.CustomResource):
        def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
            super().__init__("aws:ec2/vpc:Vpc", name, {"name": "fixed" if name != "free" else None}, opts)

    def program() -> Mapping[str, Any]:
        register_stack_transformation(delete_named_first)
        Named("first")
        Named("written", pulumi.ResourceOptions(delete_before_replace=False))
        Named("free")
        return {}

    declared = record(program, PlaceholderCloud(), "test").resources
    assert {one.name: one.delete_before_replace for one in declared} == {"first": True, "free": False, "written": False}


def places(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Where two values differ. Secrets are made anew each time."""
    if _is_secret(old) and _is_secret(new):
        return
    if isinstance(old, pulumi.AssetArchive):
        old, new = old.assets, new.assets
    if isinstance(old, pulumi.StringAsset):
        old, new = old.text, new.text
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from places(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from places(before, after, f"{path}[{index}]")
    elif old != new:
        yield path


def has_tags(type_: str, place: str) -> bool:
    """Whether tags are what stands there: only those of a resource itself, which change in place."""
    if ignored := IGNORED.get(type_):
        return place.startswith(("labels.", f"{ignored}."))
    steps = [step.partition("[")[0] for step in place.split(".")]
    # What brings slices back asks for them with today's labels.
    return any(step in TAG_INPUTS for step in steps) or (type_, place) == (
        "gcp:storage/bucketObject:BucketObject",
        "content",
    )


@pytest.mark.parametrize("stack", STACKS)
def test_other_tags_change_tags_alone(stack: str) -> None:
    config = read(stack)
    tags = {"team": "vision", "cost_center": "4712", "owner": "somebody"}
    before, after = recorded(config), recorded(config.model_copy(update={"tags": tags}))
    old, new = ({one.urn: one for one in recording.resources} for recording in (before, after))
    assert old.keys() == new.keys()
    others = {
        (one.type, place)
        for urn, one in old.items()
        for place in places(one.inputs, new[urn].inputs)
        if not has_tags(one.type, place)
    }
    assert not others


def recorded(config: StackConfig) -> Recording:
    return run_program(config, PlaceholderCloud())
