"""The training loop: one step shows one global batch of real images, on however many workers there are."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainer.config.segment_plan import stretches_from
from trainer.config.train_config import TrainConfig
from trainer.core.errors import EXIT_INTERRUPTED
from trainer.distributed import replica_check
from trainer.distributed.devices import gpu_of
from trainer.distributed.fabric import check_fabric, unhealthy
from trainer.distributed.world import World, start_world
from trainer.metrics.evaluate import MetricsInTraining
from trainer.power.limits import Limiter, limiting
from trainer.preemption.notices import Interruption, Notice, Request
from trainer.records.run_record import RunContext
from trainer.run.heartbeat import Heartbeat, beating
from trainer.run.memory import enough_memory
from trainer.run.reporter import Reporter
from trainer.run.run_lock import run_lock
from trainer.run.runtime_decisions import RuntimeDecisions
from trainer.run.session_setup import PLAIN, Ready, RunOptions, setup_session
from trainer.run.state import TrainState
from trainer.steps.batch import Batch
from trainer.steps.compilation import compile_losses
from trainer.steps.step import Game, phases_of
from trainer.steps.step_graph import step_graph
from trainer.steps.updates import Accumulator
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
        limiting(world, options.power, gpu_of(world)) as limiter,
    ):
        if not here:  # stopped before the directory was free
            if world.rank == 0:
                options.say(f"interrupted by {interruption.cause} before it began; nothing is lost")
            return EXIT_INTERRUPTED

        # Set-up: data, networks, the newest valid checkpoint; a run that has come to its end has no more to do.
        ready = setup_session(config, run_dir, data_dir, world, resume=options.resume)
        state = ready.state
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
        with ready.verification, enough_memory(config, world):
            interrupted = _run(ready, config, world, metrics, reporter, interruption, limiter, heartbeat)
            # What is called done was trained on data that is known to be intact.
            interrupted = interrupted or ready.verification.finish(lambda: interruption.requested)

        # The end, for now or for good: the state is on disk before anything else is said.
        reporter.checkpoint(state)
        causes, waited = world.gather(interruption.cause), max(world.gather(interruption.waited_sec))
        reporter.end(state, next(filter(None, causes), "segment") if interrupted else "", waited)
        return EXIT_INTERRUPTED if interrupted else 0


def _run(
    ready: Ready,
    run_config: TrainConfig,
    world: World,
    metrics: MetricsInTraining,
    reporter: Reporter,
    interruption: Interruption,
    limiter: Limiter | None,
    heartbeat: Heartbeat,
) -> bool:
    """Steps until the last image, an agreed interruption, or a segment for other workers; returns whether it was one of
    the latter two.
    """
    state = ready.state
    planned = list(stretches_from(run_config, state.images))
    config = planned[0].config
    batch, phases = Batch(config, world, ready.data, state.images), phases_of(state)
    compiled = compile_losses(phases, state, batch, config, world, [stretch.config for stretch in planned[1:]])
    graph = step_graph(config, world)
    decisions = RuntimeDecisions(ready.choices, compiled, graph, limiter, world, reporter)
    game = Game(config, world, phases, compiled.losses, at_once=lambda: compiled.on)
    accumulator, votes, stall_sec = Accumulator(phases, world.device), list[Callable[[], int]](), 0.0

    def vote() -> None:
        """Its messages travel while the step's last phase computes."""
        if decisions.votes(state):
            votes.append(world.highest_later(_request(interruption, reporter)))

    for stretch in planned:
        # Another segment: its batch, precision and step sizes. Another number of workers takes another session.
        if stretch.workers not in (None, world.world_size):
            reporter.ends_before(stretch)
            return True
        if stretch is not planned[0]:
            config, stall_sec = stretch.config, stall_sec + batch.stall_sec
            batch.close()
            batch, game = Batch(config, world, ready.data, state.images), game._replace(config=config)
            if config.precision != state.config.precision:
                decisions.changed(precision=state.use(ready.precisions[config.precision]))
            state.enter(config)
            decisions.graph = graph = step_graph(config, world)
        if run_config.segments:
            reporter.segment(state, stretch)
        decisions.note(state)
        while state.images < stretch.end:
            heartbeat.step(state.images, (stretch.place, state.phase.resolution, state.phase.fade is None))

            # What a worker asks for counts for all: a checkpoint, a stop, or the end because one could not be written.
            graph.step(state, batch, game, accumulator, meanwhile=vote)

            # Most steps end here: whatever looks at the state comes below, where it is whole.
            request = votes.pop()() if votes else Request.NOTHING
            if not (request or state.images >= stretch.end or _is_due(config, state, metrics)):
                continue
            if request == Request.FAIL:
                reporter.fail()

            # Every worker must have the same networks, or what they average means nothing.
            if replica_check.is_due(config, state.step):
                replica_check.check_same(world, state)

            # A line of statistics, when it is time or the run stops.
            interrupted = request == Request.STOP
            if state.passed(config.stats_kimg) or interrupted or state.images >= stretch.end:
                line = reporter.tick(state, accumulator, stall_sec + batch.stall_sec)
                accumulator = Accumulator(phases, world.device)
                decisions.after(line, state)

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
                reporter.quality(state, metrics.moment(state))

            # Interruption, agreed by all workers within this step.
            if interrupted:
                return state.images < run_config.total_images
    return False


def _is_due(config: TrainConfig, state: TrainState, metrics: MetricsInTraining) -> bool:
    intervals = (config.stats_kimg, config.sample_kimg, config.checkpoint_kimg)
    return replica_check.is_due(config, state.step) or metrics.due(state) or any(map(state.passed, intervals))


def _request(interruption: Interruption, reporter: Reporter) -> Request:
    return max(interruption.request(), reporter.request)
