"""The work of a step: equal to what is counted by hand, growing as it must, and the share of a peak from it."""

import math

import pytest
import torch

from trainer.config import TrainConfig
from trainer.figure import Figure
from trainer.flops import StepFlops, count_step, step_flops
from trainer.networks import build
from trainer.record import RunContext


def _forward_flops(network: torch.nn.Module) -> int:
    """Multiplications and additions of the convolutions for one image, from their shapes."""
    total = 0

    def add(module: torch.nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        nonlocal total
        assert isinstance(module, torch.nn.Conv2d | torch.nn.ConvTranspose2d)
        positions = output if isinstance(module, torch.nn.Conv2d) else inputs[0]
        total += 2 * module.weight.numel() * math.prod(positions.shape[2:])

    hooks = [
        module.register_forward_hook(add)
        for module in network.modules()
        if isinstance(module, torch.nn.Conv2d | torch.nn.ConvTranspose2d)
    ]
    with torch.no_grad():
        network(torch.zeros(1, 8) if hasattr(network, "with_class") else torch.zeros(1, 1, 32, 32))
    for hook in hooks:
        hook.remove()
    return total


def test_a_step_without_penalty_is_what_one_counts_by_hand(tiny_config: TrainConfig) -> None:
    config = tiny_config.replace({"r1_gamma": 0})
    generator, discriminator = (_forward_flops(network) for network in build(config))
    first_layers = _first_layers(config)
    # D's step: one fake made, a real and a fake judged forward and back (twice the forward, but no gradient of the
    # images). G's step: a fake made and judged, and both gone back through; D's own weights get no gradients.
    d_step = generator + 2 * (3 * discriminator - first_layers["d"])
    g_step = 3 * generator - first_layers["g"] + 2 * discriminator
    found = count_step(config)
    assert found.value == d_step + g_step
    assert (found.unit, found.provenance) == ("FLOP", "estimated")


def _first_layers(config: TrainConfig) -> dict[str, int]:
    """What a backward through each network saves because nothing needs its input's gradient."""
    generator, discriminator = build(config)
    g_weight = next(generator.parameters())
    d_weight = next(discriminator.parameters())
    return {"g": 2 * g_weight.numel(), "d": 2 * d_weight.numel() * 16 * 16}


def test_a_rarer_penalty_costs_less(tiny_config: TrainConfig) -> None:
    values = [
        count_step(tiny_config.replace({"r1_gamma": gamma, "r1_interval": interval})).value or 0
        for gamma, interval in ((0, 1), (1, 16), (1, 4), (1, 1))
    ]
    assert values == sorted(set(values))
    assert values[2] - values[0] == pytest.approx(4 * (values[1] - values[0]))


def test_it_does_not_depend_on_the_batch(tiny_config: TrainConfig) -> None:
    assert count_step(tiny_config) == count_step(tiny_config.replace({"batch_size": 128}))


def test_networks_that_grow_have_none(tiny_config: TrainConfig) -> None:
    growing = tiny_config.model_copy(update={"architecture": "progressive"})
    figure = count_step(growing)
    assert figure.value is None
    assert "each resolution" in figure.source


def test_the_share_of_the_peak() -> None:
    work = Figure(value=2e9, unit="FLOP", provenance="estimated", source="counted")
    peak = Figure(value=1e15, unit="FLOP/s", provenance="assumed", source="data sheet")
    assert StepFlops(work, peak).utilisation(100_000, 2) == pytest.approx(0.1)
    absent = Figure.absent("FLOP/s", "unknown")
    assert StepFlops(work, absent).utilisation(100_000, 2) is None
    assert StepFlops(absent, peak).utilisation(100_000, 2) is None


@pytest.mark.parametrize(("changes", "tflops"), [({}, 494.5), ({"tf32": False}, 67), ({"precision": "bf16"}, 989.5)])
def test_the_peak_is_that_of_the_runs_numbers(
    tiny_config: TrainConfig, changes: dict[str, object], tflops: float
) -> None:
    found = step_flops(tiny_config.replace(changes), "NVIDIA H200", RunContext())
    assert found.peak.value == pytest.approx(tflops * 1e12)
