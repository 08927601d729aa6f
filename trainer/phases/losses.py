"""The losses of both networks, each a module that is wrapped for data parallelism as a whole.

- nonsaturating: logistic loss (Goodfellow et al. 2014, arXiv:1406.2661), its generator's half non-saturating;
- wgan-gp: Wasserstein loss with a gradient penalty (Gulrajani et al. 2017, arXiv:1704.00028) and drift (1710.10196);
- relativistic: each fake against one real image (Jolicoeur-Martineau 2019, 1807.00734; with R1 and R2, 2501.05441).

R1 (Mescheder et al. 2018, arXiv:1801.04406) and R2 are applied lazily (Karras et al. 2020, arXiv:1912.04958), after the
augmentation. Loss and penalties share one backward: DistributedDataParallel cannot reduce a penalty alone
(pytorch#47562). So Adam makes k updates in k steps, not k + 1, and nothing is scaled for it.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.networks.base import Discriminator, Generator, Network
from gangway.trainer.phases.augment import diffaugment

MEANS = ("loss_d", "r1", "r2", "gp", "real_sign")  # Names of a discriminator's `Terms.means`
_TINY = 1e-12  # Under the root of a squared norm, whose derivative at zero would be infinite


class Inputs(NamedTuple):
    """A loss's inputs for one micro-batch of n images, on the device."""

    latents: Tensor  # [n, z_dim]
    fake_uniforms: Tensor | None = None  # [n, UNIFORMS], or with GATES, for the fakes' augmentation; None without it
    real: Tensor | None = None  # [n, C, H, W] or [n, C, T, H, W] in -1..1; None where a loss of G does not need it
    real_uniforms: Tensor | None = None  # like `fake_uniforms`, for the reals'; None without them
    labels: Tensor | None = None  # [n] int64 of the reals, which the fakes share; None without classes
    mix: Tensor | None = None  # [n, 1] in 0..1, the gradient penalty's point between fake and real; None without it


class Terms(NamedTuple):
    """A phase's loss on one micro-batch: `total`, for backward, and detached `means` [n], named by the phase.

    Of a discriminator these are the loss without penalties, each penalty, unweighted, and the mean sign of the reals.
    """

    total: Tensor
    means: Tensor


class DLoss(nn.Module):
    """The discriminator's loss. `functional`: torch.func differentiates the penalties, for a single compiled graph."""

    def __init__(self, discriminator: Discriminator, config: TrainConfig) -> None:
        super().__init__()
        self.discriminator = discriminator
        self._config = config
        self.functional = False
        self._r1_weight = config.r1_gamma / 2 * config.r1_interval
        self._r2_weight = config.r2_gamma / 2 * config.r1_interval

    def forward(self, inputs: Inputs, fake: Tensor, penalised: bool, gammas: Tensor | None = None) -> Terms:
        """Judges reals and `fake`, detached; `gammas` [2] schedule R1 and R2: numbers would be constants."""
        config, labels = self._config, inputs.labels
        assert inputs.real is not None, "only G does without"
        real = diffaugment(inputs.real, config.augment, inputs.real_uniforms).detach()
        with_r1, with_r2 = penalised and config.r1_gamma > 0, penalised and config.r2_gamma > 0
        fake = diffaugment(fake, config.augment, inputs.fake_uniforms).detach()
        if with_r1 or with_r2:
            real_logits, r1 = self._logits(real, labels, with_r1)
            fake_logits, r2 = self._logits(fake, labels, with_r2)
        else:
            # One pass over both is faster and, without batch statistics, the same.
            both = None if labels is None else torch.cat([labels, labels])
            real_logits, fake_logits = self.discriminator(torch.cat([real, fake]), both).chunk(2)
            r1 = r2 = real_logits.new_zeros(())
        gp = real_logits.new_zeros(())
        if penalised and config.gp_weight > 0:
            assert inputs.mix is not None, "Batch draws it for this loss"
            gp = gradient_penalty(self.discriminator, real, fake, inputs.mix, labels, functional=self.functional)
        loss = _d_loss(config, real_logits, fake_logits)
        r1_weight: Tensor | float = self._r1_weight
        r2_weight: Tensor | float = self._r2_weight
        if gammas is not None:
            r1_weight, r2_weight = (gammas / 2 * config.r1_interval).unbind()
        total = loss + r1_weight * r1 + r2_weight * r2 + config.gp_weight * gp
        sign = real_logits.sign().mean()
        return Terms(_with_idle(total, self.discriminator), torch.stack([loss, r1, r2, gp, sign]).detach())

    def _logits(self, images: Tensor, labels: Tensor | None, penalised: bool) -> tuple[Tensor, Tensor]:
        if not penalised:
            logits = self.discriminator(images, labels)
            return logits, logits.new_zeros(())
        logits, squares = logits_and_squared_gradients(self.discriminator, images, labels, functional=self.functional)
        return logits, squares.mean()


class DLossOnFakes(nn.Module):
    """`judge` on fakes made for it, both in a compiled graph. The generator is not a submodule."""

    def __init__(self, generator: Generator, judge: DLoss) -> None:
        super().__init__()
        self.judge = judge
        self._generator = (generator,)  # in a tuple, so that it is not a submodule

    def forward(self, inputs: Inputs, penalised: bool, gammas: Tensor | None = None) -> Terms:
        """See `DLoss`."""
        (generator,) = self._generator
        with torch.no_grad():
            fake = generator(inputs.latents, inputs.labels)
        terms: Terms = self.judge(inputs, fake, penalised, gammas)
        return terms


class GLoss(nn.Module):
    """The generator's loss; only it is a submodule. The discriminator's weights must not require gradients."""

    def __init__(self, generator: Generator, discriminator: Discriminator, config: TrainConfig) -> None:
        super().__init__()
        self.generator = generator
        self._discriminator = (discriminator,)  # in a tuple, so that it is not a submodule
        self._config = config

    def forward(self, inputs: Inputs, before_judging: Callable[[], object] | None = None) -> Tensor:
        """Returns the scalar loss. `before_judging` is called after the fakes, for pending discriminator updates."""
        (discriminator,), config, labels = self._discriminator, self._config, inputs.labels
        fake = self.generator(inputs.latents, labels)
        if before_judging is not None:
            before_judging()
        logits = discriminator(diffaugment(fake, config.augment, inputs.fake_uniforms), labels)
        if config.loss == "wgan-gp":
            loss = -logits.mean()
        elif config.loss == "relativistic":
            assert inputs.real is not None, "Batch gives them to this loss"
            real = diffaugment(inputs.real, config.augment, inputs.real_uniforms)
            loss = F.softplus(discriminator(real, labels) - logits).mean()
        else:
            loss = F.softplus(-logits).mean()
        return _with_idle(loss, self.generator)


def _d_loss(config: TrainConfig, real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    if config.loss == "wgan-gp":
        loss = fake_logits.mean() - real_logits.mean()
        return loss + config.drift * real_logits.square().mean() if config.drift else loss
    if config.loss == "relativistic":
        return F.softplus(fake_logits - real_logits).mean()
    return F.softplus(-real_logits).mean() + F.softplus(fake_logits).mean()


def _with_idle(loss: Tensor, network: Network) -> Tensor:
    """Adds idle parameters to the loss's graph, as DistributedDataParallel waits for all gradients."""
    idle = network.idle()
    return loss + 0 * torch.stack([parameter.sum() for parameter in idle]).sum() if idle else loss


def squared_gradients(logits: Tensor, images: Tensor) -> Tensor:
    """Returns |d logit / d image|^2 for each image, [N], differentiable again; R1 and R2 are its mean."""
    (gradients,) = torch.autograd.grad(logits.sum(), images, create_graph=True)
    return gradients.square().flatten(1).sum(dim=1)


def logits_and_squared_gradients(
    discriminator: Discriminator, images: Tensor, labels: Tensor | None, *, functional: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns logits and `squared_gradients`, each [N]; `functional`: by torch.func, in one graph for torch.compile."""
    if not functional:
        images = images.detach().requires_grad_()
        logits = discriminator(images, labels, twice=True)
        return logits, squared_gradients(logits, images)
    parameters: dict[str, Tensor] = dict(discriminator.named_parameters())

    def summed_logits(given: Tensor) -> tuple[Tensor, Tensor]:
        logits = torch.func.functional_call(discriminator, parameters, (given, labels), {"twice": True})
        return logits.sum(), logits

    gradients, logits = torch.func.grad(summed_logits, has_aux=True)(images)
    return logits, gradients.square().flatten(1).sum(dim=1)


def gradient_penalty(
    discriminator: Discriminator,
    real: Tensor,
    fake: Tensor,
    mix: Tensor,
    labels: Tensor | None,
    *,
    functional: bool = False,
) -> Tensor:
    """Returns the mean squared difference of gradients' norms from 1 between reals and fakes; `mix` is their share."""
    share = mix.reshape(-1, *[1] * (real.dim() - 1))
    between = (fake + (real - fake) * share).detach()
    norms = (logits_and_squared_gradients(discriminator, between, labels, functional=functional)[1] + _TINY).sqrt()
    return (norms - 1).square().mean()
