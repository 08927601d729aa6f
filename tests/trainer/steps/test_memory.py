"""The allocator keeps what is freed: taking the same block again costs no new pages."""

import subprocess
import sys

CODE = """
import resource, sys
from trainer.steps.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory() == "glibc, freed memory kept"
block = bytearray(64 << 20)
del block
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    block = bytearray(b"x") * (64 << 20)
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _page_faults(mode: str) -> int:
    return int(subprocess.run([sys.executable, "-c", CODE, mode], capture_output=True, check=True, timeout=60).stdout)


def test_kept_memory_is_not_mapped_anew() -> None:
    assert _page_faults("keep") < _page_faults("leave") / 10
