"""Words that stack files and AWS components share, free of the AWS SDK so that reading a stack file stays fast."""

from enum import StrEnum

__all__ = ["Egress", "LustreDeployment", "account_of"]


class Egress(StrEnum):
    """How nodes reach AWS services: PrivateLink endpoints for exactly what they need, or a NAT gateway."""

    ENDPOINTS = "endpoints"
    NAT = "nat"


class LustreDeployment(StrEnum):
    """Scratch is cheaper, has one fixed throughput and loses data with a failed server; persistent replicates."""

    SCRATCH = "scratch"
    PERSISTENT = "persistent"


def account_of(arn: str) -> str:
    """The account number in `arn`. A plan has only references in place of ARNs: then a reference to their account.

    >>> account_of("arn:aws:sns:us-east-2:123456789012:alarms")
    '123456789012'
    """
    parts = arn.split(":")
    return parts[4] if len(parts) > 5 else f"${{account of {arn.strip('${}')}}}"
