"""What a plan knows of networks that it does not make is what they are: parameters, to the last, and what is kept."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from gangway.trainer.config.network_size import (
    WIDEST,
    device_gib,
    discriminator_size,
    generator_size,
    host_gib,
    largest_batch_gpu,
    least_flop,
    smaller_networks,
    stages,
    state_gib,
    step_flop,
    step_operations,
)
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.segments import Span
from gangway.trainer.core.torch_private import each_operation
from gangway.trainer.families import cyclegan
from gangway.trainer.networks.factory import build
from gangway.trainer.networks.progressive_schedule import ProgressiveStage, fade_at
from gangway.trainer.phases.batch import Unpaired
from gangway.trainer.phases.losses import DLoss, GLoss
from gangway.trainer.telemetry import flops
from gangway.trainer.telemetry.flops import count_step

DIGITS, CYCLEGAN = PRESETS["dcgan-digits"], PRESETS["cyclegan-photos"]
OF_LATENTS = [name for name, config in PRESETS.items() if not config.translates]
GIB = 1 << 30


def config_of(architecture: str, **changes: object) -> TrainConfig:
    stages = {"stable_kimg": 1.0} if architecture == "progressive" else {}
    return DIGITS.replace({"architecture": architecture, "ngf": 64, "ndf": 128, "z_dim": 7, **stages, **changes})


FAMILIES = [
    config_of(architecture, resolution=resolution, channels=channels, num_classes=classes)
    for architecture, resolution, channels, classes in itertools.product(
        ("dcgan", "resnet", "r3gan", "progressive"), (16, 32, 64, 256), (1, 3), (0, 5)
    )
]
FAMILIES += [config_of("progressive", resolution=resolution, frames=8) for resolution in (16, 64)]
FAMILIES += [
    config_of("r3gan", resolution=64, full_width_up_to=up_to, group_width=group_width)
    for up_to, group_width in ((16, 4), (64, 32), (256, 1))
]


@pytest.mark.parametrize("config", FAMILIES, ids=lambda c: f"{c.architecture}-{c.image_shape}-{c.num_classes}")
def test_parameters_are_counted_to_the_last(config: TrainConfig) -> None:
    with torch.device("meta"):
        made = [sum(weights.numel() for weights in network.parameters()) for network in build(config)]
    assert [generator_size(config).parameters, discriminator_size(config).parameters] == made


@pytest.mark.slow
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


TRANSLATORS = [
    CYCLEGAN.replace({"resolution": resolution, "channels": channels, "ngf": 24, "ndf": 40})
    for resolution, channels in itertools.product((16, 32, 64, 128, 256), (1, 3))
]


@pytest.mark.slow
@pytest.mark.parametrize("config", TRANSLATORS, ids=lambda c: f"{c.image_shape}")
def test_networks_that_translate_are_counted_to_the_last(config: TrainConfig) -> None:
    with torch.device("meta"):
        networks, images = [role.network for role in cyclegan.roles(config)], torch.empty(1, *config.image_shape)
        parameters = [sum(weights.numel() for weights in network.parameters()) for network in networks]
        with FlopCounterMode(display=False) as of_generators, torch.no_grad():
            for network in networks[:2]:
                network(images)
        with FlopCounterMode(display=False) as of_discriminators, torch.no_grad():
            for network in networks[2:]:
                network(images)
    generators, discriminators = generator_size(config), discriminator_size(config)
    assert [generators.parameters, discriminators.parameters] == [sum(parameters[:2]), sum(parameters[2:])]
    assert of_generators.get_total_flops() == 2 * generators.products
    assert of_discriminators.get_total_flops() == 2 * discriminators.products


def counted_step(config: TrainConfig) -> float:
    """What torch counts; of networks that grow, at their whole size, which `count_step` does not count."""
    return flops._per_image(config) if config.architecture == "progressive" else count_step(config).value or 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_work_is_about_what_torch_counts_and_the_least_work_is_less(name: str) -> None:
    config = PRESETS[name]
    whole = stages(config)[-1].config
    assert step_flop(whole) == pytest.approx(counted_step(config), rel=1 / 3)
    of_run = sum(stage.share * step_flop(stage.config) for stage in stages(config))
    assert of_run / 4 < least_flop(config) < of_run


VIEWS = ("view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze", "squeeze",
         "detach", "alias", "as_strided", "reshape", "unbind", "split", "empty", "empty_like", "new_empty")  # fmt: skip
"""Operations that start nothing on a device."""


def counted_translation(config: TrainConfig) -> int:
    """Operations of a step of the networks that translate."""
    networks, found = {role.name: role.network.to("meta") for role in cyclegan.roles(config)}, [0]

    def note(operation: Any, *_: object) -> None:
        found[0] += operation.__name__ not in VIEWS

    with torch.device("meta"):
        images = Unpaired(*torch.empty(2, 1, *config.image_shape))
        for phase in cyclegan.phases(config, networks):
            for resting in phase.resting:
                networks[resting].learn(on=False)
            with each_operation(note):
                terms = phase.run(phase.loss, images, penalised=False, settle=None)
                torch.autograd.backward(terms.total)
    return found[0]


@pytest.mark.slow
@pytest.mark.parametrize("identity_weight", [0.0, 0.5])
def test_operations_of_networks_that_translate(identity_weight: float) -> None:
    config = CYCLEGAN.replace({"identity_weight": identity_weight})
    assert counted_translation(config) / 2 < step_operations(config) < 2 * counted_translation(config)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_LATENTS)
def test_operations_are_within_a_factor_of_two_of_what_torch_dispatches(name: str) -> None:
    config = PRESETS[name]
    generator, discriminator = build(config)
    generator.to("meta")
    discriminator.to("meta")
    counts = [0]

    def note(operation: Any, *_: object) -> None:
        counts[-1] += operation.__name__ not in VIEWS

    with torch.device("meta"):
        for penalised in (False, True):
            loss, inputs = DLoss(discriminator, config), flops._inputs(config)
            with each_operation(note):
                with torch.no_grad():
                    fakes = generator(inputs.latents, inputs.labels)
                loss(inputs, fakes, penalised).total.backward()
            counts.append(0)
        discriminator.requires_grad_(False)
        with each_operation(note):
            GLoss(generator, discriminator, config)(flops._inputs(config)).backward()
    plain, penalised_too, g_step = counts
    counted = config.d_steps * (plain + (penalised_too - plain) / config.r1_interval) + g_step
    assert counted / 2 < step_operations(config) < 2 * counted


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{}, {"kimg": 5.0}, {"kimg": 0.01}, {"fade_kimg": 3.0}, {"kimg": 40.0}, {"stable_kimg": 0.5}]
)
@pytest.mark.parametrize("frames", [1, 8])
def test_sizes_follow_the_schedule(changes: dict[str, float], frames: int) -> None:
    """Step by step, as the loop asks for them; parameters in use are those that do not idle at that size."""
    config = config_of("progressive", frames=frames, **{"kimg": 20.0, "fade_kimg": 2.0, "batch_size": 50, **changes})
    begun = range(0, config.total_images, config.step_images)
    sizes = [fade_at(config, images)[0] for images in begun]
    reached = stages(config)
    assert [stage.config.resolution for stage in reached] == sorted(set(sizes))
    assert sum(stage.share for stage in reached) == pytest.approx(1)
    for stage in reached:
        assert stage.share * len(begun) == pytest.approx(sizes.count(stage.config.resolution), abs=1)
        assert generator_size(stage.config).parameters <= generator_size(config).parameters
    generator, discriminator = build(config)
    for stage in reached:
        for network, size in ((generator, generator_size), (discriminator, discriminator_size)):
            network.enter(ProgressiveStage(stage.config.resolution))
            idle = sum(weights.numel() for weights in network.idle())
            in_use = sum(weights.numel() for weights in network.parameters()) - idle
            ports = 2 * config.channels * sum(2 * WIDEST for _ in reached)
            assert in_use <= size(stage.config).parameters <= in_use + ports


@given(first=st.integers(0, 399), steps=st.integers(1, 400), stable=st.integers(2, 20), fade=st.integers(2, 20))
def test_a_part_of_a_run_has_the_sizes_of_its_steps(first: int, steps: int, stable: int, fade: int) -> None:
    config = config_of("progressive", kimg=20.0, stable_kimg=stable / 4, fade_kimg=fade / 4, batch_size=50)
    span = Span(50 * first, 50 * min(400, first + steps))
    sizes = [fade_at(config, images)[0] for images in range(int(span.first), int(span.end), 50)]
    found = stages(config, span)
    assert [stage.config.resolution for stage in found] == sorted(set(sizes))
    assert sum(stage.share for stage in found) == pytest.approx(1)
    assert device_gib(config, 50, 1, span) <= device_gib(config, 50)


def kept_numbers(config: TrainConfig) -> tuple[int, int]:
    """What autograd keeps of one image in each network's pass, weights left out."""
    labels = torch.zeros(1, dtype=torch.int64) if config.num_classes else None
    images = torch.randn(1, *config.image_shape)
    calls: list[tuple[torch.nn.Module, tuple[Any, ...]]]
    if config.translates:
        a_to_b, _, judge_a, _ = (role.network for role in cyclegan.roles(config))
        calls = [(a_to_b, (images,)), (judge_a, (images,))]
    else:
        generator, discriminator = build(config.replace({"precision": "fp32"}))
        calls = [(generator, (torch.randn(1, config.z_dim), labels)), (discriminator, (images, labels))]
    counts = []
    for network, inputs in calls:
        weights = {each.untyped_storage().data_ptr() for each in network.parameters()}
        kept: dict[int, torch.Tensor] = {}

        def note(tensor: torch.Tensor, weights: set[int] = weights, kept: dict[int, torch.Tensor] = kept) -> object:
            found = tensor.detach()  # else an output and its own graph would keep each other in memory for good
            if found.untyped_storage().data_ptr() not in weights:
                kept[found.untyped_storage().data_ptr()] = found
            return found

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            network(*inputs)
        counts.append(sum(tensor.untyped_storage().nbytes() // 4 for tensor in kept.values()))
    return counts[0], counts[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_no_more_is_said_to_be_kept_than_autograd_keeps(name: str) -> None:
    """A plan that refuses must be right; and what it says is not next to nothing either."""
    config = PRESETS[name]
    said_of_both = generator_size(config).kept, discriminator_size(config).kept
    copies = 2 if config.translates else 1
    for said, kept in zip(said_of_both, kept_numbers(config), strict=True):
        assert copies * kept / 8 <= said <= copies * kept


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
    assert device_gib(DIGITS, 100, parts=4) * GIB == pytest.approx((4 * weights + average) / 4 + 400 * kept)
    assert device_gib(DIGITS, 1, parts=64) * GIB == pytest.approx(weights + average), "as they are made"
    assert state_gib(DIGITS) * GIB == pytest.approx(3 * weights + average)


def test_four_networks_need_what_four_need() -> None:
    """Weights, gradients and moments of all, the averages, and each generator's three passes."""
    made = [sum(weights.numel() for weights in role.network.parameters()) for role in cyclegan.roles(CYCLEGAN)]
    averages = 4 * sum(made[:2])
    assert host_gib(CYCLEGAN, trains_here=True) * GIB == pytest.approx(16 * sum(made) + averages)
    kept = generator_size(CYCLEGAN).kept
    assert device_gib(CYCLEGAN, 2) * GIB == pytest.approx(16 * sum(made) + averages + 4 * 2 * 3 * kept)
    assert state_gib(CYCLEGAN) * GIB == pytest.approx(12 * sum(made) + averages)


def test_growing_networks_need_what_the_largest_size_reached_needs() -> None:
    """Kept numbers by hand, from the sizes as networks of their own; weights are all there from the start."""
    config = config_of("progressive", resolution=64, kimg=100.0, stable_kimg=10.0, fade_kimg=10.0)
    weights = 4 * (2 * generator_size(config).parameters + discriminator_size(config).parameters)
    for kimg, resolution in ((5.0, 4), (15.0, 8), (35.0, 16), (100.0, 64)):
        last = config_of("progressive", resolution=64).model_copy(
            update={"resolution": resolution, "ngf": 64 * 64 // resolution, "ndf": 128 * 64 // resolution}
        )
        generator, discriminator = generator_size(last), discriminator_size(last)
        trained = 12 * (generator.parameters + discriminator.parameters)
        kept = 4 * 7 * max(2 * discriminator.kept, generator.kept)
        run = config.replace({"kimg": kimg})
        assert device_gib(run, 7) * GIB == pytest.approx(weights + trained + kept)
        assert state_gib(run) * GIB == pytest.approx(weights + trained * 2 / 3)


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

    def largest(most_gib: float) -> int | None:
        return largest_batch_gpu(config, batch_size, lambda size: device_gib(config, size, parts) <= most_gib)

    size = largest(memory_gib)
    assert size is not None, "one image is no more than these"
    assert batch_size % size == 0
    assert device_gib(config, size, parts) <= memory_gib
    larger = [each for each in range(size + 1, batch_size + 1) if batch_size % each == 0]
    assert all(device_gib(config, each, parts) > memory_gib for each in larger)
    assert largest(device_gib(config, 1, parts) * 0.999) is None


@given(config=st.sampled_from(FAMILIES), share=st.floats(0.05, 0.999))
def test_smaller_networks_fit(config: TrainConfig, share: float) -> None:
    def needed_gib(each: TrainConfig) -> float:
        return host_gib(each, trains_here=True)

    memory_gib = share * needed_gib(config)
    field, value = smaller_networks(config, needed_gib, lambda each: needed_gib(each) <= memory_gib)
    assert value is None or value < getattr(config, field)
    if value is not None:
        assert needed_gib(config.replace({field: value})) <= memory_gib


def test_a_run_of_less_than_its_first_batch_has_a_size() -> None:
    """Its segments have batches of their own, and end before one of the configuration's would."""
    config = PRESETS["progan-celebahq512"].replace({"kimg": 1, "batch_size": 262_144})
    assert config.total_images < config.step_images
    (stage,) = stages(config)
    assert (stage.first, stage.share) == (0.0, 1.0)
