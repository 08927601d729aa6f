"""What the processes of a scaling study run on: a GPU each, over NCCL, or a thread of the CPU each, over gloo.

Pure: it is told what the machine is (`stacks.bench.hardware`). A study is on one kind of device throughout, or its
efficiencies would compare one with the other. Never run on a real GPU.
"""

from dataclasses import dataclass
from typing import Literal

from components.findings import InputError, nearest_hint
from stacks.bench.hardware import Hardware

__all__ = ["DEVICES", "Placement", "placement"]

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Placement:
    """Where all processes of a study run.

    Attributes:
        device: cpu or cuda.
        threads: of each process (OMP_NUM_THREADS), the same for every number of processes.
        reason: why there.
    """

    device: Literal["cpu", "cuda"]
    threads: int
    reason: str

    @property
    def backend(self) -> Literal["gloo", "nccl"]:
        """The collectives that go with it, and that make the trainer take that device."""
        return "nccl" if self.device == "cuda" else "gloo"


def placement(asked: str, largest: int, machine: Hardware, visible: str | None) -> Placement:
    """GPUs where there are enough of them, else the CPU; what is asked for counts before.

    Args:
        asked: auto, cpu or cuda.
        largest: number of processes.
        machine: its GPUs and cores.
        visible: CUDA_VISIBLE_DEVICES; None where it is not set.

    Raises:
        InputError: no such word, or `cuda` with fewer GPUs than processes.
    """
    if asked not in DEVICES:
        fix = nearest_hint(asked, DEVICES)
        raise InputError("--device", "no such device", value=asked, allowed=", ".join(DEVICES), fix=fix)
    gpus = _number_visible(len(machine["gpus"]), visible)
    here = f"{gpus} GPU(s) here" if gpus else "no GPU here"
    if machine["gpus"] and visible is not None:
        here += f" (CUDA_VISIBLE_DEVICES={visible})"
    if asked == "cpu":
        return Placement("cpu", 1, "asked for: --device cpu")
    if gpus and gpus >= largest:
        # torchrun would give one thread to several processes and all of them to one: that is no fair comparison.
        return Placement("cuda", max(1, machine["cores"] // largest), f"{here}, one for each of {largest} process(es)")
    if asked == "cuda" and not gpus:
        raise InputError("--device", here, value=asked, allowed="auto or cpu here", fix="leave --device out")
    if asked == "cuda":
        raise InputError(
            "--processes",
            f"{here}, and each process takes one",
            value=largest,
            allowed=f"1 to {gpus} with --device cuda",
            fix=f"name no number above {gpus}, or write --device cpu",
        )
    few = f"{here}, fewer than {largest} processes: GPUs are taken up to --processes {gpus}"
    return Placement("cpu", 1, few if gpus else here)


def _number_visible(gpus: int, visible: str | None) -> int:
    """CUDA's own rule: what stands behind the first -1 does not count, and an empty list hides all."""
    if visible is None:
        return gpus
    words = [word.strip() for word in visible.split(",")]
    shown = words[: words.index("-1")] if "-1" in words else words
    return min(gpus, sum(1 for word in shown if word))
