"""Words that stack files and every provider's components share, free of any SDK so that reading a stack file is fast.

Enumerations, because a component of another language may be handed nothing richer. No decisions are taken here.
"""

from enum import StrEnum

__all__ = ["Egress", "LustreDeployment"]


class Egress(StrEnum):
    """How nodes reach the provider's services: private endpoints for exactly what they need, or a NAT gateway."""

    ENDPOINTS = "endpoints"
    NAT = "nat"


class LustreDeployment(StrEnum):
    """Scratch is cheaper, has one fixed throughput and loses data with a failed server; persistent replicates."""

    SCRATCH = "scratch"
    PERSISTENT = "persistent"
