"""The tables of inputs that replace a resource: whole, true to the SDKs, and what each condition means."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from pulumi._types import input_type_py_to_pulumi_names

from gangway.components.catalog.replaces import FOLDER, Changed, load
from gangway.stacks.base.registry import all_providers, get_provider

REPOSITORY = Path(__file__).parents[4]
FSX = "aws:fsx:LustreFileSystem"


def inputs_of(kind: str) -> set[str]:
    """The names of a type's inputs on the wire, as the SDK declares them."""
    package, module, name = kind.split(":")
    sdk = importlib.import_module(f"pulumi_{package.replace('-', '_')}.{module.replace('lambda', 'lambda_')}")
    args = getattr(sdk, f"{name}InitArgs", None) or getattr(sdk, f"{name}Args")
    return set(input_type_py_to_pulumi_names(args).values())


def classified(provider: str) -> list[str]:
    """The types that the provider's components declare; test_retention.py compares them with the sources."""
    return sorted({type_ for each in get_provider(provider).retention.classes for type_ in each})


@pytest.mark.parametrize("provider", [one.name for one in all_providers() if one.retention.data])
def test_every_declared_type_is_in_a_table(provider: str) -> None:
    assert classified(provider)
    assert [kind for kind in classified(provider) if not load().knows(kind)] == []


@pytest.mark.parametrize("package", ["aws", "azure-native", "gcp", "openstack"])
def test_every_input_of_the_tables_is_one_of_the_sdk(package: str) -> None:
    table = load()
    kinds = [kind for kind in {*table.paths, *table.conditions} if kind.startswith(f"{package}:")]
    assert len(kinds) > 10
    for kind in kinds:
        listed = {*table.paths.get(kind, ()), *(i for one in table.conditions.get(kind, ()) for i in one.inputs)}
        listed |= {one.when for one in table.conditions.get(kind, ()) if not re.fullmatch("[a-z]+", one.when)}
        assert {re.split(r"[.#]", path)[0] for path in listed} <= inputs_of(kind), kind


def test_the_tables_stay_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.glob("*.yaml")) < 200_000


@pytest.mark.parametrize(
    ("kind", "changed", "inputs", "replaces"),
    [
        (FSX, Changed("storageCapacity", 19200, 9600), {}, True),
        (FSX, Changed("storageCapacity", 9600, 19200), {}, False),
        (FSX, Changed("fileSystemTypeVersion", "2.9", "2.15"), {}, False),
        (FSX, Changed("fileSystemTypeVersion", "2.15", "2.12"), {}, True),
        (FSX, Changed("metadataConfiguration.iops", 12000, 6000), {}, True),
        ("aws:eks:Cluster", Changed("encryptionConfig", None, {"a": 1}), {}, False),
        ("aws:eks:Cluster", Changed("encryptionConfig", {"a": 1}, None), {}, True),
        (FSX, Changed("kmsKeyId", "a", "b"), {}, True),
        (FSX, Changed("perUnitStorageThroughput", 250, 500), {}, False),
        ("aws:ec2:Instance", Changed("userData", "a", "b"), {}, False),
        ("aws:ec2:Instance", Changed("userData", "a", "b"), {"userDataReplaceOnChange": True}, True),
        ("aws:ec2:Vpc", Changed("cidrBlock", "10.0.0.0/16", "10.1.0.0/16"), {}, True),
        ("gcp:compute:Subnetwork", Changed("ipCidrRange", "10.0.0.0/20", "10.0.0.0/16"), {}, False),
        ("gcp:compute:Subnetwork", Changed("ipCidrRange", "10.0.0.0/16", "10.0.0.0/20"), {}, True),
        ("gcp:compute:Subnetwork", Changed("ipCidrRange", "10.0.0.0/16", "fd00::/64"), {}, True),
        ("gcp:storage:Bucket", Changed("location", "US", "EU"), {}, True),
        ("gcp:storage:Bucket", Changed("labels.team", "a", "b"), {}, False),
        ("azure-native:storagecache:AmlFilesystem", Changed("encryptionSettings", None, {"a": 1}), {}, True),
        ("azure-native:storagecache:AmlFilesystem", Changed("encryptionSettings.keyUrl", "a", "b"), {}, False),
        ("kubernetes:kueue.x-k8s.io:ClusterQueue", Changed("metadata.name", "a", "b"), {}, True),
        ("kubernetes:kueue.x-k8s.io:ClusterQueue", Changed("spec.cohort", "a", "b"), {}, False),
        ("pulumi-python:dynamic:QueuedTpuRequest", Changed("zone", "a", "b"), {}, True),
        ("pulumi-python:dynamic:QueuedTpuRequest", Changed("labels.team", "a", "b"), {}, False),
    ],
)
def test_what_replaces(kind: str, changed: Changed, inputs: dict[str, Any], replaces: bool) -> None:
    assert bool(load().replaces(kind, changed, inputs)) is replaces


def test_a_block_replaces_by_its_presence_and_by_the_inputs_of_it_that_do() -> None:
    kind = "gcp:compute:Instance"
    assert "bootDisk#" in load().paths[kind], "boot_disk has ForceNew"
    assert load().replaces(kind, Changed("bootDisk", None, {"autoDelete": True}), {})
    assert load().replaces(kind, Changed("bootDisk.initializeParams.image", "a", "b"), {})
    assert not load().replaces(kind, Changed("bootDisk.autoDelete", True, False), {})
    # A block without ForceNew, which brings an input that has it.
    assert load().replaces(kind, Changed("scheduling", None, {"preemptible": True}), {})
    assert not load().replaces(kind, Changed("scheduling", None, {"automaticRestart": True}), {})


def test_an_option_of_the_resource_replaces_too() -> None:
    changed = Changed("osProfile.customData", "a", "b")
    kind = "azure-native:compute:VirtualMachine"
    assert not load().replaces(kind, changed, {})
    assert load().replaces(kind, changed, {}, ["osProfile.customData"])
