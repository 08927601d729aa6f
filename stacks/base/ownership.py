"""Checks a stack against its own state, before anything is sent: its identity, its key, its network's addresses."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

import pulumi

from gangway.components.core.findings import InputError
from gangway.components.core.lookup import STASH, LookupFailedError, check_choice, choice_name
from gangway.stacks.config.stack_config import StackConfig

State = Mapping[str, Mapping[str, Any]]
"""A stack's state: URN -> type and outputs."""
READ_STATE = "pulumi:pulumi:readStackResourceOutputs"
"""The engine's function that reads a stack's state."""
_SETTING = "gangway:identity"


@dataclass(frozen=True)
class Owner:
    """Another stack with this identity. `is_kept`: `found` can outlive a `destroy`, with run records."""

    found: str
    tags: Mapping[str, str]
    is_kept: bool = False

    def __str__(self) -> str:
        who = ", ".join(f"{key} {self.tags[key]}" for key in ("team", "cost_center") if key in self.tags)
        return f"{self.found} ({who or 'its tags name no team'})"


def built_identities(state: State) -> frozenset[str]:
    """The identity of the resources in a state; empty before the first resource.

    Every program names its explicit provider by the identity. A state with a provider alone has no cloud resources: a
    refused update leaves one behind.
    """
    types = {urn: str(each["type"]) for urn, each in state.items()}
    if all(type_.startswith(("pulumi:", "gangway:")) for type_ in types.values()):
        return frozenset()
    names = (urn.rpartition("::")[2] for urn, type_ in types.items() if type_.startswith("pulumi:providers:"))
    return frozenset(name for name in names if not name.startswith("default"))


def own_state() -> State:
    """The state of the running stack. RunError: the backend cannot read it."""
    organization, stack = pulumi.get_organization(), pulumi.get_stack()
    # Backends without organizations report "organization". Some of them have no projects either.
    name = stack if organization == "organization" else f"{organization}/{pulumi.get_project()}/{stack}"
    for pause_sec in (0.1, 0.2, 0.4, 0.8, 1.6, None):
        try:
            found: State = pulumi.runtime.invoke(READ_STATE, {"stackName": name}).value["outputs"]
            return found
        except Exception as error:
            # A file backend may be writing the file at this moment.
            if type(error) is not Exception or pause_sec is None:
                raise pulumi.RunError(f"the state of stack {name} cannot be read: {error}") from None
            time.sleep(pause_sec)
    raise AssertionError("the last attempt returns or raises")


def check_identity(config: StackConfig, state: State) -> None:
    """InputError: the stack's resources have another identity, and `up` would replace all of them."""
    built = built_identities(state)
    if built and config.stack not in built:
        before = sorted(built)[0]
        raise InputError(
            f"stack {config.stack_name}: {_SETTING}",
            f"this stack exists as {before!r}; another identity would replace all of its resources",
            value=config.stack,
            allowed=before,
            fix=f"keep its names: pulumi config set {_SETTING} {before}. If the stack was renamed, `pulumi stack "
            "rename` back does the same; for new names, run `pulumi destroy` first",
        )


def check_encryption(config: StackConfig, state: State) -> None:
    """InputError: the stack was created with another setting of `encryption`."""
    for urn, resource in state.items():
        if urn.endswith(f"::{choice_name(config.stack)}") and resource["type"] == STASH:
            check_choice(resource["outputs"]["output"]["encryption"], config.encryption)


def check_addresses(config: StackConfig, state: State) -> None:
    """InputError: the stack is up with another `network.cidr`, which the cloud refuses to change while it is in use."""
    now = config.network.cidr
    first_quarter = str(next(ip_network(now).subnets(prefixlen_diff=2)))
    # The network's type, the end of its name -> its ranges, and the range that the setting would give it.
    ranges: Mapping[tuple[str, str], tuple[Callable[[Any], Sequence[str]], str]] = {
        ("aws:ec2/vpc:Vpc", "vpc"): (lambda vpc: [vpc["cidrBlock"]], now),
        ("azure-native:network:VirtualNetwork", "network"): (lambda one: one["addressSpace"]["addressPrefixes"], now),
        ("gcp:compute/subnetwork:Subnetwork", "private"): (lambda one: [one["ipCidrRange"]], first_quarter),
    }
    for urn, resource in state.items():
        key = (resource["type"], urn.rpartition("::")[2].removeprefix(f"{config.stack}-"))
        if key not in ranges:
            continue
        built, wanted = ranges[key]
        if wanted not in (found := built(resource["outputs"])):
            raise InputError(
                "gangway:network.cidr",
                f"the network is in use with the addresses {', '.join(found)}, and would change to {wanted}",
                value=now,
                allowed="the value that the stack was created with",
                fix="undo the change; or run `pulumi destroy` and then `up`. See docs/deploying.md for what it keeps",
            )


def check_unclaimed(config: StackConfig, *lookups: Callable[[], Owner | None]) -> None:
    """InputError: another stack in the account has this identity, so that one budget would count and stop both, or
    names would collide. Looks only before the stack's first resource. A refused lookup is a warning.
    """
    if built_identities(own_state()):
        return
    for find_owner in lookups:
        try:
            owner = find_owner()
        except LookupFailedError as failed:
            pulumi.warn(f"cannot check whether another stack has the identity {config.stack}: {failed}")
            continue
        if owner is not None:
            raise _claimed(config, owner)


def _claimed(config: StackConfig, owner: Owner) -> InputError:
    is_up, its_state = f"another stack of this identity is up: {owner}", "that has its state (pulumi login)"
    kept = f"a stack of this identity is up, or was destroyed and left its run records: {owner}"
    own = f"select the backend and stack {its_state}: its next `up` uses the run bucket and key again"
    return InputError(
        f"stack {config.stack_name}: {_SETTING}",
        kept if owner.is_kept else is_up,
        value=config.stack,
        allowed="an identity that no other stack of this account or project has",
        fix=f"pulumi config set {_SETTING} {config.stack[:35]}-2; if that stack is yours, "
        f"{own if owner.is_kept else f'select the backend {its_state} instead'}",
    )
