"""What changes replace, in the plan of every stack: fixed names are free before they are used again, and tags replace
nothing. The engine tests' stand-ins know what a cloud cannot change in place, and how it makes ids.
"""

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest
from pulumi.runtime import register_stack_transformation

from gangway.components.core.findings import InputError
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.data_guard import DataGuard, delete_named_first
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import run_program
from gangway.stacks.program import build
from gangway.stacks.recording import PlaceholderCloud, PlannedResource, Recording, record

REPOSITORY = Path(__file__).parents[2]
STACKS = sorted(file.stem.removeprefix("Pulumi.") for file in (REPOSITORY / "stacks").glob("Pulumi.*.yaml"))
SERVICES = {"aws": "aws.Aws", "gcp": "gcp.Gcp", "azure-native": "azure.Azure", "openstack": "openstack.Openstack"}
# By type, where the program ignores a difference of tags once the resource exists.
IGNORED = {
    "gcp:compute/instance:Instance": "bootDisk.initializeParams.labels",
    "gcp:compute/instanceTemplate:InstanceTemplate": "disks[0].labels",
}
TAG_INPUTS = {"labels", "metadata", "resourceLabels", "tagSpecifications", "tags", "userLabels", "volumeTags"}


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


@pytest.mark.slow
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


def has_tags(type_: str, place: str) -> bool:
    """Whether tags may differ there: only those of a resource itself, which change in place."""
    if ignored := IGNORED.get(type_):
        return place.startswith(("labels.", f"{ignored}."))
    # What brings slices back asks for them with today's labels.
    return (type_, place) == ("gcp:storage/bucketObject:BucketObject", "content") or bool(
        {*re.split(r"[.\[]", place)} & TAG_INPUTS
    )


@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS)
def test_other_tags_change_tags_alone(
    stack: str, load_module: Callable[[Path], Any], recorded: Callable[[StackConfig], Recording]
) -> None:
    changes = load_module(REPOSITORY / "tests/engine/setting_changes.py")
    config = read(stack)
    tags = {"team": "vision", "cost_center": "4712", "owner": "somebody", "gangway-owner": "ann", "gangway_x": "y"}
    declared = (recorded(each).resources for each in (config, config.model_copy(update={"tags": tags})))
    differences = [each.split(" ") for each in changes.differences(*declared)]
    assert differences or config.provider == "hosts"
    for urn, place in differences:
        assert has_tags(urn.split("::")[2].rpartition("$")[2], place.lstrip(".")), (urn, place)


@pytest.mark.parametrize("inputs", [{}, {"forceDestroy": True}], ids=["kept", "scratch"])
def test_scratch_may_be_removed(inputs: Mapping[str, Any]) -> None:
    """Such as the bucket for a head's scripts, which a stack with one rung of capacity does not have."""
    urn = "urn:pulumi:demo::gangway::gangway:gcp:HeadFiles$gcp:storage/bucket:Bucket::demo-head"
    guard = DataGuard(
        get_provider("gcp").retention, (), {urn: {"type": "gcp:storage/bucket:Bucket", "outputs": inputs}}
    )
    if inputs:
        guard.check_removed()
    else:
        with pytest.raises(InputError, match="demo-head"):
            guard.check_removed()


def state_of(resources: Sequence[PlannedResource]) -> dict[str, dict[str, Any]]:
    """The state of a stack that has these resources."""
    return {one.urn: {"type": one.type, "outputs": one.inputs} for one in resources}


def guarded(config: StackConfig, state: Mapping[str, Any], allowed: Sequence[str] = ()) -> dict[str, Any]:
    """By name of each resource that may not be replaced: the refusal."""
    guard, found = DataGuard(get_provider(config.provider).retention, allowed, state), dict[str, str]()

    def watch(args: pulumi.ResourceTransformationArgs) -> None:
        result: Any = guard.watch(args)
        if result is None:
            return
        assert result.opts.delete_before_replace is False
        (hook,) = result.opts.hooks.before_create
        (urn,) = (urn for urn in state if urn.endswith(f"{args.type_}::{args.name}"))
        with pytest.raises(InputError, match="this change would replace") as refused:
            hook.callback(SimpleNamespace(urn=urn, name=args.name, type=args.type_))
        found[args.name] = str(refused.value)

    def program() -> Mapping[str, Any]:
        register_stack_transformation(watch)
        return build(config)

    record(program, PlaceholderCloud(), config.stack)
    guard.check_removed()
    return found


RETAINED = {
    "azure-ndv5-spot": {"azure-ndv5-spot-gangway", "azurendv5spot", "azure-ndv5-spot-runs"},
    "openstack-gpu": {"openstack-gpu-runs"},
    "aws-demo": set(),
}
COPIES = {
    "azure-ndv5-spot": "azure-ndv5-spot-lustre",
    "openstack-gpu": "openstack-gpu-share",
    "aws-demo": "aws-demo-lustre",
}


@pytest.mark.slow
@pytest.mark.parametrize("stack", RETAINED)
def test_a_retained_resource_is_not_replaced_by_an_empty_one(
    stack: str, recorded: Callable[[StackConfig], Recording]
) -> None:
    """Such as Azure's run account by another region. Its account for flow logs is none."""
    config = read(stack)
    state = state_of(recorded(config).resources)
    refusals = guarded(config, state)
    assert {name for name, text in refusals.items() if "go on with an empty one" in text} == RETAINED[stack]
    assert "would be lost" in refusals[COPIES[stack]]
    for name in RETAINED[stack]:
        assert f"write gangway:allow_replace: [{name}]" in refusals[name]
    assert guarded(config, state, tuple(refusals)) == {}
    assert guarded(config, {}) == {}


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["aws-demo", "azure-ndv5-spot", "gcp-a3-spot"])
def test_flow_logs_may_be_switched_off(stack: str, recorded: Callable[[StackConfig], Recording]) -> None:
    """They expire, and are no data: not on one cloud alone either."""
    config = read(stack)
    without = config.model_copy(update={"network": config.network.model_copy(update={"flow_logs": False})})
    state = state_of(recorded(config).resources)
    assert len(recorded(without).resources) < len(state) or stack.startswith("gcp"), "Google's are part of a subnet"
    assert guarded(without, state)
