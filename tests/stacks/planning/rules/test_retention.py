"""The deletion order of data and of what protects it: over every shipped stack under either key, and with mistakes."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from components.core.findings import InputError
from stacks.config.loader import from_file
from stacks.planning.plan import run_program
from stacks.planning.recording import PlaceholderCloud, PlannedResource
from stacks.planning.rules.retention import unprotected
from stacks.planning.rules.rule import kind
from stacks.providers.registry import all_providers, provider_of

REPOSITORY = Path(__file__).resolve().parents[4]
STACKS = sorted(file.name.split(".")[1] for file in (REPOSITORY / "stacks").glob("Pulumi.*.yaml"))
OTHER_PACKAGES = {
    "command": "commands on machines that stay",
    "docker-build": "the image, in a registry that a provider has classified",
    "kubernetes": "objects of a cluster, which goes as a whole; volumes name file systems",
    "pulumi": "the engine's own",
    "pulumi-python": "dynamic resources: waits, exports and requests for machines",
}
Resources = tuple[PlannedResource, ...]


@cache
def declared(stack: str, encryption: str) -> Resources | None:
    """What a stack declares under one of the two kinds of key; None where it cannot be under that."""
    config = from_file(REPOSITORY / "stacks" / f"Pulumi.{stack}.yaml")
    try:
        changed = config.model_copy(update={"encryption": encryption})
        return run_program(changed, PlaceholderCloud()).resources
    except InputError:
        return None


def breaches(provider: str, resources: Resources) -> list[str]:
    return list(unprotected(provider_of(provider), resources))


@pytest.mark.parametrize("encryption", ["provider-key", "customer-key"])
@pytest.mark.parametrize("stack", STACKS)
def test_nothing_that_protects_data_goes_before_it(stack: str, encryption: str) -> None:
    resources = declared(stack, encryption)
    if resources is None:
        pytest.skip("this stack takes no key of its own")
    provider = provider_of(from_file(REPOSITORY / "stacks" / f"Pulumi.{stack}.yaml").provider)
    assert list(unprotected(provider, resources)) == []
    classified = {type_ for types in provider.retention.classes for type_ in types}
    kinds = {kind(one.type) for one in resources if one.custom}
    assert {one for one in kinds if one.partition(":")[0] not in OTHER_PACKAGES} <= classified
    if provider.retention.data:
        assert kinds & provider.retention.data.keys(), "there is data for the rule to look at"


def without(resources: Resources, of_kind: str, change: Callable[[PlannedResource], PlannedResource]) -> Resources:
    """The same resources, each of a kind changed."""
    assert any(kind(one.type) == of_kind for one in resources)
    return tuple(change(one) if kind(one.type) == of_kind else one for one in resources)


def forgotten(one: PlannedResource) -> PlannedResource:
    return replace(one, dependencies=frozenset())


def goes_first(one: PlannedResource) -> PlannedResource:
    return replace(one, deleted_with="", is_retained=False)


AZURE = [
    *("authorization:RoleAssignment", "keyvault:Key", "keyvault:Vault", "managedidentity:UserAssignedIdentity"),
    *("resources:ResourceGroup", "storage:BlobContainer", "storage:BlobServiceProperties", "storage:ManagementPolicy"),
    "storage:StorageAccount",
]
PLANTED = [
    ("aws-demo", "aws:s3:Bucket", forgotten, ["aws:kms:Alias", "aws:kms:Key", "aws:kms:KeyPolicy"]),
    *(
        ("aws-demo", f"aws:s3:{one}", goes_first, [f"aws:s3:{one}"])
        for one in (
            *("BucketLifecycleConfiguration", "BucketOwnershipControls", "BucketPolicy", "BucketPublicAccessBlock"),
            *("BucketServerSideEncryptionConfiguration", "BucketVersioning"),
        )
    ),
    ("gcp-a3-spot", "gcp:storage:Bucket", lambda one: replace(one, is_retained=True), ["gcp:kms:CryptoKey"]),
    *(("azure-ndv4", f"azure-native:{one}", goes_first, [f"azure-native:{one}"]) for one in AZURE),
    (
        "azure-ndv4",
        "azure-native:authorization:RoleAssignment",
        goes_first,
        ["azure-native:authorization:RoleAssignment"],
    ),
]


@pytest.mark.parametrize(("stack", "of_kind", "change", "named"), PLANTED)
def test_a_planted_mistake_is_found(
    stack: str, of_kind: str, change: Callable[[PlannedResource], PlannedResource], named: list[str]
) -> None:
    resources = declared(stack, "customer-key")
    assert resources is not None
    found = breaches(stack.partition("-")[0], without(resources, of_kind, change))
    assert found
    assert [one for one in named if not any(f"({one})" in text for text in found)] == []


def test_a_grant_that_the_data_does_not_wait_for_is_found() -> None:
    resources = declared("gcp-a3-spot", "customer-key")
    assert resources is not None
    grant = next(one for one in resources if kind(one.type) == "gcp:kms:CryptoKeyIAMMember")
    late = replace(grant, urn=f"{grant.urn}-late", name="late")
    assert breaches("gcp", (*resources, late)) == [
        "late (gcp:kms:CryptoKeyIAMMember) can be deleted while gcp-a3-spot-runs needs it"
    ]


def test_data_that_goes_with_its_content_needs_nothing() -> None:
    resources = declared("aws-demo", "customer-key")
    assert resources is not None
    scratch = without(resources, "aws:s3:Bucket", lambda one: replace(one, inputs={**one.inputs, "forceDestroy": True}))
    assert breaches("aws", tuple(map(goes_first, scratch))) == []


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
    classes = provider_of(provider).retention.classes
    types = [type_ for each in classes for type_ in each]
    assert len(types) == len(set(types))
    assert all(reason for each in classes for reason in each.values())
    known = {type_.partition(":")[2] for type_ in types}
    made = set(constructors(REPOSITORY / "components" / provider))
    # Not resources: an enumeration of Azure's SDK.
    assert made - known == ({"storagecache:MaintenanceDayOfWeekType"} if provider == "azure" else set())
