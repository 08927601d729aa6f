"""The training loop: one step shows one global batch of real images, on however many workers there are."""

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path

from trainer.config.segment_plan import Plan
from trainer.config.train_config import TrainConfig
from trainer.control.actuators import Actuators
from trainer.control.checks import check_control
from trainer.core.errors import EXIT_INTERRUPTED
from trainer.core.heartbeat import Heartbeat, beating
from trainer.distributed.fabric import check_fabric, unhealthy
from trainer.distributed.world import World, start_world
from trainer.metrics.evaluate import MetricsInTraining
from trainer.networks.precision import choose
from trainer.phases.batch import Batch
from trainer.phases.phase_clock import PhaseClock
from trainer.phases.updates import Accumulator
from trainer.power.limits import Limiter, limiting
from trainer.preemption.early_exit import Leaving
from trainer.preemption.notices import Interruption, Notice, Request
from trainer.records.run_record import RunContext
from trainer.run.memory import enough_memory
from trainer.run.reporter import Reporter
from trainer.run.run_lock import run_lock
from trainer.run.runtime_decisions import RuntimeDecisions
from trainer.run.session_setup import PLAIN, Ready, RunOptions, setup_session
from trainer.run.steering import get_steering, past_of
from trainer.steps import replica_check
from trainer.steps.compilation import compile_losses
from trainer.steps.noise_scale import NoiseProbe
from trainer.steps.state import TrainState
from trainer.steps.step import Game, get_phases
from trainer.steps.step_graph import step_graph
from trainer.telemetry.devices import find_gpu
from trainer.telemetry.prometheus import serving


def train(
    config: TrainConfig,
    run_dir: Path,
    data_dir: Path,
    context: RunContext,
    interruption: Interruption,
    options: RunOptions = PLAIN,
) -> int:
    """Trains to the end (exit code 0) or to an interruption (75); shards are prepared in `data_dir` when missing.
    `interruption` is installed already. TrainerError on every rank; UnhealthyError for a fabric that is too slow.
    """
    with (
        start_world(config.backend, config.shard, config.pipeline_stages) as world,
        beating(world.rank, world.local_rank) as heartbeat,
        run_lock(run_dir, world, lambda: interruption.requested) as here,
        serving(world, options.metrics_port) as endpoint,
        Reporter(run_dir, config, world, context, endpoint, options) as reporter,
        limiting(world, options.power, find_gpu(world)) as limiter,
    ):
        if not here:  # stopped before the directory was free
            if world.rank == 0:
                options.say(f"interrupted by {interruption.cause} before it began; nothing is lost")
            return EXIT_INTERRUPTED

        # Set-up: data, networks, the newest valid checkpoint; a run that has come to its end has no more to do.
        if options.control is not None:
            check_control(options.control, config, context, world.world_size)
        ready = setup_session(config, run_dir, data_dir, world, resume=options.resume)
        config, state = ready.config, ready.state
        if ready.complete:
            if world.rank == 0:
                options.say(f"{run_dir}: done already, {state.images:,} images; a larger --kimg goes on")
            return 0
        metrics = MetricsInTraining(config, ready.data, world, lambda: _request(interruption, reporter) >= Request.STOP)

        # The session's first outputs, once the fabric between the nodes is known.
        fabric = check_fabric(world, options.fabric_min_gbps, context.fabric_gbps)
        reporter.begin(ready, fabric)
        if fabric.verdict == "below":
            reporter.end(state, "unhealthy-fabric")
            raise unhealthy(fabric)
        if limiter is not None:
            limiter.begin(partial(reporter.note, state))
        with ready.verification, enough_memory(config, world), ExitStack() as end:
            interrupted = _run(ready, run_dir, options, world, metrics, reporter, interruption, limiter, heartbeat, end)
            # What is called done was trained on data that is known to be intact.
            interrupted = interrupted or ready.verification.finish(lambda: interruption.requested)

        # The end, for now or for good: the state is on disk before anything else is said.
        reporter.checkpoint(state)
        causes, waited = world.gather(interruption.cause), max(world.gather(interruption.waited_sec))
        reporter.end(state, next(filter(None, causes), "segment") if interrupted else "", waited)
        return EXIT_INTERRUPTED if interrupted else 0


def _run(
    ready: Ready,
    run_dir: Path,
    options: RunOptions,
    world: World,
    metrics: MetricsInTraining,
    reporter: Reporter,
    interruption: Interruption,
    limiter: Limiter | None,
    heartbeat: Heartbeat,
    end: ExitStack,
) -> bool:
    """Steps until the last image, an agreed interruption, or a segment for other workers; returns whether it was one of
    the latter two. What has to be freed is left to `end`.
    """
    state = ready.state
    past = past_of(options.control, ready.config, world, reporter, run_dir, state)
    plan = Plan(past.config, state.images)
    first, config = plan.now, plan.now.config
    knobs = Actuators(config, options.reading, world, limiter)
    batch, phases = Batch(config, world, ready.data, state.images, knobs.reading), get_phases(state)
    leaving = Leaving(interruption)

    def farewell() -> None:
        reporter.leave(interruption.cause, interruption.waited_sec)

    # What has been trained is on disk, and a first step is still to come.
    with leaving.at_any_moment(farewell):
        compiled = compile_losses(phases, state, batch, config, world, [stretch.config for stretch in plan.ahead])
    knobs.compiles_with(compiled)
    graph = step_graph(config, world)
    steering = get_steering(options.control, plan, knobs, compiled, world, reporter, run_dir, past, state, batch)
    decisions = RuntimeDecisions(
        {**ready.choices, **past.choices, **steering.choice}, compiled, graph, limiter, world, reporter
    )
    end.callback(decisions.close)
    game = Game(config, world, phases, compiled.losses, at_once=lambda: compiled.on)
    accumulator, probe = Accumulator(phases, world.device, PhaseClock(world.device)), NoiseProbe(config, world, phases)
    votes, stall_sec = list[Callable[[], int]](), 0.0

    def vote() -> None:
        """Its messages travel while the step's last phase computes."""
        if decisions.votes(state):
            votes.append(world.highest_later(_request(interruption, reporter)))

    for stretch in plan:
        # Another segment: its batch, precision and step sizes. Another number of workers takes another session.
        if stretch.workers not in (None, world.world_size):
            reporter.ends_before(stretch)
            return True
        if stretch is not first:
            config, stall_sec = stretch.config, stall_sec + batch.stall_sec
            batch.close()
            batch, game = Batch(config, world, ready.data, state.images, knobs.reading), game._replace(config=config)
            if config.precision != state.config.precision:
                decisions.changed(precision=state.use(choose(config.precision, world.device)))
            state.enter(config)
            decisions.close()
            decisions.graph = graph = step_graph(config, world)
            probe = NoiseProbe(config, world, phases)
        if plan.config.segments or options.control is not None:
            reporter.segment(state, stretch)
        decisions.note(state)
        while state.images < plan.end:
            heartbeat.step(state.images, (stretch.place, state.phase.resolution, state.phase.fade is None))

            # Now and then: how much gradients of parts of the batch differ.
            if probe.is_due(state):
                probe.look(state, batch)

            # A step of a new shape compiles for minutes, and looks at no signal: what it could lose is saved before.
            compiles = compiled.compiles(state)
            if compiles:
                reporter.save(state)

            # What a worker asks for counts for all: a checkpoint, a stop, or the end because one could not be written.
            with leaving.at_any_moment(farewell) if compiles else nullcontext():
                graph.step(state, batch, game, accumulator, meanwhile=vote)

            # Most steps end here: whatever looks at the state comes below, where it is whole.
            request = votes.pop()() if votes else Request.NOTHING
            if not (request or state.images >= plan.end or _is_due(config, state, metrics)):
                continue
            if request == Request.FAIL:
                reporter.fail()

            # Every worker must have the same networks, or what they average means nothing.
            if replica_check.is_due(config, state.step):
                replica_check.check_same(world, state)

            # A line of statistics, when it is time or the run stops.
            interrupted = request == Request.STOP
            if state.passed(config.stats_kimg) or interrupted or state.images >= plan.end:
                waits = stall_sec + batch.stall_sec, world.settled_sec(compiled.losses.values())
                line = reporter.tick(
                    state,
                    accumulator,
                    *waits,
                    knobs=knobs.knobs(config),
                    looks=probe.read(),
                    controller_sec=steering.sec,
                )
                accumulator = Accumulator(phases, world.device, PhaseClock(world.device))
                probe.after(line)
                decisions.after(line, state)
                if not interrupted:  # what is changed with the last step would be tried by nobody
                    steering.after(line, state, batch)

            # Samples and checkpoint; nobody knows how long these take.
            heartbeat.busy()
            if state.passed(config.sample_kimg):
                reporter.samples(state)
            if state.passed(config.checkpoint_kimg):
                reporter.checkpoint(state)
            if request == Request.SAVE:
                reporter.checkpoint(state, world.gather(interruption.notice, Notice | None))
                interruption.saved()

            # Quality metrics, when they are due: of a state that is saved, and no longer than until a worker has to
            # stop.
            if metrics.due(state):
                reporter.checkpoint(state)
                moment = metrics.moment(state)
                reporter.quality(state, moment)
                steering.quality(moment)

            # Interruption, agreed by all workers within this step.
            if interrupted:
                return state.images < plan.config.total_images
    return False


def _is_due(config: TrainConfig, state: TrainState, metrics: MetricsInTraining) -> bool:
    intervals = (config.stats_kimg, config.sample_kimg, config.checkpoint_kimg)
    return replica_check.is_due(config, state.step) or metrics.due(state) or any(map(state.passed, intervals))


def _request(interruption: Interruption, reporter: Reporter) -> Request:
    return max(interruption.request(), reporter.request)
