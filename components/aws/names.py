"""Reading AWS's own names."""

__all__ = ["account_of"]


def account_of(arn: str) -> str:
    """The account number in `arn`. A plan has only references in place of ARNs: then a reference to their account.

    >>> account_of("arn:aws:sns:us-east-2:123456789012:alarms")
    '123456789012'
    """
    parts = arn.split(":")
    return parts[4] if len(parts) > 5 else f"${{account of {arn.strip('${}')}}}"
