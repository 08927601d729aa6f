"""Names that Google Cloud wants shorter than ours, made from them so that the same stack always gets the same.

Most resources are named by Pulumi (the logical name and seven random digits); these are the ones it does not name.
"""

import re
from hashlib import sha256

from components.names import shortened

__all__ = ["account_id", "filesystem_name"]

# Service accounts: 6 to 30 characters.
MAX_ACCOUNT = 30
# Managed Lustre: letters and digits, at most eight.
MAX_FILESYSTEM = 8


def account_id(stack: str, role: str) -> str:
    """The id of the service account that does `role` in a stack.

    >>> account_id("demo", "node")
    'demo-node'
    """
    name = f"{shortened(stack, MAX_ACCOUNT - len(role) - 1)}-{role}"
    # Shorter than an id may be; no stack is called so and "gangway" too.
    return name if len(name) >= 6 else f"gangway-{name}"


def filesystem_name(stack: str) -> str:
    """The name by which clients mount the stack's Lustre: its letters and digits, or four of them and four of a hash.

    >>> filesystem_name("gcp-a3"), filesystem_name("gcp-a3-spot-two")
    ('gcpa3', 'gcpa0418')
    """
    plain = re.sub(r"[^a-z0-9]", "", stack.lower())
    if len(plain) <= MAX_FILESYSTEM:
        return plain
    return f"{plain[:4]}{sha256(stack.encode()).hexdigest()[:4]}"
