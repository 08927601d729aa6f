"""What untrusted files may take of the memory."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts mappings on Linux alone")


BEYOND = """
before = resource.getrlimit(resource.RLIMIT_DATA)
with memory_limit(64 * MIB):
    assert len(bytearray(16 * MIB)) == 16 * MIB
    try:
        np.zeros(512 * MIB, np.uint8)
    except MemoryError:
        print("refused")
assert resource.getrlimit(resource.RLIMIT_DATA) == before
assert np.zeros(512 * MIB, np.uint8).nbytes == 512 * MIB
"""
WITHIN = """
with memory_limit(64 * MIB), memory_limit(1024 * MIB):
    try:
        np.zeros(512 * MIB, np.uint8)
    except MemoryError:
        print("refused")
"""


@pytest.mark.parametrize("code", [BEYOND, WITHIN], ids=["a-limit", "a-limit-within-a-limit"])
def test_beyond_it_is_an_error_and_afterwards_there_is_room_again(code: str) -> None:
    """In a new process: one that has freed much memory takes that again without asking for more."""
    head = "import resource\nimport numpy as np\n"
    head += "from gangway.trainer.core.memory_limit import memory_limit\nMIB = 1 << 20\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr
