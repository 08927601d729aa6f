"""The greatest speed of accelerators, for the share of it that training reaches (MFU).

Dense figures of the vendors' data sheets: assumed. The launcher's (RunContext.accelerator_tflops) go first; other
devices have no MFU.
"""

from collections.abc import Mapping
from types import MappingProxyType

from trainer.figure import Figure

__all__ = ["PEAK_TFLOPS", "peak_flops"]

PEAK_TFLOPS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "T4": {"fp32": 8.1, "fp16": 65},
        "V100": {"fp32": 15.7, "fp16": 125},
        "A10G": {"fp32": 35, "tf32": 35, "bf16": 70, "fp16": 70},
        "L4": {"fp32": 30.3, "tf32": 60, "bf16": 121, "fp16": 121, "fp8": 242.5},
        "L40S": {"fp32": 91.6, "tf32": 183, "bf16": 362, "fp16": 362, "fp8": 733},
        "A100": {"fp32": 19.5, "tf32": 156, "bf16": 312, "fp16": 312},
        "H100 PCIe": {"fp32": 51, "tf32": 378, "bf16": 756, "fp16": 756, "fp8": 1513},
        "H100": {"fp32": 67, "tf32": 494.5, "bf16": 989.5, "fp16": 989.5, "fp8": 1979},
        "H200": {"fp32": 67, "tf32": 494.5, "bf16": 989.5, "fp16": 989.5, "fp8": 1979},
        "B200": {"fp32": 80, "tf32": 1100, "bf16": 2250, "fp16": 2250, "fp8": 4500},
        "MI300X": {"fp32": 163.4, "tf32": 653.7, "bf16": 1307.4, "fp16": 1307.4, "fp8": 2614.9},
    }
)
"""TFLOP/s by device and number format; a device is looked up by the words of its name, longer entries first."""


def peak_flops(device: str, precision: str, given: Mapping[str, Figure]) -> Figure:
    """The peak of one device, FLOP/s; `device` is such as "NVIDIA H100 80GB HBM3", `given` the launcher's, TFLOP/s.
    `precision` is fp32, tf32, bf16, fp16 or fp8.
    """
    told = given.get(precision)
    if told is not None and told.value is not None:
        return told.model_copy(update={"value": told.value * 1e12, "unit": "FLOP/s"})
    words = set(device.replace("-", " ").split())
    for name in sorted(PEAK_TFLOPS, key=len, reverse=True):
        if set(name.split()) <= words and precision in PEAK_TFLOPS[name]:
            return Figure(
                value=PEAK_TFLOPS[name][precision] * 1e12,
                unit="FLOP/s",
                provenance="assumed",
                source=f"the vendor's data sheet of the {name}, dense {precision}",
            )
    return Figure.absent("FLOP/s", f"no published {precision} peak of this device: {device}; the launcher gave none")
