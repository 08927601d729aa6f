"""What a benchmark found: a ratio or a share, what it is made of, and whether it is where the project wants it."""

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainer.records.provenance import code_sha256

__all__ = ["Machine", "Result", "as_json", "as_markdown", "this_machine"]


_CODE = "sha256 over the trainer's own source files, as in run.json"


@dataclass(frozen=True)
class Result:
    """One figure.

    Attributes:
        name: what is compared, as a sentence's subject.
        value: the ratio, share or time; None where it could not be measured here.
        unit: "x", "%" or "s".
        target: what the project wants, such as ">= 1.4 x".
        met: whether it is there; None without a value.
        parts: the rates it comes from, by name, with their units in the name.
        note: why there is no value, or what to keep in mind.
    """

    name: str
    value: float | None
    unit: str
    target: str
    met: bool | None
    parts: dict[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Machine:
    """Where it was measured."""

    cpu: str
    cores: int
    gpu: str
    torch: str
    python: str
    load_before: float


def this_machine() -> Machine:
    """This machine, with the load it had before the benchmark (1 is one busy core)."""
    import torch

    cpus = [line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")]
    return Machine(
        cpu=cpus[0] if cpus else platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        torch=torch.__version__,
        python=platform.python_version(),
        load_before=os.getloadavg()[0],
    )


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def as_json(machine: Machine, results: Iterable[Result], date: str) -> str:
    """Everything, with the hash of the code that was measured, indented."""
    content: dict[str, Any] = {
        "date": date,
        "code": {"sha256": code_sha256(), "note": _CODE},
        "machine": asdict(machine),
        "results": [asdict(result) for result in results],
    }
    return json.dumps(content, indent=2) + "\n"


def as_markdown(machine: Machine, results: Sequence[Result], date: str) -> str:
    """A table, with the machine named above it and what each figure is made of below."""
    code = f" Code {code_sha256()[:12]} ({_CODE})."
    gpu = f", {machine.gpu}" if machine.gpu else ", no GPU"
    busy = f" The machine was not idle (load {machine.load_before:.1f})." if machine.load_before > 0.5 else ""
    where = f"{date}, {machine.cpu}, {machine.cores} cores{gpu}, torch {machine.torch}, Python {machine.python}."
    lines = [
        f"{where}{code}{busy}",
        "",
        "| what | found | wanted | |",
        "|---|---|---|---|",
        *(f"| {result.name} | {_found(result)} | {result.target} | {_verdict(result)} |" for result in results),
        "",
        *(f"- {result.name}: {_made_of(result)}" for result in results if result.parts or result.note),
    ]
    return "\n".join(lines) + "\n"


def _found(result: Result) -> str:
    return "not measured here" if result.value is None else f"{result.value:.3g} {result.unit}"


def _verdict(result: Result) -> str:
    return {True: "met", False: "missed", None: ""}[result.met]


def _made_of(result: Result) -> str:
    parts = ", ".join(f"{name} {value:.4g}" for name, value in result.parts.items())
    return "; ".join(text for text in (parts, result.note) if text)
