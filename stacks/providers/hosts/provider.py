"""Machines that are there already, as a provider: what is known of it without its SDK."""

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING

from components.core.findings import InputError
from stacks.base.provider import NodeTypes, Program, Provider
from stacks.base.start import EXAMPLE_IMAGE, EXAMPLE_SITE, Start
from stacks.config.secret_values import in_plain_text
from stacks.config.stack_config import StackConfig
from stacks.providers.hosts.queue_settings import slurm_mistakes
from stacks.providers.hosts.settings import SETTINGS, HostsConfig

if TYPE_CHECKING:
    from stacks.providers.hosts.plan import HostsPlan


def _program() -> "Program[HostsPlan]":
    from stacks.providers.hosts import program

    return program


def _data(config: StackConfig) -> str | None:
    section = config.find_section(HostsConfig)
    return section.data_dir if section else None


def _mistakes(config: StackConfig) -> Iterator[InputError]:
    """A private key that stands in plain text, and what a queue does not go with."""
    section = config.find_section(HostsConfig)
    key = section.private_key if section else None
    yield from in_plain_text("hosts", "private_key", key, "a private key", "the keys of your SSH agent")
    yield from slurm_mistakes(config)


PROVIDER = Provider(
    name="hosts",
    sdk="pulumi-command",
    program=_program,
    start=Start(
        "lab",
        "dgx-h100",
        sections={
            "hosts": {
                "user": "gangway",
                "machines": [
                    {
                        "address": "10.20.0.11",
                        "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAyVss5jfKvNG9nAyvFya7awnZkQEwORPXLntYc4gg4R",
                    }
                ],
                "run_store": "/shared/gangway/results",
            },
            "site": EXAMPLE_SITE,
            "image": {"prebuilt": EXAMPLE_IMAGE},
        },
        questions={
            "hosts.machines.0.address": "Address of the machine",
            "hosts.machines.0.host_key": "Its SSH key (ssh-keyscan -t ed25519 ADDRESS)",
            "hosts.run_store": "Where records are kept",
            "image.prebuilt": "The trainer's image",
        },
        job={},  # nothing ends existing machines
    ),
    loads_by_name=False,
    settings=SETTINGS,
    mistakes=_mistakes,
    own_data=_data,
    # A host's service is started anew by every command that changes.
    nodes=NodeTypes(
        machines=frozenset({"command:remote:Command"}),
        restarting=MappingProxyType({"command:remote:Command": ("*",)}),
    ),
)
