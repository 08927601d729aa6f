"""Existing resources of a stack on OpenStack: mistakes in the stack file, and what must be true of the resources."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from gangway.components.core.findings import InputError
from gangway.stacks.config.provider_settings import plaintext_mistakes
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.openstack.settings import ExistingConfig, OpenstackConfig

PATH = "gangway:openstack.existing"


def get_existing(config: StackConfig) -> ExistingConfig:
    """The section, empty by default."""
    return config.section(OpenstackConfig).existing


def provided(config: StackConfig) -> dict[str, str]:
    """Config path -> id or name of each existing resource."""
    existing = get_existing(config)
    groups, credential = existing.security_groups, existing.application_credential
    names = {
        "network_id": existing.network_id,
        "subnet_id": existing.subnet_id,
        "security_groups.fabric": None if groups is None else groups.fabric,
        "security_groups.head": None if groups is None else groups.head,
        "share_name": existing.share_name,
        "application_credential.id": None if credential is None else credential.id,
        "run_container": existing.run_container,
    }
    return {f"{PATH}.{key}": name for key, name in names.items() if name is not None}


def mistakes(config: StackConfig) -> Iterator[InputError]:
    """What is wrong with the section by itself and next to the rest of the file."""
    existing = get_existing(config)
    yield from _network_mistakes(config, existing)
    yield from _share_mistakes(config, existing)
    credential = existing.application_credential
    if credential is not None and credential.secret is None:
        fix = "make one: openstack application credential create; then `pulumi config set --path --secret ...`"
        yield _missing("application_credential.secret", "it is required with the id", fix)
    elif credential is not None:
        setting, otherwise = "existing.application_credential.secret", "a credential that the stack makes"
        yield from plaintext_mistakes("openstack", setting, credential.secret, "the secret of a credential", otherwise)


def _missing(key: str, allowed: str, fix: str) -> InputError:
    return InputError(f"{PATH}.{key}", "missing", allowed=allowed, fix=fix)


def _network_mistakes(config: StackConfig, existing: ExistingConfig) -> Iterator[InputError]:
    own = config.section(OpenstackConfig)
    keys = ("network_id", "subnet_id", "machine_cidr")
    written = [key for key in keys if getattr(existing, key) is not None]
    for key in keys if written else ():
        if key not in written:
            yield _missing(key, f"it is required with {written[0]}", f"add {key}, or leave {written[0]} out")
    if existing.network_id is None and own.external_network_id is None:
        yield InputError(
            "gangway:openstack.external_network_id",
            "missing",
            allowed="it is required unless the stack uses an existing network",
            fix="add external_network_id, from `openstack network list --external`",
        )
    if existing.network_id is not None and own.external_network_id is not None:
        yield InputError(
            "gangway:openstack.external_network_id",
            "of no effect with an existing network, whose router is not the stack's",
            value=own.external_network_id,
            allowed=f"only without {PATH}.network_id",
            fix="leave external_network_id out",
        )
    if existing.security_groups is not None and existing.network_id is None:
        yield InputError(
            f"{PATH}.security_groups",
            "the groups' rules do not know a network that the stack makes",
            allowed="only with network_id",
            fix="leave security_groups out, or name the network too",
        )


def _share_mistakes(config: StackConfig, existing: ExistingConfig) -> Iterator[InputError]:
    own, place = config.section(OpenstackConfig), f"{PATH}.share_name"
    if existing.share_name is None:
        if existing.network_id is not None and config.storage is not None and not own.share_network:
            allowed = "an existing share, or share_network: true: by which address a server outside knows the machines "
            fix = "add share_name, or set gangway:openstack.share_network: true"
            yield _missing("share_name", f"{allowed}is unknown in an existing network", fix)
        return
    if config.storage is None:
        yield InputError(
            place,
            "gangway:storage must describe it",
            value=existing.share_name,
            allowed="only with gangway:storage, which has its capacity_gib",
            fix="add gangway:storage: {kind: manila, capacity_gib: 4096}, with the size of the share",
        )
    if own.share_protocol != "NFS":
        yield InputError(
            "gangway:openstack.share_protocol",
            "the key of an existing CephFS share cannot be looked up",
            value=own.share_protocol,
            allowed=f"NFS with {PATH}.share_name",
            fix="set share_protocol: NFS",
        )


@dataclass(frozen=True)
class Facts:
    """What the cloud says; None for what is unknown or was not asked. `foreign_addresses`: in use in `machine_cidr`."""

    is_network_up: bool | None = None
    subnet_network_id: str | None = None
    subnet_cidr: str | None = None
    gateway: str | None = None
    share_state: str | None = None
    share_protocol: str | None = None
    share_gib: int | None = None
    foreign_addresses: tuple[str, ...] = ()


def problems(config: StackConfig, facts: Facts) -> Iterator[InputError]:
    """What must be different for the stack to work. Unknown facts are no problem."""
    existing = get_existing(config)
    if facts.is_network_up is False:
        yield _problem("network_id", existing.network_id, "it is down", "a network that is up", "name another network")
    if facts.subnet_network_id not in (None, existing.network_id):
        fix = "name a subnet of that network, or the network of this one"
        problem = f"in the network {facts.subnet_network_id}"
        yield _problem("subnet_id", existing.subnet_id, problem, f"a subnet of {existing.network_id}", fix)
    if facts.gateway == "":
        fix = "name another subnet, or have its owner set a gateway"
        problem = "it has no gateway, so that machines reach neither Keystone nor the object store"
        yield _problem("subnet_id", existing.subnet_id, problem, "a subnet with a gateway", fix)
    yield from _address_problems(config, existing, facts)
    yield from _share_problems(config, existing, facts)


def _problem(key: str, value: object, problem: str, allowed: str, fix: str) -> InputError:
    return InputError(f"{PATH}.{key}", problem, value=value, allowed=allowed, fix=fix)


def _address_problems(config: StackConfig, existing: ExistingConfig, facts: Facts) -> Iterator[InputError]:
    cidr, fix = existing.machine_cidr, "name a range of free addresses of the subnet"
    if cidr is None:
        return
    if facts.foreign_addresses:
        problem = f"in use: {', '.join(facts.foreign_addresses)}"
        yield _problem("machine_cidr", cidr, problem, "free addresses", fix)
    if facts.subnet_cidr is None:
        return
    subnet, first = IPv4Network(facts.subnet_cidr), IPv4Network(cidr)[0]
    used = {first + at for at in range(config.cluster.nodes.max + 1)}
    if not all(address in subnet for address in used):
        yield _problem("machine_cidr", cidr, f"outside the subnet, {subnet}", f"a part of {subnet}", fix)
    taken = {subnet.network_address, subnet.broadcast_address}
    taken |= {IPv4Address(facts.gateway)} if facts.gateway else set()
    if clash := sorted(used & taken):
        problem = f"{', '.join(map(str, clash))} is the gateway, or the first or last address of the subnet"
        yield _problem("machine_cidr", cidr, problem, "addresses of machines", fix)


def _share_problems(config: StackConfig, existing: ExistingConfig, facts: Facts) -> Iterator[InputError]:
    name, storage = existing.share_name, config.storage
    if name is None or storage is None:
        return
    if facts.share_state not in (None, "available"):
        yield _problem("share_name", name, f"its state is {facts.share_state}", "available", "repair it, or wait")
    if facts.share_protocol not in (None, "NFS"):
        yield _problem("share_name", name, f"its protocol is {facts.share_protocol}", "NFS", "name an NFS share")
    if facts.share_gib not in (None, storage.capacity_gib):
        yield InputError(
            "gangway:storage.capacity_gib",
            f"not that of the existing share {name}",
            value=storage.capacity_gib,
            allowed=str(facts.share_gib),
            fix=f"set capacity_gib: {facts.share_gib}",
        )
