"""Memory that is kept costs no new pages; networks that do not fit are refused to the byte; a CPU's lack is told."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import LoneError, TrainerError
from gangway.trainer.distributed.world import World
from gangway.trainer.run.session_setup import check_networks_fit, enough_memory
from gangway.trainer.steps.state import TrainState

CODE = """
import resource, sys
from gangway.trainer.run.session_setup import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory() == "glibc, freed memory kept"
block = bytearray(64 << 20)
del block
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    block = bytearray(b"x") * (64 << 20)
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _page_faults(mode: str) -> int:
    return int(subprocess.run([sys.executable, "-c", CODE, mode], capture_output=True, check=True, timeout=60).stdout)


@pytest.mark.slow
def test_kept_memory_is_not_mapped_anew() -> None:
    assert _page_faults("keep") < _page_faults("leave") / 10


def _world(device: str = "cpu", world_size: int = 1, num_nodes: int = 1) -> World:
    return World(0, 0, world_size, 0, num_nodes, torch.device(device), "gloo", "")


def _after_a_step(config: TrainConfig) -> Iterator[torch.Tensor]:
    """All tensors that a state is made of once all networks have been updated."""
    state = TrainState.create(config, torch.device("cpu"))
    for average in state.averages_on(torch.device("cpu")).values():
        yield from average.parameters()
    for role in state.learners:
        for parameter in role.network.parameters():
            parameter.grad = torch.zeros_like(parameter)
            yield from (parameter, parameter.grad)
        role.learner.step()
        yield from (each for moments in role.learner.state.values() for name, each in moments.items() if name != "step")


def _refused(
    config: TrainConfig, world: World, monkeypatch: pytest.MonkeyPatch, free_bytes: int
) -> TrainerError | None:
    monkeypatch.setattr("gangway.trainer.run.session_setup.free_host_memory_gib", lambda: free_bytes / (1 << 30))
    try:
        check_networks_fit(config, world)
    except TrainerError as error:
        return error
    return None


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_networks_are_refused_by_the_bytes_that_a_step_leaves(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    width = 64 if preset == "r3gan-ffhq256" else 16  # as its convolutions take at that size
    config = PRESETS[preset].replace({"ngf": width, "ndf": width})
    needed = sum(tensor.numel() * tensor.element_size() for tensor in _after_a_step(config))
    assert _refused(config, _world(), monkeypatch, needed) is None
    assert _refused(config, _world(), monkeypatch, needed - 1) is not None
    assert _refused(config, _world(world_size=4, num_nodes=2), monkeypatch, 2 * needed) is None
    assert _refused(config, _world(world_size=4, num_nodes=2), monkeypatch, 2 * needed - 1) is not None


def test_what_trains_elsewhere_or_in_parts_needs_its_weights_here_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    config = PRESETS["dcgan-digits"]
    state = TrainState.create(config, torch.device("cpu"))
    made = [*state.generator.parameters(), *state.ema.parameters(), *state.discriminator.parameters()]
    needed = sum(tensor.numel() * tensor.element_size() for tensor in made)
    for there, world in ((config, _world("meta")), (config.replace({"shard": "fsdp2"}), _world())):
        assert _refused(there, world, monkeypatch, needed) is None
        assert _refused(there, world, monkeypatch, needed - 1) is not None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"ngf": 4096}, "ngf"),
        ({"ndf": 4096}, "ndf"),
        ({"z_dim": 65536, "ngf": 64}, "z_dim"),
        ({"z_dim": 65536, "ngf": 1, "ndf": 1, "num_classes": 10}, "z_dim"),
        ({"num_classes": 65536, "z_dim": 256}, "num_classes"),
    ],
)
def test_the_field_whose_change_helps_is_named(
    changes: dict[str, object], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = PRESETS["dcgan-digits"].replace(changes)
    error = _refused(config, _world(world_size=2), monkeypatch, 1 << 28)
    assert error is not None
    assert (error.place, error.value) == (f"TrainConfig.{field}", getattr(config, field))
    assert error.problem.startswith("the networks' weights, gradients, moments and average need ")
    assert error.problem.endswith(" GiB for 2 workers on a node")
    assert error.allowed == "what fits into the 0.2 GiB that are free here"
    flag = f"--{field.replace('_', '-')}"
    assert error.fix == f"a smaller {flag}, fewer workers on a node, or a node with more memory"


def test_a_cpu_that_refuses_a_tensor_names_the_micro_batch() -> None:
    with (
        pytest.raises(
            LoneError, match=r"on 64 image\(s\) at once \(no room for a tensor of 4,194,304\.0 GiB\)"
        ) as caught,
        enough_memory(PRESETS["dcgan-digits"], _world()),
    ):
        torch.empty(1 << 52, dtype=torch.uint8)
    assert caught.value.fix.startswith("--batch-gpu 32:")


def test_any_other_error_of_torch_is_passed_on() -> None:
    with pytest.raises(RuntimeError, match="size of tensor"), enough_memory(PRESETS["dcgan-digits"], _world()):
        torch.ones(2) + torch.ones(3)
