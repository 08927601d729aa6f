"""How large the networks are, by configuration alone: parameters, what a step keeps of an image for its gradients, and
how much it computes. Where there are two generators and two discriminators, of both together.

Plans read it, and the trainer before it makes a network; so it imports no torch. The layers stand in
`trainer.networks`, a module for each family; a test holds both to the same numbers, over all families.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from math import log2, prod
from types import MappingProxyType
from typing import NamedTuple

from trainer.config.parts.rules import first_broken
from trainer.config.train_config import TrainConfig
from trainer.config.values.segments import Span

SMALLEST = 4
"""Height and width that a generator starts with."""
WIDEST = 512
"""Channels that no layer of a progressive network exceeds."""
_GIB = 1 << 30
_FLOAT32 = 4
_LAST_OF_RESNET = 8
_PENALTY_PASSES = 6
"""Of the discriminator: forward, back to the images, and back through both."""
_PASS_OPERATIONS, _PENALTY_OPERATIONS = 10, 30
"""For each layer in a network's update, and in a penalty: counted by torch over all presets, see the tests."""


class Layer(NamedTuple):
    """A layer with weights, or one network: `parameters`, and `kept`, the numbers of its inputs for one image that its
    gradient needs. Of inputs that are enlarged before a layer the smaller ones count: the rest can be computed anew.
    `products`: multiplications of a weight and an input in a pass of one image.
    """

    parameters: int
    kept: int
    products: int


def generator_size(config: TrainConfig) -> Layer:
    """Of the generator, at its full resolution; of both, where there are two."""
    latent = config.z_dim * (2 if config.num_classes else 1)
    embedding = Layer(config.num_classes * config.z_dim, 0, 0)
    layers, _ = _FAMILIES[config.architecture]
    return _sum([embedding, *layers(config, latent)])


def discriminator_size(config: TrainConfig) -> Layer:
    """Of the discriminator, at its full resolution; of both, where there are two."""
    _, layers = _FAMILIES[config.architecture]
    return _sum(layers(config))


class Stage(NamedTuple):
    """Networks at one size. `config`: has the layers in use for its whole networks; `first`: images seen when it
    begins; `share`: of the images of the run, or of what is looked at of it, that are shown at it.
    """

    config: TrainConfig
    first: float
    share: float


def stages(config: TrainConfig, span: Span | None = None) -> tuple[Stage, ...]:
    """The sizes that a run has in a part of it, None for all, smallest first, with the schedule of
    `trainer.networks.progressive_schedule`; one for networks that do not grow.
    """
    if config.architecture != "progressive":
        return (Stage(config, 0.0, 1.0),)
    sizes = [SMALLEST << step for step in range(_doublings(config) + 1)]
    lasts = config.stable_kimg + config.fade_kimg
    firsts = [max(0.0, number * lasts - config.fade_kimg) * 1000 for number in range(len(sizes))]
    begin, end = span or Span(0.0, config.total_images)
    last_step = max(begin, end - config.step_images)  # of a run of no whole step, too
    reached = [(size, first) for size, first in zip(sizes, firsts, strict=True) if first <= last_step]
    untils = [*(first for _, first in reached[1:]), float(end)]
    return tuple(
        Stage(_grown_to(config, size), first, (until - max(begin, first)) / (end - begin))
        for (size, first), until in zip(reached, untils, strict=True)
        if until > begin
    )


def _grown_to(config: TrainConfig, resolution: int) -> TrainConfig:
    """Its layers up to `resolution`: a layer's width goes by its own size and the full one, and stays what it is."""
    ratio = config.resolution // resolution
    return config.model_copy(update={"resolution": resolution, "ngf": config.ngf * ratio, "ndf": config.ndf * ratio})


def host_gib(config: TrainConfig, *, trains_here: bool) -> float:
    """GiB of its host that a worker needs to make both networks, and the generator's average. What `trains_here`, whole
    and on the CPU, has gradients and Adam's two moments besides.
    """
    generator, discriminator = generator_size(config).parameters, discriminator_size(config).parameters
    of_g, of_d = (5, 4) if trains_here else (2, 1)
    return _FLOAT32 * (of_g * generator + of_d * discriminator) / _GIB


def device_gib(config: TrainConfig, images: int, parts: int = 1, span: Span | None = None) -> float:
    """GiB that a worker's device cannot do without in a step on `images` images at once: weights, average, gradients
    and moments (one of `parts` of them, where networks are sharded; in a pipeline half of the generator's and all of
    the discriminator's), and the inputs of one network's layers; nor when weights and average are whole: in setting up,
    or where a pipeline's average is looked at. A step takes more: penalties, the other network's pass, the
    libraries' work space. Of networks that grow, at that size which takes most of those that `span` has, a part of the
    run; None for all of it.
    """
    number = _FLOAT32 if config.precision == "fp32" else _FLOAT32 // 2

    def kept(stage: Stage) -> float:
        generator, discriminator = generator_size(stage.config), discriminator_size(stage.config)
        # The discriminator judges a real image and a fake for each of the generator's.
        return number * images * max(2 * discriminator.kept, generator_passes(config) * generator.kept)

    def state(stage: Stage) -> float:
        if config.pipeline_stages == 1 or parts == 1:
            return _state_bytes(config, stage, 3) / parts
        generator, discriminator = generator_size(stage.config), discriminator_size(stage.config)
        return _FLOAT32 * (5 * generator.parameters / parts + 4 * discriminator.parameters)

    in_steps = max(state(stage) + kept(stage) for stage in stages(config, span))
    return max(in_steps, _FLOAT32 * _from_the_start(config)) / _GIB


def state_gib(config: TrainConfig, span: Span | None = None) -> float:
    """GiB that stay on a worker's device from step to step, whatever its compiler computes anew within one: weights,
    the generator's average, Adam's two moments. At the end of `span`, a part of the run; None for all of it.
    """
    return _state_bytes(config, stages(config, span)[-1], 2) / _GIB


def _state_bytes(config: TrainConfig, stage: Stage, copies: int) -> float:
    """Weights and average, which are all there from the start, and so many numbers for each weight in use."""
    in_use = generator_size(stage.config).parameters + discriminator_size(stage.config).parameters
    return _FLOAT32 * (_from_the_start(config) + copies * in_use)


def _from_the_start(config: TrainConfig) -> int:
    """Numbers: weights, and the generator's average."""
    return 2 * generator_size(config).parameters + discriminator_size(config).parameters


def largest_unit(config: TrainConfig) -> int:
    """Parameters, at most, of the largest part of a network that is gathered at once where it is sharded
    (`Network.units`).
    """
    latent = config.z_dim * (2 if config.num_classes else 1)
    of_generator, of_discriminator = _FAMILIES[config.architecture]
    networks = [
        [layer.parameters for layer in layers] for layers in (of_generator(config, latent), of_discriminator(config))
    ]
    count = _LAYERS_OF_UNIT[config.architecture]
    return max(sum(each[start : start + count]) for each in networks for start in range(len(each)))


def least_flop(config: TrainConfig, span: Span | None = None) -> float:
    """FLOP that a step cannot do without for each real image it shows: making and judging fakes, judging reals, and the
    weights' gradients; neither penalties nor what only gradients of images need. Of networks that grow, the mean over
    `span`, a part of the run; None for all of it.
    """

    def at(each: TrainConfig) -> float:
        generator, discriminator = generator_size(each).products, discriminator_size(each).products
        g_step = 2 * (generator_passes(each) * generator + discriminator)
        return 2 * (generator + 4 * discriminator + g_step / each.d_steps)

    return sum(stage.share * at(stage.config) for stage in stages(config, span))


def step_flop(config: TrainConfig) -> float:
    """FLOP of a step for each real image it shows, all passes and penalties, within a third of what torch counts: a
    pass back through a network is two forward, or one where only the images' gradient is wanted. Of networks that do
    not grow, or one `Stage` of those that do.
    """
    generator, discriminator = generator_size(config).products, discriminator_size(config).products
    d_step = generator + 6 * discriminator + penalties(config) * _PENALTY_PASSES * discriminator
    return 2 * (d_step + (3 * generator_passes(config) * generator + 2 * discriminator) / config.d_steps)


def generator_passes(config: TrainConfig) -> int:
    """Of a generator in its own update, each for a batch: one; of those that translate, the way there, the way back of
    the other's, and what is of its domain already.
    """
    if not config.translates:
        return 1
    return 3 if config.identity_weight else 2


def penalties(config: TrainConfig) -> float:
    """Gradients of images that a step of the discriminator penalises on average."""
    weights = (config.r1_gamma, config.r2_gamma, config.gp_weight)
    return sum(weight > 0 for weight in weights) / config.r1_interval


def step_operations(config: TrainConfig) -> float:
    """Operations of the device in a step on one micro-batch, within a factor of two of what torch counts, so that none
    is counted for the optimiser, which has one or two: activations, norms and augmentation are many to a layer.
    """
    latent = config.z_dim * (2 if config.num_classes else 1)
    of_generator, of_discriminator = _FAMILIES[config.architecture]
    # R3GAN filters at each change of size: two sums over pairs of pixels, which have no weights.
    filters = 2 * _doublings(config) if config.architecture == "r3gan" else 0
    of_d = sum(layer.products > 0 for layer in of_discriminator(config)) + filters
    of_g = sum(layer.products > 0 for layer in of_generator(config, latent)) + filters
    d_step = _PASS_OPERATIONS * (of_d + of_g) + penalties(config) * _PENALTY_OPERATIONS * of_d
    in_one_go = 2 if config.translates else 1  # the way there, with what is of the domain already; and the way back
    return config.d_steps * d_step + _PASS_OPERATIONS * (of_d + in_one_go * of_g)


def largest_batch_gpu(config: TrainConfig, memory_gib: float, parts: int = 1, span: Span | None = None) -> int | None:
    """The largest micro-batch, a divisor of batch_size and of whole groups, with which `device_gib` is no more than
    `memory_gib`.
    """
    sizes = range(config.batch_size, 0, -config.group)
    divisors = (size for size in sizes if config.batch_size % size == 0)
    return next((size for size in divisors if device_gib(config, size, parts, span) <= memory_gib), None)


class Smaller(NamedTuple):
    """`field` makes the networks larger than anything else does; `value` of it would do, None where none does."""

    field: str
    value: int | None


def smaller_networks(
    config: TrainConfig, needed_gib: Callable[[TrainConfig], float], fits: Callable[[TrainConfig], bool]
) -> Smaller:
    """What to change of networks that need more memory than there is. To blame is the field that saves most where it is
    no larger than usual; advised is a half, a quarter, ... of it, the first that `fits`. Without classes, where these
    are to blame.
    """
    usual = {name: TrainConfig.model_fields[name].default for name in ("ngf", "ndf", "z_dim", "num_classes")}
    less = {name: {name: min(getattr(config, name), default)} for name, default in usual.items()}
    field = min(less, key=lambda name: needed_gib(config.model_copy(update=less[name])))
    whole: int = getattr(config, field)
    values = [0] if field == "num_classes" else [whole >> step for step in range(1, whole.bit_length())]
    changed = ((value, config.model_copy(update={field: value})) for value in values)
    fitting = (value for value, each in changed if not first_broken(each) and fits(each))
    return Smaller(field, next(fitting, None))


def size_at(resolution: int, frames: int) -> tuple[int, ...]:
    """[H, W] of images at that resolution; [T, H, W] of clips that have `frames` when they are whole."""
    return (resolution, resolution) if frames == 1 else (min(frames, resolution), resolution, resolution)


def _sum(layers: Iterable[Layer]) -> Layer:
    columns = zip(*layers, strict=True)
    return Layer(*map(sum, columns))


def _conv(
    inputs: int,
    outputs: int,
    kernel: int,
    pixels: int,
    positions: int | None = None,
    *,
    bias: bool = True,
    groups: int = 1,
) -> Layer:
    """`kernel`: weights that an output has for each input channel of its group; `pixels`: of its inputs; `positions`:
    where the kernel is laid, if that is not each pixel.
    """
    weights = inputs // groups * outputs * kernel
    return Layer(weights + bias * outputs, inputs * pixels, weights * (pixels if positions is None else positions))


def _projection(config: TrainConfig, features: int) -> Layer:
    return Layer(config.num_classes * features, 0, 0)


def _doublings(config: TrainConfig, smallest: int = SMALLEST) -> int:
    return int(log2(config.resolution // smallest))


def _dcgan_generator(config: TrainConfig, latent: int) -> Iterator[Layer]:
    widths = [config.ngf << step for step in reversed(range(_doublings(config)))]
    yield _conv(latent, widths[0], 16, 1)
    for step, (wide, narrow) in enumerate(pairwise([*widths, config.channels])):
        yield _conv(wide, narrow, 16, (SMALLEST << step) ** 2)


def _dcgan_discriminator(config: TrainConfig) -> Iterator[Layer]:
    widths = [config.ndf << step for step in range(_doublings(config))]
    for step, (narrow, wide) in enumerate(pairwise([config.channels, *widths])):
        yield _conv(narrow, wide, 16, (config.resolution >> step) ** 2, (config.resolution >> step + 1) ** 2)
    yield _conv(widths[-1], 1, 16, 16, 1)
    yield _projection(config, widths[-1])


def _resnet_generator(config: TrainConfig, latent: int) -> Iterator[Layer]:
    width = config.ngf
    yield _conv(latent, width * SMALLEST**2, 1, 1)
    for step in range(_doublings(config)):
        small, large = ((SMALLEST << each) ** 2 for each in (step, step + 1))
        yield _conv(width, width, 9, small, large)
        yield _conv(width, width, 9, large)
        yield _conv(width, width, 1, small, large)
    yield _conv(width, config.channels, 9, config.resolution**2)


def _resnet_discriminator(config: TrainConfig) -> Iterator[Layer]:
    width, pixels = config.ndf, config.resolution**2
    yield _conv(config.channels, width, 9, pixels)
    yield _conv(width, width, 9, pixels)
    yield _conv(config.channels, width, 1, pixels // 4)
    for step in range(1, _doublings(config, _LAST_OF_RESNET)):
        pixels = (config.resolution >> step) ** 2
        yield from (_conv(width, width, 9, pixels), _conv(width, width, 9, pixels), _conv(width, width, 1, pixels))
    yield from 4 * [_conv(width, width, 9, _LAST_OF_RESNET**2)]
    yield _conv(width, 1, 1, 1)
    yield _projection(config, width)


def _r3gan_widths(width: int, config: TrainConfig) -> list[int]:
    """Of each resolution from 4x4 up: halved with each doubling above the largest of full width."""
    sizes = (SMALLEST << step for step in range(_doublings(config) + 1))
    return [width // max(1, size // config.full_width_up_to) for size in sizes]


def _r3gan_blocks(width: int, group_width: int, pixels: int) -> Iterator[Layer]:
    hidden = 2 * width
    groups = max(1, hidden // group_width)  # also of widths that a rule refuses: `smaller_networks` asks for them
    for _ in range(2):
        yield _conv(width, hidden, 1, pixels)
        yield _conv(hidden, hidden, 9, pixels, groups=groups)
        yield _conv(hidden, width, 1, pixels, bias=False)


def _r3gan_generator(config: TrainConfig, latent: int) -> Iterator[Layer]:
    widths = _r3gan_widths(config.ngf, config)
    yield Layer(widths[0] * SMALLEST**2, 0, 0)
    yield _conv(latent, widths[0], 1, 1, bias=False)
    for step, (before, width) in enumerate(pairwise([widths[0], *widths])):
        if before != width:
            yield _conv(before, width, 1, (SMALLEST << step - 1) ** 2, bias=False)
        yield from _r3gan_blocks(width, config.group_width, (SMALLEST << step) ** 2)
    yield _conv(widths[-1], config.channels, 1, config.resolution**2, bias=False)


def _r3gan_discriminator(config: TrainConfig) -> Iterator[Layer]:
    widths = _r3gan_widths(config.ndf, config)[::-1]
    yield _conv(config.channels, widths[0], 1, config.resolution**2, bias=False)
    for step, (before, width) in enumerate(pairwise([widths[0], *widths])):
        if before != width:
            yield _conv(before, width, 1, (config.resolution >> step) ** 2, bias=False)
        yield from _r3gan_blocks(width, config.group_width, (config.resolution >> step) ** 2)
    yield _conv(widths[-1], widths[-1], 16, 16, 1, bias=False, groups=widths[-1])
    yield _conv(widths[-1], widths[-1] if config.num_classes else 1, 1, 1, bias=False)
    yield _projection(config, widths[-1])


class _Growing(NamedTuple):
    """What both progressive networks know of their sizes."""

    resolutions: list[int]
    widths: Mapping[int, int]
    pixels: Mapping[int, int]
    kernel: int


def _growing(width: int, config: TrainConfig) -> _Growing:
    resolutions = [SMALLEST << step for step in range(_doublings(config) + 1)]
    widths = {each: min(WIDEST, width * config.resolution // each) for each in resolutions}
    pixels = {each: prod(size_at(each, config.frames)) for each in resolutions}
    return _Growing(resolutions, widths, pixels, 9 if config.frames == 1 else 27)


def _progressive_generator(config: TrainConfig, latent: int) -> Iterator[Layer]:
    resolutions, widths, pixels, kernel = _growing(config.ngf, config)
    yield _conv(latent, widths[SMALLEST] * pixels[SMALLEST], 1, 1)
    for smaller, each in pairwise([SMALLEST, *resolutions]):
        if each > SMALLEST:
            yield _conv(widths[smaller], widths[each], kernel, pixels[smaller], pixels[each])
        yield _conv(widths[each], widths[each], kernel, pixels[each])
        yield _conv(widths[each], config.channels, 1, pixels[each] if each == config.resolution else 0)


def _progressive_discriminator(config: TrainConfig) -> Iterator[Layer]:
    resolutions, widths, pixels, kernel = _growing(config.ndf, config)
    for smaller, each in pairwise([SMALLEST, *resolutions]):
        yield _conv(config.channels, widths[each], 1, pixels[each] if each == config.resolution else 0)
        beside = 1 if each == SMALLEST and config.minibatch_std else 0
        yield _conv(widths[each] + beside, widths[each], kernel, pixels[each])
        if each > SMALLEST:
            yield _conv(widths[each], widths[smaller], kernel, pixels[each])
    widest = widths[SMALLEST]
    yield _conv(widest * pixels[SMALLEST], widest, 1, 1)
    yield _conv(widest, 1, 1, 1)
    yield _projection(config, widest)


def residual_blocks(resolution: int) -> int:
    """Of a generator of CycleGAN's, for images of that size, as in the paper."""
    return 6 if resolution <= 128 else 9


def patch_halvings(resolution: int) -> int:
    """How often a discriminator of CycleGAN's halves its images: three times, with which an output sees 70x70 pixels;
    less often where its maps would become smaller than the kernels.
    """
    return min(3, int(log2(resolution // SMALLEST)))


def _cyclegan_generators(config: TrainConfig, _: int) -> Iterator[Layer]:
    width, pixels = config.ngf, config.resolution**2
    blocks = residual_blocks(config.resolution)
    for _direction in range(2):
        yield _conv(config.channels, width, 49, pixels, bias=False)
        yield _conv(width, 2 * width, 9, pixels, pixels // 4, bias=False)
        yield _conv(2 * width, 4 * width, 9, pixels // 4, pixels // 16, bias=False)
        yield from 2 * blocks * [_conv(4 * width, 4 * width, 9, pixels // 16, bias=False)]
        yield _conv(4 * width, 2 * width, 9, pixels // 16, bias=False)
        yield _conv(2 * width, width, 9, pixels // 4, bias=False)
        yield _conv(width, config.channels, 49, pixels)


def _cyclegan_discriminators(config: TrainConfig) -> Iterator[Layer]:
    halvings = patch_halvings(config.resolution)
    widths = [config.ndf << step for step in range(halvings + 1)]
    last = config.resolution >> halvings
    for _domain in range(2):
        for step, (narrow, wide) in enumerate(pairwise([config.channels, *widths[:-1]])):
            pixels = (config.resolution >> step) ** 2
            yield _conv(narrow, wide, 16, pixels, pixels // 4, bias=step == 0)
        yield _conv(widths[-2], widths[-1], 16, last**2, (last - 1) ** 2, bias=False)
        yield _conv(widths[-1], 1, 16, (last - 1) ** 2, (last - 2) ** 2)


_LAYERS_OF_UNIT: Mapping[str, int] = MappingProxyType({"dcgan": 1, "resnet": 3, "r3gan": 7})
"""Layers that follow each other in a unit, at most, of networks that can be sharded."""

_FAMILIES: Mapping[
    str, tuple[Callable[[TrainConfig, int], Iterator[Layer]], Callable[[TrainConfig], Iterator[Layer]]]
] = MappingProxyType(
    {
        "dcgan": (_dcgan_generator, _dcgan_discriminator),
        "resnet": (_resnet_generator, _resnet_discriminator),
        "r3gan": (_r3gan_generator, _r3gan_discriminator),
        "progressive": (_progressive_generator, _progressive_discriminator),
        "cyclegan": (_cyclegan_generators, _cyclegan_discriminators),
    }
)
"""The layers of both networks; a generator's by the length of its latents, the class's embedding beside them."""
