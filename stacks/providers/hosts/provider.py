"""Machines that are there already, as a provider: what is known of it without its SDK."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pulumi.runtime.config import is_config_secret

from components.core.findings import InputError
from stacks.config.stack_config import StackConfig
from stacks.providers.base import Program, Provider
from stacks.providers.hosts.settings import ENCRYPTED, SETTINGS

if TYPE_CHECKING:
    from stacks.providers.hosts.plan import HostsPlan


def _program() -> "Program[HostsPlan]":
    from stacks.providers.hosts import program

    return program


def _data(config: StackConfig) -> str | None:
    return config.hosts.data_dir if config.hosts else None


def _ssh_key(config: StackConfig) -> Iterator[InputError]:
    """A private key that stands in plain text. The value is a secret, and is not repeated."""
    key = config.hosts.private_key if config.hosts else None
    if key not in (None, ENCRYPTED) and not is_config_secret("gangway:hosts"):
        yield InputError(
            "gangway:hosts.private_key",
            "a private key in plain text",
            allowed="a secret of the stack; or none, for the keys of your SSH agent",
            fix="make a new key, and run `pulumi config set --path --secret gangway:hosts.private_key < KEYFILE`",
        )


PROVIDER = Provider(
    name="hosts",
    sdk="pulumi-command",
    program=_program,
    loads_by_name=False,
    settings=SETTINGS,
    mistakes=_ssh_key,
    own_data=_data,
)
