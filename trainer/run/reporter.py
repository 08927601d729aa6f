"""Everything a run leaves behind, as the loop tells it: the run directory and, behind a flag, the metrics endpoint.

run_dir/ config.json, stats.jsonl, run.json, checkpoints/, samples/, samples.png, reals.png. The loop calls on every
rank, only rank 0 writes, and its error (a full disk) is raised on all. What it finds damaged it says.
"""

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import torch
from torch import Tensor

from trainer.checkpoint.async_saver import SAVE_FAILURES, PartSaver, Saver
from trainer.checkpoint.samples import get_captions, num_shown, run_grid, write_samples
from trainer.checkpoint.store import state_digests
from trainer.config.segment_plan import Stretch, unreached
from trainer.config.train_config import TrainConfig
from trainer.control.interval import Knobs
from trainer.core.console import info
from trainer.core.errors import TrainerError, WorkerFailedError
from trainer.core.host import code_sha256, versions
from trainer.core.program import program
from trainer.data.loader import Sampler
from trainer.data.verification import Verification, Verified
from trainer.distributed.nccl import nccl_versions, unqualified
from trainer.distributed.world import World, is_shared_failure
from trainer.metrics.evaluate import Moment
from trainer.phases.updates import Accumulator
from trainer.power.carbon_start import start_decision
from trainer.preemption.notices import Notice, Request
from trainer.records.cost_carbon import by_node, own_capacity
from trainer.records.run_record import FabricRecord, RunContext
from trainer.records.stats_log import Line
from trainer.records.summary import summarise
from trainer.run.run_writer import RunWriter
from trainer.run.session_setup import Ready, RunOptions
from trainer.steps.noise_scale import NOTHING_SEEN, Looks
from trainer.steps.state import TrainState
from trainer.telemetry.collapse import EVENT, CollapseWatch, Hint
from trainer.telemetry.devices import device_name
from trainer.telemetry.flops import step_flops
from trainer.telemetry.meters import Meters, Stalls, check_finite, is_finite, starved
from trainer.telemetry.prometheus import MetricsEndpoint
from trainer.telemetry.tracking import check_targets

_WORTH_SAYING_SEC = 10.0
_PLAIN = ("fp32:", "ddp: whole", "off: not asked for")


class Reporter:
    """One session's outputs. Use it as a context, `begin` first, then the rest. `endpoint` None for no Prometheus."""

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
        self._opened: RunWriter | None = None
        self._saver: Saver | None = None
        self._begun: TrainState | None = None
        self._verification: Verification | None = None
        self._told_verified = False
        self._data_flag: tuple[str, ...] = ()  # for commands that look for the data in the run's directory
        self._status, self._starved = "failed", False
        self._saved_images = -1
        self._said: Mapping[str, str] = {}
        self._telemetry_sec = self._metrics_sec = 0.0
        world.run_on_all(lambda: check_targets(options.track))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Lets what is being written end, whatever has ended the run; an error's first line goes to stats.jsonl."""
        if self._opened is None:
            if self._saver is not None:
                with contextlib.suppress(*SAVE_FAILURES):  # rank 0 tells of it
                    self._saver.wait()
            return
        if self._begun is not None and error is not None and self._status == "failed" and self._is_ours(error):
            why = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
            with contextlib.suppress(TrainerError):  # which may be that the disk is full
                self._writer.event("failed", self._begun.images, why=why)
        self._opened.close(self._status)

    def _is_ours(self, error: BaseException) -> bool:
        """Whether the session failed by the error; a broken connection alone tells of a worker that was killed."""
        return (
            self._world.world_size == 1
            or isinstance(error, TrainerError | WorkerFailedError)
            or is_shared_failure(error)
        )

    def begin(self, ready: Ready, fabric: FabricRecord) -> None:
        """Writes the first event, the real images and the first samples; the clock starts after that. `fabric` is its
        acceptance test. TrainerError on every rank: not writable, or parts of two runs are there.
        """
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
        if state.is_split:
            self._saver = self._part_saver()
        elif self._opened is not None:
            self._saver = self._opened.saver
        self._begun = state
        self._meters = Meters(self._config, world, self._context, state.images, flops, facts["capacity"])

    def _part_saver(self) -> PartSaver:
        """This worker's, of networks in parts."""
        folder, world, writer = self._dir / "checkpoints", self._world.for_thread(), self._opened
        if writer is None:
            return PartSaver(folder, self._config, None, lambda _: None, world)
        writer.saver = PartSaver(folder, self._config, writer.identity, writer.saved, world)
        return writer.saver

    def _open(self, ready: Ready, facts: Mapping[str, Any], grid: Callable[[], Tensor] | None) -> None:
        """On rank 0: opens the session's files and says what it is."""
        state, data, world = ready.state, ready.data, self._world
        if data.folder.resolve() != (self._dir / "data").resolve():
            self._data_flag = ("--data", str(data.folder))
        writer = self._opened = RunWriter(
            self._dir,
            self._config,
            self._context,
            self._options,
            self._endpoint,
            data,
            ready.restored,
            state.images,
        )
        shown = data.take(Sampler(len(data), self._config.seed).indices(0, num_shown(self._config)))
        reals = torch.from_numpy(shown)
        write_samples(self._dir / "reals.png", reals)
        self._watch = CollapseWatch(self._config, reals, writer.told)
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
        looks: Looks = NOTHING_SEEN,
        controller_sec: float | None = None,
    ) -> Line:
        """Writes a statistics line of the state after a step, and returns it: it is equal on every worker.

        `accumulator` has this worker's sums since the last line; the networks' gradients are those of the last step;
        `loader_stall_sec` and `allreduce_sec`, that steps waited for images and for other workers' gradients, count
        since the session began, as does `controller_sec`, None without one; `knobs` are what it was trained with;
        `looks` are at its gradients' noise.
        TrainerError on every rank: a loss is no longer finite, or the disk is full.
        """
        accumulator = (
            accumulator.cpu()
        )  # waits for the steps that are still under way, which are no part of telemetry's time
        self._telemetry_sec += looks.sec
        with self._timed():
            checkpoint_sec = 0.0 if self._saver is None else self._saver.stall_sec
            stalls = Stalls(
                loader_stall_sec,
                checkpoint_sec,
                self._telemetry_sec,
                self._metrics_sec,
                allreduce_sec,
                controller_sec,
            )
            line: Line = self._meters.line(state, accumulator, stalls, looks)
            if knobs is not None:
                line["knobs"] = knobs._asdict()
            if not is_finite(line):
                self._settle()  # a state that went bad earlier was noticed earlier
            check_finite(line)
            self._world.run_on_rank0(lambda: self._show(line))
            self._tell_verified(state)
        return line

    def _tell_verified(self, state: TrainState) -> None:
        """Writes, once, when each node's data was compared with its hashes, and by whom."""
        if self._verification is None or self._told_verified:
            return
        own = self._world.local_rank == 0, self._world.node_rank, self._verification.outcome
        found = self._world.gather(own, tuple[bool, int, Verified | None])
        nodes = {node: outcome for reads, node, outcome in found if reads}
        if any(outcome is None for outcome in nodes.values()):
            return
        self._told_verified = True
        told = [{"node": node, **each.model_dump(exclude={"key"})} for node, each in sorted(nodes.items()) if each]

        def write() -> None:
            self._writer.event("data-verified", state.images, nodes=told)
            slowest = max(0.0 if each["remembered"] else each["sec"] for each in told)
            if slowest >= _WORTH_SAYING_SEC:
                self._writer.say(f"data: every file compared with its hash beside the training, in {slowest:.0f} s")

        self._world.run_on_rank0(write)

    def _show(self, line: Line) -> None:
        self._writer.line(line)
        if not self._starved and (sentence := starved(line)):
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
        """Writes the values of metrics computed while training, and their cost."""
        self._metrics_sec += moment.cost_sec
        self._world.run_on_rank0(lambda: moment.write(self._writer.event, self._writer.say, state.images))

    def checkpoint(self, state: TrainState, notices: Sequence[Notice | None] = ()) -> None:
        """Begins to save the state unless this very state is saved already; `end` and the next save wait for it.
        `notices` are every worker's that asked for it. TrainerError on every rank: the save before failed.
        """
        if state.images != self._saved_images:
            why = next((notice.kind for notice in notices if notice is not None), "")
            live = state.live()
            self._world.run_on_all(lambda: self._saver.save(live, state.images, why) if self._saver else None)
            self._saved_images = state.images

    def save(self, state: TrainState) -> None:
        """Returns when the state is on disk; of a run that has not begun there is nothing to save. All workers call it
        together. TrainerError on every rank: it cannot be written.
        """
        if state.images:
            self.checkpoint(state)
            self._settle()

    @property
    def request(self) -> Request:
        """FAIL as soon as a save has failed, or data is found damaged: the loop then stops all workers with `fail`."""
        unsaved = self._saver is not None and self._saver.failed
        damaged = self._verification is not None and self._verification.failed
        return Request.FAIL if unsaved or damaged else Request.NOTHING

    def fail(self) -> NoReturn:
        """Raises, on every rank, what has failed in the thread that saves, or in the one that reads (TrainerError)."""
        self._settle()
        if self._verification is not None:
            self._world.run_on_all(self._verification.check)
        raise AssertionError("a worker asked for FAIL, and none has failed")

    def _settle(self) -> None:
        """Waits for the save under way; raises its error on every rank."""
        self._world.run_on_all(lambda: None if self._saver is None else self._saver.wait())

    def chosen(self, state: TrainState, choices: Mapping[str, str]) -> None:
        """Notes what was chosen for this session, each choice with its reason; prints what is not the plain way and has
        not been said.
        """

        def write() -> None:
            self._writer.event("choices", state.images, choices=dict(choices))
            for name, reason in choices.items():
                if not reason.startswith(_PLAIN) and self._said.get(name) != reason:
                    self._writer.say(f"{name} {reason}")
            self._said = choices

        self._world.run_on_rank0(write)

    def segment(self, state: TrainState, stretch: Stretch) -> None:
        """Writes which segment begins, or goes on; rates of use count by its precision from now on."""
        self._meters.flops = step_flops(stretch.config, device_name(self._world), self._context)
        details = {**stretch.described(), "begun_at": state.images, "world_size": self._world.world_size}
        self._world.run_on_rank0(lambda: self._writer.event("segment", state.images, segment=details))

    def replanned(self, config: TrainConfig) -> None:
        """The run's plan has changed: what is saved from now on goes on with this one."""
        self._config = config
        self._settle()  # with all workers, though one alone may save
        if self._saver is not None:
            self._saver.config = config
        self._world.run_on_rank0(lambda: self._writer.write_config(config))

    def ends_before(self, stretch: Stretch) -> None:
        """Says that the next segment takes another number of workers, and so another session."""
        what = f"{stretch.place} of the plan is for {stretch.workers} workers: start that many with the same command"
        self._world.run_on_rank0(lambda: self._writer.say(what))

    def event(self, event: str, images: int, **details: object) -> None:
        """Writes an event after so many images; on rank 0 alone."""
        self._writer.event(event, images, **details)

    def say(self, sentence: str) -> None:
        """Tells the user; on rank 0 alone."""
        self._options.say(sentence)

    def note(self, state: TrainState, event: str, **details: object) -> None:
        """Writes an event of another part of the trainer; on rank 0 alone."""
        self._writer.event(event, state.images, **details)

    def end(self, state: TrainState, cause: str, waited_sec: float = 0.0) -> None:
        """Writes the last event and the record of a state that `checkpoint` has saved. `cause` is a notice's kind or a
        signal's name, empty when done; `waited_sec` since the first worker's signal, or 0.
        """
        began = time.monotonic()
        self._settle()
        self._tell_verified(state)
        stop_sec = waited_sec + time.monotonic() - began if waited_sec else None
        # On every worker: each may hold a part.
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

    def leave(self, cause: str, waited_sec: float) -> None:
        """Writes the last event and the record of a session that ends in the middle of a step, from another thread than
        the loop's; what was saved last is the run's state. Elsewhere than on rank 0 there is nothing to write.
        """
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
    def _writer(self) -> RunWriter:
        assert self._opened is not None, "only rank 0 asks, after _open"
        return self._opened

    def _grid(self, state: TrainState) -> Callable[[], Tensor]:
        """A grid of the averages, to be had by who writes it. Split ones make it now, on all workers together."""

        def made() -> Tensor:
            return run_grid(state, self._data, self._world.own_device)

        if not state.is_split:
            return made
        grid = self._world.run_on_all(made)
        return lambda: grid

    def _write_samples(self, grid: Callable[[], Tensor], state: TrainState, path: Path) -> None:
        images = grid()
        write_samples(path, images, get_captions(self._config, self._data))
        self._writer.picture(path, state.images)
        self._hint(self._watch.grid(images, state.images), state.images)

    def _hint(self, hint: Hint | None, images: int) -> None:
        """Says what a sign of collapse is, once in the run."""
        if hint is not None:
            self._writer.event(EVENT, images, cause=hint.cause, figure=hint.figure, text=hint.sentence)
            self._writer.say(f"hint: {hint.sentence}")

    def _sample_path(self, images: int) -> Path:
        return self._dir / "samples" / f"{images // 1000:06d}kimg.png"
