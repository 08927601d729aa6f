"""What a plan knows of networks that it does not make is what they are: parameters, to the last, and what is kept."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from trainer.config.network_size import (
    device_gib,
    discriminator_size,
    generator_size,
    host_gib,
    largest_batch_gpu,
    least_flop,
    smaller_networks,
)
from trainer.config.presets import PRESETS
from trainer.config.train_config import TrainConfig
from trainer.networks.factory import build
from trainer.telemetry.flops import count_step

DIGITS = PRESETS["dcgan-digits"]
GIB = 1 << 30


def config_of(architecture: str, **changes: object) -> TrainConfig:
    stages = {"stable_kimg": 1.0} if architecture == "progressive" else {}
    return DIGITS.replace({"architecture": architecture, "ngf": 64, "ndf": 128, "z_dim": 7, **stages, **changes})


FAMILIES = [
    config_of(architecture, resolution=resolution, channels=channels, num_classes=classes)
    for architecture, resolution, channels, classes in itertools.product(
        ("dcgan", "resnet", "r3gan", "progressive"), (16, 32, 64, 256), (1, 3), (0, 5)
    )
] + [config_of("progressive", resolution=resolution, frames=8) for resolution in (16, 64)]


@pytest.mark.parametrize("config", FAMILIES, ids=lambda c: f"{c.architecture}-{c.image_shape}-{c.num_classes}")
def test_parameters_are_counted_to_the_last(config: TrainConfig) -> None:
    with torch.device("meta"):
        made = [sum(weights.numel() for weights in network.parameters()) for network in build(config)]
    assert [generator_size(config).parameters, discriminator_size(config).parameters] == made


@pytest.mark.parametrize("config", FAMILIES, ids=lambda c: f"{c.architecture}-{c.image_shape}-{c.num_classes}")
def test_products_are_counted_as_torch_counts_them(config: TrainConfig) -> None:
    labels = torch.zeros(1, dtype=torch.int64, device="meta") if config.num_classes else None
    with torch.device("meta"):
        given, networks = (torch.empty(1, config.z_dim), torch.empty(1, *config.image_shape)), build(config)
    for network, inputs, said in zip(
        networks, given, (generator_size(config), discriminator_size(config)), strict=True
    ):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(inputs, labels)
        assert counter.get_total_flops() == 2 * said.products


@pytest.mark.parametrize("name", PRESETS)
def test_the_least_work_is_no_more_than_the_work(name: str) -> None:
    config = PRESETS[name]
    least, work = least_flop(config), count_step(config).value
    if config.architecture == "progressive":
        assert least is None
        return
    assert least is not None
    assert work is not None
    assert work / 3 < least < work


def kept_numbers(config: TrainConfig) -> tuple[int, int]:
    """What autograd keeps of one image in each network's pass, weights left out."""
    networks = build(config.replace({"precision": "fp32"}))
    labels = torch.zeros(1, dtype=torch.int64) if config.num_classes else None
    given = torch.randn(1, config.z_dim), torch.randn(1, *config.image_shape)
    counts = []
    for network, inputs in zip(networks, given, strict=True):
        weights = {each.untyped_storage().data_ptr() for each in network.parameters()}
        kept: dict[int, torch.Tensor] = {}

        def note(tensor: torch.Tensor, weights: set[int] = weights, kept: dict[int, torch.Tensor] = kept) -> object:
            if tensor.untyped_storage().data_ptr() not in weights:
                kept[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            network(inputs, labels)
        counts.append(sum(tensor.untyped_storage().nbytes() // 4 for tensor in kept.values()))
    return counts[0], counts[1]


@pytest.mark.parametrize("name", PRESETS)
def test_no_more_is_said_to_be_kept_than_autograd_keeps(name: str) -> None:
    """A plan that refuses must be right; and what it says is not next to nothing either."""
    config = PRESETS[name]
    said_of_both = generator_size(config).kept, discriminator_size(config).kept
    for said, kept in zip(said_of_both, kept_numbers(config), strict=True):
        assert kept / 8 <= said <= kept


def test_memory_is_the_sum_of_its_parts() -> None:
    generator, discriminator = generator_size(DIGITS), discriminator_size(DIGITS)
    weights = 4 * (generator.parameters + discriminator.parameters)
    average = 4 * generator.parameters
    assert host_gib(DIGITS, trains_here=False) * GIB == pytest.approx(weights + average)
    assert host_gib(DIGITS, trains_here=True) * GIB == pytest.approx(4 * weights + average)
    kept = max(2 * discriminator.kept, generator.kept)
    assert device_gib(DIGITS, 10) * GIB == pytest.approx(4 * weights + average + 4 * 10 * kept)
    half = DIGITS.replace({"precision": "bf16"})
    assert device_gib(half, 10) * GIB == pytest.approx(4 * weights + average + 2 * 10 * kept)
    assert device_gib(DIGITS, 10, parts=4) * GIB == pytest.approx(weights + average + 3 * weights / 4 + 40 * kept)


@given(
    batch_size=st.integers(1, 4096),
    images=st.integers(1, 4096),
    config=st.sampled_from(FAMILIES),
    parts=st.sampled_from([1, 8]),
)
def test_the_largest_micro_batch_fits_and_the_next_does_not(
    batch_size: int, images: int, config: TrainConfig, parts: int
) -> None:
    config = config.replace({"batch_size": batch_size})
    memory_gib = device_gib(config, images, parts)
    size = largest_batch_gpu(config, memory_gib, parts)
    assert size is not None, "one image is no more than these"
    assert batch_size % size == 0
    assert size <= images
    assert not [each for each in range(size + 1, min(batch_size, images) + 1) if batch_size % each == 0]
    assert largest_batch_gpu(config, device_gib(config, 1, parts) * 0.999, parts) is None


@given(config=st.sampled_from(FAMILIES), share=st.floats(0.05, 0.999))
def test_smaller_networks_fit(config: TrainConfig, share: float) -> None:
    def needed_gib(each: TrainConfig) -> float:
        return host_gib(each, trains_here=True)

    memory_gib = share * needed_gib(config)
    field, value = smaller_networks(config, needed_gib, lambda each: needed_gib(each) <= memory_gib)
    assert value is None or value < getattr(config, field)
    if value is not None:
        assert needed_gib(config.replace({field: value})) <= memory_gib
