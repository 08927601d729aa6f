"""Runs a suite on this machine: shares its devices, one launcher per run."""

import os
import platform
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from gangway.bench.processes import end_leftover, last_words, process_facts
from gangway.bench.runner import Environment, Guard
from gangway.bench.suite import LOCAL, Item, SuiteConfig, get_run_id
from gangway.components.core.findings import InputError, nearest_hint
from gangway.components.core.job import JobSpec
from gangway.jobs.local.run import LocalRun, StatsTail, local_job
from gangway.runs.run_store import RunFailedError
from gangway.stacks.config.job_settings import effective_config
from gangway.stacks.estimates.run_context import local_context
from gangway.trainer.core.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED
from gangway.trainer.core.regular_files import read_file
from gangway.trainer.records.run_record import RunRecord

_CPUINFO = Path("/proc/cpuinfo")
DEVICES = ("auto", "cpu", "cuda")


class Hardware(dict[str, Any]):
    """Plain JSON data."""


def hardware(cpuinfo: Path = _CPUINFO) -> Hardware:
    """Detect this machine; of its GPUs those that CUDA_VISIBLE_DEVICES shows."""
    return Hardware(
        cpu=_cpu(cpuinfo),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        gpus=_visible(_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")),
        system=f"{platform.system()} {platform.machine()}",
    )


def describe(machine: Hardware) -> str:
    """In one line, as a record's machine type."""
    gpus = f"{len(machine['gpus'])} x {machine['gpus'][0]}, " if machine["gpus"] else ""
    return f"{gpus}{machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']:g} GiB"


def _cpu(cpuinfo: Path) -> str:
    """The model; only Linux has it, and not on every architecture."""
    if cpuinfo.exists():
        for line in cpuinfo.read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


class _Gpu(NamedTuple):
    name: str
    uuid: str


def _gpus() -> list[_Gpu]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [_Gpu(str(pynvml.nvmlDeviceGetName(one)), str(pynvml.nvmlDeviceGetUUID(one))) for one in handles]
    finally:
        pynvml.nvmlShutdown()


def _visible(gpus: Sequence[_Gpu], visible: str | None) -> list[str]:
    """Names of GPUs, by number or start of a UUID; what follows an invalid one is hidden (CUDA C++ Guide)."""
    if visible is None:
        return [gpu.name for gpu in gpus]
    found = list[str]()
    for word in (each.strip() for each in visible.split(",")):
        chosen = [
            gpu
            for index, gpu in enumerate(gpus)
            if word == str(index) or (word.startswith("GPU-") and gpu.uuid.startswith(word))
        ]
        if len(chosen) != 1:
            break
        found.append(chosen[0].name)
    return found


@dataclass(frozen=True)
class Placement:
    """Where a study runs. `threads`: OMP_NUM_THREADS, the same for every number of processes."""

    device: Literal["cpu", "cuda"]
    threads: int
    reason: str

    @property
    def backend(self) -> Literal["gloo", "nccl"]:
        """The collectives, by which the trainer picks the device."""
        return "nccl" if self.device == "cuda" else "gloo"


def placement(asked: str, largest: int, machine: Hardware, visible: str | None) -> Placement:
    """GPUs if there are enough, else the CPU, unless `asked` for one. InputError: unknown, or too few GPUs."""
    if asked not in DEVICES:
        fix = nearest_hint(asked, DEVICES)
        raise InputError("--device", "no such device", value=asked, allowed=", ".join(DEVICES), fix=fix)
    gpus = len(machine["gpus"])
    available = f"{gpus} GPU(s) here" if gpus else "no GPU here"
    if visible is not None:
        available += f" (CUDA_VISIBLE_DEVICES={visible})"
    if asked == "cpu":
        return Placement("cpu", 1, "requested: --device cpu")
    if gpus and gpus >= largest:
        # torchrun would give one thread to each of several processes, but all threads to one: an unfair comparison.
        return Placement(
            "cuda", max(1, machine["cores"] // largest), f"{available}, one for each of {largest} process(es)"
        )
    if asked == "cuda" and not gpus:
        raise InputError("--device", available, value=asked, allowed="auto or cpu here", fix="remove --device")
    if asked == "cuda":
        raise InputError(
            "--processes",
            f"{available}, and each process needs one",
            value=largest,
            allowed=f"1 to {gpus} with --device cuda",
            fix=f"write at most {gpus}, or --device cpu",
        )
    few = f"{available}, fewer than {largest} processes: GPUs are used up to --processes {gpus}"
    return Placement("cpu", 1, few if gpus else available)


class _Running(NamedTuple):
    run: LocalRun
    tail: StatsTail
    cleanup: ExitStack
    note: Callable[..., None]


class Local(Environment):
    """Runs items on this machine. `data_dir`: the shards, prepared there if missing."""

    poll_sec = (0.5, 2.0)

    def __init__(
        self, run_dir: Path, stamp: str, suite: SuiteConfig, preset: str, data_dir: Path, machine: Hardware
    ) -> None:
        super().__init__()
        self._run_dir, self._stamp, self._suite, self._preset = run_dir, stamp, suite, preset
        self._data_dir, self._machine = data_dir, machine
        self._running: dict[str, _Running] = {}

    def up(self, item: Item, note: Callable[..., None], guard: Guard) -> Mapping[str, Any]:
        """See Environment."""
        folder = self._folder(item)
        folder.mkdir(exist_ok=True)
        cleanup = ExitStack()
        run = cleanup.enter_context(LocalRun.start(self._job(item), folder / "train.log"))
        facts = process_facts(run.pid, "gangway.trainer.launch")
        note(**facts)
        self._running[item.name] = _Running(run, StatsTail(folder / "stats.jsonl"), cleanup, note)
        return facts

    def attach(self, item: Item, facts: Mapping[str, Any], note: Callable[..., None]) -> Mapping[str, Any]:
        """See Environment. Two launchers must not write one folder; the second resumes."""
        end_leftover(facts, signal.SIGTERM)
        return self.up(item, note, str)

    def record(self, item: Item, facts: Mapping[str, Any]) -> RunRecord | None:
        """See Environment."""
        running = self._running[item.name]
        code = running.run.exit_code
        for line in running.tail.new_lines():
            if "loss_g" in line:
                self._doing[item.name] = f"{line['images']:,} images, {line['images_per_sec']:.0f} per second"
        if code is None:
            return None
        record = self._read(item)
        if code != 0:
            word = {EXIT_BAD_INPUT: "bad input", EXIT_INTERRUPTED: "interrupted"}.get(code, "failed")
            reason = f"the trainer ended with {code} ({word}): {last_words(running.run.log)}"
            if record is None or record.status != "done":
                raise RunFailedError(reason)
            running.note(remark=f"after its record was complete, {reason}")
        if record is None:
            raise RunFailedError(f"{self._folder(item) / 'run.json'}: no record, although the trainer succeeded")
        return record

    def _read(self, item: Item) -> RunRecord | None:
        try:
            return RunRecord.model_validate_json(read_file(self._folder(item) / "run.json"))
        except (OSError, ValidationError):
            return None

    def destroy(self, item: Item, facts: Mapping[str, Any], note: Callable[..., None]) -> list[str]:
        """See Environment."""
        if item.name in self._running:
            self._running.pop(item.name).cleanup.close()
        else:
            end_leftover(facts, signal.SIGTERM)
        return []

    def doing(self, item: Item) -> str:
        """See Environment."""
        return super().doing(item) or "starting"

    def _folder(self, item: Item) -> Path:
        return self._run_dir / get_run_id(item, self._stamp)

    def _job(self, item: Item) -> JobSpec:
        suite, folder = self._suite, self._folder(item)
        overrides = {"kimg": suite.kimg, "seed": item.seed, "checkpoint_kimg": suite.checkpoint_kimg}
        gpus = len(self._machine["gpus"])
        context = local_context(LOCAL, folder.name).model_copy(update={"machine_type": describe(self._machine)})
        return local_job(
            f"{suite.name}-local",
            effective_config(self._preset, item.settings, overrides).document(),
            folder,
            gpus or suite.local_processes,
            on_gpus=bool(gpus),
            threads=None if gpus else 1,
            data_dir=self._data_dir,
            context=context,
        )
