"""What a gate found: a check passed, failed or could not be tried, and why; as JSON and as a table."""

import ctypes.util
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Machine:
    """What a record has of a machine. `capability`: such as (9, 0); `power`: why NVML cannot, or empty."""

    kind: Kind
    gpus: tuple[str, ...]
    capability: tuple[int, int]
    cpu: str
    cores: int
    torch: str
    cuda: str
    nccl: str
    power: str

    @property
    def workers(self) -> int:
        """Processes that can train at once, each on a device of its own; on a CPU two of a core each."""
        return len(self.gpus) if self.kind == "cuda" else min(2, self.cores)


def this_machine(kind: Kind) -> Machine:
    """Looks at this machine; imports torch."""
    import torch

    from gangway.trainer.core.host import usable_cores, versions

    gpus = tuple(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
    nccl = torch.cuda.nccl.version() if gpus and torch.distributed.is_nccl_available() else ()  # type: ignore[no-untyped-call]  # torch's has no annotations
    return Machine(
        kind=kind,
        gpus=gpus,
        capability=torch.cuda.get_device_capability(0) if gpus else (0, 0),
        cpu=versions()["cpu"],
        cores=usable_cores(),
        torch=torch.__version__,
        cuda=torch.version.cuda or "",
        nccl=".".join(map(str, nccl)),
        power=_power_trouble(),
    )


def _power_trouble() -> str:
    if ctypes.util.find_library("nvidia-ml") is None and platform.system() == "Linux":
        return "no NVML here: the driver's libnvidia-ml is missing"
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # whatever a broken driver answers
        return f"NVML: {error}"
    return ""


State = Literal["passed", "failed", "not tried"]


@dataclass(frozen=True)
class Outcome:
    """Of one check. `why`: what was compared, how it failed, or why it was not tried; `figures`: with units."""

    state: State
    why: str
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """The checks of one gate, in order; not `finished` while some are missing."""

    date: str
    code_sha256: str
    machine: Machine
    checks: dict[str, Outcome]
    finished: bool = True

    def named(self, state: State) -> list[str]:
        """The checks with that state."""
        return [name for name, found in self.checks.items() if found.state == state]

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)

    def verdict(self) -> str:
        """One line: how many of each state, and which could not be tried."""
        counts = [f"{state} {len(self.named(state))}" for state in ("passed", "failed", "not tried")]
        untried = self.named("not tried")
        told = f"; says nothing of {', '.join(untried)}" if untried else ""
        return f"{', '.join(counts)}{told}"

    def table(self) -> str:
        """A line a check: its state, its name, its figures, and why."""
        wide = max(map(len, self.checks))
        return "\n".join(_line(name.ljust(wide), found) for name, found in self.checks.items())


def _line(name: str, found: Outcome) -> str:
    figures = "".join(f"; {what} {value:.4g}" for what, value in found.figures.items())
    return f"{found.state:<9}  {name}  {found.why}{figures}"


def worst_difference(found: Sequence[Sequence[float]], wanted: Sequence[Sequence[float]]) -> float:
    """The largest difference of two runs' losses, relative to the reference's, or to 0.1, as a loss may pass zero."""
    assert len(found) == len(wanted), "both made the same steps"
    pairs = [pair for here, there in zip(found, wanted, strict=True) for pair in zip(here, there, strict=True)]
    differences = [abs(one - other) / max(abs(other), 0.1) for one, other in pairs]
    return next((each for each in differences if math.isnan(each)), max(differences))
