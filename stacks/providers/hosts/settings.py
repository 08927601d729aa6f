"""The section gangway:hosts, and the common settings without effect on existing machines."""

import re
from ipaddress import IPv4Network, IPv6Address, ip_network
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, field_validator, model_validator

from gangway.components.core.blob_url import CONTAINER_PATTERN
from gangway.components.core.fields import Whole
from gangway.components.core.findings import InputError
from gangway.components.hosts.wireguard import tunnel_addresses
from gangway.stacks.config.provider_settings import Encrypted, OwnSection, ProviderSettings
from gangway.stacks.config.section import Section

# Algorithms that Pulumi's plugin can pin; servers no longer accept ssh-rsa.
_HOST_KEY = r"^(ssh-ed25519|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]{40,}={0,2}$"
HOST_KEY_EXAMPLE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFDYWOCYXsx/YEGKrwzFq1h/QsJXCohAlanozKzQ9lRc"  # an unused key
_ADDRESS = r"^[A-Za-z0-9]([A-Za-z0-9.:-]{0,252}[A-Za-z0-9])?$"
_FOLDER = r"^/[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$"
_NO_BILL = "these machines have no cloud bill, so nothing counts against the budget"
_NO_LOGS = "there is no log service: logs stay in the machines' journals"


def _check_address(value: str) -> str:
    """A name or a valid IP address: other numbers would fail only during `up`. One or two numbers may be a name in
    quotes, which YAML would read as a number.
    """
    parts = value.split(".")
    if len(parts) > 2 and value.replace(".", "").isdecimal():
        allowed = "four numbers from 0 to 255, such as 10.20.0.11"
        if len(parts) != 4 or "" in parts:
            raise ValueError(f"{allowed}; write all four numbers, or the machine's name")
        if too_large := [part for part in parts if int(part) > 255]:
            raise ValueError(f"{allowed}; {too_large[0]} is above 255: write the address of its SSH server")
        plain = ".".join(str(int(part)) for part in parts)
        if plain != value:
            raise ValueError(f"{allowed}, without zeros before them; write {plain}")
    elif ":" in value:
        try:
            IPv6Address(value)
        except ValueError as error:
            fix = "write it without the port, which has its own setting" if value.count(":") == 1 else "correct it"
            raise ValueError(f"an IPv6 address, or a name ({error}); {fix}") from None
    return value


def _check_address_text(value: Any) -> Any:
    """Refuses other text before the pattern does, whose fix would be an example address."""
    if not isinstance(value, str) or re.fullmatch(_ADDRESS, value):
        return value
    user, at, host = value.rpartition("@")
    if at and user and re.fullmatch(_ADDRESS, host):
        raise ValueError(f"a name or an IP address without the user, which has its own setting; write {host}")
    raise ValueError("a name or an IP address; write the address of its SSH server")


_Address = Annotated[str, Field(pattern=_ADDRESS), AfterValidator(_check_address), BeforeValidator(_check_address_text)]


def _check_network(value: str) -> str:
    """A network of IPv4 or IPv6, in its usual form."""
    try:
        plain = str(ip_network(value, strict=False))
    except ValueError as error:
        raise ValueError(f"a network ({error}); write it as 10.20.0.0/16") from None
    if plain != value:
        raise ValueError(f"a network without host bits; write {plain}")
    return value


_Network = Annotated[str, AfterValidator(_check_network)]


class HostConfig(Section):
    """One existing machine.

    Attributes:
        name: name of its resources; derived from the address if omitted.
        address: name or IP address of its SSH server.
        port: port of its SSH server.
        user: SSH user: root, or one with sudo without a password; `hosts.user` if omitted.
        host_key: public key of the SSH server, as `ssh-keyscan -t ed25519 ADDRESS` prints it after the address.
        accept_unknown_host_key: connect without checking the server's key; instead of host_key.
        cluster_address: address at which the other machines reach it; `address` if omitted.
    """

    name: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9-]{0,29}$", examples=["node-1"])
    address: _Address = Field(examples=["10.20.0.11"])
    port: Whole = Field(default=22, ge=1, le=65535)
    user: str | None = Field(default=None, pattern=r"^[a-z_][a-z0-9_.-]{0,31}$", examples=["gangway"])
    host_key: str | None = Field(default=None, pattern=_HOST_KEY, examples=[HOST_KEY_EXAMPLE])
    accept_unknown_host_key: StrictBool = False
    cluster_address: _Address | None = Field(default=None, examples=["10.30.0.11"])

    @model_validator(mode="after")
    def _check_host_key(self) -> Self:
        if self.host_key is None and not self.accept_unknown_host_key:
            raise ValueError(
                f"host_key, which identifies the machine; write what `ssh-keyscan -t ed25519 {self.address}` prints "
                "after the address, or accept_unknown_host_key: true"
            )
        if self.host_key is not None and self.accept_unknown_host_key:
            raise ValueError("host_key or accept_unknown_host_key, not both; remove accept_unknown_host_key")
        return self

    @property
    def label(self) -> str:
        """The name of its resources."""
        return self.name or self.address.lower().replace(".", "-").replace(":", "-")

    @property
    def reached_at(self) -> str:
        """The address at which other machines reach it."""
        return self.cluster_address or self.address


class WireguardConfig(Section):
    """WireGuard tunnels between the machines.

    Attributes:
        network: IPv4 network of the tunnels, otherwise unused; the machines get its first addresses, in order.
        port: UDP port of the tunnels.
    """

    network: _Network = Field(examples=["10.88.0.0/24"])
    port: Whole = Field(default=51820, ge=1, le=65535)

    @field_validator("network")
    @classmethod
    def _check_ipv4(cls, value: str) -> str:
        if ":" in value:
            raise ValueError("an IPv4 network; write one such as 10.88.0.0/24")
        return value


class HostsConfig(Section):
    """Existing machines, reached over SSH.

    Attributes:
        machines: the machines; the first also runs the rendezvous store.
        user: default SSH user.
        private_key: private key of the SSH user, a secret of the stack; keys of the SSH agent if omitted.
        container_engine: what runs the containers.
        run_store: where records are kept: a bucket for which the machines have credentials, or a folder on them.
        shared_dir: folder of a file system that all machines have mounted, for checkpoints.
        data_dir: folder of the training data on every machine, read-only.
        firewall: whether only the machines reach the job's ports, for rendezvous and metrics.
        firewall_sources: further networks that reach those ports, such as your Prometheus server's.
        wireguard: encrypt traffic between the machines; not encrypted if omitted.
    """

    machines: tuple[HostConfig, ...] = Field(
        min_length=1,
        max_length=512,
        examples=[[{"address": "10.20.0.11", "host_key": HOST_KEY_EXAMPLE}]],
    )
    user: str = Field(default="root", pattern=r"^[a-z_][a-z0-9_.-]{0,31}$", examples=["gangway"])
    private_key: Encrypted = None
    container_engine: Literal["docker", "podman"] = "docker"
    run_store: str = Field(
        pattern=rf"^((s3|gs)://[a-z0-9][a-z0-9._-]{{1,61}}[a-z0-9]|{CONTAINER_PATTERN}|/[A-Za-z0-9._-]+)"
        r"(/[A-Za-z0-9._-]+)*$",
        examples=["s3://my-bucket/runs", "/shared/gangway/results"],
    )
    shared_dir: str | None = Field(default=None, pattern=_FOLDER, examples=["/shared/gangway"])
    data_dir: str | None = Field(default=None, pattern=_FOLDER, examples=["/shared/data/celeba"])
    firewall: StrictBool = True
    firewall_sources: tuple[_Network, ...] = Field(default=(), max_length=64, examples=[["10.20.0.0/16"]])
    wireguard: WireguardConfig | None = None

    @model_validator(mode="after")
    def _check_unique(self) -> Self:
        for what in ("label", "address", "reached_at"):
            first: dict[str, int] = {}
            for number, machine in enumerate(self.machines):
                value = getattr(machine, what)
                if value in first:
                    raise _duplicate_error(machine, number, first[value], what, value)
                first[value] = number
        return self

    @model_validator(mode="after")
    def _check_tunnel_network(self) -> Self:
        if self.wireguard is not None and IPv4Network(self.wireguard.network).num_addresses - 2 < len(self.machines):
            raise InputError(
                "wireguard.network",
                f"has fewer addresses than the {len(self.machines)} machines",
                value=self.wireguard.network,
                allowed="an address for each machine, without the first and the last",
                fix="write a larger network, such as 10.88.0.0/22",
            )
        return self

    @property
    def job_addresses(self) -> tuple[str, ...]:
        """The addresses at which the job's machines reach each other, in order."""
        if self.wireguard is not None:
            return tunnel_addresses(self.wireguard.network, len(self.machines))
        return tuple(machine.reached_at for machine in self.machines)


def _duplicate_error(machine: HostConfig, number: int, first: int, what: str, value: str) -> InputError:
    """The error for a value that two machines share, at the second."""
    written = {"label": "name" if machine.name else "address", "address": "address"}
    key = written.get(what, "cluster_address" if machine.cluster_address else "address")
    return InputError(
        f"machines[{number}].{key}",
        f"duplicates that of machines[{first}]",
        value=value,
        allowed="unique names and addresses",
        fix=f"remove the second machine, or correct {value}",
    )


SETTINGS = ProviderSettings(
    own=OwnSection(
        "hosts",
        HostsConfig,
        holds="machines and run_store",
        example=f"{{machines: [{{address: 10.20.0.11, host_key: {HOST_KEY_EXAMPLE}}}], "
        "run_store: /shared/gangway/results}",
    ),
    reads_site=True,
    examples={"region": "lab", "cluster.machine_type": "dgx-h100", "cluster.capacity": [{"kind": "on-demand"}]},
    unsupported={
        "storage": "the machines mount their own file systems: see gangway:hosts.shared_dir and data_dir",
        "network": "the machines' network exists",
        "cluster.zone": "the machines have a fixed place",
        "cluster.image_id": "the machines keep their operating system",
        "cluster.image_refresh": "the machines keep their operating system",
        "cluster.root_volume_gib": "the machines keep their disks",
        "cluster.root_device_name": "the machines keep their disks",
        "cluster.breaker": "failed machines are not replaced",
        "cluster.idle_stop": "existing machines are not terminated",
        "cluster.machine_image": "the machines keep their operating system",
        "head.machine_type": "the first machine runs the rendezvous store",
        "observe.log_days": _NO_LOGS,
        "observe.no_steps_minutes": f"{_NO_LOGS}, and there are no alarms",
        "budget.stop_at_percent": _NO_BILL,
        "budget.activate_tag": "there is no bill by tags, so no tag to activate",
        "job.terminate_when_done": "existing machines are not terminated",
        "encryption": "the machines' disks keep their encryption",
    },
    data_setting="hosts.data_dir",
    nodes_can_leave=False,
    runs_commands=True,
    joins_commands=True,
    queues=("slurm",),
)
