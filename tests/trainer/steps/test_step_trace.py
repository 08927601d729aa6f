"""Memory of a step: the estimate, the trace on the meta device and steps that are made come to the same."""

import gc

import numpy as np
import pytest
import torch

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.step_memory import GIB, estimate
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step_trace import LiveBytes, trace_step
from tests.trainer.local_training import local_train

_GROWN = {"stable_kimg": 1e-6, "fade_kimg": 1e-6, "kimg": 1.0}
_PLAIN = {"precision": "fp32", "schedules": {}, "segments": ()}
SMALL: dict[str, tuple[str, dict[str, object]]] = {
    "dcgan": ("dcgan-cifar10", {"ngf": 32, "ndf": 32, "batch_size": 32}),
    "dcgan-deep": ("dcgan-celeba64", {"ngf": 16, "ndf": 32, "batch_size": 16}),
    "resnet": ("wgan-gp-cifar10", {"ngf": 32, "ndf": 32, "batch_size": 8, "d_steps": 1}),
    "r3gan": ("r3gan-cifar10", {"ngf": 32, "ndf": 32, "batch_size": 8, **_PLAIN}),
    "r3gan-micro": ("r3gan-cifar10", {"ngf": 32, "ndf": 32, "batch_size": 8, "batch_gpu": 4, **_PLAIN}),
    "r3gan-wide": (
        "r3gan-imagenet64",
        {"ngf": 32, "ndf": 32, "batch_size": 2, "batch_gpu": 0, "num_classes": 4, **_PLAIN},
    ),
    "progressive": ("progan-celeba128", {"ngf": 16, "ndf": 16, "resolution": 32, "batch_size": 16, **_GROWN}),
    "video": ("progan-video-ucf101", {"ngf": 8, "ndf": 8, "resolution": 16, "frames": 4, "batch_size": 16, **_GROWN}),
    "cyclegan": ("cyclegan-photos", {"batch_size": 2}),
    "cyclegan-two-passes": ("cyclegan-photos", {"batch_size": 2, "identity_weight": 0.0}),
}


def small(name: str) -> TrainConfig:
    preset, changes = SMALL[name]
    return PRESETS[preset].replace(changes)


def measured_gib(config: TrainConfig) -> float:
    """The most that tensors take in two steps on this processor; networks that grow are at their full size."""
    state = TrainState.create(config, torch.device("cpu"))
    if config.architecture == "progressive":
        state.images = config.total_images - 2 * config.step_images
        state.advance()
    images = np.zeros((2 * config.batch_size, *config.image_shape), np.uint8)
    labels = np.arange(len(images)) % config.num_labels if config.num_labels else None
    live = LiveBytes()
    for role in state.roles.values():
        for network in (role.network, role.ema):
            for parameter in () if network is None else network.parameters():
                live.add(parameter)
    state.step = 0  # with penalties
    with live.watching():
        local_train(state, images, labels, steps=2)
    return live.peak / GIB


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_estimate_and_trace_are_what_a_step_on_a_processor_takes(name: str) -> None:
    config = small(name)
    measured = measured_gib(config)
    assert trace_step(config).total == pytest.approx(measured, rel=0.1)
    assert estimate(config).total == pytest.approx(measured, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_estimates_of_presets_are_what_torch_traces(name: str) -> None:
    """As they are, in 16 bits too, on as many workers as a node has, or on one where a batch is too small for them."""
    config = PRESETS[name]
    workers = 8 if config.batch_size >= 8 * config.group else 1
    estimated, traced = estimate(config, workers), trace_step(config, workers)
    assert estimated.total == pytest.approx(traced.total, rel=0.15)
    assert estimated[:3] == pytest.approx(traced[:3], rel=0.01), "weights, average, moments"


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["dcgan", "resnet", "r3gan", "progressive"])
@pytest.mark.parametrize(
    "game",
    [
        {"loss": "nonsaturating", "r1_gamma": 0.0, "r1_interval": 1},
        {"loss": "nonsaturating", "r1_gamma": 1.0},
        {"loss": "nonsaturating", "r1_gamma": 1.0, "r2_gamma": 1.0},
        {"loss": "wgan-gp", "r1_gamma": 0.0, "gp_weight": 10.0, "r1_interval": 1},
        {"loss": "relativistic", "r1_gamma": 1.0, "r2_gamma": 1.0, "g_reals": "fresh"},
    ],
    ids=["no-penalty", "r1", "r1-r2", "gp", "relativistic"],
)
def test_estimates_hold_for_every_penalty(architecture: str, game: dict[str, object]) -> None:
    grown = _GROWN if architecture == "progressive" else {}
    changes = {"architecture": architecture, "ngf": 64, "ndf": 64, "batch_size": 256, "resolution": 64, "channels": 3}
    config = PRESETS["dcgan-digits"].replace({"dataset": "folder", **changes, **grown, **game})
    assert estimate(config).total == pytest.approx(trace_step(config).total, rel=0.15)


def test_half_precision_halves_what_is_kept_but_not_under_penalties_in_fp16() -> None:
    config = PRESETS["dcgan-celeba64"].replace({"batch_size": 512})
    exact, bf16, fp16 = (trace_step(config.replace({"precision": each})) for each in ("fp32", "bf16", "fp16"))
    assert bf16.activations < 0.6 * exact.activations
    assert bf16.activations < fp16.activations <= exact.activations
    for precision, traced in (("bf16", bf16), ("fp16", fp16)):
        assert estimate(config.replace({"precision": precision})).total == pytest.approx(traced.total, rel=0.15)


@pytest.mark.slow
def test_memory_is_counted_once_and_until_it_is_freed() -> None:
    live = LiveBytes(lambda: 7)
    first = torch.empty(1000, dtype=torch.uint8)
    live.add(first)
    live.add(first.view(10, 100))
    assert (live.now, live.peak, live.beside) == (1000, 1000, 7)
    with live.watching():
        both = torch.cat([first, first])
        parts = both[:500], both[500:]
    assert (live.now, live.peak) == (3000, 3000)
    del both, parts
    gc.collect()
    assert (live.now, live.peak) == (1000, 3000)
