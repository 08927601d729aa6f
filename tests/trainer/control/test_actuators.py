"""Knobs of a process are turned where they are, and a batch brings its step sizes along."""

import math
from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.config.presets import preset
from gangway.trainer.config.values.control import Bounds
from gangway.trainer.control.actuators import SEGMENT_KNOBS, Actuators, get_changes, get_machine
from gangway.trainer.control.guardrails import Machine
from gangway.trainer.control.interval import Decision, Knobs
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.loader import AS_SUITS
from gangway.trainer.distributed.world import World, start_world
from gangway.trainer.networks import precision
from gangway.trainer.phases.batch import Batch
from gangway.trainer.power.limits import Limiter
from tests.trainer.local_training import ImagesInMemory

CONFIG = preset("dcgan-digits").replace({"batch_size": 8, "precision": "fp32"})


@pytest.fixture
def world() -> Iterator[World]:
    before = torch.get_num_threads()
    with start_world("gloo") as world:
        yield world
    torch.set_num_threads(before)


@pytest.fixture
def batch(world: World) -> Iterator[Batch]:
    images = np.arange(64, dtype=np.uint8).reshape(64, 1, 1, 1).repeat(32, 2).repeat(32, 3)
    batch = Batch(CONFIG, world, ImagesInMemory(images))
    yield batch
    batch.close()


def test_what_is_turned_is_what_the_knobs_say_then(world: World, batch: Batch) -> None:
    actuators = Actuators(CONFIG, AS_SUITS, world, None)
    begun = actuators.knobs(CONFIG)
    for knob, value in (("loader_threads", 3), ("prefetch", 4), ("threads", 1)):
        actuators.turn(knob, value, batch)
    assert actuators.knobs(CONFIG) == begun._replace(loader_threads=3, prefetch=4, threads=1)
    assert torch.get_num_threads() == 1
    assert actuators.reading == (3, 4)


def test_no_image_is_another_one_for_it(world: World, batch: Batch) -> None:
    other = Batch(CONFIG, world, ImagesInMemory(np.zeros((64, 1, 32, 32), np.uint8)))
    digests = [other.order(images) for images in range(0, 64, 8)]
    other.close()
    actuators, found = Actuators(CONFIG, AS_SUITS, world, None), []
    for number in range(8):
        found.append(batch.order(8 * number))
        actuators.turn("loader_threads", 1 + number % 3, batch)
        actuators.turn("prefetch", 1 + number % 4, batch)
    assert found == digests


def test_a_session_that_goes_on_has_what_was_turned(world: World, batch: Batch) -> None:
    actuators = Actuators(CONFIG, AS_SUITS, world, None)
    actuators.restore({"loader_threads": 2, "batch_size": 99}, batch)
    assert actuators.knobs(CONFIG) == actuators.start._replace(loader_threads=2), "the batch is the segment's"


def test_power_that_is_nobodys_to_limit_is_said(world: World, batch: Batch) -> None:
    actuators = Actuators(CONFIG, AS_SUITS, world, None)
    with pytest.raises(TrainerError, match="nobody's to limit"):
        actuators.turn("power_share", 0.8, batch)
    assert actuators.knobs(CONFIG).power_share == 1


def test_power_that_cannot_be_set_any_more_ends_no_session_that_goes_on(world: World, batch: Batch) -> None:
    actuators = Actuators(CONFIG, AS_SUITS, world, None)
    troubles = actuators.restore({"power_share": 0.8, "prefetch": 4}, batch)
    assert list(troubles) == ["power_share"]
    assert actuators.knobs(CONFIG) == actuators.start._replace(prefetch=4)


class _Once:
    """A limiter that obeys once, and has put all back when it refuses."""

    def __init__(self) -> None:
        self._answers = ["", "NVML: busy"]

    def set_share(self, share: float) -> str:
        return self._answers.pop(0)


def test_power_that_was_put_back_is_whole_again(world: World, batch: Batch) -> None:
    actuators = Actuators(CONFIG, AS_SUITS, world, cast(Limiter, _Once()))
    actuators.turn("power_share", 0.8, batch)
    assert actuators.knobs(CONFIG).power_share == 0.8
    with pytest.raises(TrainerError, match="busy"):
        actuators.turn("power_share", 0.9, batch)
    assert actuators.knobs(CONFIG).power_share == 1


def _decision(knob: str, value: int | str, was: int | str) -> Decision:
    return Decision(knob, value, was, "rules", "", 0.1, "")


@given(st.lists(st.sampled_from([8, 16, 32, 64, 128]), min_size=1, max_size=6))
def test_step_sizes_follow_the_batch_by_its_square_root(sizes: list[int]) -> None:
    """Over any way there, and back at the first batch they are the first ones."""
    factor, was = 1.0, 32
    for size in [*sizes, 32]:
        changes = get_changes(_decision("batch_size", size, was), factor)
        assert changes["batch_size"] == size
        factor, was = float(changes["lr_factor"]), size
        assert factor == pytest.approx(math.sqrt(size / 32))


def test_what_is_no_batch_changes_itself_alone() -> None:
    assert get_changes(_decision("precision", "bf16", "fp32"), 3.0) == {"precision": "bf16"}
    assert get_changes(_decision("batch_gpu", 8, 0), 3.0) == {"batch_gpu": 8}


def test_every_knob_is_of_the_process_of_a_segment_or_of_the_cluster() -> None:
    assert set(SEGMENT_KNOBS) < set(Knobs._fields)


ALL = Bounds(precision=("fp32", "bf16", "fp16"))


def _machine(device: str, bounds: Bounds = ALL) -> Machine:
    world = World(0, 0, 1, 0, 1, torch.device(device), "none", "")
    return get_machine(world, CONFIG, Actuators(CONFIG, AS_SUITS, world, None), bounds, ())


def test_an_old_gpu_is_never_asked_for_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (7, 0))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "Tesla V100")
    found = _machine("cuda:0")
    assert [name for name, _ in found.refused] == ["bf16"]
    assert "Tesla V100" in found.refused[0][1]
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    assert _machine("cuda:0").refused == ()


@pytest.mark.parametrize(("flags", "refused"), [((), ["bf16", "fp16"]), (("amx_bf16",), ["fp16"])])
def test_a_cpu_is_asked_for_what_it_has_instructions_for(
    flags: tuple[str, ...], refused: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "cpu_flags", lambda *_: frozenset(flags))
    found = _machine("cpu")
    assert [name for name, _ in found.refused] == refused
    assert found.on_cpu
    assert _machine("cpu", Bounds()).refused == ()


def test_a_quota_bounds_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.trainer.control.actuators.usable_cores", lambda: 3)
    assert _machine("cpu").cores == 3
