"""The deletion order of data and its protections: in every shipped stack with either key, and with planted mistakes."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime import register_stack_transformation

from gangway.components.core.findings import InputError
from gangway.components.core.lookup import choice_name
from gangway.stacks.base.registry import all_providers, get_provider
from gangway.stacks.base.rule import kind
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan import plan
from gangway.stacks.plan.rules.guardrails import PROTECTION_ORDER, protection_breaches
from gangway.stacks.program import build
from gangway.stacks.recording import PlaceholderCloud, PlannedResource

REPOSITORY = Path(__file__).resolve().parents[4]
STACKS = sorted(file.name.split(".")[1] for file in (REPOSITORY / "stacks").glob("Pulumi.*.yaml"))
OTHER_PACKAGES = ("command", "docker-build", "kubernetes", "pulumi", "pulumi-python")
"""They hold no data of their own: volumes of Kubernetes name file systems, images are in a registry."""
Resources = tuple[PlannedResource, ...]


def config_of(stack: str, encryption: str) -> StackConfig:
    return from_file(REPOSITORY / f"stacks/Pulumi.{stack}.yaml").model_copy(update={"encryption": encryption})


@cache
def declared(stack: str, encryption: str = "customer-key") -> Resources:
    return plan.run_program(config_of(stack, encryption), PlaceholderCloud()).resources


def breaches(stack: str, resources: Resources) -> list[str]:
    return list(protection_breaches(get_provider(config_of(stack, "provider-key").provider).retention, resources))


@pytest.mark.slow
@pytest.mark.parametrize("encryption", [pytest.param("provider-key", marks=pytest.mark.slow), "customer-key"])
@pytest.mark.parametrize("stack", STACKS)
def test_no_protection_of_data_is_deleted_before_it(stack: str, encryption: str) -> None:
    try:
        resources = declared(stack, encryption)
    except InputError:
        pytest.skip("this stack takes no key of its own")
    assert breaches(stack, resources) == []
    provider = get_provider(config_of(stack, encryption).provider)
    retention, has_data = provider.retention, stack not in ("aws-existing", "azure-existing")
    kinds = {kind(one.type) for one in resources if one.custom}
    classified = {type_ for types in retention.classes for type_ in types}
    assert {one for one in kinds if one.partition(":")[0] not in OTHER_PACKAGES} <= classified
    assert not retention.keys or choice_name(stack) in {one.name for one in resources}
    assert not retention.data or not has_data or kinds & retention.data.keys(), "there is data for the rule to look at"


@pytest.mark.parametrize(
    ("stack", "type_", "options", "found"),
    [
        ("aws-demo", "aws:s3/bucketPolicy:BucketPolicy", {"deleted_with": None}, "is deleted before aws-demo-runs"),
        ("gcp-a3-spot", "gcp:storage/bucket:Bucket", {"retain_on_delete": True}, "while gcp-a3-spot-runs needs it"),
        ("azure-ndv4", "azure-native:keyvault:Vault", {"retain_on_delete": False}, "while azure-ndv4-runs needs it"),
    ],
)
def test_a_mistake_in_a_program_is_an_error_of_its_plan(
    monkeypatch: pytest.MonkeyPatch, stack: str, type_: str, options: Mapping[str, Any], found: str
) -> None:
    """OpenStack's container has no key and no protection that is a resource of its own."""

    def mistaken(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult:
        for name, value in options.items() if args.type_ == type_ else ():
            setattr(args.opts, name, value)
        return pulumi.ResourceTransformationResult(args.props, args.opts)

    def program(*args: Any) -> Mapping[str, Any]:
        register_stack_transformation(mistaken)
        return build(*args)

    monkeypatch.setattr(plan, "build", program)
    (error,) = plan.make_plan(config_of(stack, "customer-key")).errors
    assert error.code == PROTECTION_ORDER.code
    assert found in error.message


def changed(stack: str, of_kind: str, change: Callable[[PlannedResource], PlannedResource]) -> Resources:
    """A stack's resources, each of a kind changed."""
    assert any(kind(one.type) == of_kind for one in declared(stack))
    return tuple(change(one) if kind(one.type) == of_kind else one for one in declared(stack))


def goes_first(one: PlannedResource) -> PlannedResource:
    return replace(one, deleted_with="", is_retained=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "classes"),
    [("aws-demo", ["protections"]), ("azure-ndv4", ["data", "holders", "protections", "keys", "surroundings"])],
)
def test_each_kind_that_loses_its_protection_is_found(stack: str, classes: list[str]) -> None:
    retention = get_provider(stack.partition("-")[0]).retention
    for each in (type_ for name in classes for type_ in getattr(retention, name)):
        assert any(f"({each})" in text for text in breaches(stack, changed(stack, each, goes_first))), each


def test_a_bucket_that_does_not_wait_for_its_key_is_found() -> None:
    found = breaches(
        "aws-demo", changed("aws-demo", "aws:s3:Bucket", lambda one: replace(one, dependencies=frozenset()))
    )
    for each in ("Alias", "Key", "KeyPolicy"):
        assert any(f"(aws:kms:{each})" in text for text in found), each


@pytest.mark.slow
def test_a_grant_that_the_data_does_not_wait_for_is_found() -> None:
    resources = declared("gcp-a3-spot")
    grant = next(one for one in resources if kind(one.type) == "gcp:kms:CryptoKeyIAMMember")
    late = replace(grant, urn=f"{grant.urn}-late", name="late")
    assert breaches("gcp-a3-spot", (*resources, late)) == [
        "late (gcp:kms:CryptoKeyIAMMember) can be deleted while gcp-a3-spot-runs needs it"
    ]


def test_data_that_is_deleted_with_its_content_needs_no_protection() -> None:
    scratch = changed(
        "aws-demo", "aws:s3:Bucket", lambda one: replace(one, inputs={**one.inputs, "forceDestroy": True})
    )
    assert breaches("aws-demo", tuple(map(goes_first, scratch))) == []


def constructors(folder: Path) -> Iterator[str]:
    """`module.Class` of each resource that the components of a folder make."""
    for file in folder.rglob("*.py"):
        source = file.read_text("utf-8")
        imported = re.findall(r"from pulumi_\w+ import (?:\(([^)]*)\)|(.+))", source)
        modules = {name.strip() for names in imported for name in "".join(names).split(",")}
        for module, name in re.findall(r"\b(\w+)\.([A-Z]\w+)\(", source):
            if module in modules and not name.endswith("Args"):
                yield f"{module.removesuffix('_')}:{name}"


@pytest.mark.parametrize("provider", [one.name for one in all_providers() if one.retention.data])
def test_every_type_that_components_make_is_classified_once(provider: str) -> None:
    classes = get_provider(provider).retention.classes
    types = [type_ for each in classes for type_ in each]
    assert len(types) == len(set(types))
    assert all(reason for each in classes for reason in each.values())
    known = {type_.partition(":")[2] for type_ in types}
    made = set(constructors(REPOSITORY / "components" / provider))
    # Not resources: an enumeration of Azure's SDK.
    assert made - known == ({"storagecache:MaintenanceDayOfWeekType"} if provider == "azure" else set())
