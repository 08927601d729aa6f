"""What a provider says of stack files: its own section, which of the common settings it reads, in which spelling."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel


@dataclass(frozen=True)
class OwnSection:
    """The section that only this provider reads, `gangway:<name>`. `name`: its key; `model`: of what stands there;
    None in a stack of another provider; `holds`: what it has to hold, as the message says that misses it;
    `example`: the section as one writes it in a line of YAML.
    """

    name: str
    model: type[BaseModel]
    holds: str
    example: str


@dataclass(frozen=True)
class ObjectStore:
    """Where `storage.source` is. `scheme`: of its addresses; `folder`: how one is called there; `upload_command`: what
    copies a folder of this machine to an address; `keeps_name`: whether data that moves here from another cloud may
    keep its bucket's name.
    """

    scheme: str
    folder: str
    upload_command: Callable[[str, str], str]
    keeps_name: bool = True


@dataclass(frozen=True)
class ImageForm:
    """How `cluster.image_id` is written."""

    pattern: re.Pattern[str]
    example: str


@dataclass(frozen=True)
class Account:
    """Pulumi's own namespace of settings for the provider, which would choose another account than the stack file.
    `namespace`: such as `aws`, of keys such as `aws:profile`; `title`: the provider as people call it; `region_key`:
    the one key that may stand there, with the stack's region; `instead`: where people say whose account it is.
    """

    namespace: str
    title: str
    region_key: str
    instead: str


@dataclass(frozen=True)
class ProviderSettings:
    """One provider's part of the stack file.

    Attributes:
        own: its section; None where the common settings say all.
        reads_site: whether its machines are those that the stack file itself describes, in gangway:site.
        examples: config path -> what is shown there in place of the common example, which is AWS's.
        unsupported: config path -> why nothing reads it; a section, or a key of one that differs from its default.
        lacking: config path of a key -> why nobody misses it, where it is another provider's peculiarity.
        data_setting: where a stack names the data that the job trains on.
        image: how an image is written; None where `cluster.image_id` is unsupported.
        store: the object store; None where there is none of the provider's.
        storage_kinds: file systems it has, the usual one first; empty where storage is unsupported.
        account: Pulumi's own settings for it; None where a stack file has no use for them.
        has_slices: whether `cluster.topology` means something.
        deletes_runs: whether `keep_runs: false` of the job or the engine is heeded.
        nodes_can_leave: whether `job.terminate_when_done` is heeded.
        runs_commands: whether a job may be a command of one's own.
        joins_commands: whether it may be one on several nodes.
        queues: kinds of `engine` with a queue that it can be a cluster of.
        has_accounting: whether its Slurm can have a database of accounts, and with it teams.
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
