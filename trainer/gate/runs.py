"""The gate's runs: the trainer's own command line, on the devices that a check asks for, and what it left behind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from trainer.bench.runs import train_for, train_whole
from trainer.checkpoint.store import newest_of_run
from trainer.config.presets import preset
from trainer.config.train_config import TrainConfig
from trainer.gate.machine import Machine
from trainer.records.run_record import RunRecord

STEPS = 12
"""Over which losses are compared: penalties come in every fourth."""
_BATCH = 64


@dataclass(frozen=True)
class Trained:
    """A short run: `losses` of generator and discriminator for each step, the final state's digests by part, and what
    the run says that it chose, by setting.
    """

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
    """Runs of one gate; the same run is made once.

    Attributes:
        work_dir: for runs; its contents are of no use afterwards.
        data_dir: the shards, prepared already.
        seconds: of a measurement of speed.
        report: told what begins.
    """

    machine: Machine
    work_dir: Path
    data_dir: Path
    seconds: float
    report: Callable[[str], None]
    _known: dict[tuple[object, ...], Trained] = field(default_factory=dict)

    def train(self, what: str, changes: Mapping[str, object], *, processes: int = 1, on_cpu: bool = False) -> Trained:
        """`STEPS` steps of DCGAN at 32x32 from the same seed, in strict float32 where `changes` say nothing else.
        RuntimeError, with the run's last words: it failed.
        """
        key = (*sorted(changes.items()), processes, on_cpu or self.machine.kind == "cpu")
        if key not in self._known:
            self.report(what)
            run_dir = self.work_dir / f"run-{len(self._known)}"
            hidden = {"CUDA_VISIBLE_DEVICES": ""} if on_cpu or self.machine.kind == "cpu" else {}
            lines = train_whole(
                plain_config().replace(changes),
                run_dir,
                self.data_dir,
                threads=max(1, self.machine.cores // processes),
                processes=processes,
                variables=hidden,
            )
            losses = tuple((line["loss_g"], line["loss_d"]) for line in lines)
            digests = newest_of_run(run_dir, aloud=False).manifest.state_sha256
            self._known[key] = Trained(losses, digests, RunRecord.read(run_dir / "run.json").choices)
        return self._known[key]

    def speed(
        self, what: str, changes: Mapping[str, object], *, batch: int = 1024, flags: tuple[str, ...] = ()
    ) -> Speed:
        """How fast one process trains, on a CPU with a batch of 64. `flags` of the command line besides."""
        self.report(what)
        batch, steps_a_line = (batch, 32) if self.machine.kind == "cuda" else (_BATCH, 4)
        endless = {"kimg": 1e6, "batch_size": batch, "stats_kimg": steps_a_line * batch / 1000}
        lines = train_for(
            plain_config().replace({**changes, **endless, "check_gradients_steps": 0}),
            self.work_dir / what.replace(" ", "-").replace(",", ""),
            self.data_dir,
            self.seconds,
            threads=self.machine.cores,
            flags=flags,
        )[1:]
        mfu = [line["mfu"] for line in lines if line["mfu"] is not None]
        return Speed(median(line["images_per_sec"] for line in lines), median(mfu) if mfu else None, _watts(lines))


def plain_config() -> TrainConfig:
    """A line of statistics for each step; nothing that is not computing."""
    return preset("dcgan-cifar10").replace(
        {
            "dataset": "photos",
            "augment": "none",
            "batch_size": _BATCH,
            "kimg": STEPS * _BATCH / 1000,
            "r1_interval": 4,
            "stats_kimg": _BATCH / 1000,
            "sample_kimg": 1e6,
            "checkpoint_kimg": 1e6,
            "check_gradients_steps": 4,
            "tf32": False,
            "precision": "fp32",
            "compile": "off",
            "step_graph": "off",
        }
    )


def _watts(lines: list[dict[str, float]]) -> float | None:
    """What GPUs drew from the first line to the last, where their energy is measured."""
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
