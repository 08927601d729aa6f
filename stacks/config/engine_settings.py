"""What runs a stack's jobs: systemd units for the job of its file, or a Slurm or Kubernetes cluster with queues."""

import re
from ipaddress import IPv4Network
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, StrictBool, field_validator, model_validator

from gangway.components.core.fields import PositiveWhole, Whole
from gangway.stacks.config.section import Section


def _check_range(text: str) -> str:
    """Accepts an IPv4 range other than 0.0.0.0/0."""
    try:
        found = IPv4Network(text)
    except ValueError:
        found = None
    if found is None or found.prefixlen == 0:
        raise ValueError("a range such as 203.0.113.0/24, not the whole internet; write the range of your network")
    return text


_Range = Annotated[str, AfterValidator(_check_range)]
MAIN_QUEUE = "main"
"""The queue of a stack without teams."""


class SystemdConfig(Section):
    """No queue: systemd units on the nodes run the job of the stack file.

    Attributes:
        kind: what runs jobs.
    """

    has_queue: ClassVar[bool] = False

    kind: Literal["systemd"] = "systemd"


class TeamConfig(Section):
    """A team that shares the cluster.

    Attributes:
        name: name of the team and of its queue.
        nodes: guaranteed nodes; the team may use more while they are free.
        max_nodes: most nodes it may use at once; all of the cluster if omitted.
    """

    name: str = Field(pattern=r"^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$", examples=["vision"])
    nodes: Whole = Field(ge=0, le=512, examples=[4])
    max_nodes: PositiveWhole | None = Field(default=None, examples=[6])

    @model_validator(mode="after")
    def _check_max_nodes(self) -> Self:
        if self.max_nodes is not None and self.max_nodes < self.nodes:
            raise ValueError(f"max_nodes of at least nodes, {self.nodes}; write max_nodes: {self.nodes} or more")
        return self


_LINUX_USER = re.compile(r"[a-z][a-z0-9_-]{0,30}")
_FIRST_UID, _LAST_UID = 20_000, 59_999
"""Above the UIDs of Ubuntu's users and the trainer, below those of systemd and of user namespaces."""
_SYSTEM_NAMES = frozenset({
    "adm", "admin", "audio", "backup", "bin", "cdrom", "chrony", "crontab", "daemon", "dialout", "dip", "disk",
    "dnsmasq", "docker", "ec2-instance-connect", "ec2-user", "fax", "floppy", "fwupd-refresh", "games",
    "gangway", "input", "irc", "kmem", "kvm", "landscape", "list", "lp", "lxd", "mail", "man", "messagebus",
    "munge", "mysql", "netdev", "news", "nobody", "nogroup", "nvidia-persistenced", "operator", "plugdev",
    "polkitd", "pollinate", "proxy", "render", "root", "sasl", "sgx", "shadow", "slurm", "src", "ssh", "sshd",
    "ssm-user", "staff", "sudo", "sync", "sys", "syslog", "systemd-network", "systemd-resolve",
    "systemd-timesync", "tape", "tcpdump", "tss", "tty", "ubuntu", "users", "utmp", "uucp", "uuidd", "video",
    "voice", "www-data",
})  # fmt: skip
"""Users and groups of the machines' images and of installed packages."""


class SlurmTeamConfig(TeamConfig):
    """A team of a Slurm cluster: an account.

    Attributes:
        users: Linux users who may submit, each with a UID from 20000 to 59999, the same on all machines. Never reuse a
            former user's UID: it owns files on the file system.
    """

    users: dict[str, Whole] = Field(default={}, max_length=200, examples=[{"ann": 20001}])

    @field_validator("users")
    @classmethod
    def _check_users(cls, users: dict[str, int]) -> dict[str, int]:
        for name, uid in users.items():
            if not _LINUX_USER.fullmatch(name):
                raise ValueError(
                    f"names of at most 31 lowercase letters, digits, - and _, starting with a letter; rename {name!r}"
                )
            if name in _SYSTEM_NAMES:
                raise ValueError(f"names that are not used by the machines' system, as {name} is; rename it")
            if not _FIRST_UID <= uid <= _LAST_UID:
                raise ValueError(f"UIDs from {_FIRST_UID} to {_LAST_UID}, but {name} has {uid}; change it")
        if len(set(users.values())) < len(users):
            raise ValueError("a different UID for each user; change one of the duplicates")
        return users


class _Queue(Section):
    """A cluster with queues.

    Attributes:
        kind: what runs jobs.
        idle_minutes: nodes above cluster.nodes.min are removed after this time without a job.
        teams: teams with quotas; one queue, `main`, if omitted.
        keep_runs: false lets `destroy` delete the run bucket with all its records.
    """

    has_queue: ClassVar[bool] = True

    idle_minutes: Whole = Field(default=15, ge=1, le=1440)
    teams: tuple[TeamConfig, ...] = Field(default=(), max_length=50, examples=[[{"name": "vision", "nodes": 4}]])
    keep_runs: StrictBool = True

    @model_validator(mode="after")
    def _check_teams(self) -> Self:
        names = self.queues
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"each team once; remove one of the entries for {twice[0]}")
        return self

    @property
    def queues(self) -> list[str]:
        """Names of the queues that jobs are submitted to."""
        return [team.name for team in self.teams] or [MAIN_QUEUE]


class SlurmConfig(_Queue):
    """A Slurm cluster: the controller on the head node, a partition per rung.

    Attributes:
        accounting: whether to run slurmdbd with MariaDB on the head, for usage per user and quotas.
        teams: teams with quotas and users.
    """

    kind: Literal["slurm"]
    accounting: StrictBool = False
    teams: tuple[SlurmTeamConfig, ...] = Field(
        default=(), max_length=50, examples=[[{"name": "vision", "nodes": 4, "users": {"ann": 20001}}]]
    )

    @model_validator(mode="after")
    def _check_uids(self) -> Self:
        uids: dict[str, int] = {}
        for name, uid in (user for team in self.teams for user in team.users.items()):
            if uids.setdefault(name, uid) != uid:
                raise ValueError(f"one UID for each user, but {name} has {uids[name]} and {uid}; write one of them")
        names: dict[int, str] = {}
        for name, uid in uids.items():
            if names.setdefault(uid, name) != name:
                raise ValueError(f"a different UID for each user, but {names[uid]} and {name} have {uid}; change one")
        return self


class KubernetesConfig(_Queue):
    """A Kubernetes cluster with JobSet and Kueue.

    Attributes:
        version: Kubernetes version; if omitted, the newest that this release knows the provider to offer.
        api_cidrs: address ranges that may reach the Kubernetes API; only the stack's network if omitted.
    """

    kind: Literal["kubernetes"]
    version: str | None = Field(default=None, pattern=r"^1\.[0-9]{2}$", examples=["1.35"])
    api_cidrs: tuple[_Range, ...] = Field(default=(), max_length=40, examples=[["203.0.113.0/24"]])


AnyEngine = Annotated[SystemdConfig | SlurmConfig | KubernetesConfig, Field(discriminator="kind")]
