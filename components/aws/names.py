"""Words that stack files and AWS components share, free of the AWS SDK so that reading a stack file stays fast."""

from enum import StrEnum

__all__ = ["Egress"]


class Egress(StrEnum):
    """How nodes reach AWS services: PrivateLink endpoints for exactly what they need, or a NAT gateway."""

    ENDPOINTS = "endpoints"
    NAT = "nat"
