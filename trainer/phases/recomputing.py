"""Activation checkpointing: a unit of a network keeps only its inputs, and is recomputed in the backward.

A penalty's double backward keeps what its first backward recomputed, so it gains less. FSDP2 gathers a unit's weights
before its backward.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from gangway.trainer.networks.base import Network


def recompute(network: Network) -> None:
    """Makes the network recompute its units in the backward; later copies would use this one's weights."""
    for unit in network.units():
        unit.forward = partial(_run_checkpointed, unit.forward)


def _run_checkpointed(forward: Callable[..., Any], *inputs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs)
    # Networks draw nothing, so no random state is restored; reentrant checkpoints have no double backward.
    return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False)
