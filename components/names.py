"""Names that have to be shorter than ours, on any provider. What one provider alone asks is in its package."""

from hashlib import sha256

__all__ = ["shortened"]


def shortened(name: str, most: int, digits: int = 4) -> str:
    """`name` where it fits; else its beginning and some digits of its hash, so that two long names stay two.

    >>> shortened("a-stack-with-a-very-long-name", 12)
    'a-stack-9fcf'
    """
    if len(name) <= most:
        return name
    return f"{name[: most - digits - 1].rstrip('-')}-{sha256(name.encode()).hexdigest()[:digits]}"
