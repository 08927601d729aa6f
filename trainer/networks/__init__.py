"""The networks, by configuration. One family so far: DCGAN."""

import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.networks.dcgan import Discriminator, Generator

__all__ = ["Discriminator", "Generator", "build"]


def build(config: TrainConfig) -> tuple[Generator, Discriminator]:
    """Both networks with the initial weights of `config.seed`, on the CPU, so that every device starts alike."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        generator = Generator(config.z_dim, config.ngf, config.channels, config.resolution)
        discriminator = Discriminator(config.ndf, config.channels, config.resolution)
    if config.channels_last:
        for network in (generator, discriminator):
            _to_channels_last(network)
    return generator, discriminator


def _to_channels_last(network: nn.Module) -> None:
    """Lays the weights out as NHWC, but for a convolution of grey images.

    There both layouts are the same memory under different strides; autograd returns the plain one, and
    DistributedDataParallel would warn of the difference and copy.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d) and (module.transposed or module.in_channels > 1):
            module.to(memory_format=torch.channels_last)
