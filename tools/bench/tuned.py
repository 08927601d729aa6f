"""The loop that a good engineer writes: the textbook's game, tuned by PyTorch's own performance guide. Never to train.

    python -m tools.bench.tuned CONFIG.json DATA_DIR STATS.jsonl
    torchrun --nproc-per-node 2 -m tools.bench.tuned CONFIG.json DATA_DIR STATS.jsonl

Beside the textbook's: weights and images in channels_last, fused Adam, reals and fakes judged in one pass, averages by
multi-tensor kernels, autocast where the configuration has 16 bits, no loss read out but at a line, and with several
processes DistributedDataParallel, each with its share of the batch. The same weights, images and latents as ours.
"""

import copy
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import get_ema_multi_avg_fn as averaged

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.phases.rng import Purpose, latents
from tools.bench.textbook import plain_networks, r1_penalty, real_batches, write_lines


def steps(config: TrainConfig, data: ShardedImages, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Each step's losses (the generator's, the discriminator's without its penalty), without end or waits."""
    assert config.augment == "none", "tutorials have none, and equal losses are wanted"
    rank, workers = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    mine = slice(rank * config.batch_size // workers, (rank + 1) * config.batch_size // workers)
    generator, discriminator = (
        network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's has no such overload
        for network in plain_networks(config)
    )
    average = copy.deepcopy(generator)
    betas = (config.beta1, config.beta2)
    opt_g = torch.optim.Adam(generator.parameters(), config.lr_g, betas, fused=True)
    opt_d = torch.optim.Adam(discriminator.parameters(), config.lr_d, betas, fused=True)
    train_g, train_d = _parallel(generator, device), _parallel(discriminator, device)

    def low() -> Any:
        is_low = config.precision == "bf16"
        return torch.autocast(device.type, torch.bfloat16) if is_low else nullcontext()

    def seeds(images: int, purpose: Purpose) -> Tensor:
        return latents(config.batch_size, config, images=images, purpose=purpose)[mine].to(device)

    for step, (real,) in enumerate(real_batches(config, data, mine)):
        images = step * config.batch_size
        with_r1 = config.r1_gamma > 0 and step % config.r1_interval == 0

        # Discriminator: real images and fake ones, in one pass.
        real = real.to(device, memory_format=torch.channels_last).requires_grad_(with_r1)
        with low():
            with torch.no_grad():
                fake = generator(seeds(images, Purpose.D_LATENTS))
            real_logits, fake_logits = train_d(torch.cat([real, fake.to(real.dtype)])).float().split(len(real))
        logistic = F.softplus(-real_logits).mean() + F.softplus(fake_logits).mean()
        loss_d = logistic
        if with_r1:
            loss_d = logistic + config.r1_gamma / 2 * config.r1_interval * r1_penalty(real_logits, real)
        opt_d.zero_grad()
        loss_d.backward()  # type: ignore[no-untyped-call]  # torch has no types there
        opt_d.step()

        # Generator, through a discriminator that does not learn.
        discriminator.requires_grad_(False)
        with low():
            loss_g = F.softplus(-discriminator(train_g(seeds(images, Purpose.G_LATENTS))).float()).mean()
        opt_g.zero_grad()
        loss_g.backward()  # type: ignore[no-untyped-call]  # torch has no types there
        opt_g.step()
        discriminator.requires_grad_(True)

        # Average of the weights.
        half_life = min(config.ema_kimg * 1000, (images + config.batch_size) * 0.05)
        keep = 0.5 ** (config.batch_size / half_life) if half_life else 0.0
        with torch.no_grad():
            averaged(keep)(list(average.parameters()), list(generator.parameters()), None)  # type: ignore[no-untyped-call]  # torch has no types there
        yield loss_g.detach(), logistic.detach()


def _parallel(network: nn.Module, device: torch.device) -> nn.Module:
    if not dist.is_initialized():
        return network
    devices = [device] if device.type == "cuda" else None
    return DistributedDataParallel(network, device_ids=devices, gradient_as_bucket_view=True)


if __name__ == "__main__":
    on_gpu = torch.cuda.is_available()
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if on_gpu else "gloo")
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    write_lines(sys.argv[1:], steps, torch.device("cuda", rank) if on_gpu else torch.device("cpu"))
