"""The work of a step: equal to what is counted by hand, growing as it must, and the share of a peak from it."""

import math

import pytest
import torch

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.accelerators import PEAK_TFLOPS, WITHOUT_BF16
from gangway.trainer.families import cyclegan
from gangway.trainer.networks.factory import build
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.telemetry.flops import StepFlops, _counting, count_step, peak_flops, step_flops

Layer = torch.nn.Conv2d | torch.nn.ConvTranspose2d | torch.nn.Linear
SMALL = {"resolution": 16, "ngf": 8, "ndf": 8, "z_dim": 6, "num_classes": 0}
PRESETS_OF = {"dcgan": "dcgan-cifar10", "resnet": "wgan-gp-cifar10", "r3gan": "r3gan-cifar10"}
UNPENALISED = {"r1_gamma": 0.0, "r2_gamma": 0.0, "gp_weight": 0.0}


def _forward_flops(network: torch.nn.Module, inputs: torch.Tensor) -> list[int]:
    """Multiplications and additions for one image, from the layers' shapes, in the order in which they run."""
    found: list[int] = []

    def add(module: torch.nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        positions = (inputs[0] if isinstance(module, torch.nn.ConvTranspose2d) else output).shape[2:]
        assert isinstance(module, Layer)
        found.append(2 * module.weight.numel() * math.prod(positions))

    hooks = [module.register_forward_hook(add) for module in network.modules() if isinstance(module, Layer)]
    with torch.no_grad():
        network(inputs)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("family", PRESETS_OF)
def test_a_step_without_penalty_is_what_one_counts_by_hand(family: str) -> None:
    # Not validated: a critic without a penalty is no critic, but its work can be counted.
    config = PRESETS[PRESETS_OF[family]].replace(SMALL).model_copy(update=UNPENALISED)
    networks = build(config)
    inputs = torch.zeros(1, config.z_dim), torch.zeros(1, *config.image_shape)
    g, d = (_forward_flops(network, given) for network, given in zip(networks, inputs, strict=True))
    # D's step: one fake made, a real and a fake judged forward and back: twice the forward, but for the gradient of the
    # images, in each of the layers that see them. G's step: a fake made and judged, and both gone back through; D's own
    # weights get no gradients, nor do the latents. A relativistic G has a real image judged too, forward alone.
    see_images = d[0] + (d[2] if family == "resnet" else 0)  # the third is the shortcut of its first block
    d_step = sum(g) + 2 * (3 * sum(d) - see_images)
    g_step = 3 * sum(g) - g[0] + 2 * sum(d) + (sum(d) if family == "r3gan" else 0)
    assert count_step(config).value == d_step + g_step / config.d_steps
    assert (count_step(config).unit, count_step(config).provenance) == ("FLOP", "estimated")


@pytest.mark.slow
@pytest.mark.parametrize("identity_weight", [0.0, 0.5])
def test_a_step_of_two_directions_is_what_one_counts_by_hand(identity_weight: float) -> None:
    changes = {"resolution": 16, "ngf": 8, "ndf": 8, "identity_weight": identity_weight}
    config = PRESETS["cyclegan-photos"].replace(changes)
    roles, images = {role.name: role.network for role in cyclegan.roles(config)}, torch.zeros(1, *config.image_shape)
    g, d = (_forward_flops(roles[name], images) for name in (cyclegan.A_TO_B, cyclegan.JUDGE_A))
    # Of each direction. D's step: a fake made; a real and a fake judged, forward and back, but for the gradient of the
    # images. G's: the way there, and back, and what is of its domain already; gradients go into images on the way
    # back alone. Its judge is gone through forward and back, without gradients of its weights.
    d_step = sum(g) + 2 * (3 * sum(d) - d[0])
    passes = 3 if identity_weight else 2
    g_step = passes * 3 * sum(g) - (passes - 1) * g[0] + 2 * sum(d)
    assert count_step(config).value == 2 * (d_step + g_step)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("kind", [torch.nn.Conv2d, torch.nn.ConvTranspose2d])
def test_groups_count_in_every_direction(kind: type[torch.nn.Conv2d], groups: int) -> None:
    layer = kind(8, 8, 3, padding=1, groups=groups)
    images = torch.zeros(2, 8, 5, 5, requires_grad=True)
    once = 2 * 2 * 25 * 8 * (8 // groups) * 9
    with _counting() as counter:
        outputs = layer(images)
    assert sum(counter) == once
    with _counting() as counter:
        (gradients,) = torch.autograd.grad(outputs.sum(), images, create_graph=True)
    assert sum(counter) == once
    with _counting() as counter:  # of a penalty: for the weights, and for the outputs' gradient, always made
        torch.autograd.grad(gradients.square().sum(), layer.weight, retain_graph=True)
    assert sum(counter) == 2 * once
    with _counting() as counter:
        torch.autograd.grad(outputs.sum(), [images, layer.weight])
    assert sum(counter) == 2 * once


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
    work = Quantity(value=2e9, unit="FLOP", provenance="estimated", source="counted")
    peak = Quantity(value=1e15, unit="FLOP/s", provenance="assumed", source="data sheet")
    assert StepFlops(work, peak).utilisation(100_000, 2) == pytest.approx(0.1)
    absent = Quantity.absent("FLOP/s", "unknown")
    assert StepFlops(work, absent).utilisation(100_000, 2) is None
    assert StepFlops(absent, peak).utilisation(100_000, 2) is None


@pytest.mark.parametrize(("changes", "tflops"), [({}, 494.5), ({"tf32": False}, 67), ({"precision": "bf16"}, 989.5)])
def test_the_peak_is_that_of_the_runs_numbers(
    tiny_config: TrainConfig, changes: dict[str, object], tflops: float
) -> None:
    found = step_flops(tiny_config.replace(changes), "NVIDIA H200", RunContext())
    assert found.peak.value == pytest.approx(tflops * 1e12)


@pytest.mark.parametrize(
    ("device", "precision", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA H200", "tf32", 494.5),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("NVIDIA L40S", "fp16", 362),
        ("NVIDIA L4", "fp32", 30.3),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("Tesla T4", "fp16", 65),
    ],
)
def test_a_device_is_found_by_its_drivers_name(device: str, precision: str, tflops: float) -> None:
    figure = peak_flops(device, precision, {})
    assert figure.value == pytest.approx(tflops * 1e12)
    assert (figure.unit, figure.provenance) == ("FLOP/s", "assumed")
    assert "data sheet" in figure.source


@pytest.mark.parametrize(
    ("device", "precision"), [("cpu, 2 thread(s) a worker", "fp32"), ("Tesla T4", "bf16"), ("L400", "fp32")]
)
def test_what_no_data_sheet_tells_is_absent_with_the_reason(device: str, precision: str) -> None:
    figure = peak_flops(device, precision, {})
    assert figure.value is None
    assert f"no published {precision} peak of this device: {device}" in figure.source


def test_the_launchers_figure_counts_first() -> None:
    given = Quantity(value=900, unit="TFLOP/s", provenance="measured", source="a matmul", as_of="2026-11-01")
    figure = peak_flops("NVIDIA H100 80GB HBM3", "bf16", {"bf16": given})
    assert (figure.value, figure.unit, figure.source) == (9e14, "FLOP/s", "a matmul")
    absent = Quantity.absent("TFLOP/s", "unknown")
    assert peak_flops("NVIDIA H100 80GB HBM3", "bf16", {"bf16": absent}).provenance == "assumed"


def test_fewer_bits_are_never_slower() -> None:
    order = ("fp32", "tf32", "bf16")
    for name, peaks in PEAK_TFLOPS.items():
        known = [peaks[precision] for precision in order if precision in peaks]
        assert known == sorted(known), name


def test_who_has_no_bf16_has_no_peak_of_it() -> None:
    assert not [name for name, peaks in PEAK_TFLOPS.items() if name in WITHOUT_BF16 and "bf16" in peaks]
