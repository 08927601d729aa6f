"""The two losses, each a module that is wrapped for data parallelism as a whole.

Non-saturating logistic loss (Goodfellow et al. 2014, arXiv:1406.2661) with the R1 penalty (Mescheder et al. 2018,
arXiv:1801.04406), applied lazily (Karras et al. 2020, arXiv:1912.04958). Loss and penalty go through one ordinary
backward: DistributedDataParallel cannot reduce a penalty's backward alone (pytorch#47562).

Not here: optimisers and random draws.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.augment import diffaugment

__all__ = ["DLoss", "DTerms", "GLoss", "r1_penalty"]


class DTerms(NamedTuple):
    """What a discriminator step yields: scalars.

    Attributes:
        total: to call backward on.
        logistic: the loss without the penalty.
        penalty: R1, the mean squared gradient norm without its weight; zero in steps without it.
    """

    total: Tensor
    logistic: Tensor
    penalty: Tensor


class DLoss(nn.Module):
    """The discriminator's loss.

    Args:
        discriminator: images to logits.
        augment: DiffAugment policy.
        r1_weight: factor of the penalty in the steps that have it: r1_gamma / 2 * r1_interval.
    """

    def __init__(self, discriminator: nn.Module, augment: str, r1_weight: float) -> None:
        super().__init__()
        self.discriminator = discriminator
        self.augment = augment
        self.r1_weight = r1_weight

    def forward(
        self, real: Tensor, fake: Tensor, real_uniforms: Tensor, fake_uniforms: Tensor, with_r1: bool
    ) -> DTerms:
        """Judges real and fake images.

        Args:
            real: [N, C, H, W] in -1..1.
            fake: the same shape, detached from the generator.
            real_uniforms: [N, UNIFORMS] for the reals' augmentation.
            fake_uniforms: [N, UNIFORMS] for the fakes'.
            with_r1: whether this step carries the penalty.
        """
        real = diffaugment(real, self.augment, real_uniforms).detach()
        fake = diffaugment(fake, self.augment, fake_uniforms)
        if with_r1:
            real = real.requires_grad_()
            real_logits, fake_logits = self.discriminator(real), self.discriminator(fake)
            penalty = r1_penalty(real_logits, real)
        else:
            # One pass over both is faster and, without batch statistics, the same.
            real_logits, fake_logits = self.discriminator(torch.cat([real, fake])).chunk(2)
            penalty = real_logits.new_zeros(())
        logistic = F.softplus(-real_logits).mean() + F.softplus(fake_logits).mean()
        return DTerms(logistic + self.r1_weight * penalty, logistic.detach(), penalty.detach())


class GLoss(nn.Module):
    """The generator's loss.

    Args:
        generator: latents to images; the only registered part, so only its gradients travel between workers.
        discriminator: judges; its weights must not require gradients during this step.
        augment: DiffAugment policy.
    """

    def __init__(self, generator: nn.Module, discriminator: nn.Module, augment: str) -> None:
        super().__init__()
        self.generator = generator
        self._judge = (discriminator,)  # in a tuple, so that it is not a submodule
        self.augment = augment

    def forward(self, latents: Tensor, uniforms: Tensor) -> Tensor:
        """Scalar loss of [N, z_dim] latents; `uniforms` is [N, UNIFORMS]."""
        (discriminator,) = self._judge
        logits = discriminator(diffaugment(self.generator(latents), self.augment, uniforms))
        return F.softplus(-logits).mean()


def r1_penalty(logits: Tensor, images: Tensor) -> Tensor:
    """Mean over the batch of the squared norm of d logit / d image, differentiable once more.

    Args:
        logits: [N], computed from `images` with no dependence between images.
        images: [N, C, H, W] that requires gradients.
    """
    (gradients,) = torch.autograd.grad(logits.sum(), images, create_graph=True)
    return gradients.square().sum(dim=(1, 2, 3)).mean()
