"""What the providers' lists have in common: a resource of the cloud, whose it is, and what it is billed as. Pure."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Billed", "CloudResource", "Judged", "Listing", "Verdict"]

Verdict: TypeAlias = Literal["in-state", "belongs", "kept", "gone", "orphan"]


@dataclass(frozen=True)
class Billed:
    """One line of a resource's bill.

    Attributes:
        what: machine type, TPU slice, or service of the catalogue.
        quantity: of the service's units.
        kind: machine and slice are looked up among the machines' prices.
        market: on-demand or spot, of machines.
    """

    what: str
    quantity: float = 1.0
    kind: Literal["machine", "slice", "service"] = "service"
    market: Literal["on-demand", "spot"] = "on-demand"


@dataclass(frozen=True)
class CloudResource:
    """A resource that carries the stack's tag.

    Attributes:
        id: as the provider writes it in full: ARN, asset name, resource id.
        keys: by which the state, or another resource's `owners`, may call it.
        kind: such as ec2:instance.
        name: for people.
        region: or zone; empty for what is global.
        owners: keys of what made it or holds it: a group of its instances, an instance of its disk.
        gone: why it does not count: it no longer exists, or is on its way out.
        kept: why it is expected to stay when a stack goes; empty for most.
        billed: what it is billed as; None where this audit does not know, empty where it costs nothing by itself.
    """

    id: str
    keys: frozenset[str]
    kind: str
    name: str
    region: str
    owners: frozenset[str] = frozenset()
    gone: str = ""
    kept: str = ""
    billed: tuple[Billed, ...] | None = None


@dataclass(frozen=True)
class Listing:
    """What a provider answered.

    Attributes:
        resources: with the stack's tag.
        asked: where, in words: regions, a project, a subscription.
        notes: what could not be asked, or is known to be missing.
    """

    resources: tuple[CloudResource, ...]
    asked: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    """A resource and what it is to the stack, with the reason."""

    resource: CloudResource
    verdict: Verdict
    reason: str
