"""A state's tensors as a whole: hashes to compare runs by, and whether all of it is numbers."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["is_finite", "state_digests"]


def state_digests(state: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 over the tensors of each top-level part, by name, type, shape and bits, whatever their memory layout."""
    return {part: _digest(value) for part, value in state.items()}


def _digest(value: object) -> str:
    digest = hashlib.sha256()
    _update(digest, value)
    return digest.hexdigest()


def _update(digest: "hashlib._Hash", value: object) -> None:
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    elif isinstance(value, Mapping):
        for key in value:
            digest.update(repr(key).encode())
            _update(digest, value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            _update(digest, item)
    else:
        digest.update(repr(value).encode())


def is_finite(value: object) -> bool:
    """Whether every number in nested dicts and lists of tensors is one."""
    if isinstance(value, Tensor):
        # One pass without a copy; only a sum that is not finite, which may be an overflow, needs the second look.
        return bool(torch.isfinite(value.sum())) or bool(torch.isfinite(value).all())
    if isinstance(value, Mapping):
        return all(is_finite(item) for item in value.values())
    return all(is_finite(item) for item in value) if isinstance(value, list | tuple) else True
