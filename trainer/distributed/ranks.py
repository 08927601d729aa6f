"""This process's rank, from torchrun's variables and without torch, so that one process can report a user's error."""

import os
from typing import NamedTuple, Self

from gangway.trainer.core.errors import TrainerError


class Ranks(NamedTuple):
    """What torchrun sets for this process; without it there is only one. All nodes have equally many workers."""

    rank: int
    local_rank: int
    world_size: int
    node_rank: int
    num_nodes: int

    @classmethod
    def from_environment(cls) -> Self:
        """Read torchrun's variables (TrainerError: not a whole number, or too small)."""
        world_size = _number("WORLD_SIZE", 1, least=1)
        return cls(
            rank=_number("RANK", 0),
            local_rank=_number("LOCAL_RANK", 0),
            world_size=world_size,
            node_rank=_number("GROUP_RANK", 0),
            num_nodes=max(1, world_size // _number("LOCAL_WORLD_SIZE", world_size, least=1)),
        )

    @staticmethod
    def speaks() -> bool:
        """Whether this process reports user errors on its node, including errors in these variables."""
        local_rank = os.environ.get("LOCAL_RANK", "0")
        return not local_rank.isdecimal() or int(local_rank) == 0

    @staticmethod
    def under_torchrun() -> bool:
        """Whether torchrun started this process, even as a single worker."""
        return "WORLD_SIZE" in os.environ


def _number(name: str, default: int, *, least: int = 0) -> int:
    text = os.environ.get(name, str(default))
    # str.isdecimal also accepts digits of other scripts.
    if text.isascii() and text.isdecimal() and int(text) >= least:
        return int(text)
    raise TrainerError(
        place=f"${name}",
        problem="is not what torchrun sets",
        value=text,
        allowed=f"a whole number, at least {least}",
        fix=f"start with torchrun or `python -m gangway.trainer.launch`, or `unset {name}`",
    )
