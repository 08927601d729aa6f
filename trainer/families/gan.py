"""The family of two networks, with every architecture of `networks.factory` and every loss of `phases.losses`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.loader import to_device
from gangway.trainer.networks.base import Discriminator, Generator, Network
from gangway.trainer.networks.factory import build
from gangway.trainer.phases.batch import Batch, Micro, Moment
from gangway.trainer.phases.losses import MEANS, DLoss, DLossOnFakes, GLoss, Inputs, Terms
from gangway.trainer.phases.phase import Phase, RoleSpec, Update

GENERATOR, DISCRIMINATOR = "generator", "discriminator"


def roles(config: TrainConfig) -> Sequence[RoleSpec]:
    """Builds both networks."""
    generator, discriminator = build(config)
    return (
        RoleSpec(GENERATOR, "g", generator, "lr_g", averaged=True),
        RoleSpec(DISCRIMINATOR, "d", discriminator, "lr_d"),
    )


def phases(config: TrainConfig, networks: Mapping[str, Network]) -> Sequence[Phase[Any]]:
    """Returns the discriminator's phase, then the generator's."""
    generator, discriminator = networks[GENERATOR], networks[DISCRIMINATOR]
    assert isinstance(generator, Generator), "of `roles`"
    assert isinstance(discriminator, Discriminator), "of `roles`"
    return DiscriminatorPhase(config, generator, discriminator), GeneratorPhase(config, generator, discriminator)


class DiscriminatorPhase(Phase[Inputs]):
    """Learns to tell real images from fakes, with penalties every r1_interval steps."""

    key, label, roles, means = "d", "the discriminator's loss", (DISCRIMINATOR,), MEANS
    variants = MappingProxyType({True: " with penalties", False: ""})

    def __init__(self, config: TrainConfig, generator: Generator, discriminator: Discriminator) -> None:
        self.loss: DLossOnFakes = DLossOnFakes(generator, DLoss(discriminator, config))
        self.batches = config.d_steps
        self.penalties = {"r1": config.r1_gamma, "r2": config.r2_gamma, "gp": config.gp_weight}
        self._config = config
        self._gammas: Tensor | None = None

    def inputs(self, batch: Batch, moment: Moment, images: int) -> Iterator[Micro[Inputs]]:
        """See `Phase`."""
        config = self._config
        if not config.schedules.given.keys().isdisjoint(("r1_gamma", "r2_gamma")):
            now = torch.tensor([config.at(name, moment.images) for name in ("r1_gamma", "r2_gamma")])
            here = to_device(now, batch.device)
            # Always in the same memory, which a recorded step reads.
            self._gammas = here if self._gammas is None else self._gammas.copy_(here)
        return batch.for_discriminator(moment, images)

    def run(self, loss: Callable[..., Any], inputs: Inputs, *, penalised: bool, settle: Update | None) -> Terms:
        """See `Phase`."""
        terms: Terms = loss(inputs, penalised, *(() if self._gammas is None else (self._gammas,)))
        return terms

    def differentiate_inside(self, *, on: bool) -> None:
        """See `Phase`."""
        self.loss.judge.functional = on


class GeneratorPhase(Phase[Inputs]):
    """Learns to fool the discriminator after its last update."""

    key, label, roles, means = "g", "the generator's loss", (GENERATOR,), ("loss_g",)
    resting, overlaps = (DISCRIMINATOR,), True

    def __init__(self, config: TrainConfig, generator: Generator, discriminator: Discriminator) -> None:
        self.loss = GLoss(generator, discriminator, config)

    def inputs(self, batch: Batch, moment: Moment, images: int) -> Iterator[Micro[Inputs]]:
        """See `Phase`."""
        return batch.for_generator(moment)

    def run(self, loss: Callable[..., Any], inputs: Inputs, *, penalised: bool, settle: Update | None) -> Terms:
        """See `Phase`: the fakes are made before the discriminator has to be settled."""
        total = loss(inputs, settle)
        return Terms(total, total.detach()[None])
