"""Activation checkpointing: a unit of a network keeps its inputs alone, and is computed once more in the backward.

A penalty's double backward keeps what its first backward has recomputed: there the gain is smaller. Of a sharded
network the weights are there by then: FSDP2 gathers a unit before its backward.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from trainer.networks.base import Network


def recompute(network: Network) -> None:
    """Has the network's units recomputed from now on, wherever gradients are gathered. Copies of it made later would
    compute by this one's weights.
    """
    for unit in network.units():
        unit.forward = partial(_recomputed, unit.forward)


def _recomputed(forward: Callable[..., Any], *inputs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs)
    # Nothing in a network is drawn, so no generator has to be set back; reentrant ones have no double backward.
    return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False)
