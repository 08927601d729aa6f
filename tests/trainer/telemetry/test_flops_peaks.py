"""Peaks of accelerators: found by the names that drivers give, the launcher's figure first, absent with a reason."""

import pytest

from gangway.trainer.config.values.accelerators import PEAK_TFLOPS, WITHOUT_BF16
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.telemetry.flops import peak_flops


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
