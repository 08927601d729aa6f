"""The Environment that is this machine: torchrun here, as a node would run it, one run after the other.

No cloud, no Pulumi, no bill. A run that was cut off goes on from its checkpoint.
"""

import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from components.job import JobSpec, Rendezvous
from stacks.bench.hardware import Hardware, describe
from stacks.bench.names import run_id_of
from stacks.bench.processes import end_left_over, process_facts
from stacks.bench.runner import Guard, RunFailedError
from stacks.bench.suite import LOCAL, Item, SuiteConfig
from stacks.local_run import LocalRun, StatsTail
from stacks.planning.run_context import local_context
from stacks.settings.job_settings import trainer_flags
from trainer.record import EXIT_BAD_INPUT, EXIT_INTERRUPTED, RunRecord

__all__ = ["Local"]

_LAST_LINES = 6
_WORDS = {EXIT_BAD_INPUT: "bad input", EXIT_INTERRUPTED: "interrupted"}


class _Running(NamedTuple):
    """A launcher of ours: its lines as they come, what ends it, and where facts are kept."""

    run: LocalRun
    tail: StatsTail
    cleanup: ExitStack
    note: Callable[..., None]


class Local:
    """Items on this machine.

    Args:
        run_dir: of the suite.
        stamp: of this run of it.
        suite: what runs.
        preset: of the whole table.
        data_dir: the shards, prepared there when missing.
        machine: what this machine is.
    """

    poll_sec = (0.5, 2.0)

    def __init__(
        self, run_dir: Path, stamp: str, suite: SuiteConfig, preset: str, data_dir: Path, machine: Hardware
    ) -> None:
        self._run_dir, self._stamp, self._suite, self._preset = run_dir, stamp, suite, preset
        self._data_dir, self._machine = data_dir, machine
        self._running: dict[str, _Running] = {}
        self._doing: dict[str, str] = {}

    def up(self, item: Item, note: Callable[..., None], guard: Guard) -> Mapping[str, Any]:
        """See Environment."""
        folder = self._folder(item)
        folder.mkdir(exist_ok=True)
        context = local_context(LOCAL, run_id_of(item, self._stamp))
        context = context.model_copy(update={"machine_type": describe(self._machine)})
        (folder / "context.json").write_text(context.model_dump_json(indent=2), "utf-8")
        cleanup = ExitStack()
        run = cleanup.enter_context(LocalRun.start(self._job(item), folder / "train.log"))
        facts = process_facts(run.pid, "trainer.launch")
        note(**facts)
        self._running[item.name] = _Running(run, StatsTail(folder / "stats.jsonl"), cleanup, note)
        return facts

    def attach(self, item: Item, facts: Mapping[str, Any], note: Callable[..., None]) -> Mapping[str, Any]:
        """See Environment. Two launchers must not write one folder; the second resumes."""
        end_left_over(facts, signal.SIGTERM)
        return self.up(item, note, str)

    def record(self, item: Item, facts: Mapping[str, Any]) -> RunRecord | None:
        """See Environment."""
        running = self._running[item.name]
        code = running.run.exit_code
        for line in running.tail.new_lines():
            if "loss_g" in line:
                self._doing[item.name] = f"{line['images']:,} images, {line['images_per_sec']:.0f} a second"
        if code is None:
            return None
        record = self._read(item)
        if code != 0:
            last = running.run.log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
            said = f"the trainer ended with {code} ({_WORDS.get(code, 'failed')}): {' | '.join(last)}"
            if record is None or record.status != "done":
                raise RunFailedError(said)
            running.note(remark=f"after its record was complete, {said}")
        if record is None:
            raise RunFailedError(f"{self._folder(item) / 'run.json'}: no record, although the trainer ended well")
        return record

    def _read(self, item: Item) -> RunRecord | None:
        """The record that the trainer has left; None where it has left none."""
        try:
            return RunRecord.model_validate_json((self._folder(item) / "run.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def collect(self, item: Item, facts: Mapping[str, Any]) -> None:
        """See Environment. The run's folder is the suite's already."""

    def destroy(self, item: Item, facts: Mapping[str, Any], note: Callable[..., None]) -> list[str]:
        """See Environment."""
        if item.name in self._running:
            self._running.pop(item.name).cleanup.close()
        else:
            end_left_over(facts, signal.SIGTERM)
        return []

    def doing(self, item: Item) -> str:
        """See Environment."""
        return self._doing.get(item.name, "starting")

    def _folder(self, item: Item) -> Path:
        return self._run_dir / run_id_of(item, self._stamp)

    def _job(self, item: Item) -> JobSpec:
        """The job of a node, with this machine in it: no container, one thread a process."""
        suite, folder = self._suite, self._folder(item)
        overrides = {"kimg": suite.kimg, "seed": item.seed, "checkpoint_kimg": suite.checkpoint_kimg}
        gpus = len(self._machine["gpus"])
        return JobSpec(
            name=f"{suite.name}-local",
            backend="nccl" if gpus else "gloo",
            num_nodes_min=1,
            num_nodes_max=1,
            processes_per_node=gpus or suite.local_processes,
            rendezvous=Rendezvous(standalone=True),
            env={} if gpus else {"OMP_NUM_THREADS": "1"},
            max_restarts=0,
            argv=(
                "train",
                *trainer_flags(self._preset, item.settings, overrides),
                "--run-dir", str(folder), "--data", str(self._data_dir), "--context", str(folder / "context.json"),
            ),
        )  # fmt: skip
