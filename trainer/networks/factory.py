"""The networks, by configuration: one module for each architecture, `base` for what all have in common."""

from collections.abc import Callable
from types import MappingProxyType
from typing import TypeVar

import torch
from torch import nn

from trainer.config.train_config import TrainConfig
from trainer.networks import dcgan, progressive, r3gan, resnet
from trainer.networks.base import Discriminator, Generator, Network

__all__ = ["Discriminator", "Generator", "build", "initialised", "revision"]


T = TypeVar("T", bound=tuple[Network, ...])

_FLAT = MappingProxyType({"dcgan": dcgan, "resnet": resnet})
"""Families that make images alone, and are called alike."""
_REVISIONS = MappingProxyType({"r3gan": 2})
"""By architecture, from 1 on where it is missing. Raise it when networks of the same sizes begin to compute something
else: checkpoints of another revision are refused. R3GAN 2: the filter [1, 2, 1], and the authors' conditioning.
"""


def revision(config: TrainConfig) -> int:
    """Which revision of its architecture this version of the trainer builds."""
    return _REVISIONS.get(config.architecture, 1)


def _family(config: TrainConfig) -> tuple[Generator, Discriminator]:
    if config.architecture == "progressive":
        clip = (config.channels, config.resolution, config.frames, config.num_classes)
        generator = progressive.Generator(config.z_dim, config.ngf, *clip)
        return generator, progressive.Discriminator(config.ndf, *clip, group=config.minibatch_std)
    size = (config.channels, config.resolution, config.num_classes)
    if config.architecture == "r3gan":
        of_g, of_d = (
            r3gan.Widths(full, config.full_width_up_to, config.group_width) for full in (config.ngf, config.ndf)
        )
        return r3gan.Generator(config.z_dim, of_g, *size), r3gan.Discriminator(of_d, *size)
    family = _FLAT[config.architecture]
    return family.Generator(config.z_dim, config.ngf, *size), family.Discriminator(config.ndf, *size)


def build(config: TrainConfig) -> tuple[Generator, Discriminator]:
    """Both networks with the initial weights of `config.seed`, on the CPU, so that every device starts alike; of any
    architecture whose generator makes images of latents.
    """
    return initialised(config, lambda: _family(config))


def initialised(config: TrainConfig, make: Callable[[], T]) -> T:
    """The networks that `make` makes on the CPU, with the initial weights of `config.seed`, in the layout that the
    configuration has.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        networks = make()
    if config.channels_last:
        for network in networks:
            _to_channels_last(network)
    return networks


def _to_channels_last(network: Network) -> None:
    """Lays weights and feature maps out as NHWC. Weights keep their strides where both layouts are the same memory.

    That is so for grey images, single channels and single pixels: autograd returns the plain one, and
    DistributedDataParallel would warn of the difference and copy.
    """
    network.layout = torch.channels_last
    for module in network.modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | progressive.EqualConv) and weight is not None:
            transposed = isinstance(module, nn.ConvTranspose2d)
            if weight.dim() == 4 and weight.shape[-1] > 1 and (transposed or weight.shape[1] > 1):
                module.to(memory_format=torch.channels_last)
