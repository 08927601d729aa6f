"""One micro-batch's pass of each network, forward and back: what the loop trains by, and a compilation is tried on.

`backward` is the precision's (trainer.steps.precision), which may scale the loss; gradients add up in the networks.
"""

from collections.abc import Callable

from torch import Tensor, nn

from trainer.networks.base import Generator
from trainer.steps.batch import Micro
from trainer.steps.losses import DTerms
from trainer.steps.updates import make_fakes

Backward = Callable[[Tensor], object]


def discriminator_pass(
    loss: nn.Module, generator: Generator, micro: Micro, backward: Backward, *, penalised: bool
) -> DTerms:
    """The discriminator's, on fakes made for it; `loss` is a DLoss, as it is or wrapped."""
    terms: DTerms = loss(micro.inputs, make_fakes(generator, micro.inputs), penalised)
    backward(micro.weight * terms.total)
    return terms


def generator_pass(
    loss: nn.Module, micro: Micro, backward: Backward, before_judging: Callable[[], object] | None = None
) -> Tensor:
    """The generator's; `loss` is a GLoss, as it is or wrapped, and takes `before_judging`."""
    value: Tensor = loss(micro.inputs, before_judging)
    backward(micro.weight * value)
    return value
