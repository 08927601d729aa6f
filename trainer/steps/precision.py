"""In which numbers the networks compute: fp32, or less of them where the hardware gains by it; and which kernels.

Autocast covers the networks' forward passes alone; weights, losses, penalties' norms and optimisers stay float32. A
pass that a penalty is computed from is differentiated twice: fp16's range and fp8's kernels do not carry that, so there
it is float32; bf16 carries it. The averaged generator, which is judged and shown, always computes in float32.
"""

import contextlib
import enum
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.errors import TrainerError

__all__ = [
    "FP8_CAPABILITY",
    "Precision",
    "Products",
    "choose",
    "choose_kernels",
    "cpu_flags",
    "set_tf32",
    "without_tf32",
]

FP8_CAPABILITY = (8, 9)
"""Least CUDA compute capability with FP8 matrix units: Ada (8.9), Hopper (9.0) and later."""
_BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
_CPUINFO = Path("/proc/cpuinfo")


class Products(enum.Enum):
    """What of a layer with small maps is computed as matrix products (trainer.networks.scaling_layers), in words."""

    NONE = "nothing"
    OF_WEIGHT = "the weight's gradient"
    ALL = "values and gradients"


@dataclass(frozen=True)
class Precision:
    """What one network computes in, frozen.

    Attributes:
        name: as the configuration has it.
        dtype: of the forward passes; None for float32, in which case autocast stays out of the way altogether.
        exact_penalty: whether passes that are differentiated twice are float32 all the same.
        reason: why this, for the record.
        products: what this CPU computes faster that way in this dtype, as far as that was measured.
    """

    name: str
    device_type: str
    dtype: torch.dtype | None
    exact_penalty: bool
    reason: str
    products: Products = Products.NONE

    def autocast(self, *, twice: bool) -> torch.autocast:
        """For one forward pass; `twice`: the result is differentiated twice, by a penalty."""
        enabled = self.dtype is not None and not (twice and self.exact_penalty)
        return torch.autocast(self.device_type, self.dtype or torch.bfloat16, enabled=enabled)


def choose(name: str, device: torch.device) -> Precision:
    """What fp32, bf16, fp16 or fp8 means on a device (TrainerError, with what it can: it cannot do that)."""
    kind = device.type
    if name == "fp32":
        return Precision(name, kind, None, False, "fp32: asked for, or nothing else was")
    if name == "bf16":
        products = _products(cpu_flags()) if kind == "cpu" else Products.NONE
        return Precision(name, kind, torch.bfloat16, False, f"bf16: asked for; {_bf16_here(device)}", products)
    if name == "fp16":
        if kind == "xla":
            raise _refused(name, "PyTorch/XLA", "fp32 or bf16", "has no fp16 with scaled losses here")
        slow = "; a CPU computes it slower than fp32" if kind == "cpu" else ""
        return Precision(name, kind, torch.float16, True, f"fp16: asked for, penalties in fp32{slow}")
    if kind != "cuda":
        raise _refused(name, "a CPU" if kind == "cpu" else "PyTorch/XLA", "fp32 or bf16", "has no FP8 matrix units")
    capability = torch.cuda.get_device_capability(device)
    if capability < FP8_CAPABILITY:
        here = f"{torch.cuda.get_device_name(device)}, compute capability {capability[0]}.{capability[1]}"
        raise _refused(name, here, "fp32, bf16 or fp16", "has no FP8 matrix units: they begin with 8.9")
    return Precision(name, kind, torch.bfloat16, True, "fp8: asked for, in linear layers; else bf16, penalties in fp32")


def set_tf32(*, enabled: bool) -> None:
    """Lets CUDA's matrix units round float32 inputs to TF32 (10 bits of mantissa), or not. Elsewhere without effect."""
    torch.backends.cuda.matmul.allow_tf32 = enabled
    torch.backends.cudnn.allow_tf32 = enabled


def choose_kernels(device: torch.device, *, deterministic: bool, channels_last: bool) -> dict[str, str]:
    """Lets cuDNN try out which convolution is fastest, or keeps to kernels that give the same bits each time.

    Returns what was done, and why, for the record; nothing elsewhere than on CUDA. `deterministic` refuses kernels that
    add up in the order in which threads finish; torch raises where an operation has no other. With `channels_last`
    cuDNN has the most to choose from.
    """
    if device.type != "cuda":
        return {}
    if deterministic:
        # Read by cuBLAS when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        return {"kernels": "deterministic: asked for"}
    torch.backends.cudnn.benchmark = channels_last
    tried = "cuDNN tries which convolutions are fastest" if channels_last else "cuDNN chooses by its own rules"
    return {"kernels": f"fastest: {tried}; two runs may differ in their last bits"}


@contextlib.contextmanager
def without_tf32() -> Iterator[None]:
    """A block, or as `@without_tf32()` a function, in which float32 is float32 on CUDA too; then it is as before.

    For what is measured: a value must not depend on how a run trains, nor on which GPU judges it. So cuDNN does not try
    convolutions out either.
    """
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    tried = torch.backends.cudnn.benchmark
    set_tf32(enabled=False)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
        torch.backends.cudnn.benchmark = tried


def cpu_flags(cpuinfo: Path = _CPUINFO) -> frozenset[str]:
    """The instruction sets that the kernel lists for this CPU; none where it lists none."""
    if not cpuinfo.exists():
        return frozenset()
    rows = (line.partition(":") for line in cpuinfo.read_text().splitlines())
    return frozenset(flag for name, _, flags in rows if name.strip() in ("flags", "Features") for flag in flags.split())


def _products(flags: frozenset[str]) -> Products:
    """Measured where a CPU has matrix units for bfloat16, and where it has vectors of it alone."""
    if "amx_bf16" in flags:
        return Products.ALL
    return Products.OF_WEIGHT if "avx512_bf16" in flags else Products.NONE


def _bf16_here(device: torch.device) -> str:
    if device.type != "cpu":
        return f"{device.type} has it"
    has = [flag for flag in _BF16_FLAGS if flag in cpu_flags()]
    return f"this CPU has it ({has[0]})" if has else "this CPU has no such instructions: it will be slower than fp32"


def _refused(name: str, device: str, allowed: str, problem: str) -> TrainerError:
    return TrainerError(
        place="TrainConfig.precision",
        problem=f"{device} {problem}",
        value=name,
        allowed=f"{allowed} on this device",
        fix="--precision bf16, or a machine with the hardware",
    )
