"""CycleGAN (Zhu et al. 2017, arXiv:1703.10593): four networks translate between two unpaired domains, a and b.

Images translated there and back must be the same (cycle), and so must those of a generator's target (identity).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.networks.base import Network
from gangway.trainer.networks.cyclegan import PatchDiscriminator, Translator
from gangway.trainer.networks.factory import initialise
from gangway.trainer.phases.batch import Batch, Micro, Moment, Unpaired
from gangway.trainer.phases.losses import Terms
from gangway.trainer.phases.phase import Phase, RoleSpec, Update

A_TO_B, B_TO_A, JUDGE_A, JUDGE_B = "a_to_b", "b_to_a", "discriminator_a", "discriminator_b"
N = TypeVar("N", bound=Network)
Generators = tuple[Translator, Translator]
Judges = tuple[PatchDiscriminator, PatchDiscriminator]


def roles(config: TrainConfig) -> Sequence[RoleSpec]:
    """Builds a generator for each direction and a discriminator for each domain."""
    shape = config.channels, config.resolution
    a_to_b, b_to_a, judge_a, judge_b = initialise(
        config,
        lambda: (
            Translator(config.ngf, *shape),
            Translator(config.ngf, *shape),
            PatchDiscriminator(config.ndf, *shape),
            PatchDiscriminator(config.ndf, *shape),
        ),
    )
    return (
        RoleSpec(A_TO_B, "ab", a_to_b, "lr_g", averaged=True),
        RoleSpec(B_TO_A, "ba", b_to_a, "lr_g", averaged=True),
        RoleSpec(JUDGE_A, "da", judge_a, "lr_d"),
        RoleSpec(JUDGE_B, "db", judge_b, "lr_d"),
    )


def phases(config: TrainConfig, networks: Mapping[str, Network]) -> Sequence[Phase[Any]]:
    """Returns the discriminators' phase, then the generators'."""
    generators = _pair(networks, Translator, (A_TO_B, B_TO_A))
    judges = _pair(networks, PatchDiscriminator, (JUDGE_A, JUDGE_B))
    return _DiscriminatorsPhase(config, generators, judges), _GeneratorsPhase(config, generators, judges)


def translations(networks: Mapping[str, Network], images: Unpaired) -> Tensor:
    """Returns a grid's images [3 N, C, H, W]: each of domain a, its translation, and that back; then those of b."""
    a_to_b, b_to_a = networks[A_TO_B], networks[B_TO_A]
    there_a, there_b = a_to_b(images.a), b_to_a(images.b)
    of_a = torch.stack([images.a, there_a, b_to_a(there_a)], dim=1)
    of_b = torch.stack([images.b, there_b, a_to_b(there_b)], dim=1)
    return torch.cat([of_a, of_b]).flatten(0, 1)


def _pair(networks: Mapping[str, Network], kind: type[N], names: tuple[str, str]) -> tuple[N, N]:
    first, second = (networks[name] for name in names)
    assert isinstance(first, kind), "of `roles`"
    assert isinstance(second, kind), "of `roles`"
    return first, second


class _DiscriminatorsLoss(nn.Module):
    """Halved least squares (Mao et al. 2017, arXiv:1611.04076); only the discriminators are submodules."""

    def __init__(self, generators: Generators, judges: Judges) -> None:
        super().__init__()
        self.of_a, self.of_b = judges
        self._generators = generators  # in a tuple, so that they are no submodules

    def forward(self, real: Unpaired) -> Tensor:
        a_to_b, b_to_a = self._generators
        with torch.no_grad():
            fake = Unpaired(b_to_a(real.b), a_to_b(real.a))
        return _judge_loss(self.of_a, real.a, fake.a) + _judge_loss(self.of_b, real.b, fake.b)


class GeneratorsLoss(nn.Module):
    """Adversarial, cycle and identity losses. Only the generators are submodules."""

    def __init__(self, config: TrainConfig, generators: Generators, judges: Judges) -> None:
        super().__init__()
        self.a_to_b, self.b_to_a = generators
        self._judges = judges  # in a tuple, so that they are no submodules
        self._cycle = config.cycle_weight
        self._identity = config.cycle_weight * config.identity_weight

    def forward(self, real: Unpaired, before_judging: Callable[[], object] | None = None) -> tuple[Tensor, Tensor]:
        """Returns the loss and `_GeneratorsPhase.means`; `before_judging` is called after all images are made."""
        of_a, of_b = self._judges
        if self._identity:  # images are independent, so one pass makes both
            fake_b, same_b = self.a_to_b(torch.cat([real.a, real.b])).chunk(2)
            fake_a, same_a = self.b_to_a(torch.cat([real.b, real.a])).chunk(2)
            identity = F.l1_loss(same_a, real.a) + F.l1_loss(same_b, real.b)
        else:
            fake_b, fake_a = self.a_to_b(real.a), self.b_to_a(real.b)
            identity = fake_a.new_zeros(())
        cycle = F.l1_loss(self.b_to_a(fake_b), real.a) + F.l1_loss(self.a_to_b(fake_a), real.b)
        if before_judging is not None:
            before_judging()
        adversarial = _squared_error(of_a(fake_a), 1.0) + _squared_error(of_b(fake_b), 1.0)
        loss = adversarial + self._cycle * cycle + self._identity * identity
        return loss, torch.stack([loss, cycle, identity]).detach()


class _DiscriminatorsPhase(Phase[Unpaired]):
    """Each discriminator learns to tell its domain's images from translated ones."""

    key, label = "d", "the discriminators' loss"
    roles, means = (JUDGE_A, JUDGE_B), ("loss_d",)

    def __init__(self, config: TrainConfig, generators: Generators, judges: Judges) -> None:
        self.loss = _DiscriminatorsLoss(generators, judges)
        self.batches = config.d_steps

    def inputs(self, batch: Batch, moment: Moment, images: int) -> Iterator[Micro[Unpaired]]:
        return batch.for_translation(images)

    def run(self, loss: Callable[..., Any], inputs: Unpaired, *, penalised: bool, settle: Update | None) -> Terms:
        total = loss(inputs)
        return Terms(total, total.detach()[None])


class _GeneratorsPhase(Phase[Unpaired]):
    """Both generators learn from one loss, as the cycle uses both."""

    key, label = "g", "the generators' loss"
    roles, means = (A_TO_B, B_TO_A), ("loss_g", "loss_cycle", "loss_identity")
    resting, overlaps = (JUDGE_A, JUDGE_B), True

    def __init__(self, config: TrainConfig, generators: Generators, judges: Judges) -> None:
        self.loss = GeneratorsLoss(config, generators, judges)

    def inputs(self, batch: Batch, moment: Moment, images: int) -> Iterator[Micro[Unpaired]]:
        return batch.for_translation(images)

    def run(self, loss: Callable[..., Any], inputs: Unpaired, *, penalised: bool, settle: Update | None) -> Terms:
        """See `Phase`: all images are made before the discriminators have to be settled."""
        return Terms(*loss(inputs, settle))


def _judge_loss(judge: PatchDiscriminator, real: Tensor, fake: Tensor) -> Tensor:
    real_logits, fake_logits = judge(torch.cat([real, fake])).chunk(2)
    return (_squared_error(real_logits, 1.0) + _squared_error(fake_logits, 0.0)) / 2


def _squared_error(logits: Tensor, target: float) -> Tensor:
    return (logits - target).square().mean()
