"""The loop that ours is compared with: DCGAN as tutorials have it, in fp32, contiguous, plain Adam, eager. Never to
train.

    python -m tools.bench.textbook CONFIG.json DATA_DIR STATS.jsonl [reuse]

The same computation as `gangway.trainer.run.loop` on the same weights, images and latents, so that losses must be
equal, done as
usual: PyTorch's own layers, PixelNorm as in its paper, a DataLoader copying image by image, reals and fakes judged in
two passes, weights averaged in a Python loop, Adam unfused, a loss read out in every step.

With `reuse` the generator's step judges the discriminator's fakes again, as most tutorials do; the trainer draws new
ones. That saves a pass of the generator, but losses are no longer the trainer's.
"""

import copy
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.loader import Sampler
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.networks.factory import build
from gangway.trainer.phases.rng import Purpose, latents


class StepLosses(NamedTuple):
    """What one step shows: the generator's loss, the discriminator's without its penalty, and the penalty."""

    loss_g: float
    loss_d: float
    r1: float


def steps(
    config: TrainConfig, data: ShardedImages, device: torch.device, *, reuse: bool = False
) -> Iterator[StepLosses]:
    """Trains without end, a step per iteration, all shards in memory. `reuse`: the last fakes, for the generator."""
    assert config.augment == "none", "tutorials have none, and equal losses are wanted"
    generator, discriminator = (network.to(device) for network in plain_networks(config))
    average = copy.deepcopy(generator)
    betas = (config.beta1, config.beta2)
    opt_g = torch.optim.Adam(generator.parameters(), config.lr_g, betas)
    opt_d = torch.optim.Adam(discriminator.parameters(), config.lr_d, betas)
    for step, (real,) in enumerate(real_batches(config, data)):
        images = step * config.batch_size
        with_r1 = config.r1_gamma > 0 and step % config.r1_interval == 0

        # Discriminator: real images, then fake ones.
        real = real.to(device).requires_grad_(with_r1)
        with torch.set_grad_enabled(reuse):  # fakes that are thrown away need no gradients
            fake = generator(_latents(config, images, Purpose.D_LATENTS, device))
        real_logits = discriminator(real)
        logistic = F.softplus(-real_logits).mean() + F.softplus(discriminator(fake.detach())).mean()
        penalty = r1_penalty(real_logits, real) if with_r1 else torch.zeros((), device=device)
        opt_d.zero_grad()
        (logistic + config.r1_gamma / 2 * config.r1_interval * penalty).backward()  # type: ignore[no-untyped-call]  # torch has no types there
        opt_d.step()

        # Generator.
        if not reuse:
            fake = generator(_latents(config, images, Purpose.G_LATENTS, device))
        loss_g = F.softplus(-discriminator(fake)).mean()
        opt_g.zero_grad()
        loss_g.backward()  # type: ignore[no-untyped-call]  # torch has no types there
        opt_g.step()

        # Average of the weights.
        half_life = min(config.ema_kimg * 1000, (images + config.batch_size) * 0.05)
        keep = 0.5 ** (config.batch_size / half_life) if half_life else 0.0
        with torch.no_grad():
            for averaged, present in zip(average.parameters(), generator.parameters(), strict=True):
                averaged.mul_(keep).add_(present * (1 - keep))
        yield StepLosses(loss_g.item(), logistic.item(), penalty.item())


class _PixelNorm(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features * torch.rsqrt(features.square().mean(dim=1, keepdim=True) + 1e-8)


def plain_networks(config: TrainConfig) -> tuple[nn.Sequential, nn.Sequential]:
    """Generator and discriminator with the trainer's initial weights."""
    doublings = int(math.log2(config.resolution)) - 2
    up = [config.ngf << step for step in reversed(range(doublings))]
    layers: list[nn.Module] = [nn.Unflatten(1, (config.z_dim, 1, 1)), nn.ConvTranspose2d(config.z_dim, up[0], 4)]
    for wide, narrow in itertools.pairwise([*up, config.channels]):
        layers += [_PixelNorm(), nn.ReLU(), nn.ConvTranspose2d(wide, narrow, 4, 2, 1)]
    generator = nn.Sequential(*layers, nn.Tanh())
    layers = []
    for narrow, wide in itertools.pairwise([config.channels, *(config.ndf << step for step in range(doublings))]):
        layers += [nn.Conv2d(narrow, wide, 4, 2, 1), nn.LeakyReLU(0.2)]
    discriminator = nn.Sequential(*layers, nn.Conv2d(config.ndf << (doublings - 1), 1, 4), nn.Flatten(0))
    for stock, ours in zip((generator, discriminator), build(config), strict=True):
        for theirs, weights in zip(stock.parameters(), ours.parameters(), strict=True):
            theirs.data.copy_(weights)
    return generator, discriminator


def real_batches(config: TrainConfig, data: ShardedImages, mine: slice = slice(None)) -> DataLoader[tuple[Tensor, ...]]:
    """Images [n, C, H, W] in -1..1 in the trainer's order, of each batch those that are `mine`."""
    everything = torch.from_numpy(data.take(torch.arange(len(data)).numpy())).float() / 127.5 - 1
    sampler = Sampler(len(data), config.seed)

    def order() -> Iterator[list[int]]:
        images = 0
        while True:
            yield sampler.indices(images, config.batch_size)[mine].tolist()
            images += config.batch_size

    return DataLoader(TensorDataset(everything), batch_sampler=order())


def _latents(config: TrainConfig, images: int, purpose: Purpose, device: torch.device) -> Tensor:
    return latents(config.batch_size, config, images=images, purpose=purpose).to(device)


def r1_penalty(logits: Tensor, images: Tensor) -> Tensor:
    """Mean over images of the squared gradient of their logit, without its weight; a scalar."""
    (gradients,) = torch.autograd.grad(logits.sum(), images, create_graph=True)
    return gradients.pow(2).reshape(len(gradients), -1).sum(1).mean()


def write_lines(
    argv: list[str], steps: Callable[..., Iterator[Sequence[float | Tensor]]], device: torch.device
) -> None:
    """Trains until it is killed; appends the images seen and the time as often as the trainer writes statistics."""
    config, data = TrainConfig.from_file(Path(argv[0])), ShardedImages.open(Path(argv[1]))
    images_a_line = round(config.stats_kimg * 1000)
    with Path(argv[2]).open("a", buffering=1) as stats:
        for number, losses in enumerate(steps(config, data, device), start=1):
            images = number * config.batch_size
            if images % images_a_line == 0:
                loss_g = float(losses[0])  # read, so the device has done the step
                if os.environ.get("RANK", "0") == "0":
                    stats.write(json.dumps({"images": images, "time": time.time(), "loss_g": loss_g}) + "\n")


if __name__ == "__main__":
    write_lines(
        sys.argv[1:],
        partial(steps, reuse="reuse" in sys.argv[4:]),
        torch.device("cuda" if torch.cuda.is_available() else "cpu"),
    )
