"""Which of the workers this process is: the only reader of RANK, WORLD_SIZE, LOCAL_RANK and their kin.

torchrun sets them; without torchrun the process is the only one. Kept apart from trainer.distributed because a user's
mistake must be reported by one process at once, without loading torch first.
"""

import os
from typing import NamedTuple, Self

__all__ = ["Ranks"]


class Ranks(NamedTuple):
    """What torchrun says of this process.

    Attributes:
        rank: 0..world_size-1 over all nodes.
        local_rank: 0.. on this node; 0 speaks to the user.
        world_size: number of workers.
        node_rank: 0.. of this node.
        num_nodes: number of nodes; all have equally many workers.
    """

    rank: int
    local_rank: int
    world_size: int
    node_rank: int
    num_nodes: int

    @classmethod
    def from_environment(cls) -> Self:
        """Reads torchrun's variables."""
        world_size = _number("WORLD_SIZE", 1)
        return cls(
            rank=_number("RANK", 0),
            local_rank=_number("LOCAL_RANK", 0),
            world_size=world_size,
            node_rank=_number("GROUP_RANK", 0),
            num_nodes=max(1, world_size // _number("LOCAL_WORLD_SIZE", world_size)),
        )

    @staticmethod
    def under_torchrun() -> bool:
        """Whether torchrun has started this process, if only as a single worker."""
        return "WORLD_SIZE" in os.environ


def _number(name: str, default: int) -> int:
    return int(os.environ.get(name, default))
