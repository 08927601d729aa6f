"""Linear layers whose matrix products run in FP8: e4m3 for values, e5m2 for gradients, one scale for each tensor.

Scales come from each tensor's largest magnitude at the moment (Micikevicius et al. 2022, arXiv:2209.05433): no history
to save. Weights stay float32, results are bfloat16. Layers need sides of 16; rows are padded. Where autocast is off, as
in a pass that a penalty differentiates twice, the layer is an ordinary one.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Float8Linear", "use_float8"]

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
