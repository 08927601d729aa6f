"""R3GAN's networks: a plain computation of the published formulas, the authors' scales at the start, and widths."""

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.networks.factory import build
from gangway.trainer.networks.precision import choose
from gangway.trainer.networks.r3gan import Discriminator, Generator, _Block

CLASSES, STAGES = 10, 4
Weights = Mapping[str, Tensor]


def small(num_classes: int = CLASSES, seed: int = 0) -> TrainConfig:
    changes = {"resolution": 32, "ngf": 64, "ndf": 64, "full_width_up_to": 16, "num_classes": num_classes}
    return PRESETS["r3gan-cifar10"].replace({**changes, "schedules": {}, "seed": seed})


def networks_of(config: TrainConfig) -> tuple[Generator, Discriminator]:
    generator, discriminator = build(config)
    assert isinstance(generator, Generator)
    assert isinstance(discriminator, Discriminator)
    return generator, discriminator


def resampling(size: int) -> Tensor:
    """The doubling of a row of so many pixels as a matrix: each one is spread as [1, 3, 3, 1] / 4, what falls outside
    is lost. Half of its transpose is the halving.
    """
    matrix = torch.zeros(2 * size, size, dtype=torch.float64)
    for pixel in range(size):
        for tap, weight in zip(range(2 * pixel - 1, 2 * pixel + 3), (1, 3, 3, 1), strict=True):
            if 0 <= tap < 2 * size:
                matrix[tap, pixel] = weight / 4
    return matrix


def pixelwise(features: Tensor, weights: Tensor) -> Tensor:
    return torch.einsum("nchw,oc->nohw", features, weights[:, :, 0, 0])


def plain_stage(features: Tensor, weights: Weights, stage: str) -> Tensor:
    """Features + W3 f(W2 f(W1 x + b1) + b2), twice; f a leaky ReLU of slope 0.2, W2 3x3 in groups of 16 channels."""
    for block in (f"{stage}.blocks.0", f"{stage}.blocks.1"):
        expand, mix = weights[f"{block}.expand.bias"], weights[f"{block}.mix.bias"]
        hidden = pixelwise(features, weights[f"{block}.expand.weight"]) + expand[:, None, None]
        hidden = torch.where(hidden > 0, hidden, 0.2 * hidden)
        hidden = F.conv2d(hidden, weights[f"{block}.mix.weight"], mix, padding=1, groups=len(mix) // 16)
        hidden = torch.where(hidden > 0, hidden, 0.2 * hidden)
        features = features + pixelwise(hidden, weights[f"{block}.project.weight"])
    return features


def plain_generator(weights: Weights, latents: Tensor, labels: Tensor | None) -> Tensor:
    given = latents if labels is None else torch.cat([latents, weights["with_class.embedding.weight"][labels]], dim=1)
    features = torch.einsum("chw,nc->nchw", weights["basis"], given @ weights["scale.weight"].T)
    for stage in range(STAGES):
        if stage:
            widen, doubled = weights.get(f"stages.{stage}.widen.weight"), resampling(features.shape[-1])
            features = features if widen is None else pixelwise(features, widen)
            features = doubled @ features @ doubled.T
        features = plain_stage(features, weights, f"stages.{stage}")
    return pixelwise(features, weights["to_image.weight"])


def plain_discriminator(weights: Weights, images: Tensor, labels: Tensor | None) -> Tensor:
    features = pixelwise(images, weights["from_image.weight"])
    for stage in range(STAGES):
        if stage:
            widen, halved = weights.get(f"stages.{stage}.widen.weight"), resampling(features.shape[-1] // 2).T / 2
            features = halved @ features @ halved.T
            features = features if widen is None else pixelwise(features, widen)
        features = plain_stage(features, weights, f"stages.{stage}")
    vectors = torch.einsum("nchw,chw->nc", features, weights["window.weight"][:, 0]) @ weights["last.weight"].T
    return vectors[:, 0] if labels is None else (vectors * weights["class_vectors.weight"][labels]).sum(dim=1)


@pytest.mark.parametrize("num_classes", [0, CLASSES])
def test_they_compute_the_published_formulas(num_classes: int) -> None:
    """With weights that are none of them zero, in float64."""
    drawn = torch.Generator().manual_seed(0)
    networks = [network.double() for network in networks_of(small(num_classes))]
    for parameter in [each for network in networks for each in network.parameters()]:
        fan_in = math.prod(parameter.shape[1:]) or 1
        values = torch.randn(parameter.shape, generator=drawn, dtype=torch.float64) / math.sqrt(fan_in)
        parameter.data.copy_(values)
    latents = torch.randn(4, 64, generator=drawn, dtype=torch.float64)
    labels = torch.tensor([0, 3, 3, 9]) if num_classes else None
    with torch.no_grad():
        images = networks[0](latents, labels)
        logits = networks[1](images, labels)
    weights = [dict(network.state_dict()) for network in networks]
    torch.testing.assert_close(images, plain_generator(weights[0], latents, labels), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(logits, plain_discriminator(weights[1], images, labels), rtol=1e-9, atol=1e-9)


def test_a_class_begins_at_the_authors_scale() -> None:
    """In their code both embeddings are linear layers of one-hot classes, scaled by the number of inputs: deviation
    0.316 of the generator's of ten classes, beside latents of deviation 1; the discriminator's a further square root of
    its length smaller.
    """
    generator, discriminator = networks_of(small())
    embedding, vectors = generator.with_class.embedding, discriminator.class_vectors
    assert embedding is not None
    assert vectors is not None
    assert float(embedding.weight.detach().std()) == pytest.approx(1 / math.sqrt(CLASSES), rel=0.1)
    assert tuple(vectors.weight.shape) == (CLASSES, 64)
    assert float(vectors.weight.detach().std()) == pytest.approx(1 / math.sqrt(CLASSES * 64), rel=0.1)


@pytest.mark.slow
def test_logits_and_penalty_of_a_class_begin_at_the_authors_scale() -> None:
    """Both are the unconditional ones' variances over the number of classes, on average over initial weights."""
    images = torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.arange(16) % CLASSES
    variances, penalties = list[float](), list[float]()
    for num_classes in (0, CLASSES):
        squares, gradients = list[float](), list[float]()
        for seed in range(16):
            discriminator = networks_of(small(num_classes, seed))[1]
            logits = discriminator(images, labels if num_classes else None)
            squares.append(float(logits.detach().square().mean()))
            (gradient,) = torch.autograd.grad(logits.sum(), images)
            gradients.append(float(gradient.square().sum(dim=(1, 2, 3)).mean()))
        variances.append(sum(squares) / len(squares))
        penalties.append(sum(gradients) / len(gradients))
    assert variances[1] / variances[0] == pytest.approx(1 / CLASSES, rel=0.5)
    assert penalties[1] / penalties[0] == pytest.approx(1 / CLASSES, rel=0.5)


def test_blocks_begin_as_the_identity() -> None:
    """Each branch ends in zeros, so that depth does not matter at the start."""
    block = _Block(16, 8, 16)
    features = torch.randn(2, 16, 4, 4)
    assert torch.equal(block(features), features)
    assert block.expand.weight.std() > 0


def test_a_branch_is_scaled_down_by_the_networks_depth() -> None:
    torch.manual_seed(0)
    shallow, deep = (_Block(128, depth, 16).expand.weight.std() for depth in (1, 16))
    torch.testing.assert_close(shallow / deep, torch.tensor(2.0), rtol=0.05, atol=0)


def test_widths_are_the_papers() -> None:
    """CIFAR-10: 768 channels throughout, hidden 1536 in 96 groups, about 20 million parameters a network."""
    generator, discriminator = build(PRESETS["r3gan-cifar10"])
    assert isinstance(generator, Generator)
    blocks = [module for module in generator.modules() if isinstance(module, _Block)]
    assert len(blocks) == 8
    assert {(block.mix.in_channels, block.mix.groups) for block in blocks} == {(1536, 96)}
    sizes = [sum(parameter.numel() for parameter in network.parameters()) for network in (generator, discriminator)]
    assert all(19e6 < size < 22e6 for size in sizes)


def test_widths_at_256_are_the_authors() -> None:
    """github.com/brownvc/R3GAN, train.py, preset FFHQ-256: two blocks at each size, in groups of 16 channels."""
    with torch.device("meta"):
        networks = build(PRESETS["r3gan-ffhq256"].replace({"channels_last": False}))
    for network, order in zip(networks, (1, -1), strict=True):
        blocks = [module for module in network.modules() if isinstance(module, _Block)]
        stages = [(768, 96)] * 4 + [(384, 48), (192, 24), (96, 12)]
        found = [(block.expand.in_channels, block.mix.groups) for block in blocks]
        assert found == [stage for stage in stages[::order] for _ in range(2)]


def test_widths_of_imagenet_are_the_authors() -> None:
    """The same, preset ImageNet-64: 1536 channels at every size, 96 groups; an embedding of a class of 64 beside the
    latents. About 104 million parameters a network, which the paper's table of ImageNet-64 has.
    """
    with torch.device("meta"):
        networks = build(PRESETS["r3gan-imagenet64"].replace({"channels_last": False}))
    for network in networks:
        blocks = [module for module in network.modules() if isinstance(module, _Block)]
        assert [(block.expand.in_channels, block.mix.groups) for block in blocks] == [(1536, 96)] * 10
    generator = networks[0]
    assert isinstance(generator, Generator)
    assert generator.scale.in_features == 64 + 64


@pytest.mark.parametrize(
    ("full_width_up_to", "widths"),
    [(16, [64] * 3 + [32, 16, 8]), (32, [64] * 4 + [32, 16]), (64, [64] * 5 + [32]), (256, [64] * 6)],
)
@pytest.mark.parametrize("group_width", [4, 16])
def test_above_a_size_the_width_halves_with_each_doubling(
    full_width_up_to: int, widths: list[int], group_width: int
) -> None:
    changes = {"resolution": 128, "ngf": 64, "ndf": 64, "full_width_up_to": full_width_up_to}
    networks = build(PRESETS["r3gan-cifar10"].replace({**changes, "group_width": group_width}))
    for network, order in zip(networks, (1, -1), strict=True):
        blocks = [module for module in network.modules() if isinstance(module, _Block)]
        assert [block.expand.in_channels for block in blocks] == [width for width in widths[::order] for _ in range(2)]
        assert [block.mix.groups for block in blocks] == [
            2 * block.expand.in_channels // group_width for block in blocks
        ]


@pytest.mark.parametrize(("resolution", "exact"), [(16, 1), (32, 1), (64, 1), (128, 2), (256, 3)])
def test_16_bits_are_for_the_largest_maps_alone(resolution: int, exact: int) -> None:
    """Of the authors' stages: all but 4x4 up to 64x64, the last four above."""
    config = PRESETS["r3gan-cifar10"].replace({"resolution": resolution, "ngf": 64, "ndf": 64, "num_classes": 0})
    networks, seen = build(config), list[torch.dtype]()
    for network in networks:
        network.precision = choose("bf16", torch.device("cpu"))
        for module in network.modules():
            if isinstance(module, _Block):
                module.mix.register_forward_hook(lambda _, __, output: seen.append(output.dtype))
    with torch.no_grad():
        networks[1](networks[0](torch.randn(1, config.z_dim)))
    low = [torch.bfloat16] * (len(seen) - 4 * exact)
    kept = [torch.float32] * 2 * exact
    assert seen == [*kept, *low, *kept], "in pairs: from 4x4 up, and down again"
