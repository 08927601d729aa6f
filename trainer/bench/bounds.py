"""About how fast this machine could be, measured in the same run: what a missed target is held against.

    python -m trainer.bench.bounds 2

prints its fp32 speed in a large convolution with so many threads, as JSON. No strict bound: a step's work counts
products with padding's zeros (a sixth in DCGAN), which a kernel may leave out. A matrix product tells less: some
processors' vector units are used by one library and not by the other.
"""

import json
import subprocess
import sys
import time

from trainer.bench.runs import environment

__all__ = ["convolution_gflops"]

_BATCH, _CHANNELS, _SIZE, _KERNEL = 32, 256, 32, 3
_ROUNDS = 12


def convolution_gflops(threads: int) -> float:
    """GFLOP/s of an fp32 convolution, the best of some, in a process of its own with so many threads."""
    argv = [sys.executable, "-m", "trainer.bench.bounds", str(threads)]
    done = subprocess.run(argv, env=environment(threads), capture_output=True, text=True, check=True)
    found: float = json.loads(done.stdout)["gflops"]
    return found


def _measured(threads: int) -> float:
    import torch

    torch.set_num_threads(threads)
    # Without padding: zeros around the images would be counted and not be computed.
    images = torch.randn(_BATCH, _CHANNELS, *[_SIZE + _KERNEL - 1] * 2).contiguous(memory_format=torch.channels_last)
    kernels = torch.randn(_CHANNELS, _CHANNELS, _KERNEL, _KERNEL).contiguous(memory_format=torch.channels_last)
    times = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        torch.nn.functional.conv2d(images, kernels)
        times.append(time.perf_counter() - began)
    return 2 * _BATCH * _SIZE**2 * kernels.numel() / min(times) / 1e9


if __name__ == "__main__":
    print(json.dumps({"gflops": _measured(int(sys.argv[1]))}))
