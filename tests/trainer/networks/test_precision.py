"""What a precision means on a device, what it refuses, and that networks compute in it and answer in float32."""

import dataclasses
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from gangway.trainer.__main__ import main
from gangway.trainer.checkpoint.store import load_newest_valid
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import start_world
from gangway.trainer.networks import precision
from gangway.trainer.networks.factory import build
from gangway.trainer.networks.layers import Doubling, Halving, small_maps
from gangway.trainer.networks.precision import (
    LossScale,
    Precision,
    Products,
    choose,
    choose_kernels,
    cpu_flags,
    set_tf32,
    without_tf32,
)
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from gangway.trainer.steps.state import TrainState

CPU, XLA = torch.device("cpu"), torch.device("xla", 0)


def test_fp32_leaves_the_networks_as_they_are(tiny_config: TrainConfig) -> None:
    state = TrainState.create(tiny_config, CPU)
    assert state.use(choose("fp32", CPU)).startswith("fp32:")
    assert state.generator.precision is state.discriminator.precision is None
    assert not state.roles["generator"].scale.enabled
    assert set(state.live()) == {"images", "step", "augment_p", "g", "d", "ema", "opt_g", "opt_d"}


@pytest.mark.parametrize(
    ("flags", "reason", "products"),
    [
        ("fpu avx512_bf16", "has it", Products.OF_WEIGHT),
        ("fpu avx512_bf16 amx_bf16 amx_tile", "has it", Products.ALL),
        ("fpu avx2", "slower than fp32", Products.NONE),
    ],
)
def test_bf16_on_a_cpu_says_whether_it_is_slower(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str, reason: str, products: Products
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    found = cpu_flags(cpuinfo)
    monkeypatch.setattr(precision, "cpu_flags", lambda: found)
    chosen = choose("bf16", CPU)
    assert (chosen.dtype, chosen.exact_penalty) == (torch.bfloat16, False)
    assert reason in chosen.reason
    assert chosen.products is products
    assert choose("fp32", CPU).products is Products.NONE
    assert cpu_flags(tmp_path / "nothing") == frozenset()


@pytest.mark.parametrize("products", list(Products))
def test_a_cpu_is_given_the_products_it_gains_by_and_the_record_says_so(
    tiny_config: TrainConfig, products: Products
) -> None:
    state = TrainState.create(tiny_config, CPU)
    chosen = dataclasses.replace(choose("bf16", CPU), products=products)
    assert (small_maps(products) in state.use(chosen)) == (products is not Products.NONE)
    for network, layers in ((state.generator, Doubling), (state.discriminator, Halving)):
        found = [module for module in network.modules() if isinstance(module, layers)]
        assert found
        assert all(layer.products is products for layer in found)
    averaged = {getattr(layer, "products", Products.NONE) for layer in state.ema.modules()}
    assert averaged == {Products.NONE}, "it computes in float32"


def test_what_the_device_cannot_do_is_refused() -> None:
    with pytest.raises(TrainerError) as caught:
        choose("fp16", XLA)
    assert caught.value.place == "TrainConfig.precision"
    assert caught.value.problem.startswith("PyTorch/XLA")
    assert (caught.value.value, caught.value.allowed) == ("fp16", "fp32 or bf16 on this device")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--precision", "fp8"), "--precision: not an accepted value"),
        (("--precision", "int4"), "--precision: not an accepted value"),
        (("--cuda-graphs", "true", "--compile", "on"), "--cuda-graphs: this worker computes on cpu"),
        (("--cuda-graphs", "true"), "--cuda-graphs: not an accepted value"),
    ],
)
def test_bad_input_ends_with_2_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], sentence: str
) -> None:
    argv = ["train", "--preset", "dcgan-digits", "--backend", "gloo", "--run-dir", str(tmp_path / "run"), *flags]
    assert main(argv) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_networks_compute_in_it_and_answer_in_float32(tiny_config: TrainConfig, name: str) -> None:
    generator, discriminator = build(tiny_config)
    seen: list[torch.dtype] = []
    for network in (generator, discriminator):
        convolution = next(m for m in network.modules() if isinstance(m, nn.Conv2d | nn.ConvTranspose2d))
        convolution.register_forward_hook(lambda module, given, result: seen.append(result.dtype))
    latents = torch.randn(4, tiny_config.z_dim)
    plain = generator(latents)
    logits = discriminator(plain)
    chosen = choose(name, CPU)
    generator.precision = discriminator.precision = chosen
    images = generator(latents)
    found = discriminator(images)
    exact = discriminator(plain, twice=True)
    low = torch.bfloat16 if name == "bf16" else torch.float16
    assert seen == [torch.float32, torch.float32, low, low, low if name == "bf16" else torch.float32]
    assert images.dtype == found.dtype == exact.dtype == torch.float32
    torch.testing.assert_close(found, logits, atol=0.05, rtol=0.05)
    if name == "fp16":
        assert torch.equal(exact, logits), "penalties are float32's"


def _tf32() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.fixture
def tf32_as_before() -> Iterator[None]:
    before = _tf32()
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.usefixtures("tf32_as_before")
def test_tf32_is_switched_for_products_and_convolutions() -> None:
    for enabled in (True, False):
        set_tf32(enabled=enabled)
        assert _tf32() == (enabled, enabled)


@pytest.mark.usefixtures("tf32_as_before")
@pytest.mark.parametrize("before", [(True, False), (False, True)])
def test_without_tf32_leaves_things_as_they_were(before: tuple[bool, bool]) -> None:
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    with without_tf32():
        assert _tf32() == (False, False)
    with pytest.raises(ZeroDivisionError), without_tf32():
        _ = 1 / 0
    assert _tf32() == before


@pytest.mark.parametrize("tried", [True, False])
def test_without_tf32_cudnn_tries_nothing_out(tried: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", tried)
    with without_tf32():
        assert not torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.benchmark == tried


@pytest.fixture
def _kernels_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = torch.backends.cudnn.benchmark
    yield
    torch.backends.cudnn.benchmark = before
    torch.use_deterministic_algorithms(False)
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


@pytest.mark.usefixtures("_kernels_kept")
def test_on_cuda_kernels_are_the_fastest_or_the_same_each_time_and_it_is_said() -> None:
    cuda = torch.device("cuda", 0)
    for channels_last in (True, False):
        (said,) = choose_kernels(cuda, deterministic=False, channels_last=channels_last).values()
        assert torch.backends.cudnn.benchmark == channels_last
        assert "two runs may differ in their last bits" in said
    assert not torch.are_deterministic_algorithms_enabled()
    torch.backends.cudnn.benchmark = True
    assert choose_kernels(cuda, deterministic=True, channels_last=True) == {"kernels": "deterministic: asked for"}
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


@pytest.mark.usefixtures("_kernels_kept")
def test_elsewhere_there_are_no_kernels_to_choose() -> None:
    assert choose_kernels(torch.device("cpu"), deterministic=True, channels_last=True) == {}
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.usefixtures("_kernels_kept")
def test_on_a_gpu_a_deterministic_run_has_the_same_bits_twice(
    families: dict[str, tuple[TrainConfig, Path]], tmp_path: Path
) -> None:
    for name, (config, folder) in families.items():
        digests = []
        for number in range(2):
            run_dir = tmp_path / f"{name}-{number}"
            train(config.replace({"deterministic": True}), run_dir, folder, RunContext(), Interruption())
            digests.append(RunRecord.read(run_dir / "run.json").state_sha256)
        assert digests[0] == digests[1], name


def test_autocast_can_be_left_out_of_a_pass() -> None:
    made = Precision("fp16", "cpu", torch.float16, True, "")
    with made.autocast(twice=False):
        assert torch.is_autocast_enabled("cpu")
    with made.autocast(twice=True):
        assert not torch.is_autocast_enabled("cpu")


def _step(scale: LossScale, gradient: float) -> tuple[torch.Tensor, torch.Tensor | None]:
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    with start_world("gloo") as world:
        scale.backward(weight.sum() * gradient)
        scale.step(world, optimizer)
    return weight.detach(), weight.grad


def test_a_step_is_the_one_without_a_scale() -> None:
    scale = LossScale("cpu", enabled=True)
    weight, gradient = _step(scale, 0.25)
    assert weight.item() == 0.75
    assert gradient is not None
    assert gradient.item() == 0.25, "statistics see true gradients"
    assert _step(LossScale("cpu", enabled=False), 0.25)[0].item() == 0.75


def test_an_overflow_skips_the_step_and_halves_the_scale() -> None:
    scale = LossScale("cpu", enabled=True)
    _step(scale, 1.0)
    before = scale.state_dict()["scale"]
    weight, _ = _step(scale, float("inf"))
    assert weight.item() == 1.0
    assert scale.state_dict()["scale"] == before / 2
    again = LossScale("cpu", enabled=True)
    again.load_state_dict(scale.state_dict())
    assert again.state_dict() == scale.state_dict()


def test_without_fp16_there_is_nothing_to_save() -> None:
    scale = LossScale("cpu", enabled=False)
    scale.load_state_dict({"scale": 8.0})
    assert (scale.enabled, scale.state_dict()) == (False, {})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_an_interrupted_run_in_16_bits_ends_with_the_same_bits(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, name: str
) -> None:
    changes = {"kimg": 0.32, "checkpoint_kimg": 0.16, "sample_kimg": 100, "stats_kimg": 0.08, "precision": name}
    config = tiny_config.replace(changes)
    told = Interruption()
    told._on_signal(signal.SIGTERM, None)
    assert train(config, tmp_path / "run", digits_dir, RunContext(), told) == 75
    assert train(config, tmp_path / "run", digits_dir, RunContext(), Interruption()) == 0
    assert train(config, tmp_path / "through", digits_dir, RunContext(), Interruption()) == 0
    found, expected = (RunRecord.read(tmp_path / folder / "run.json") for folder in ("run", "through"))
    assert found.state_sha256 == expected.state_sha256
    assert found.choices["precision"].startswith(f"{name}: asked for")
    saved, _ = load_newest_valid(tmp_path / "run" / "checkpoints")
    assert saved is not None
    assert ("scale_g" in saved.state) == ("scale_d" in saved.state) == (name == "fp16")
