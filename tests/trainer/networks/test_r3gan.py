"""R3GAN's networks: what Fixup promises of them at the start, and the widths of the paper."""

import pytest
import torch

from trainer.config.presets import PRESETS
from trainer.networks.factory import build
from trainer.networks.r3gan import Generator, _Block
from trainer.steps.precision import choose


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
