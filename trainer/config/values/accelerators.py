"""Accelerators by name: peaks, and support of bfloat16. No torch."""

from collections.abc import Mapping
from typing import NamedTuple

WITHOUT_BF16 = frozenset({"K80", "M60", "P4", "P40", "P100", "V100", "T4", "T4G"})
"""NVIDIA's GPUs below compute capability 8.0, the first with bfloat16 (CUDA programming guide, arithmetic
instructions): libraries refuse it there or emulate it slowly."""
PEAK_TFLOPS: Mapping[str, Mapping[str, float]] = {
    "T4": {"fp32": 8.1, "fp16": 65},
    "V100": {"fp32": 15.7, "fp16": 125},
    "A10G": {"fp32": 35, "tf32": 35, "bf16": 70, "fp16": 70},
    "L4": {"fp32": 30.3, "tf32": 60, "bf16": 121, "fp16": 121},
    "L40S": {"fp32": 91.6, "tf32": 183, "bf16": 362, "fp16": 362},
    "A100": {"fp32": 19.5, "tf32": 156, "bf16": 312, "fp16": 312},
    "H100 PCIe": {"fp32": 51, "tf32": 378, "bf16": 756, "fp16": 756},
    "H100": {"fp32": 67, "tf32": 494.5, "bf16": 989.5, "fp16": 989.5},
    "H200": {"fp32": 67, "tf32": 494.5, "bf16": 989.5, "fp16": 989.5},
    "B200": {"fp32": 80, "tf32": 1100, "bf16": 2250, "fp16": 2250},
    "MI300X": {"fp32": 163.4, "tf32": 653.7, "bf16": 1307.4, "fp16": 1307.4},
}
"""TFLOP/s by device and number format; devices are found by the words of their name, longer entries first."""


class Peak(NamedTuple):
    """Dense peak of one device; `name` as in `PEAK_TFLOPS`."""

    name: str
    tflops: float


def find_peak(device: str, precision: str) -> Peak | None:
    """The peak of "NVIDIA H100 80GB HBM3" or "H100-NVL" in fp32, tf32, bf16 or fp16; None if unpublished."""
    words = set(device.replace("-", " ").split())
    for name in sorted(PEAK_TFLOPS, key=len, reverse=True):
        if set(name.split()) <= words and precision in PEAK_TFLOPS[name]:
            return Peak(name, PEAK_TFLOPS[name][precision])
    return None
