"""A provider's part of the stack file: its section, with secrets, and which common settings it reads."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator

from gangway.components.core.findings import InputError


@dataclass(frozen=True)
class OwnSection:
    """The section `gangway:<name>` that only this provider reads. `holds`: its keys; `example`: one line of YAML."""

    name: str
    model: type[BaseModel]
    holds: str
    example: str
    is_required: bool = True


@dataclass(frozen=True)
class ObjectStore:
    """The store of `storage.source`. `keeps_name`: whether data from another cloud may keep its bucket's name."""

    scheme: str
    folder: str
    upload_command: Callable[[str, str], str]
    keeps_name: bool = True


@dataclass(frozen=True)
class ImageForm:
    """The form of `cluster.image_id`."""

    pattern: re.Pattern[str]
    example: str


@dataclass(frozen=True)
class Account:
    """Pulumi's own settings for the provider, which could select another account. `region_key`: the one allowed key."""

    namespace: str
    title: str
    region_key: str
    instead: str


@dataclass(frozen=True)
class ProviderSettings:
    """One provider's part of the stack file.

    Attributes:
        reads_site: whether the stack file describes its machines, in gangway:site.
        examples: config path -> an example that replaces the common one, which is AWS's.
        unsupported: config path of a section or key -> why it has no effect.
        lacking: config path of a key of other providers -> why it is not available here.
        image: the form of images; None if `cluster.image_id` is unsupported.
        storage_kinds: its file systems, the default first; empty if storage is unsupported.
        deletes_runs: whether `keep_runs: false` of the job or the engine has an effect.
        nodes_can_leave: whether `job.terminate_when_done` has an effect.
        runs_commands: whether a job may be a custom command.
        has_accounting: whether its Slurm can have an accounting database, which teams require.
    """

    own: OwnSection | None = None
    reads_site: bool = False
    examples: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    unsupported: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    lacking: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    data_setting: str = "storage.source"
    image: ImageForm | None = None
    store: ObjectStore | None = None
    storage_kinds: tuple[str, ...] = ()
    account: Account | None = None
    has_slices: bool = False
    deletes_runs: bool = False
    nodes_can_leave: bool = True
    runs_commands: bool = False
    joins_commands: bool = False
    queues: tuple[str, ...] = ()
    has_accounting: bool = False


ENCRYPTED = "[encrypted in the stack file]"
"""Replaces a secret that only the engine can decrypt."""


# Pulumi writes secrets into the stack file as `{secure: ...}`.
Encrypted = Annotated[
    str | None,
    BeforeValidator(lambda value: ENCRYPTED if isinstance(value, dict) and set(value) == {"secure"} else value),
]
"""A setting that must be encrypted; None if omitted."""


def plaintext_mistakes(
    section: str, setting: str, value: str | None, what: str, otherwise: str
) -> Iterator[InputError]:
    """A mistake, which never repeats `value`, if a secret is in plain text. `otherwise`: used without the setting."""
    if value in (None, ENCRYPTED):
        return
    from pulumi.runtime.config import is_config_secret  # takes a third of a second, and few stacks have secrets

    if not is_config_secret(f"gangway:{section}"):
        yield InputError(
            f"gangway:{section}.{setting}",
            f"{what} in plain text",
            allowed=f"a secret of the stack; or leave it out to use {otherwise}",
            fix=f"make a new key, and run `pulumi config set --path --secret gangway:{section}.{setting} < KEYFILE`",
        )
