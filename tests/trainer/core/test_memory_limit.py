"""What untrusted files may take of the memory."""

import resource
import sys

import numpy as np
import pytest

from trainer.core.memory_limit import memory_limit

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts mappings on Linux alone")
MIB = 1 << 20


def test_beyond_it_is_an_error_and_afterwards_there_is_room_again() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_limit(64 * MIB):
        assert len(bytearray(16 * MIB)) == 16 * MIB
        with pytest.raises(MemoryError):
            np.zeros(512 * MIB, np.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert np.zeros(512 * MIB, np.uint8).nbytes == 512 * MIB


def test_a_limit_within_a_limit_is_no_way_out() -> None:
    with memory_limit(64 * MIB), memory_limit(1024 * MIB), pytest.raises(MemoryError):
        np.zeros(512 * MIB, np.uint8)
