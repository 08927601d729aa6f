"""DiffAugment: differentiable, one image at a time, and exactly what the drawn numbers say."""

import pytest
import torch

from gangway.trainer.phases.augment import UNIFORMS, diffaugment


def _uniforms(num: int, **columns: float) -> torch.Tensor:
    """All draws in the middle (no change), but for the named ones."""
    names = ["brightness", "saturation", "contrast", "down", "right", "hole_y", "hole_x"]
    drawn = torch.full((num, UNIFORMS), 0.5)
    for name, value in columns.items():
        drawn[:, names.index(name)] = value
    return drawn


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_none_changes_nothing(images: torch.Tensor) -> None:
    assert torch.equal(diffaugment(images, "none", torch.rand(4, UNIFORMS)), images)


def test_middle_draws_neither_shift_nor_recolour(images: torch.Tensor) -> None:
    assert torch.equal(diffaugment(images, "translation", _uniforms(4)), images)
    torch.testing.assert_close(diffaugment(images, "color", _uniforms(4)), images)


def test_translation_moves_by_whole_pixels_and_repeats_the_border(images: torch.Tensor) -> None:
    moved = diffaugment(images, "translation", _uniforms(4, down=0.999, right=0.0))
    torch.testing.assert_close(moved[:, :, :-2, 2:], images[:, :, 2:, :-2])
    torch.testing.assert_close(moved[:, :, -1, 2:], images[:, :, -1, :-2])
    torch.testing.assert_close(moved[:, :, :-2, 0], images[:, :, 2:, 0])


def test_cutout_clears_a_quarter_of_the_area_when_centred(images: torch.Tensor) -> None:
    holed = diffaugment(images, "cutout", _uniforms(4))
    assert (holed[:, :, 4:12, 4:12] == 0).all()
    assert int((holed == 0).sum()) == 4 * 3 * 64
    cornered = diffaugment(images, "cutout", _uniforms(4, hole_y=0.0, hole_x=0.0))
    assert int((cornered == 0).sum()) == 4 * 3 * 16


def test_color_moves_brightness_saturation_and_contrast(images: torch.Tensor) -> None:
    brighter = diffaugment(images, "color", _uniforms(4, brightness=1.0))
    torch.testing.assert_close(brighter.mean(), images.mean() + 0.5)
    grey = diffaugment(images, "color", _uniforms(4, saturation=0.0))
    torch.testing.assert_close(grey[:, 0], grey[:, 2])
    flat = diffaugment(images, "color", _uniforms(4, contrast=0.0))
    torch.testing.assert_close(flat.std(), images.std() / 2, atol=1e-3, rtol=1e-2)


def test_an_image_is_augmented_alike_in_any_batch(images: torch.Tensor) -> None:
    uniforms = torch.rand(4, UNIFORMS, generator=torch.Generator().manual_seed(1))
    policy = "color,translation,cutout"
    whole = diffaugment(images, policy, uniforms)
    halves = [diffaugment(images[part], policy, uniforms[part]) for part in (slice(0, 1), slice(1, 4))]
    torch.testing.assert_close(whole, torch.cat(halves))


def test_gradients_pass_through() -> None:
    images = torch.rand(2, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    uniforms = torch.rand(2, UNIFORMS, dtype=torch.float64)

    def augmented(values: torch.Tensor) -> torch.Tensor:
        return diffaugment(values, "color,translation,cutout", uniforms)

    assert torch.autograd.gradcheck(augmented, (images,))


@pytest.mark.slow
def test_compiled_channels_last_images_move_as_others_do_and_so_do_their_gradients() -> None:
    """To the bit, but where the border was repeated: there gradients add up in any order."""
    drawn = torch.Generator().manual_seed(0)
    images = torch.rand(4, 3, 16, 16, generator=drawn).to(memory_format=torch.channels_last).requires_grad_()
    uniforms, weights = torch.rand(4, UNIFORMS, generator=drawn), torch.rand(4, 3, 16, 16, generator=drawn)
    found = []
    for augment in (diffaugment, torch.compile(diffaugment, fullgraph=True, dynamic=False)):
        moved = augment(images, "translation", uniforms)
        found.append((moved.detach(), *torch.autograd.grad(moved, images, weights)))
    (moved, gradient), (compiled, of_compiled) = found
    assert torch.equal(compiled, moved)
    assert torch.equal(of_compiled[:, :, 2:-2, 2:-2], gradient[:, :, 2:-2, 2:-2])
    torch.testing.assert_close(of_compiled, gradient)
