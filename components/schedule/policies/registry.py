"""The policies by their names. A new one is a file and a line here."""

from collections.abc import Mapping
from types import MappingProxyType

from components.core.findings import InputError
from components.schedule.policies.backfill import Backfill
from components.schedule.policies.base import Policy
from components.schedule.policies.fifo import Fifo
from components.schedule.policies.goodput import Goodput
from components.schedule.policies.learned import Learned
from components.schedule.policies.shortest import Shortest

__all__ = ["POLICIES", "policy_named"]

POLICIES: Mapping[str, type[Policy]] = MappingProxyType(
    {policy.name: policy for policy in (Fifo, Backfill, Shortest, Goodput, Learned)}
)


def policy_named(name: str, place: str = "--policy") -> type[Policy]:
    """InputError: there is none of that name."""
    if name not in POLICIES:
        raise InputError.not_among(place, "no such policy", name, POLICIES)
    return POLICIES[name]
