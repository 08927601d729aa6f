"""Names in Azure's form, the same for the same stack, and the GUIDs of role assignments. Pulumi adds eight random hex
digits to a logical name and knows none of Azure's rules, so the logical name has to fit them; the digits keep
world-wide names free of what a destroyed stack left behind (its runs, a deleted vault that Azure still holds).
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
