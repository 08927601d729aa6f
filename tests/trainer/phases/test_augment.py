"""DiffAugment: differentiable, one image at a time, and exactly what the drawn numbers say."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.world import World
from gangway.trainer.phases.augment import EVERY_STEPS, GATES, UNIFORMS, adapt_p, diffaugment, first_p, is_due
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import Game, adapt


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


ADAPTIVE = PRESETS["dcgan-cifar10"].replace({"ada_target": 0.6, "ada_kimg": 100, "batch_size": 50})
TINY = ADAPTIVE.replace({"resolution": 16, "ngf": 1, "ndf": 1, "z_dim": 1})


def next_p(p: float, sign: int, config: TrainConfig = ADAPTIVE) -> torch.Tensor:
    return adapt_p(torch.tensor(p, dtype=torch.float64), torch.tensor(sign), EVERY_STEPS * config.step_images, config)


def test_it_is_due_every_fourth_step_if_at_all() -> None:
    assert [step for step in range(1, 13) if is_due(ADAPTIVE, step)] == [4, 8, 12]
    assert not is_due(PRESETS["dcgan-cifar10"], 4)
    assert (first_p(ADAPTIVE), first_p(PRESETS["dcgan-cifar10"])) == (0, 1)


@pytest.mark.parametrize(
    ("sign", "p", "expected"), [(160, 0.5, 0.502), (80, 0.5, 0.498), (200, 1.0, 1.0), (0, 0.0, 0.0)]
)
def test_p_moves_by_its_speed_and_stays_a_probability(sign: int, p: float, expected: float) -> None:
    """4 steps of 50 images are 200 of 100,000."""
    assert float(next_p(p, sign)) == pytest.approx(expected)


@given(
    signs=st.lists(st.integers(-1, 1), min_size=50, max_size=50),
    cuts=st.lists(st.integers(0, 50), max_size=6),
    p=st.floats(0, 1),
)
def test_p_does_not_depend_on_how_the_batch_is_spread(signs: list[int], cuts: list[int], p: float) -> None:
    """As the loop sums them: each worker's float32 mean over a micro-batch, times its images."""
    edges = [0, *sorted(cuts), 50]
    parts = [signs[start:stop] for start, stop in itertools.pairwise(edges) if stop > start]
    spread = [float(torch.tensor(part, dtype=torch.float32).mean() * len(part)) for part in parts]
    assert next_p(p, sum(map(round, spread))) == next_p(p, sum(signs))


@pytest.mark.slow
@given(batches=st.lists(st.integers(-50, 50), min_size=8, max_size=8))
def test_r_t_is_the_mean_sign_of_the_batches_since_the_last_adjustment(batches: list[int]) -> None:
    """Karras et al. 2020, section 3.1: adjusted once every four minibatches, by the reals of all four; also where a
    checkpoint comes between.
    """
    state = TrainState.create(TINY, torch.device("cpu"))
    game = Game(TINY, World.alone(torch.device("cpu")), (), {})
    change, wanted = 4 * 50 / 100_000, 0.5
    state.augment_p = wanted
    for first in range(0, 8, 4):
        for sign in batches[first : first + 4]:
            state.step += 1
            adapt(state, game, torch.tensor(float(sign)))
            saved, state = state.state_dict(), TrainState.create(TINY, torch.device("cpu"))
            state.load_state_dict(saved)
        r_t = sum(batches[first : first + 4]) / (4 * 50)
        wanted += change if r_t > 0.6 else -change
        assert float(state.augment_p) == pytest.approx(wanted)


@given(signs=st.lists(st.integers(-50, 50), min_size=1, max_size=400))
def test_p_is_a_probability_for_ever(signs: list[int]) -> None:
    p = first_p(ADAPTIVE)
    for sign in signs:
        p = float(next_p(p, sign, ADAPTIVE.replace({"ada_kimg": 0.5})))
        assert 0 <= p <= 1


@pytest.mark.parametrize("shape", [(4, 3, 16, 16), (4, 3, 4, 16, 16)], ids=["images", "clips"])
def test_a_gate_leaves_its_part_out_of_its_image(shape: tuple[int, ...]) -> None:
    drawn = torch.Generator().manual_seed(0)
    images, uniforms = torch.rand(shape, generator=drawn), torch.rand(4, UNIFORMS, generator=drawn)
    gates = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]]).float()
    assert gates.shape[1] == GATES
    augmented = diffaugment(images, "color,translation,cutout", torch.cat([uniforms, gates], dim=1))
    for number, policy in enumerate(("none", "color", "translation", "color,translation,cutout")):
        one = slice(number, number + 1)
        torch.testing.assert_close(augmented[one], diffaugment(images[one], policy, uniforms[one]))


def test_every_frame_of_a_clip_is_augmented_alike() -> None:
    drawn = torch.Generator().manual_seed(0)
    frame, uniforms = torch.rand(2, 3, 1, 16, 16, generator=drawn), torch.rand(2, UNIFORMS, generator=drawn)
    still = frame.expand(-1, -1, 5, -1, -1)
    for policy in ("color", "translation", "cutout"):
        augmented = diffaugment(still, policy, uniforms)
        torch.testing.assert_close(
            augmented, diffaugment(frame[:, :, 0], policy, uniforms)[:, :, None].expand_as(still)
        )


def test_the_target_is_of_the_configuration(families: dict[str, tuple[TrainConfig, object]]) -> None:
    config, _ = families["dcgan-ada"]
    assert config.ada_target > 0
    assert EVERY_STEPS * config.step_images / (config.ada_kimg * 1000) == pytest.approx(0.48)
