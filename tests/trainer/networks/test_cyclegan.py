"""CycleGAN's networks: the authors' numbers of weights, sizes at every resolution, and images that do not know each
other.
"""

import pytest
import torch

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.families.cyclegan import roles
from gangway.trainer.networks.base import Network

PHOTOS = PRESETS["cyclegan-photos"]


def _networks(config: TrainConfig) -> list[Network]:
    return [role.network for role in roles(config)]


def test_they_have_the_authors_weights_but_for_biases_that_a_norm_takes_away() -> None:
    """github.com/junyanz/pytorch-CycleGAN-and-pix2pix prints 11.378 M and 2.765 M for 256x256."""
    with torch.device("meta"):
        counts = [
            sum(weights.numel() for weights in network.parameters())
            for network in _networks(PHOTOS.replace({"resolution": 256, "ngf": 64, "ndf": 64}))
        ]
    generator, discriminator = 11_378_179, 2_764_737
    before_norms = 64 + 128 + 256 + 9 * 2 * 256 + 128 + 64, 128 + 256 + 512
    assert counts == [generator - before_norms[0]] * 2 + [discriminator - before_norms[1]] * 2


@pytest.mark.parametrize(("resolution", "patches"), [(16, 2), (32, 2), (64, 6), (128, 14), (256, 30)])
def test_shapes_at_every_resolution(resolution: int, patches: int) -> None:
    config = PHOTOS.replace({"resolution": resolution, "ngf": 2, "ndf": 2})
    images = torch.empty(2, *config.image_shape, device="meta")
    there, back, of_a, of_b = (network.to("meta") for network in _networks(config))
    assert there(images).shape == back(images).shape == images.shape
    assert of_a(images).shape == of_b(images).shape == (2, 1, patches, patches)


def test_an_output_of_the_discriminator_sees_70_pixels_each_way() -> None:
    """Without norms, each of which looks at the whole image."""
    config = PHOTOS.replace({"resolution": 256, "ngf": 1, "ndf": 1})
    judge = _networks(config)[2]
    layers = torch.nn.Sequential(*[layer for layer in judge.children() for layer in layer.children()])
    plain = torch.nn.Sequential(*[layer for layer in layers if not isinstance(layer, torch.nn.GroupNorm)])
    images = torch.randn(1, *config.image_shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    plain(images)[0, 0, 15, 15].backward()
    assert images.grad is not None
    rows = images.grad.abs().sum(dim=(0, 1, 3)).nonzero().flatten()
    assert int(rows.max() - rows.min()) + 1 == 70


def test_no_image_knows_its_neighbours_and_nothing_is_kept_beside_weights() -> None:
    config = PHOTOS.replace({"resolution": 16, "ngf": 4, "ndf": 4})
    images = torch.randn(3, *config.image_shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for network in _networks(config):
        network.double()
        assert not [*network.buffers()]
        torch.testing.assert_close(network(images)[1:], network(images[1:]))


def test_weights_depend_on_the_seed_alone_and_no_two_networks_begin_alike() -> None:
    config = PHOTOS.replace({"resolution": 16, "ngf": 4, "ndf": 4})
    torch.manual_seed(7)
    first, state = _networks(config), torch.get_rng_state()
    same, other = _networks(config.replace({"channels_last": False})), _networks(config.replace({"seed": 1}))
    assert torch.equal(state, torch.get_rng_state())

    def weights(networks: list[Network]) -> list[torch.Tensor]:
        return [next(network.parameters()) for network in networks]

    assert all(map(torch.equal, weights(first), weights(same)))
    assert not any(map(torch.equal, weights(first), weights(other)))
    assert not torch.equal(weights(first)[0], weights(first)[1])
    assert not torch.equal(weights(first)[2], weights(first)[3])


def test_the_first_translations_have_a_scale_like_the_real_images() -> None:
    there, _, of_a, _ = _networks(PHOTOS)
    images = torch.randn(4, *PHOTOS.image_shape, generator=torch.Generator().manual_seed(0)).tanh()
    translated = there(images)
    assert 0.1 < translated.std() < 1
    assert 1e-3 < of_a(translated).std() < 10


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("role", [0, 2])
def test_gradients_do_not_depend_on_the_layout(role: int, images: int) -> None:
    config = PHOTOS.replace({"resolution": 16, "ngf": 4, "ndf": 4})
    drawn = torch.Generator().manual_seed(0)
    given = torch.randn(images, *config.image_shape, dtype=torch.float64, generator=drawn)
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        last = layout == torch.channels_last
        network = _networks(config.replace({"channels_last": last}))[role].double()
        made = network(given.contiguous(memory_format=layout))
        (made * torch.arange(made.numel()).reshape(made.shape)).mean().backward()
        found.append([parameter.grad for parameter in network.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_a_norm_is_torchs_instance_norm() -> None:
    features = 3 * torch.randn(3, 8, 5, 5, generator=torch.Generator().manual_seed(0)) + 1
    norm = next(layer for layer in _networks(PHOTOS)[0].modules() if isinstance(layer, torch.nn.GroupNorm))
    assert norm.num_groups == norm.num_channels
    wanted = torch.nn.functional.instance_norm(features)
    torch.testing.assert_close(torch.nn.functional.group_norm(features, 8, eps=norm.eps), wanted)
