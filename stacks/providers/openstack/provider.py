"""OpenStack as a provider: what is known of it without its SDK."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from components.estimate.cost import Declared
from components.openstack.tags import header_tags
from stacks.providers.base import Program, Provider, TagRules
from stacks.providers.openstack.settings import SETTINGS

if TYPE_CHECKING:
    from stacks.providers.openstack.plan import OpenstackPlan

# A line for each module of the package: `module: Class Class`.
_TAGGABLE = """
    blockstorage: Volume
    compute: Instance
    images: Image
    loadbalancer: LoadBalancer
    networking: FloatingIp Network Port Router SecGroup Subnet
    objectstorage: Container
    sharedfilesystem: Share
"""
_CONTAINER = "openstack:objectstorage:Container"
# OpenStack's own word is `tags`; these have another.
_METADATA = (
    _CONTAINER,
    "openstack:blockstorage:Volume",
    "openstack:compute:Instance",
    "openstack:sharedfilesystem:Share",
)


def _program() -> "Program[OpenstackPlan]":
    from stacks.providers.openstack import program

    return program


def _in_headers(key: str) -> str:
    """A key as metadata of a container has it."""
    return next(iter(header_tags({key: ""})))


def _always(_resources: Sequence[Declared]) -> bool:
    """A machine that has shut itself down stays allocated."""
    return True


PROVIDER = Provider(
    name="openstack",
    sdk="pulumi-openstack",
    program=_program,
    settings=SETTINGS,
    tags=TagRules(
        package="openstack",
        types=_TAGGABLE,
        other_inputs=MappingProxyType(dict.fromkeys(_METADATA, "metadata")),
        spelled=MappingProxyType({_CONTAINER: _in_headers}),
    ),
    nodes_stay=_always,
    packages=("openstack",),
)
