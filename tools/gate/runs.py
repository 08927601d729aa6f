"""The gate's runs: the trainer's own command line, on the devices that a check asks for, and what it left behind."""

import ctypes.util
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Literal

from gangway.trainer.checkpoint.store import newest_of_run
from gangway.trainer.config.presets import preset
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.records.run_record import RunRecord
from tools.bench.runs import prepare, train_for, train_whole

# What a gate found: a check passed, failed or could not be tried, and why; as JSON and as a table.

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


STEPS = 12
"""Over which losses are compared: penalties come in every fourth."""
_BATCH = 64
DCGAN = "dcgan"


@dataclass(frozen=True)
class Shrunk:
    """A family's networks as the gate trains them: a preset with smaller or shorter settings."""

    preset: str
    changes: Mapping[str, object]


FAMILIES: Mapping[str, Shrunk] = MappingProxyType(
    {
        DCGAN: Shrunk("dcgan-cifar10", {"dataset": "photos", "batch_size": _BATCH, "r1_interval": 4}),
        # Rates at which p moves within the steps.
        "ada": Shrunk(
            "dcgan-cifar10",
            {
                **{"dataset": "photos", "batch_size": _BATCH, "r1_interval": 4, "lr_d": 2e-3},
                **{"augment": "color,translation,cutout", "ada_target": 0.01, "ada_kimg": 0.5},
            },
        ),
        "resnet": Shrunk(
            "wgan-gp-cifar10", {"dataset": "photos", "batch_size": 16, "ngf": 16, "ndf": 16, "d_steps": 2}
        ),
        # With classes, which the digits have.
        "r3gan": Shrunk(
            "r3gan-cifar10",
            {
                **{"dataset": "digits", "channels": 1, "batch_size": 16, "ngf": 32, "ndf": 32, "ema_kimg": 0.5},
                "augment": "translation,cutout",
            },
        ),
        # From 4x4 to 32x32 within the steps: one at each size, two to fade in.
        "progressive": Shrunk(
            "progan-celeba128",
            {
                **{"dataset": "photos", "batch_size": 16, "ngf": 8, "ndf": 8},
                **{"stable_kimg": 0.016, "fade_kimg": 0.032},
            },
        ),
        "cyclegan": Shrunk("cyclegan-photos", {"dataset": "day-dusk", "batch_size": 4, "ngf": 8, "ndf": 8}),
    }
)
"""By name, what the gate trains of each."""


@dataclass(frozen=True)
class Trained:
    """A short run: losses per step, the final state's digests by part, and what the run chose by setting."""

    losses: tuple[tuple[float, float], ...]
    digests: Mapping[str, str]
    choices: Mapping[str, str]


@dataclass(frozen=True)
class Speed:
    """A run at full speed: medians over its lines; None where this machine has no such meter or no published peak."""

    images_per_sec: float
    mfu: float | None
    watts: float | None

    def figures(self) -> dict[str, float]:
        """By name."""
        found = {"images_per_sec": self.images_per_sec, "mfu": self.mfu, "watts": self.watts}
        return {name: value for name, value in found.items() if value is not None}


@dataclass
class Gate:
    """Runs of one gate; the same run is made once. `seconds`: of a measurement of speed."""

    machine: Machine
    work_dir: Path
    seconds: float
    report: Callable[[str], None]
    _known: dict[tuple[object, ...], Trained] = field(default_factory=dict)

    def train(
        self,
        what: str,
        changes: Mapping[str, object],
        *,
        family: str = DCGAN,
        processes: int = 1,
        on_cpu: bool = False,
    ) -> Trained:
        """Makes `STEPS` steps of a family at 32x32, by default in strict float32. RuntimeError: it failed."""
        key = (family, *sorted(changes.items()), processes, on_cpu or self.machine.kind == "cpu")
        if key not in self._known:
            self.report(what)
            run_dir = self.work_dir / f"run-{len(self._known)}"
            hidden = {"CUDA_VISIBLE_DEVICES": ""} if on_cpu or self.machine.kind == "cpu" else {}
            config = plain_config(family).replace(changes)
            lines = train_whole(
                config,
                run_dir,
                self._data(config.dataset),
                threads=max(1, self.machine.cores // processes),
                processes=processes,
                variables=hidden,
            )
            losses = tuple((line["loss_g"], line["loss_d"]) for line in lines)
            digests = newest_of_run(run_dir, aloud=False).manifest.state_sha256
            self._known[key] = Trained(losses, digests, RunRecord.read(run_dir / "run.json").choices)
        return self._known[key]

    def speed(
        self,
        what: str,
        changes: Mapping[str, object],
        *,
        family: str = DCGAN,
        batch: int = 1024,
        processes: int = 1,
        flags: tuple[str, ...] = (),
    ) -> Speed:
        """Measures processes training together: DCGAN with a batch of 64 on a CPU, other families with their own."""
        self.report(what)
        plain, on_gpu = plain_config(family), self.machine.kind == "cuda"
        size = batch if on_gpu and family == DCGAN else plain.batch_size
        endless = {"kimg": 1e6, "batch_size": size, "stats_kimg": (32 if on_gpu else 4) * size * plain.d_steps / 1000}
        lines = train_for(
            plain.replace({**changes, **endless, "check_gradients_steps": 0}),
            self.work_dir / what.replace(" ", "-").replace(",", ""),
            self._data(plain.dataset),
            self.seconds,
            threads=max(1, self.machine.cores // processes),
            processes=processes,
            flags=flags,
        )[1:]
        mfu = [line["mfu"] for line in lines if line["mfu"] is not None]
        return Speed(median(line["images_per_sec"] for line in lines), median(mfu) if mfu else None, _watts(lines))

    def _data(self, dataset: str) -> Path:
        folder = self.work_dir / f"data-{dataset}"
        if not folder.exists():
            prepare(dataset, folder)
        return folder


def plain_config(family: str = DCGAN) -> TrainConfig:
    """A line of statistics for each step; nothing that is not computing."""
    shrunk = FAMILIES[family]
    config = preset(shrunk.preset).replace(
        {
            "resolution": 32,
            "augment": "none",
            "sample_kimg": 1e6,
            "checkpoint_kimg": 1e6,
            "check_gradients_steps": 4,
            "tf32": False,
            "precision": "fp32",
            "compile": "off",
            "step_graph": "off",
            "schedules": {},
            **shrunk.changes,
        }
    )
    return config.replace({"kimg": STEPS * config.step_images / 1000, "stats_kimg": config.step_images / 1000})


def _watts(lines: list[dict[str, float]]) -> float | None:
    if len(lines) < 2:
        return None
    first, last = (_gpu_joules(line) for line in (lines[0], lines[-1]))
    spent = lines[-1]["wall_sec"] - lines[0]["wall_sec"]
    return None if first is None or last is None else (last - first) / spent


def _gpu_joules(line: Mapping[str, object]) -> float | None:
    """Of all GPUs together; None where one has no meter."""
    energy = line["energy"]
    assert isinstance(energy, dict), "the statistics' own form"
    measured = [joules for device, (joules, source, _) in energy.items() if "gpu" in device and source == "measured"]
    return sum(measured) if measured else None
