"""A digest of which image was shown at which place of a run, that adds up over workers, steps and sessions.

Each (place, image) has a number of 64 bits, and a stretch of a run has their sum: equal for the same images in the same
order, however cut into lines or shared out; different with two images exchanged. Evidence, not cryptography.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["MASK", "order_of"]

MASK = (1 << 64) - 1
_STRIDE, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def order_of(first: int, numbers: NDArray[np.int64]) -> int:
    """The digest of images [n] shown one after the other, from place `first`: images of the run before it."""
    places = np.arange(first, first + len(numbers), dtype=np.uint64)
    # splitmix64's output function (Steele et al. 2014) of place and number, in arithmetic modulo 2^64.
    mixed = (places << np.uint64(32)) + numbers.astype(np.uint64) + _STRIDE
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))
