"""What a run and its stack are called: after the item and the time of the suite, so that no two share a name."""

import hashlib

from stacks.bench.suite import Item

__all__ = ["run_id_of", "stack_name"]

_HASH_DIGITS = 6
_MAX_STACK_NAME = 40


def run_id_of(item: Item, stamp: str) -> str:
    """The run's id, which is its folder's name too: the item's name and the suite's time."""
    return f"{item.name}-{stamp}"


def stack_name(item: Item, stamp: str) -> str:
    """The name of the item's own stack: it begins like the stack that it is made after, and no other has it."""
    digits = hashlib.sha256(run_id_of(item, stamp).encode()).hexdigest()[:_HASH_DIGITS]
    return f"{item.stack.name[: _MAX_STACK_NAME - _HASH_DIGITS - 2].rstrip('-')}-b{digits}"
