"""What a benchmark measures with: its runs, and the titles of all figures: what is not measured is named too."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType

from gangway.trainer.config.presets import preset
from gangway.trainer.config.train_config import TrainConfig
from tools.bench.results import Result
from tools.bench.runs import Side, peer_loop, rates_in_turn, train_for, trainer_loop

ROUNDS, SECONDS = 10, 5.0
"""What a target is judged by, at least: with less, the neighbours of a moment decide."""
SAME_LOSSES_STEPS = 30
"""Over which losses are compared."""
_STEPS_A_LINE = 16
"""As many as from one lazy penalty to the next, so that each line's steps are the same work; and few enough lines that
workers, who meet for each, are left alone with their steps."""

TITLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "textbook": (
            "Training step in fp32 against the textbook loop",
            "Training step in bf16 against the textbook loop in fp32",
            "Training step in fp32 against the textbook loop that reuses its fakes",
            "An fp32 step of the same work at the speed of one large convolution, against the textbook loop",
            f"Largest difference of a loss in the first {SAME_LOSSES_STEPS} steps against the textbook loop",
        ),
        "narrow": (
            "The same in fp32 at half the width and half the batch",
            "The same in bf16 at half the width and half the batch, against fp32",
        ),
        "peer": (
            "Training step in fp32 against the tuned peer, one thread",
            "Training step in bf16 against the tuned peer in bf16, one thread",
            "The same in fp32 with two processes of a thread each",
            "The same in bf16 with two processes of a thread each",
        ),
        "processes": (
            "Two gloo processes of a thread each against one, global batch 128",
            "Two gloo processes of a thread each against one, batch 128 in each process",
            "Two such processes of half the batch each that send each other nothing, against one",
        ),
        "waiting": (
            "Threads that wait passively against threads that spin, alone",
            "Threads that wait passively against one thread, alone",
            "Threads that wait passively against threads that spin, beside a busy process",
            "Threads that wait passively against one thread, beside a busy process",
        ),
        "overheads": ("Checkpoints' stall, share of the time", "Telemetry, share of the time"),
        "start": ("From the command to the end of the first step",),
        "features": ("Inception features for FID against torch-fidelity",),
        "quality": (
            "dcgan-digits, the whole preset on two workers",
            "FD-ENL0, untrained over trained",
            "Samples that our classifier reads as a digit",
            "Digits among them, of ten",
        ),
        "gpu": ("DCGAN 32x32 in bf16 on one GPU, batch 128", "DCGAN 32x32 in bf16 on one GPU, batch 1024"),
    }
)
"""The figures of each case, in its order: what was not measured is named all the same."""


@dataclass(frozen=True)
class Bench:
    """How much is measured, and where. `seconds`: of a measurement or a turn; `threads`: a process's default."""

    work_dir: Path
    data_dir: Path
    seconds: float
    rounds: int
    threads: int
    report: Callable[[str], None]

    @property
    def config(self) -> TrainConfig:
        """DCGAN at 32x32 in colour and batch 128, as paper P2 has it; no augmentation, which tutorials have not."""
        return self.sized(128)

    def sized(self, batch_size: int) -> TrainConfig:
        """Returns the configuration at another batch size, with as many steps per line."""
        config = preset("dcgan-cifar10")
        assert _STEPS_A_LINE % config.r1_interval == 0, "or lines would differ in their work"
        return config.replace(
            {
                "dataset": "photos",
                "augment": "none",
                "batch_size": batch_size,
                "kimg": 1e6,
                "stats_kimg": _STEPS_A_LINE * batch_size / 1000,
                "sample_kimg": 1e6,
                "checkpoint_kimg": 1e6,
            }
        )

    def side(
        self,
        name: str,
        *configs: TrainConfig,
        processes: int = 1,
        threads: int | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> Side:
        """Returns simultaneous runs of the trainer as one side; `variables` are added to the environment."""
        threads = threads or self.threads
        folders = [self._folder(name, config, number) for number, config in enumerate(configs)]
        loops = [
            trainer_loop(config, folder, self.data_dir, processes=processes, threads=threads, variables=variables)
            for config, folder in zip(configs, folders, strict=True)
        ]
        return Side(name, loops)

    def peer(
        self,
        module: str,
        name: str,
        config: TrainConfig,
        *,
        processes: int = 1,
        threads: int | None = None,
        words: Sequence[str] = (),
    ) -> Side:
        """The loop of a module, `textbook` or `tuned`, to take turns with other sides."""
        folder, threads = self._folder(name, config), threads or self.threads
        loop = peer_loop(module, config, folder, self.data_dir, threads=threads, processes=processes, words=words)
        return Side(name, [loop])

    def in_turn(self, sides: Sequence[Side]) -> dict[str, list[float]]:
        """Images per second of each side in each round, see `rates_in_turn`."""
        return rates_in_turn(sides, self.seconds, self.rounds, self.report)

    def judged(self, met: bool, *, rounds: bool = False, seconds: bool = False) -> bool | None:
        """Whether a target is met; None with fewer than `ROUNDS` (`rounds`) or `SECONDS` (`seconds`)."""
        too_little = (rounds and self.rounds < ROUNDS) or (seconds and self.seconds < SECONDS)
        return None if too_little else met

    def run(self, name: str, config: TrainConfig) -> list[dict[str, float]]:
        """Statistics lines of a run."""
        self.report(name)
        return train_for(config, self.work_dir / name, self.data_dir, self.seconds, threads=self.threads)

    def _folder(self, name: str, config: TrainConfig, number: int = 0) -> Path:
        return self.work_dir / f"{name.replace(',', '').replace(' ', '-')}-{config.ngf}-{number}"


def ahead(
    bench: Bench,
    name: str,
    rates: Mapping[str, Sequence[float]],
    side: str,
    base: str,
    wanted: float | None = None,
    parts: Mapping[str, float] = MappingProxyType({}),
    note: str = "",
) -> Result:
    """How many times as fast `side` is as `base`: the median of the rounds' ratios, with the lowest and the highest.

    A round's rates (images per second) are taken in turn, so that a neighbour who comes and goes meets both or shows in
    the spread. `wanted` is the least ratio, None where the project wants none; `parts` is what the figure is made of.
    """
    ratios = [found / other for found, other in zip(rates[side], rates[base], strict=True)]
    value = median(ratios)
    target = "" if wanted is None else f">= {wanted:g} x"
    met = None if wanted is None else bench.judged(value >= wanted, rounds=True, seconds=True)
    return Result(name, value, "x", target, met, dict(parts), note, (min(ratios), max(ratios)))


def medians(rates: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns each side's median rate over the rounds, as parts of a figure."""
    return {f"{side} images/s": median(values) for side, values in rates.items()}


def absent(case: str, why: str) -> Iterator[Result]:
    """Returns a case's figures without values, with the reason."""
    for title in TITLES[case]:
        yield Result(title, None, "", "", None, note=f"not measured: {why}")
