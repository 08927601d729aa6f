"""Network sizes from a configuration alone: parameters, inputs saved for gradients, and multiplications.

Of two generators or discriminators the sum. Imports no torch: plans use it. The layers are in
`gangway.trainer.networks`, one module per family; a test compares both.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from math import log2, prod
from types import MappingProxyType
from typing import NamedTuple

from gangway.trainer.config.parts.rules import first_broken
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.segments import Span

SMALLEST = 4
"""Initial height and width of a generator."""
WIDEST = 512
"""Maximum channels of a progressive network's layer."""
_GIB = 1 << 30
_FLOAT32 = 4
_LAST_OF_RESNET = 8
_PENALTY_PASSES = 6
"""Passes of the discriminator: forward, back to the images, and back through both."""
_PASS_OPERATIONS, _PENALTY_OPERATIONS = 10, 30
"""Operations per layer in an update and in a penalty: counted by torch over all presets, see the tests."""


class Layer(NamedTuple):
    """A layer, or one network: `kept` numbers of its inputs are saved per image for its gradient (the smaller ones if
    they are enlarged first), `products` are multiplications per image in a pass.
    """

    parameters: int
    kept: int
    products: int


def generator_size(config: TrainConfig) -> Layer:
    """Size of all generators at full resolution."""
    return _sum([Layer(config.num_classes * config.z_dim, 0, 0), *_layers(config)[0]])


def discriminator_size(config: TrainConfig) -> Layer:
    """Size of all discriminators at full resolution."""
    return _sum(_layers(config)[1])


def _layers(config: TrainConfig) -> tuple[Iterator[Layer], Iterator[Layer]]:
    """Of the generators, which take latents and a class embedding, and of the discriminators."""
    of_generator, of_discriminator = _FAMILIES[config.architecture]
    return of_generator(config, config.z_dim * (2 if config.num_classes else 1)), of_discriminator(config)


class Stage(NamedTuple):
    """Networks at one size: `config` has its layers, `first` the images seen before it, `share` its part of them."""

    config: TrainConfig
    first: float
    share: float


def stages(config: TrainConfig, span: Span | None = None) -> tuple[Stage, ...]:
    """The sizes that a part of a run has (None: all), smallest first; one for networks that do not grow."""
    if config.architecture != "progressive":
        return (Stage(config, 0.0, 1.0),)
    sizes = [SMALLEST << step for step in range(_doublings(config) + 1)]
    length = config.stable_kimg + config.fade_kimg
    firsts = [max(0.0, number * length - config.fade_kimg) * 1000 for number in range(len(sizes))]
    begin, end = span or Span(0.0, config.total_images)
    last_step = max(begin, end - config.step_images)  # also for a run of less than a step
    reached = [(size, first) for size, first in zip(sizes, firsts, strict=True) if first <= last_step]
    untils = [*(first for _, first in reached[1:]), float(end)]
    return tuple(
        Stage(_at_resolution(config, size), first, (until - max(begin, first)) / (end - begin))
        for (size, first), until in zip(reached, untils, strict=True)
        if until > begin
    )


def _at_resolution(config: TrainConfig, resolution: int) -> TrainConfig:
    ratio = config.resolution // resolution  # a layer's width depends on its own and the full size
    return config.model_copy(update={"resolution": resolution, "ngf": config.ngf * ratio, "ndf": config.ndf * ratio})


def host_gib(config: TrainConfig, *, trains_here: bool) -> float:
    """Host GiB for a worker to build networks and average; `trains_here` adds gradients and moments for the CPU."""
    generator, discriminator = generator_size(config).parameters, discriminator_size(config).parameters
    copies_g, copies_d = (5, 4) if trains_here else (2, 1)
    return _FLOAT32 * (copies_g * generator + copies_d * discriminator) / _GIB


def device_gib(config: TrainConfig, images: int, parts: int = 1, span: Span | None = None) -> float:
    """Minimum GiB of a worker's device for a step on `images` images, at the largest size in `span` (None: the run).
    `parts`: workers that weights, gradients and moments are split over. Without penalties, the other network's pass and
    library workspaces.
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

    step_bytes = max(state(stage) + kept(stage) for stage in stages(config, span))
    return max(step_bytes, _FLOAT32 * _initial_numbers(config)) / _GIB


def state_gib(config: TrainConfig, span: Span | None = None) -> float:
    """GiB on a worker's device between steps at the end of `span` (None: the run): weights, average, Adam's moments."""
    return _state_bytes(config, stages(config, span)[-1], 2) / _GIB


def _state_bytes(config: TrainConfig, stage: Stage, copies: int) -> float:
    in_use = generator_size(stage.config).parameters + discriminator_size(stage.config).parameters
    return _FLOAT32 * (_initial_numbers(config) + copies * in_use)


def _initial_numbers(config: TrainConfig) -> int:
    return 2 * generator_size(config).parameters + discriminator_size(config).parameters


def largest_unit(config: TrainConfig) -> int:
    """Upper bound of the parameters that are gathered at once in a sharded network (`Network.units`)."""
    networks = [[layer.parameters for layer in layers] for layers in _layers(config)]
    count = _LAYERS_OF_UNIT[config.architecture]
    return max(sum(each[start : start + count]) for each in networks for start in range(len(each)))


def least_flop(config: TrainConfig, span: Span | None = None) -> float:
    """Minimum FLOP of a step per real image, without penalties and image gradients; mean over `span`, None: the run."""

    def at(each: TrainConfig) -> float:
        generator, discriminator = generator_size(each).products, discriminator_size(each).products
        g_step = 2 * (generator_passes(each) * generator + discriminator)
        return 2 * (generator + 4 * discriminator + g_step / each.d_steps)

    return sum(stage.share * at(stage.config) for stage in stages(config, span))


def step_flop(config: TrainConfig) -> float:
    """FLOP of a step per real image with penalties, within a third of torch's count, at one size."""
    generator, discriminator = generator_size(config).products, discriminator_size(config).products
    # A backward costs two forwards, or one if only the images' gradient is needed.
    d_step = generator + 6 * discriminator + penalties(config) * _PENALTY_PASSES * discriminator
    return 2 * (d_step + (3 * generator_passes(config) * generator + 2 * discriminator) / config.d_steps)


def generator_passes(config: TrainConfig) -> int:
    """Passes of a generator in its own update; for translation there, back, and its own domain if weighted."""
    if not config.translates:
        return 1
    return 3 if config.identity_weight else 2


def penalties(config: TrainConfig) -> float:
    """Mean number of penalised image gradients in a discriminator step."""
    weights = (config.r1_gamma, config.r2_gamma, config.gp_weight)
    return sum(weight > 0 for weight in weights) / config.r1_interval


def step_operations(config: TrainConfig) -> float:
    """Device operations of a step on a micro-batch, within a factor of two of torch's count, without the optimiser."""
    # R3GAN filters at each change of size: two sums over pairs of pixels, without weights.
    filters = 2 * _doublings(config) if config.architecture == "r3gan" else 0
    layers_g, layers_d = (sum(layer.products > 0 for layer in layers) + filters for layers in _layers(config))
    d_step = _PASS_OPERATIONS * (layers_d + layers_g) + penalties(config) * _PENALTY_OPERATIONS * layers_d
    passes = 2 if config.translates else 1  # there, together with its own domain's images; and back
    return config.d_steps * d_step + _PASS_OPERATIONS * (layers_d + passes * layers_g)


def largest_batch_gpu(config: TrainConfig, most: int, fits: Callable[[int], bool]) -> int | None:
    """The largest micro-batch up to `most`, a divisor of batch_size in whole groups, that fits."""
    sizes = range(most, 0, -config.group)
    return next((size for size in sizes if config.batch_size % size == 0 and fits(size)), None)


def smaller_networks(
    config: TrainConfig, needed_gib: Callable[[TrainConfig], float], fits: Callable[[TrainConfig], bool]
) -> tuple[str, int | None]:
    """The field that saves most at its default, and the first half, quarter, ... of it (or 0 classes) that fits."""
    usual = {name: TrainConfig.model_fields[name].default for name in ("ngf", "ndf", "z_dim", "num_classes")}
    less = {name: {name: min(getattr(config, name), default)} for name, default in usual.items()}
    field = min(less, key=lambda name: needed_gib(config.model_copy(update=less[name])))
    whole: int = getattr(config, field)
    values = [0] if field == "num_classes" else [whole >> step for step in range(1, whole.bit_length())]
    changed = ((value, config.model_copy(update={field: value})) for value in values)
    fitting_values = (value for value, each in changed if not first_broken(each) and fits(each))
    return field, next(fitting_values, None)


def size_at(resolution: int, frames: int) -> tuple[int, ...]:
    """[H, W] of images at a resolution; [T, H, W] of clips with `frames` at full size."""
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
    """`kernel`: weights per pair of channels; `pixels`: of the input; `positions` of the kernel, None: every pixel."""
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
    """Widths from 4x4 up: halved with each doubling above full_width_up_to."""
    sizes = (SMALLEST << step for step in range(_doublings(config) + 1))
    return [width // max(1, size // config.full_width_up_to) for size in sizes]


def _r3gan_blocks(width: int, group_width: int, pixels: int) -> Iterator[Layer]:
    hidden = 2 * width
    groups = max(1, hidden // group_width)  # also for widths that a rule refuses: `smaller_networks` tries them
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


def _growing(width: int, config: TrainConfig) -> tuple[list[int], Mapping[int, int], Mapping[int, int], int]:
    resolutions = [SMALLEST << step for step in range(_doublings(config) + 1)]
    widths = {each: min(WIDEST, width * config.resolution // each) for each in resolutions}
    pixels = {each: prod(size_at(each, config.frames)) for each in resolutions}
    return resolutions, widths, pixels, 9 if config.frames == 1 else 27


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
        extra = 1 if each == SMALLEST and config.minibatch_std else 0
        yield _conv(widths[each] + extra, widths[each], kernel, pixels[each])
        if each > SMALLEST:
            yield _conv(widths[each], widths[smaller], kernel, pixels[each])
    widest = widths[SMALLEST]
    yield _conv(widest * pixels[SMALLEST], widest, 1, 1)
    yield _conv(widest, 1, 1, 1)
    yield _projection(config, widest)


def residual_blocks(resolution: int) -> int:
    """Blocks of CycleGAN's generator by image size, as in the paper."""
    return 6 if resolution <= 128 else 9


def patch_halvings(resolution: int) -> int:
    """Halvings in CycleGAN's discriminator: three for patches of 70x70 pixels, fewer for small images."""
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
"""Maximum of consecutive layers in a unit of networks that can be sharded."""

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
"""Layers of both networks; a generator's by the length of its input, latents and class embedding."""
