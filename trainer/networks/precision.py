"""A step's precision, its matrix products, and the loss scale that keeps fp16 from underflowing."""

import contextlib
import enum
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import World

_BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
_CPUINFO = Path("/proc/cpuinfo")
_FIRST_SCALE = 2.0**12  # torch's 65536 would overflow in the first steps of most runs; the scale grows from here


class Products(enum.Enum):
    """What a layer with small maps computes as matrix products (gangway.trainer.networks.layers)."""

    NONE = "nothing"
    OF_WEIGHT = "the weight's gradient"
    ALL = "values and gradients"


@dataclass(frozen=True)
class Precision:
    """One network's precision."""

    name: str  # in the configuration
    device_type: str
    dtype: torch.dtype | None  # of the forward passes; None for float32, without autocast
    exact_penalty: bool  # whether passes that are differentiated twice are float32 anyway
    reason: str  # for the record
    products: Products = Products.NONE  # what this CPU was measured to compute faster as matrix products in this dtype

    def autocast(self, *, twice: bool) -> contextlib.AbstractContextManager[object]:
        """Returns the context for one forward pass; `twice`: a penalty differentiates the result twice."""
        enabled = self.dtype is not None and not (twice and self.exact_penalty)
        return torch.autocast(self.device_type, self.dtype or torch.bfloat16, enabled=enabled)


def choose(name: str, device: torch.device) -> Precision:
    """Returns fp32, bf16 or fp16 for a device (TrainerError: the device cannot do it)."""
    kind = device.type
    if name == "fp32":
        return Precision(name, kind, None, False, "fp32: asked for, or nothing else was")
    if name == "bf16":
        # AMD's GPUs have it, and are cuda devices too.
        if kind == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) < (8, 0):
            raise TrainerError(
                place="TrainConfig.precision",
                problem=f"{torch.cuda.get_device_name(device)} is older than bfloat16 (compute capability 8.0)",
                value=name,
                allowed="fp32 or fp16 on this device",
                fix="--precision fp16 (fp32 where networks are sharded), or a newer GPU",
            )
        products = _products(cpu_flags()) if kind == "cpu" else Products.NONE
        return Precision(name, kind, torch.bfloat16, False, f"bf16: asked for; {_bf16_here(device)}", products)
    if kind == "xla":
        raise TrainerError(
            place="TrainConfig.precision",
            problem="PyTorch/XLA has no fp16 with scaled losses here",
            value=name,
            allowed="fp32 or bf16 on this device",
            fix="--precision bf16, or a machine with the hardware",
        )
    slow = slower_here(name, device)
    reason = f"fp16: asked for, penalties in fp32{'; ' if slow else ''}{slow}"
    return Precision(name, kind, torch.float16, True, reason)


def slower_here(name: str, device: torch.device) -> str:
    """Returns why a format is no faster than fp32 on a device; empty where unknown."""
    if device.type != "cpu" or name == "fp32":
        return ""
    if name == "fp16":
        return "a CPU computes it slower than fp32"
    return "" if cpu_flags() & set(_BF16_FLAGS) else "this CPU has no such instructions: it will be slower than fp32"


def set_tf32(*, enabled: bool) -> None:
    """Lets CUDA's matrix units round float32 inputs to TF32 (10 bits of mantissa); no effect elsewhere."""
    torch.backends.cuda.matmul.allow_tf32 = enabled
    torch.backends.cudnn.allow_tf32 = enabled


def choose_kernels(device: torch.device, *, deterministic: bool, channels_last: bool) -> dict[str, str]:
    """Lets cuDNN benchmark convolutions, or restricts it to deterministic kernels; returns the choice, if any."""
    if device.type != "cuda":
        return {}
    if deterministic:
        # cuBLAS reads it at its first use.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        return {"kernels": "deterministic: asked for"}
    torch.backends.cudnn.benchmark = channels_last
    tried = "cuDNN tries which convolutions are fastest" if channels_last else "cuDNN chooses by its own rules"
    return {"kernels": f"fastest: {tried}; two runs may differ in their last bits"}


@contextlib.contextmanager
def without_tf32() -> Iterator[None]:
    """A block, or `@without_tf32()` a function, with real float32 on CUDA, for metrics; without cuDNN's benchmarks."""
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
    """Returns the instruction sets that the kernel lists for this CPU."""
    if not cpuinfo.exists():
        return frozenset()
    rows = (line.partition(":") for line in cpuinfo.read_text().splitlines())
    return frozenset(flag for name, _, flags in rows if name.strip() in ("flags", "Features") for flag in flags.split())


def _products(flags: frozenset[str]) -> Products:
    """By measurements on CPUs with matrix units for bfloat16, and on those with vector units only."""
    if "amx_bf16" in flags:
        return Products.ALL
    return Products.OF_WEIGHT if "avx512_bf16" in flags else Products.NONE


def _bf16_here(device: torch.device) -> str:
    if device.type != "cpu":
        return f"{device.type} has it"
    has = [flag for flag in _BF16_FLAGS if flag in cpu_flags()]
    return f"this CPU has it ({has[0]})" if has else slower_here("bf16", device)


class LossScale:
    """The scale of one network's loss; `device_type` is cpu or cuda."""

    def __init__(self, device_type: str, *, enabled: bool) -> None:
        self._device_type = device_type
        self._scaler = torch.amp.GradScaler(device_type, init_scale=_FIRST_SCALE, enabled=enabled)

    @property
    def enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._scaler.is_enabled()

    def copy_scale(self) -> "LossScale":
        """Returns the same scale without the state of a step that failed halfway."""
        scale = LossScale(self._device_type, enabled=self.enabled)
        scale.load_state_dict(self.state_dict())
        return scale

    def backward(self, loss: Tensor) -> None:
        """Adds the gradients of the scaled loss; `step` unscales them."""
        torch.autograd.backward(self._scaler.scale(loss))

    def step(self, world: World, *optimizers: torch.optim.Optimizer) -> None:
        """Makes the optimisers' step; with a gradient that is not finite skips it and halves the scale."""
        for optimizer in optimizers:
            if self.enabled:
                self._scaler.unscale_(optimizer)
                self._scaler.step(optimizer)
            else:
                world.step(optimizer)
        self._scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """Returns the scale and the steps since its last change."""
        return self._scaler.state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Loads what `state_dict` returned."""
        if saved:
            self._scaler.load_state_dict(saved)
