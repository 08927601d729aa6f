"""What a step's memory is made of: its parts, how workers split it, and the micro-batch that there is room for."""

from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.config.network_size import device_gib, discriminator_size, generator_size, largest_unit
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.step_memory import (
    _PEAK_MULTIPLES,
    GIB,
    StepMemory,
    estimate,
    fitting_batch_gpu,
    images_at_once,
    images_per_worker,
    least_gib,
)
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.schedules import Schedules
from gangway.trainer.config.values.segments import Segment
from gangway.trainer.networks.factory import build

R3GAN = PRESETS["r3gan-cifar10"]
GENERATOR, DISCRIMINATOR = generator_size(R3GAN).parameters, discriminator_size(R3GAN).parameters
BOTH = GENERATOR + DISCRIMINATOR


def bytes_of(memory: StepMemory) -> list[float]:
    return [each * GIB for each in memory]


def test_every_family_has_its_multiples() -> None:
    assert set(_PEAK_MULTIPLES) == set(get_args(TrainConfig.model_fields["architecture"].annotation))


def test_whole_networks_are_whole_on_every_worker() -> None:
    for workers, num_nodes in ((1, 1), (8, 1), (8, 4)):
        parts = bytes_of(estimate(R3GAN, workers, num_nodes))
        assert parts[:4] == pytest.approx([4 * BOTH, 4 * GENERATOR, 8 * BOTH, 4 * BOTH])
    assert estimate(R3GAN).total == sum(estimate(R3GAN))


@pytest.mark.parametrize(("shard", "parts"), [("fsdp2", 32), ("hsdp", 8)])
def test_split_networks_have_a_part_of_weights_gradients_and_moments_on_each_worker(shard: str, parts: int) -> None:
    """Besides, units are gathered, and gradients whole until they are averaged: the discriminator's, with a penalty."""
    found = bytes_of(estimate(R3GAN.replace({"shard": shard}), 8, 4))
    gathered, averaged = 12 * largest_unit(R3GAN), 8 * DISCRIMINATOR
    wanted = [4 * BOTH / parts + gathered, 4 * GENERATOR / parts, 8 * BOTH / parts, 4 * BOTH / parts + averaged]
    assert found[:4] == pytest.approx(wanted)
    assert estimate(R3GAN.replace({"shard": shard})).total == estimate(R3GAN).total, "one worker has nothing to share"


def test_without_penalties_a_unit_at_a_time_has_whole_gradients() -> None:
    split = R3GAN.replace({"shard": "fsdp2", "r1_gamma": 0.0, "r2_gamma": 0.0, "schedules": Schedules()})
    found = bytes_of(estimate(split, 8))
    assert found[3] == pytest.approx(4 * BOTH / 8 + 8 * largest_unit(R3GAN))


@pytest.mark.parametrize("architecture", ["dcgan", "resnet", "r3gan"])
def test_no_unit_is_larger_than_is_said(architecture: str) -> None:
    config = next(each for each in PRESETS.values() if each.architecture == architecture)
    with torch.device("meta"):
        networks = build(config)
    found = max(sum(p.numel() for p in unit.parameters()) for network in networks for unit in network.units())
    assert found <= largest_unit(config) <= 2 * found


@given(batch_size=st.integers(1, 4096), workers=st.integers(1, 64), batch_gpu=st.integers(0, 64))
def test_the_worker_with_most_images_is_meant(batch_size: int, workers: int, batch_gpu: int) -> None:
    config = R3GAN.model_copy(update={"batch_size": batch_size, "batch_gpu": batch_gpu})
    share = images_per_worker(config, workers)
    assert share * workers >= batch_size > (share - 1) * workers
    assert images_at_once(config, workers) == (min(batch_gpu, share) if batch_gpu else share)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("workers", [1, 8])
def test_no_preset_takes_less_than_it_cannot_do_without(name: str, workers: int) -> None:
    for config in (PRESETS[name], PRESETS[name].replace({"segments": ()})):
        if config.batch_size >= workers * config.group:
            assert estimate(config, workers).total > least_gib(config, workers)
    assert least_gib(config, workers) == device_gib(config, images_at_once(config, workers))


@given(
    config=st.sampled_from([R3GAN, PRESETS["progan-celeba128"], PRESETS["dcgan-celeba64"]]),
    share=st.floats(0.05, 1.5),
    shard=st.sampled_from(["ddp", "fsdp2"]),
)
def test_the_micro_batch_fits_and_the_next_larger_does_not(config: TrainConfig, share: float, shard: str) -> None:
    if config.architecture != "progressive":
        config = config.replace({"shard": shard})
    memory_gib = share * estimate(config, 2).total
    size = fitting_batch_gpu(config, memory_gib, 2)

    def needs(each: int) -> float:
        return estimate(config.model_copy(update={"batch_gpu": each}), 2).total

    divisors = [each for each in range(config.group, images_at_once(config, 2) + 1, config.group)
                if config.batch_size % each == 0]  # fmt: skip
    if size is None:
        assert needs(divisors[0]) > memory_gib
        return
    assert size in divisors
    assert needs(size) <= memory_gib
    assert all(needs(each) > memory_gib for each in divisors if each > size)


def test_a_segments_batch_counts_at_the_sizes_that_it_comes_to() -> None:
    """512 images at 4x4 take less than 32 at 512x512; in a run that has them to its end they take most."""
    config = PRESETS["progan-celebahq512"]
    assert estimate(config) == estimate(config.replace({"segments": ()}))
    whole = config.replace({"segments": (Segment(from_image=0, batch_size=64),)})
    assert estimate(whole).total == pytest.approx(estimate(config.replace({"segments": (), "batch_size": 64})).total)
    late = config.replace({"segments": (Segment(from_image=11_000_000, batch_size=64),)})
    assert estimate(late) == estimate(whole)


def test_the_second_stage_of_a_pipeline_has_half_of_the_generator_and_the_discriminator() -> None:
    pipelined = R3GAN.replace({"pipeline_stages": 2})
    here = GENERATOR / 2 + DISCRIMINATOR
    found = bytes_of(estimate(pipelined, 2))
    assert found[:4] == pytest.approx([4 * here, 4 * GENERATOR / 2, 8 * here, 4 * here])
    assert found[4] == pytest.approx(estimate(R3GAN).activations * GIB), "a pair shares what one worker had"
    assert estimate(pipelined).total == estimate(R3GAN).total, "one process has nobody to share with"
    assert images_at_once(pipelined, 8) == images_at_once(R3GAN, 4)
    whole, half = device_gib(R3GAN, 1), device_gib(pipelined, 1, 2)
    assert (whole - half) * GIB == pytest.approx(4 * 5 * GENERATOR / 2)
