"""A run's outputs. The loop calls on every rank, only rank 0 writes, and its error (a full disk) is raised on all."""

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import torch
from torch import Tensor

from gangway.trainer.checkpoint.async_saver import SAVE_FAILURES, PartSaver, Saved, Saver
from gangway.trainer.checkpoint.resume import find_damage
from gangway.trainer.checkpoint.samples import get_captions, num_shown, run_grid, write_samples
from gangway.trainer.checkpoint.store import state_digests
from gangway.trainer.config.segment_plan import Stretch, unreached
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.control.interval import Knobs
from gangway.trainer.core.console import info
from gangway.trainer.core.errors import TrainerError, WorkerFailedError
from gangway.trainer.core.files import write_atomically
from gangway.trainer.core.host import code_sha256, program, versions
from gangway.trainer.data.loader import Sampler
from gangway.trainer.data.verification import Verification, Verified
from gangway.trainer.distributed.fabric import nccl_versions, unqualified
from gangway.trainer.distributed.world import World, is_shared_failure
from gangway.trainer.metrics.evaluate import Moment
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.power.carbon_start import start_decision
from gangway.trainer.preemption.notices import Notice, Request
from gangway.trainer.records.cost_carbon import by_node, own_capacity
from gangway.trainer.records.digest import identify
from gangway.trainer.records.run_record import FabricRecord, RunContext
from gangway.trainer.records.stats_log import Line, StatsWriter, read_stats_log
from gangway.trainer.records.summary import summarise
from gangway.trainer.run.session_setup import Ready, RunOptions
from gangway.trainer.steps.noise_scale import NO_LOOKS, Looks
from gangway.trainer.steps.state import TrainState
from gangway.trainer.telemetry.collapse import EVENT, CollapseWatch, Hint
from gangway.trainer.telemetry.devices import device_name
from gangway.trainer.telemetry.flops import step_flops
from gangway.trainer.telemetry.prometheus import MetricsEndpoint
from gangway.trainer.telemetry.statistics_line import Stalls, StatisticsLine, check_finite, is_finite, starvation_note
from gangway.trainer.telemetry.tracking import TrackedRun, check_targets, open_feeds


class _RunWriter:
    """One session's open files, in the worker that writes them (TrainerError: not writable, or of two runs)."""

    def __init__(
        self, run_dir: Path, ready: Ready, context: RunContext, options: RunOptions, endpoint: MetricsEndpoint | None
    ) -> None:
        config, restored, images = ready.config, ready.restored, ready.state.images
        stats_log, sha256 = read_stats_log(run_dir), ready.data.index.sha256
        identity = identify(run_dir, stats_log, restored.identity, context.run_id, config.preset, sha256)
        self.past_hints = frozenset(str(line.get("cause")) for line in stats_log.lines if line.get("event") == EVENT)
        damage = list(find_damage(run_dir, stats_log, identity, restored))
        self._dir = run_dir
        self.write_config(config)
        self.identity, self.say = identity, options.say
        self.saver: Saver = Saver(run_dir / "checkpoints", config, identity, self.saved)
        run = TrackedRun(identity.run_id, identity.session, images, run_dir, config.model_dump(mode="json"))
        self._feeds = open_feeds(options.track, run, self.say)
        listeners = [self._feeds.show, *([endpoint.show] if endpoint is not None else [])]
        self._stats = StatsWriter(run_dir, echo=options.log_json, listeners=listeners)
        for sentence, event, details in damage:
            self.say(sentence)
            self.event(event, images, **details)

    def write_config(self, config: TrainConfig) -> None:
        write_atomically(self._dir / "config.json", config.to_json().encode())

    def event(self, event: str, images: int, **details: object) -> None:
        """Writes an event to stats.jsonl; also called by the thread that saves."""
        self._stats.event(event, images, self.identity.session, **details)

    def line(self, line: Line) -> None:
        self._stats.write({**line, "session": self.identity.session})

    def picture(self, path: Path, images: int) -> None:
        self._feeds.picture(path, images)

    def close(self, status: str) -> None:
        """Waits for the running save and the trackers; `status` is done, interrupted or failed."""
        try:
            self.saver.wait()
        except SAVE_FAILURES as error:  # another error is being reported already
            why = error.headline if isinstance(error, TrainerError) else str(error)
            self.say(f"the last checkpoint failed too: {why}")
        self._feeds.close(status)

    def saved(self, saved: Saved) -> None:
        """Writes an event for a checkpoint on disk; called by the thread that saves."""
        details = {"file": saved.path.name, "sec": saved.sec, "stall_sec": saved.stall_sec}
        self.event("checkpoint", saved.images, **details, **({"why": saved.why} if saved.why else {}))


_SLOW_VERIFICATION_SEC = 10.0
_DEFAULT_REASONS = ("fp32:", "ddp: whole", "off: not asked for")


class Reporter:
    """One session's outputs. Use it as a context and call `begin` first. Without `endpoint` there is no Prometheus."""

    def __init__(
        self,
        run_dir: Path,
        config: TrainConfig,
        world: World,
        context: RunContext,
        endpoint: MetricsEndpoint | None,
        options: RunOptions,
    ) -> None:
        self._dir, self._config, self._world, self._context = run_dir, config, world, context
        self._endpoint, self._options = endpoint, options
        self._opened: _RunWriter | None = None
        self._saver: Saver | None = None
        self._start_state: TrainState | None = None
        self._verification: Verification | None = None
        self._is_verification_noted = False
        self._data_flag: tuple[str, ...] = ()  # for commands that look for the data in the run's directory
        self._status, self._starved = "failed", False
        self._saved_images = -1
        self._printed_choices: Mapping[str, str] = {}
        self._telemetry_sec = self._metrics_sec = 0.0
        world.run_on_all(lambda: check_targets(options.track))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Lets writes finish, however the run ended; writes an error's first line to stats.jsonl."""
        if self._opened is None:
            if self._saver is not None:
                with contextlib.suppress(*SAVE_FAILURES):  # rank 0 reports it
                    self._saver.wait()
            return
        is_unfinished = self._status == "failed"
        if self._start_state is not None and error is not None and is_unfinished and self._is_own_error(error):
            why = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
            with contextlib.suppress(TrainerError):  # which may be that the disk is full
                self._writer.event("failed", self._start_state.images, why=why)
        self._opened.close(self._status)

    def _is_own_error(self, error: BaseException) -> bool:
        is_reported = isinstance(error, TrainerError | WorkerFailedError) or is_shared_failure(error)
        return self._world.world_size == 1 or is_reported

    def begin(self, ready: Ready, fabric: FabricRecord) -> None:
        """Writes the first event, images and samples; then the clock starts. TrainerError: not writable."""
        world, state = self._world, ready.state
        self._config, self._verification = ready.config, ready.verification
        self._saved_images = state.images if state.images else -1
        self._data = ready.data
        flops = step_flops(self._config, device_name(world), self._context)
        facts: dict[str, Any] = {
            "capacity": by_node(world.gather((world.node_rank, own_capacity()), tuple[int, str])),
            "fabric": fabric.model_dump(mode="json"),
            "flops": {name: quantity.model_dump(mode="json") for name, quantity in flops._asdict().items()},
        }
        grid = None if state.images else self._grid(state)
        world.run_on_rank0(lambda: self._open(ready, facts, grid))
        writer = self._opened
        if state.is_split:
            owner, saved = (None, lambda _: None) if writer is None else (writer.identity, writer.saved)
            self._saver = PartSaver(self._dir / "checkpoints", self._config, owner, saved, world.for_thread())
        if writer is not None:
            self._saver = writer.saver = self._saver or writer.saver
        self._start_state = state
        self._meters = StatisticsLine(self._config, world, self._context, state.images, flops, facts["capacity"])

    def _open(self, ready: Ready, facts: Mapping[str, Any], grid: Callable[[], Tensor] | None) -> None:
        state, data, world = ready.state, ready.data, self._world
        if data.folder.resolve() != (self._dir / "data").resolve():
            self._data_flag = ("--data", str(data.folder))
        writer = self._opened = _RunWriter(self._dir, ready, self._context, self._options, self._endpoint)
        images = data.take(Sampler(len(data), self._config.seed).indices(0, num_shown(self._config)))
        real_images = torch.from_numpy(images)
        write_samples(self._dir / "reals.png", real_images)
        self._watch = CollapseWatch(self._config, real_images, writer.past_hints)
        if grid is not None:
            self._write_samples(grid, state, self._sample_path(0))
        nccl = nccl_versions(world.backend)
        writer.event(
            "resume" if writer.identity.session else "start",
            state.images,
            run_id=writer.identity.run_id,
            world_size=world.world_size,
            num_nodes=world.num_nodes,
            backend=f"{world.backend} ({world.backend_reason})",
            device=device_name(world),
            gradient_bytes=state.gradient_bytes,
            allocator=ready.allocator,
            dataset={"name": data.index.dataset, "sha256": data.index.sha256, "images": len(data)},
            context=self._context.model_dump(mode="json"),
            code_sha256=code_sha256(),
            versions={**versions(), **nccl},
            **facts,
        )
        if why := unqualified(nccl):
            writer.event("nccl-unqualified", state.images, why=why)
            writer.say(f"warning: {why}")
        if (waited := start_decision()) and not state.images:
            writer.event("start-delayed", state.images, **waited)
        goes_on = f"goes on from {state.images:,} of" if state.images else "nothing was saved, it begins again:"
        begins = goes_on if writer.identity.session else "a new run of"
        where = f"{world.world_size} worker{'s' * (world.world_size > 1)} ({device_name(world)})"
        writer.say(f"{self._dir}: {begins} {self._config.total_images:,} images, {self._config.preset}, on {where}")
        for sentence in unreached(self._config):
            writer.say(f"warning: {sentence}")

    def tick(
        self,
        state: TrainState,
        accumulator: Accumulator,
        loader_stall_sec: float = 0.0,
        allreduce_sec: float | None = None,
        knobs: Knobs | None = None,
        looks: Looks = NO_LOOKS,
        controller_sec: float | None = None,
    ) -> Line:
        """Writes a statistics line, and returns it equal on every worker (TrainerError: not finite, or a full disk)."""
        accumulator = accumulator.cpu()  # waits for running steps, whose time is not telemetry's
        self._telemetry_sec += looks.sec
        with self._timed():
            checkpoint_sec = 0.0 if self._saver is None else self._saver.stall_sec
            own_sec = self._telemetry_sec, self._metrics_sec
            stalls = Stalls(loader_stall_sec, checkpoint_sec, *own_sec, allreduce_sec, controller_sec)
            line: Line = self._meters.line(state, accumulator, stalls, looks)
            if knobs is not None:
                line["knobs"] = knobs._asdict()
            if not is_finite(line):
                self._settle()  # a save that failed before is reported first
            check_finite(line)
            self._world.run_on_rank0(lambda: self._show(line))
            self._note_verification(state)
        return line

    def _note_verification(self, state: TrainState) -> None:
        if self._verification is None or self._is_verification_noted:
            return
        own = self._world.local_rank == 0, self._world.node_rank, self._verification.outcome
        found = self._world.gather(own, tuple[bool, int, Verified | None])
        nodes = {node: outcome for reads, node, outcome in found if reads}
        if any(outcome is None for outcome in nodes.values()):
            return
        self._is_verification_noted = True
        records = [{"node": node, **each.model_dump(exclude={"key"})} for node, each in sorted(nodes.items()) if each]

        def write() -> None:
            self._writer.event("data-verified", state.images, nodes=records)
            slowest = max(0.0 if each["remembered"] else each["sec"] for each in records)
            if slowest >= _SLOW_VERIFICATION_SEC:
                self._writer.say(f"data: every file compared with its hash beside the training, in {slowest:.0f} s")

        self._world.run_on_rank0(write)

    def _show(self, line: Line) -> None:
        self._writer.line(line)
        if not self._starved and (sentence := starvation_note(line)):
            self._starved = True
            self._writer.say(sentence)
        self._hint(self._watch.line(line), line["images"])
        if self._options.log_json:
            return
        total = self._config.total_images / 1000
        info(
            f"kimg {line['kimg']:8.2f} / {total:g}  images/s {line['images_per_sec']:7.0f}  "
            f"loss_g {line['loss_g']:6.3f}  loss_d {line['loss_d']:6.3f}"
        )

    def samples(self, state: TrainState) -> None:
        """Writes a grid of the averaged generator under the name of its kimg."""
        with self._timed():
            grid = self._grid(state)
            self._world.run_on_rank0(lambda: self._write_samples(grid, state, self._sample_path(state.images)))

    def quality(self, state: TrainState, moment: Moment) -> None:
        """Writes metrics computed while training, and their cost."""
        self._metrics_sec += moment.cost_sec
        self._world.run_on_rank0(lambda: moment.write(self._writer.event, self._writer.say, state.images))

    def checkpoint(self, state: TrainState, notices: Sequence[Notice | None] = ()) -> None:
        """Starts to save an unsaved state; the next save waits for it. TrainerError everywhere: the last failed."""
        if state.images != self._saved_images:
            why = next((notice.kind for notice in notices if notice is not None), "")
            live = state.live()
            self._world.run_on_all(lambda: self._saver.save(live, state.images, why) if self._saver else None)
            self._saved_images = state.images

    def save(self, state: TrainState) -> None:
        """Saves the state, if any step was made, and waits; raises TrainerError on every rank. Collective."""
        if state.images:
            self.checkpoint(state)
            self._settle()

    @property
    def request(self) -> Request:
        """FAIL once a save has failed or data is damaged: the loop then stops all workers with `fail`."""
        unsaved = self._saver is not None and self._saver.failed
        damaged = self._verification is not None and self._verification.failed
        return Request.FAIL if unsaved or damaged else Request.NOTHING

    def fail(self) -> NoReturn:
        """Raises the error of the thread that saves or verifies, on every rank (TrainerError)."""
        self._settle()
        if self._verification is not None:
            self._world.run_on_all(self._verification.check)
        raise AssertionError("a worker asked for FAIL, and none has failed")

    def _settle(self) -> None:
        self._world.run_on_all(lambda: None if self._saver is None else self._saver.wait())

    def note_choices(self, state: TrainState, choices: Mapping[str, str]) -> None:
        """Writes the session's choices with their reasons; prints those that are new and not the default."""

        def write() -> None:
            self._writer.event("choices", state.images, choices=dict(choices))
            for name, reason in choices.items():
                if not reason.startswith(_DEFAULT_REASONS) and self._printed_choices.get(name) != reason:
                    self._writer.say(f"{name} {reason}")
            self._printed_choices = choices

        self._world.run_on_rank0(write)

    def segment(self, state: TrainState, stretch: Stretch) -> None:
        """Writes which segment begins or continues; from now on, utilisation is relative to its precision's peak."""
        self._meters.flops = step_flops(stretch.config, device_name(self._world), self._context)
        details = {**stretch.described(), "begun_at": state.images, "world_size": self._world.world_size}
        self._world.run_on_rank0(lambda: self._writer.event("segment", state.images, segment=details))

    def set_plan(self, config: TrainConfig) -> None:
        """Uses the changed plan for what is saved from now on."""
        self._config = config
        self._settle()  # on all workers: it is collective, even where one alone saves
        if self._saver is not None:
            self._saver.config = config
        self._world.run_on_rank0(lambda: self._writer.write_config(config))

    def announce_resize(self, stretch: Stretch) -> None:
        """Announces that the next segment needs another number of workers, and so another session."""
        what = f"{stretch.place} of the plan is for {stretch.workers} workers: start that many with the same command"
        self._world.run_on_rank0(lambda: self._writer.say(what))

    def event(self, event: str, images: int, **details: object) -> None:
        """Writes an event at `images`; on rank 0 alone."""
        self._writer.event(event, images, **details)

    def say(self, sentence: str) -> None:
        """Prints a sentence for the user; on rank 0 alone."""
        self._options.say(sentence)

    def end(self, state: TrainState, cause: str, waited_sec: float = 0.0) -> None:
        """Writes the last event and the record of a saved state; `cause` is empty when done."""
        began = time.monotonic()
        self._settle()
        self._note_verification(state)
        stop_sec = waited_sec + time.monotonic() - began if waited_sec else None
        # On every worker, as each may hold a part.
        final = {} if cause else state.to_digest()
        digests = state_digests(final) if state.is_split or self._world.rank == 0 else {}
        grid = self._grid(state)
        self._status = "interrupted" if cause else "done"

        def write() -> None:
            if cause:
                self._interrupted(state.images, cause, stop_sec)
            else:
                self._writer.event("done", state.images, state_sha256=digests)
            self._write_samples(grid, state, self._dir / "samples.png")
            summarise(self._dir).write(self._dir / "run.json")
            if not cause:
                evaluate = shlex.join(["evaluate", "--run-dir", str(self._dir), *self._data_flag])
                judge = "" if self._config.translates else f", or judge it: {program()} {evaluate}"
                self._writer.say(f"{self._dir}: done, {state.images:,} images; look at samples.png there{judge}")

        self._world.run_on_rank0(write)

    def write_exit(self, cause: str, waited_sec: float) -> None:
        """Writes the last event and record of a session that ends within a step; another thread calls it, on rank 0."""
        if self._opened is not None:
            self._interrupted(max(0, self._saved_images), cause, waited_sec)
            summarise(self._dir).write(self._dir / "run.json")

    def _interrupted(self, images: int, cause: str, stop_sec: float | None) -> None:
        self._writer.event("interrupt", images, cause=cause, stop_sec=stop_sec)
        self._writer.say(f"interrupted by {cause} at {images} images; the same command goes on from there")

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._telemetry_sec += time.monotonic() - began

    @property
    def _writer(self) -> _RunWriter:
        assert self._opened is not None, "only rank 0 writes, after _open"
        return self._opened

    def _grid(self, state: TrainState) -> Callable[[], Tensor]:
        def compute() -> Tensor:
            return run_grid(state, self._data, self._world.own_device)

        if not state.is_split:
            return compute
        grid = self._world.run_on_all(compute)
        return lambda: grid

    def _write_samples(self, grid: Callable[[], Tensor], state: TrainState, path: Path) -> None:
        images = grid()
        write_samples(path, images, get_captions(self._config, self._data))
        self._writer.picture(path, state.images)
        self._hint(self._watch.grid(images, state.images), state.images)

    def _hint(self, hint: Hint | None, images: int) -> None:
        if hint is not None:
            self._writer.event(EVENT, images, cause=hint.cause, figure=hint.figure, text=hint.sentence)
            self._writer.say(f"hint: {hint.sentence}")

    def _sample_path(self, images: int) -> Path:
        return self._dir / "samples" / f"{images // 1000:06d}kimg.png"
