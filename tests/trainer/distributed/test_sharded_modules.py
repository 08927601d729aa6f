"""Weights that a graph has kept are gathered before they are read, and few units are gathered at a time."""

import torch
from torch import Tensor, nn

from gangway.trainer.distributed.sharded_modules import SIZE, GatheredWindow


class Unit(nn.Module):
    """x w, whose weight can be taken out of memory and put back where it was, as fully_shard does."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), value))
        self.value, self.times = value, 0

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.weight

    def unshard(self) -> None:
        self.times += 1
        self.weight.untyped_storage().resize_(16)
        with torch.no_grad():
            self.weight.fill_(self.value)

    def reshard(self) -> None:
        self.weight.untyped_storage().resize_(0)


def test_a_double_backward_finds_every_weight() -> None:
    units = [Unit(value) for value in (2.0, 3.0, 5.0, 7.0)]
    window = GatheredWindow(units)  # type: ignore[arg-type]  # of FSDP2's they have what is used
    images = torch.ones(4, requires_grad=True)
    with window.watching():
        logits = images
        for unit in units:
            logits = unit(logits)
        (gradient,) = torch.autograd.grad(logits.sum(), images, create_graph=True)
        loss = logits.sum() + gradient.square().sum()
    for unit in units:
        unit.reshard()
    assert window.bytes == 0
    loss.backward()  # type: ignore[no-untyped-call]  # torch's has no annotations
    for unit in units:
        assert unit.weight.grad is not None
        # Of 210 and of 210 squared, by this weight.
        torch.testing.assert_close(unit.weight.grad, torch.full((4,), (210 + 2 * 210**2) / unit.value))
        assert 1 <= unit.times <= 3
    assert window.bytes <= SIZE * 16


def test_other_tensors_are_kept_as_they_are() -> None:
    unit = Unit(2.0)
    window = GatheredWindow([unit])  # type: ignore[list-item]  # as above
    images = torch.ones(4, requires_grad=True)
    with window.watching():
        loss = unit(images).exp().sum()
    unit.reshard()
    loss.backward()
    assert images.grad is not None
    torch.testing.assert_close(images.grad, torch.full((4,), 2 * float(torch.tensor(2.0).exp())))
    assert unit.times == 1
