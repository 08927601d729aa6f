"""The provider OpenStack: facts that need no SDK."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gangway.components.core.findings import InputError
from gangway.components.core.tags import header_tags
from gangway.components.openstack.retention import RETENTION
from gangway.stacks.base.provider import EXAMPLE_IMAGE, EXAMPLE_SITE, NodeTypes, Program, Provider, Start, TagRules
from gangway.stacks.config.provider_settings import plaintext_mistakes
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.openstack.existing import mistakes, provided
from gangway.stacks.providers.openstack.settings import SETTINGS, OpenstackConfig

if TYPE_CHECKING:
    from gangway.stacks.providers.openstack.plan import OpenstackPlan

# One line per module of the package: `module: Class Class`.
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
# Inputs that are not called `tags`.
_METADATA = (
    _CONTAINER,
    "openstack:blockstorage:Volume",
    "openstack:compute:Instance",
    "openstack:sharedfilesystem:Share",
)


def _program() -> "Program[OpenstackPlan]":
    from gangway.stacks.providers.openstack import program

    return program


def _mistakes(config: StackConfig) -> Iterator[InputError]:
    yield from _url_key_mistakes(config)
    yield from mistakes(config)


def _url_key_mistakes(config: StackConfig) -> Iterator[InputError]:
    section = config.find_section(OpenstackConfig)
    key = section.temp_url_key if section else None
    return plaintext_mistakes("openstack", "temp_url_key", key, "the key of an account", "the stack's own key")


PROVIDER = Provider(
    name="openstack",
    sdk="pulumi-openstack",
    program=_program,
    adapters={"live": "gangway.live.clouds.openstack", "preflight": "gangway.live.preflight.openstack"},
    has_regional_buckets=True,
    start=Start(
        "RegionOne",
        "gpu.h100x8",
        sections={
            "openstack": {
                "cloud": "lab",
                "auth_url": "https://cloud.example.com:5000/v3",
                "image": "ubuntu-24.04-nvidia-580",
                "external_network_id": "11111111-0000-4000-8000-111111111111",
            },
            "site": EXAMPLE_SITE,
            "network": {"egress": "nat"},
            "image": {"prebuilt": EXAMPLE_IMAGE},
        },
        questions={
            "openstack.auth_url": "Keystone's address",
            "openstack.image": "Image of the nodes",
            "openstack.external_network_id": "External network",
            "image.prebuilt": "The trainer's image",
        },
        shared={"storage": {"kind": "manila", "capacity_gib": 4096}, "head": {"machine_type": "m1.medium"}},
    ),
    instead_of_policies="Keystone's roles of the project limit the caller (on most clouds `member`), "
    "or access rules of an application credential",
    settings=SETTINGS,
    mistakes=_mistakes,
    existing=provided,
    retention=RETENTION,
    tags=TagRules(
        package="openstack",
        types=_TAGGABLE,
        other_inputs=dict.fromkeys(_METADATA, "metadata"),
        spelled={_CONTAINER: lambda key: next(iter(header_tags({key: ""})))},
    ),
    nodes=NodeTypes(
        machines=frozenset({"openstack:compute:Instance"}),
        # Nova resizes a server for another flavor, and rebuilds it with another image.
        restarting={"openstack:compute:Instance": ("flavorId", "flavorName", "imageId", "imageName")},
    ),
    nodes_stay=lambda _resources: True,  # machines stay allocated after shutdown
    packages=("openstack",),
)
