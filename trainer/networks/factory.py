"""Builds networks by configuration; each architecture has its module, and `base` what all share."""

from collections.abc import Callable
from types import MappingProxyType
from typing import TypeVar

import torch
from torch import nn

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.networks import dcgan, progressive, r3gan, resnet
from gangway.trainer.networks.base import Discriminator, Generator, Network

__all__ = ["Discriminator", "Generator", "build", "initialise", "revision"]


T = TypeVar("T", bound=tuple[Network, ...])

_FLAT = MappingProxyType({"dcgan": dcgan, "resnet": resnet})
"""Families that make images only, and have the same arguments."""
_REVISIONS = MappingProxyType({"r3gan": 2})
"""By architecture; 1 where missing. Raise it when networks of the same sizes compute something else, so that older
checkpoints are refused. R3GAN 2: the filter [1, 2, 1], and the authors' conditioning.
"""


def revision(config: TrainConfig) -> int:
    """Returns the revision of the architecture that this version of the trainer builds."""
    return _REVISIONS.get(config.architecture, 1)


def _family(config: TrainConfig) -> tuple[Generator, Discriminator]:
    if config.architecture == "progressive":
        clip = (config.channels, config.resolution, config.frames, config.num_classes)
        generator = progressive.Generator(config.z_dim, config.ngf, *clip)
        return generator, progressive.Discriminator(config.ndf, *clip, group=config.minibatch_std)
    size = (config.channels, config.resolution, config.num_classes)
    if config.architecture == "r3gan":
        g_widths, d_widths = (
            r3gan.Widths(full, config.full_width_up_to, config.group_width) for full in (config.ngf, config.ndf)
        )
        return r3gan.Generator(config.z_dim, g_widths, *size), r3gan.Discriminator(d_widths, *size)
    family = _FLAT[config.architecture]
    return family.Generator(config.z_dim, config.ngf, *size), family.Discriminator(config.ndf, *size)


def build(config: TrainConfig) -> tuple[Generator, Discriminator]:
    """Builds both networks on the CPU with the initial weights of `config.seed`, equal for every device."""
    return initialise(config, lambda: _family(config))


def initialise(config: TrainConfig, make: Callable[[], T]) -> T:
    """Calls `make` with the seed for initial weights; returns its networks in the configuration's memory layout."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        networks = make()
    if config.channels_last:
        for network in networks:
            _to_channels_last(network)
    return networks


def _to_channels_last(network: Network) -> None:
    """Leaves weights of one channel or pixel: DistributedDataParallel would warn of their strides and copy."""
    network.layout = torch.channels_last
    for module in network.modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | progressive.EqualConv) and weight is not None:
            transposed = isinstance(module, nn.ConvTranspose2d)
            if weight.dim() == 4 and weight.shape[-1] > 1 and (transposed or weight.shape[1] > 1):
                module.to(memory_format=torch.channels_last)
