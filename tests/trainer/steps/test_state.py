"""The run's state: saving and loading is exact, the average follows, multiples of kimg are counted once."""

import copy

import torch
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.checkpoint.store import state_digests
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.steps.state import TrainState

CPU = torch.device("cpu")


def _step(state: TrainState) -> None:
    for network, optimiser in (
        (state.generator, state.roles["generator"].learner),
        (state.discriminator, state.roles["discriminator"].learner),
    ):
        for parameter in network.parameters():
            parameter.grad = torch.full_like(parameter, 0.1)
        optimiser.step()
    state.images, state.step = state.images + 16, state.step + 1
    state.update_ema()


def test_a_loaded_state_is_the_saved_one(tiny_config: TrainConfig) -> None:
    state, other = TrainState.create(tiny_config, CPU), TrainState.create(tiny_config, CPU)
    _step(state)
    before = state_digests(other.state_dict())
    other.load_state_dict(state.state_dict())
    after = state_digests(other.state_dict())
    assert after == state_digests(state.state_dict())
    assert all(after[part] != before[part] for part in ("images", "step", "g", "d", "ema", "opt_g", "opt_d"))
    assert other.step == 1


def test_moments_of_another_memory_layout_are_loaded_into_the_parameters_own(tiny_config: TrainConfig) -> None:
    """Adam's fused kernel takes numbers as they lie in memory; XLA's checkpoints know no channels_last."""
    state, usual, plain = (TrainState.create(tiny_config, CPU) for _ in range(3))
    for parameter in state.generator.parameters():
        parameter.grad = torch.randn_like(parameter)
    state.roles["generator"].learner.step()
    saved = copy.deepcopy(state.state_dict())
    usual.load_state_dict(copy.deepcopy(saved))
    for entry in saved["opt_g"]["state"].values():
        for name, moment in entry.items():
            entry[name] = moment.contiguous()
    plain.load_state_dict(saved)
    for loaded in (usual, plain):
        for parameter, source in zip(loaded.generator.parameters(), state.generator.parameters(), strict=True):
            parameter.grad = source.grad
        loaded.roles["generator"].learner.step()
    assert any(not parameter.is_contiguous() for parameter in usual.generator.parameters()), "or this shows nothing"
    assert state_digests(plain.state_dict()) == state_digests(usual.state_dict())


def test_a_device_keeps_its_own_kernels(tiny_config: TrainConfig) -> None:
    state = TrainState.create(tiny_config, CPU)
    _step(state)
    saved = state.state_dict()
    for name in ("opt_g", "opt_d"):
        saved[name]["param_groups"][0].update(fused=False, capturable=True)  # as on XLA
    other = TrainState.create(tiny_config, CPU)
    other.load_state_dict(saved)
    assert other.roles["generator"].learner.param_groups[0]["fused"]
    assert not other.roles["generator"].learner.param_groups[0]["capturable"]


def test_the_average_is_copied_only_to_another_device(tiny_config: TrainConfig) -> None:
    state = TrainState.create(tiny_config, CPU)
    assert state.ema_on(CPU) is state.ema
    assert {parameter.device.type for parameter in state.ema_on(torch.device("meta")).parameters()} == {"meta"}


def test_the_average_has_the_configured_half_life(tiny_config: TrainConfig) -> None:
    state = TrainState.create(tiny_config.replace({"ema_kimg": 0.16}), CPU)
    state.images = 1_000_000  # long past the growth of the half-life
    for parameter in state.generator.parameters():
        torch.nn.init.ones_(parameter)
    for parameter in state.ema.parameters():
        torch.nn.init.zeros_(parameter)
    for _ in range(10):  # 160 images
        state.update_ema()
    torch.testing.assert_close(next(state.ema.parameters()).mean(), torch.tensor(0.5))


def test_without_averaging_the_average_is_the_generator(tiny_config: TrainConfig) -> None:
    state = TrainState.create(tiny_config.replace({"ema_kimg": 0}), CPU)
    _step(state)
    for averaged, present in zip(state.ema.parameters(), state.generator.parameters(), strict=True):
        torch.testing.assert_close(averaged, present)


@given(batch_size=st.integers(1, 500), kimg=st.floats(0.01, 3))
def test_a_multiple_is_passed_exactly_once(batch_size: int, kimg: float) -> None:
    config = PRESETS["dcgan-digits"].replace({"batch_size": batch_size, "ngf": 1, "ndf": 1, "z_dim": 1})
    state = TrainState.create(config, CPU)
    passed = 0
    for step in range(1, 50):
        state.images = step * batch_size
        passed += state.passed(kimg)
    expected = state.images // (kimg * 1000)
    assert passed == expected if batch_size <= kimg * 1000 else passed <= expected
