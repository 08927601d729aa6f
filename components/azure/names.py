"""Names that Azure wants otherwise than ours, made from them so that the same stack always gets the same.

Pulumi names most resources: the logical name and eight random hex digits, of any length and with every dash, for it
knows nothing of Azure's rules. So the logical name has to fit them. The digits are wanted: names that the world shares
are free, and what a destroyed stack left behind (its runs, a deleted vault that Azure still holds) is in nobody's way.
And here are the GUIDs that Azure calls role assignments by. Pure.
"""

import re
from uuid import UUID, uuid5

__all__ = ["LEAST_NODES_TAG", "NODES_TAG", "RANDOM_DIGITS", "RUNG_TAG", "guid", "letters"]

RANDOM_DIGITS = 8
"""What Pulumi adds to a logical name."""
NODES_TAG, LEAST_NODES_TAG, RUNG_TAG = "gangway-nodes", "gangway-nodes-min", "gangway-rung"
"""Tags by which a scale set says what its size does not, for the head sets that: how many nodes it may come to hold,
how many the job needs at least, and the set's place in the ladder, 0 for the first.
"""
# Any fixed one of our own will do: names made below it never meet those of others.
_NAMESPACE = UUID("6f1f7c3e-5d0b-5b52-9d1b-7a2f0f1f4a10")


def letters(name: str, most: int) -> str:
    """A logical name for what is called by lowercase letters and digits alone, so short that Pulumi's digits fit.

    >>> letters("azure-ndv5-spot", 24)
    'azurendv5spot'
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())[: most - RANDOM_DIGITS]


def guid(subscription_id: str, stack: str, *parts: str) -> str:
    """The GUID by which a role assignment, a role or a workbook of a stack is called: the same at every `up`."""
    return str(uuid5(_NAMESPACE, "/".join((subscription_id, stack, *parts))))
