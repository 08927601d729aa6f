"""Names in Azure's form, stable per stack, and GUIDs. Pulumi appends eight random hex digits to a logical name and
ignores Azure's rules, so it must fit; the digits avoid names of destroyed stacks (retained runs, deleted vaults).
"""

import re
from uuid import UUID, uuid5

RANDOM_DIGITS = 8  # Pulumi's suffix of a logical name
NODES_TAG, LEAST_NODES_TAG, RUNG_TAG = "gangway-nodes", "gangway-nodes-min", "gangway-rung"
"""Tags of a scale set for the head: its maximum nodes, the job's minimum, and its position in the ladder from 0."""
# Any constant: names below it never collide with others'.
_NAMESPACE = UUID("6f1f7c3e-5d0b-5b52-9d1b-7a2f0f1f4a10")


def letters(name: str, most: int) -> str:
    """A logical name of lowercase letters and digits, short enough for Pulumi's digits.

    >>> letters("azure-ndv5-spot", 24)
    'azurendv5spot'
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())[: most - RANDOM_DIGITS]


def guid(subscription_id: str, stack: str, *parts: str) -> str:
    """The GUID of a role assignment, role or workbook of a stack: the same at every `up`."""
    return str(uuid5(_NAMESPACE, "/".join((subscription_id, stack, *parts))))
