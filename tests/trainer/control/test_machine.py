"""What the machine of a session is found to be: the cores that its quota leaves, formats that its devices refuse."""

import pytest
import torch

from gangway.trainer.config.presets import preset
from gangway.trainer.config.values.control import Bounds
from gangway.trainer.control.actuators import Actuators
from gangway.trainer.control.guardrails import Machine
from gangway.trainer.control.machine import get_machine
from gangway.trainer.data.loader import AS_SUITS
from gangway.trainer.distributed.world import World
from gangway.trainer.networks import precision

CONFIG = preset("dcgan-digits").replace({"batch_size": 8, "precision": "fp32"})
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
    monkeypatch.setattr("gangway.trainer.control.machine.usable_cores", lambda: 3)
    assert _machine("cpu").cores == 3
