"""Policies by name. A new one is a file and a line here."""

from collections.abc import Mapping
from types import MappingProxyType

from gangway.components.core.findings import InputError
from gangway.sim.schedule.policies.backfill import Backfill
from gangway.sim.schedule.policies.fifo import Fifo
from gangway.sim.schedule.policies.goodput import Goodput
from gangway.sim.schedule.policies.learned import Learned
from gangway.sim.schedule.policies.shortest import Shortest
from gangway.sim.schedule.policy import Policy

__all__ = ["POLICIES", "policy_named"]

POLICIES: Mapping[str, type[Policy]] = MappingProxyType(
    {policy.name: policy for policy in (Fifo, Backfill, Shortest, Goodput, Learned)}
)


def policy_named(name: str, place: str = "--policy") -> type[Policy]:
    """Find a policy. InputError: unknown."""
    if name not in POLICIES:
        raise InputError.not_among(place, "no such policy", name, POLICIES)
    return POLICIES[name]
