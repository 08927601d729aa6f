"""The training loop: one step trains on one global batch of real images, with any number of workers."""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

from gangway.trainer.config.segment_plan import Plan, Stretch
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.control.actuators import Actuators
from gangway.trainer.control.flags import check_control
from gangway.trainer.core.errors import EXIT_INTERRUPTED
from gangway.trainer.core.heartbeat import Heartbeat, beating
from gangway.trainer.distributed.fabric import check_fabric, unhealthy
from gangway.trainer.distributed.world import World, start_world
from gangway.trainer.metrics.evaluate import MetricsInTraining
from gangway.trainer.networks.precision import choose
from gangway.trainer.phases.batch import Batch
from gangway.trainer.phases.updates import Accumulator, PhaseClock
from gangway.trainer.power.limits import Limiter, limiting
from gangway.trainer.preemption.notices import Interruption, Notice, Request, leaving_at_any_moment
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.run.reporter import Reporter
from gangway.trainer.run.run_lock import run_lock
from gangway.trainer.run.session_setup import PLAIN, Ready, RunOptions, enough_memory, setup_session
from gangway.trainer.run.steering import get_past, get_steering
from gangway.trainer.steps import replica_check
from gangway.trainer.steps.compilation import compile_losses
from gangway.trainer.steps.noise_scale import NoiseProbe
from gangway.trainer.steps.step import Game, get_phases
from gangway.trainer.steps.step_graph import step_graph
from gangway.trainer.telemetry.devices import find_gpu
from gangway.trainer.telemetry.prometheus import serving

_HOP_SEC, _VOTES_SHARE, _WAIT_SEC = 50e-6, 0.05, 0.5
"""A small message's time between two machines of a cloud; the share of step time for votes; the longest wait."""


def steps_between_votes(step_sec: float, num_workers: int) -> int:
    """Returns every how many steps workers vote; gloo's ring takes 2 (n - 1) hops, which would dominate short steps."""
    vote_sec = 2 * (num_workers - 1) * _HOP_SEC
    return max(1, int(min(vote_sec / _VOTES_SHARE, _WAIT_SEC) / step_sec))


def train(
    config: TrainConfig,
    run_dir: Path,
    data_dir: Path,
    context: RunContext,
    interruption: Interruption,
    options: RunOptions = PLAIN,
) -> int:
    """Trains to the end (0) or to an interruption (75). TrainerError on every rank; UnhealthyError: a slow fabric."""
    with (
        start_world(config.backend, config.shard, config.pipeline_stages) as world,
        beating(world.rank, world.local_rank) as heartbeat,
        run_lock(run_dir, world, lambda: interruption.requested) as is_locked,
        serving(world, options.metrics_port) as endpoint,
        Reporter(run_dir, config, world, context, endpoint, options) as reporter,
        limiting(world, options.power, find_gpu(world)) as limiter,
    ):
        if not is_locked:  # stopped before the directory was free
            if world.rank == 0:
                options.say(f"interrupted by {interruption.cause} before it began; nothing is lost")
            return EXIT_INTERRUPTED

        # Set-up: data, networks, the newest valid checkpoint. A complete run ends here.
        if options.control is not None:
            check_control(options.control, config, context, world.world_size)
        ready = setup_session(config, run_dir, data_dir, world, resume=options.resume)
        config, state = ready.config, ready.state
        if ready.complete:
            if world.rank == 0:
                options.say(f"{run_dir}: done already, {state.images:,} images; a larger --kimg goes on")
            return 0
        metrics = MetricsInTraining(config, ready.data, world, lambda: _request(interruption, reporter) >= Request.STOP)

        # The session's first outputs, once the fabric between the nodes is measured.
        fabric = check_fabric(world, options.fabric_min_gbps, context.fabric_gbps)
        reporter.begin(ready, fabric)
        if fabric.verdict == "below":
            reporter.end(state, "unhealthy-fabric")
            raise unhealthy(fabric)
        if limiter is not None:
            limiter.begin(lambda event, **details: reporter.event(event, state.images, **details))

        # Training. A run is done only if its data was verified.
        with (
            ready.verification,
            enough_memory(config, world),
            closing(_Loop(ready, run_dir, options, world, metrics, reporter, interruption, limiter, heartbeat)) as loop,
        ):
            interrupted = loop.run() or ready.verification.finish(lambda: interruption.requested)

        # The end of the session: save the state, then write the last event.
        reporter.checkpoint(state)
        causes, waited = world.gather(interruption.cause), max(world.gather(interruption.waited_sec))
        reporter.end(state, next(filter(None, causes), "segment") if interrupted else "", waited)
        return EXIT_INTERRUPTED if interrupted else 0


class _Loop:
    """One session's steps. Its configuration, batch, step graph and noise probe change with each segment."""

    def __init__(
        self,
        ready: Ready,
        run_dir: Path,
        options: RunOptions,
        world: World,
        metrics: MetricsInTraining,
        reporter: Reporter,
        interruption: Interruption,
        limiter: Limiter | None,
        heartbeat: Heartbeat,
    ) -> None:
        self._state, self._data, self._options, self._world = ready.state, ready.data, options, world
        self._metrics, self._reporter, self._heartbeat = metrics, reporter, heartbeat
        self._interruption = interruption
        state, control = ready.state, options.control

        # The plan, without changes that ended an earlier session.
        past = get_past(control, ready.config, world, reporter, run_dir, state)
        self._plan = plan = Plan(past.config, state.images)
        self._first, self._config = plan.now, plan.now.config
        self._actuators = Actuators(self._config, options.reading, world, limiter)
        self._batch, self._phases = self._open_batch(), get_phases(state)

        # Compilation: nothing is lost if the process exits here.
        with self._exit_on_signal():
            compiled = compile_losses(
                self._phases, state, self._batch, self._config, world, [stretch.config for stretch in plan.ahead]
            )
        self._compiled = compiled
        self._actuators.compiles_with(compiled)

        # What decides while training, and what a step needs.
        graph = step_graph(self._config, world)
        self._steering = get_steering(
            control, plan, self._actuators, compiled, world, reporter, run_dir, past, state, self._batch
        )
        self._choices = {**ready.choices, **past.choices, **self._steering.choice}
        self._graph, self._limiter, self._last_noted, self._vote_every = graph, limiter, ("", ""), 1
        self._game = Game(self._config, world, self._phases, compiled.losses, at_once=lambda: compiled.on)
        self._accumulator, self._probe = self._new_accumulator(), NoiseProbe(self._config, world, self._phases)
        self._past_stall_sec = 0.0

    def close(self) -> None:
        self._graph.close()

    def run(self) -> bool:
        state, plan = self._state, self._plan
        for stretch in plan:
            # A segment for another number of workers needs another session.
            if stretch.workers not in (None, self._world.world_size):
                self._reporter.announce_resize(stretch)
                return True
            if stretch is not self._first:
                self._enter(stretch)
            if plan.config.segments or self._options.control is not None:
                self._reporter.segment(state, stretch)
            self._note_choices()

            while state.images < plan.end:
                self._heartbeat.step(state.images, (stretch.place, state.phase.resolution, state.phase.fade is None))

                # Gradient noise, when due.
                if self._probe.is_due(state):
                    self._probe.look(state, self._batch)

                # Most steps need nothing more: what reads the state does so below, where it is whole.
                request = self._step()
                if not (request or state.images >= plan.end or self._is_due()):
                    continue
                self._report(request)
                if request == Request.STOP:
                    return state.images < plan.config.total_images
        return False

    def _enter(self, stretch: Stretch) -> None:
        self._config = stretch.config
        self._past_stall_sec += self._batch.stall_sec
        self._batch.close()
        self._batch, self._game = self._open_batch(), self._game._replace(config=self._config)
        if self._config.precision != self._state.config.precision:
            self._choices["precision"] = self._state.use(choose(self._config.precision, self._world.device))
        self._state.enter(self._config)
        self._graph.close()
        self._graph = step_graph(self._config, self._world)
        self._probe = NoiseProbe(self._config, self._world, self._phases)

    def _step(self) -> int:
        state, votes = self._state, list[Callable[[], int]]()

        # A step of a new shape compiles for minutes and checks no signal, so what it could lose is saved first.
        compiles = self._compiled.compiles(state)
        if compiles:
            self._reporter.save(state)

        # One worker's request counts for all: a checkpoint, a stop, or a failed write. Votes travel during the last
        # phase.
        def vote() -> None:
            if state.step % self._vote_every == 0:
                votes.append(self._world.highest_later(_request(self._interruption, self._reporter)))

        with self._exit_on_signal() if compiles else nullcontext():
            self._graph.step(state, self._batch, self._game, self._accumulator, meanwhile=vote)
        return votes.pop()() if votes else Request.NOTHING

    def _is_due(self) -> bool:
        config, state = self._config, self._state
        intervals = (config.stats_kimg, config.sample_kimg, config.checkpoint_kimg)
        return replica_check.is_due(config, state.step) or self._metrics.due(state) or any(map(state.passed, intervals))

    def _report(self, request: int) -> None:
        config, state, reporter = self._config, self._state, self._reporter
        if request == Request.FAIL:
            reporter.fail()

        # Every worker must have the same networks, or their average means nothing.
        if replica_check.is_due(config, state.step):
            replica_check.check_same(self._world, state)

        # A line of statistics, when due and at a stop.
        if state.passed(config.stats_kimg) or request == Request.STOP or state.images >= self._plan.end:
            self._write_line(can_change=request != Request.STOP)

        # Samples and checkpoint, which have no time limit.
        self._heartbeat.busy()
        if state.passed(config.sample_kimg):
            reporter.samples(state)
        if state.passed(config.checkpoint_kimg):
            reporter.checkpoint(state)
        if request == Request.SAVE:
            reporter.checkpoint(state, self._world.gather(self._interruption.notice, Notice | None))
            self._interruption.saved()

        # Quality metrics, when due: of a saved state, and only until a worker has to stop.
        if self._metrics.due(state):
            reporter.checkpoint(state)
            moment = self._metrics.moment(state)
            reporter.quality(state, moment)
            self._steering.quality(moment)

    def _write_line(self, *, can_change: bool) -> None:
        state, world = self._state, self._world
        line = self._reporter.tick(
            state,
            self._accumulator,
            self._past_stall_sec + self._batch.stall_sec,
            world.settled_sec(self._compiled.losses.values()),
            knobs=self._actuators.knobs(self._config),
            looks=self._probe.read(),
            controller_sec=self._steering.sec,
        )
        self._accumulator = self._new_accumulator()
        self._probe.after(line)
        # The line's speed is the same for all.
        step_sec = state.config.step_images / line["images_per_sec"]
        self._vote_every = steps_between_votes(step_sec, world.world_size)
        limits_changed = self._limiter is not None and self._limiter.after(line)
        self._compiled.given_up(world, state.images)
        if limits_changed or (self._graph.choice, self._compiled.choice) != self._last_noted:
            self._note_choices()
        if can_change:
            self._steering.after(line, state, self._batch)

    def _note_choices(self) -> None:
        power = {} if self._limiter is None else {"power": self._limiter.choice}
        self._last_noted = self._graph.choice, self._compiled.choice
        chosen = {"compile": self._compiled.choice, "step_graph": self._graph.choice}
        self._reporter.note_choices(self._state, {**self._choices, **chosen, **power})

    def _open_batch(self) -> Batch:
        return Batch(self._config, self._world, self._data, self._state.images, self._actuators.reading)

    def _new_accumulator(self) -> Accumulator:
        return Accumulator(self._phases, self._world.device, PhaseClock(self._world.device))

    def _exit_on_signal(self) -> AbstractContextManager[None]:
        return leaving_at_any_moment(
            self._interruption,
            lambda: self._reporter.write_exit(self._interruption.cause, self._interruption.waited_sec),
        )


def _request(interruption: Interruption, reporter: Reporter) -> Request:
    return max(interruption.request(), reporter.request)
