"""In which precision a step computes, with which matrix products, and the loss scale without which fp16 underflows."""

import contextlib
import enum
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.core.errors import TrainerError
from trainer.distributed.world import World

__all__ = [
    "FP8_CAPABILITY",
    "Float8Linear",
    "LossScale",
    "Precision",
    "Products",
    "choose",
    "choose_kernels",
    "cpu_flags",
    "set_tf32",
    "use_float8",
    "without_tf32",
]


FP8_CAPABILITY = (8, 9)
"""Least CUDA compute capability with FP8 matrix units: Ada (8.9), Hopper (9.0) and later."""
_BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
_CPUINFO = Path("/proc/cpuinfo")


class Products(enum.Enum):
    """What of a layer with small maps is computed as matrix products (trainer.networks.layers), in words."""

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


_SIDE = 16
_VALUES, _GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2


class Float8Linear(nn.Linear):
    """nn.Linear, its three products in FP8 under autocast. Made by `use_float8`; checkpoints do not tell them apart."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the base class's name
        """[..., in_features] to [..., out_features]."""
        if not torch.is_autocast_enabled(input.device.type):
            return super().forward(input)
        rows = input.reshape(-1, self.in_features)
        product: Tensor = _Product.apply(rows, self.weight)
        product = product.reshape(*input.shape[:-1], self.out_features)
        bias: Tensor | None = self.bias
        return product if bias is None else product + bias.to(product.dtype)


def use_float8(network: nn.Module) -> int:
    """Turns every linear layer whose sides are multiples of 16 into one of FP8; returns how many there were."""
    fitting = [
        module
        for module in network.modules()
        if type(module) is nn.Linear and module.in_features % _SIDE == module.out_features % _SIDE == 0
    ]
    for module in fitting:
        module.__class__ = Float8Linear  # the parameters, their names and the optimiser's hold on them stay
    return len(fitting)


class _Product(torch.autograd.Function):
    """rows [N, K] times weight [M, K] transposed."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        rows8, weight8 = _to_float8(_padded(rows), _VALUES), _to_float8(weight, _VALUES)
        ctx.save_for_backward(*rows8, *weight8)
        ctx.num, ctx.dtypes = len(rows), (rows.dtype, weight.dtype)
        return _multiply(rows8, weight8)[: len(rows)]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        rows, rows_scale, weight, weight_scale = ctx.saved_tensors
        gradient8 = _to_float8(_padded(gradient), _GRADIENTS)
        of_rows = _multiply(gradient8, (weight.t().contiguous(), weight_scale))[: ctx.num]
        columns = gradient8[0].t().contiguous(), gradient8[1]
        of_weight = _multiply(columns, (rows.t().contiguous(), rows_scale))
        return of_rows.to(ctx.dtypes[0]), of_weight.to(ctx.dtypes[1])


def _padded(rows: Tensor) -> Tensor:
    missing = -len(rows) % _SIDE
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


def _to_float8(values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The tensor in FP8 with its largest magnitude at the end of the range, and what to multiply it by again."""
    largest = values.detach().abs().amax().float().clamp(min=1e-12)
    scale = torch.finfo(dtype).max / largest
    return (values.float() * scale).to(dtype).contiguous(), scale.reciprocal()


def _multiply(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> Tensor:
    """[N, K] times [M, K] transposed, in bfloat16."""
    return torch._scaled_mm(left[0], right[0].t(), left[1], right[1], out_dtype=torch.bfloat16)


_FIRST_SCALE = 2.0**12
"""Torch's 65536 would overflow in the first steps of most runs; growth finds the way up."""


class LossScale:
    """The scale of one network's loss; `device_type` is cpu or cuda."""

    def __init__(self, device_type: str, *, enabled: bool) -> None:
        self._scaler = torch.amp.GradScaler(device_type, init_scale=_FIRST_SCALE) if enabled else None

    @property
    def enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._scaler is not None

    def backward(self, loss: Tensor) -> None:
        """Adds the gradients of the loss, scaled up until `step`."""
        torch.autograd.backward(loss if self._scaler is None else self._scaler.scale(loss))

    def step(self, world: World, optimizer: torch.optim.Optimizer) -> None:
        """The optimiser's step on gradients that are scaled back; a skipped step leaves no gradients behind."""
        if self._scaler is None:
            world.step(optimizer)
            return
        self._scaler.unscale_(optimizer)
        before = self._scaler.get_scale()
        self._scaler.step(optimizer)
        self._scaler.update()
        if self._scaler.get_scale() < before:
            optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Scale, and steps since it last changed."""
        return {} if self._scaler is None else self._scaler.state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """The opposite of `state_dict`."""
        if self._scaler is not None and saved:
            self._scaler.load_state_dict(saved)
