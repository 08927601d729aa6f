"""The training loop: one step shows one global batch of real images, on however many workers there are.

Not here: what is written (trainer.reporter), what a run goes on from (trainer.resume), the losses (trainer.losses),
what a worker's share of a step is (trainer.batch).
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from trainer import ada, distributed
from trainer.agreement import check_same
from trainer.batch import Batch
from trainer.carbon_start import start_told
from trainer.compiling import check_graphs, compile_losses
from trainer.config import TrainConfig
from trainer.data import ShardedImages, open_on_all, prepare_if_missing
from trainer.devices import gpu_of
from trainer.distributed import World
from trainer.exit_codes import EXIT_INTERRUPTED
from trainer.fabric import check_fabric, unhealthy
from trainer.interruption import Interruption, Request
from trainer.losses import DLoss, GLoss
from trainer.memory import enough_memory, keep_freed_memory
from trainer.parcel import sent
from trainer.power.limits import NOTHING_ASKED, Limiter, PowerAsked, limiting
from trainer.precision import choose, choose_kernels, set_tf32
from trainer.quality.in_training import MetricsInTraining
from trainer.record import RunContext
from trainer.reporter import Reporter
from trainer.resume import check_run_dir, is_done, restore, same_everywhere
from trainer.sharding import shard
from trainer.state import TrainState
from trainer.sums import Sums
from trainer.telemetry import serving

__all__ = ["train"]


def train(
    config: TrainConfig,
    run_dir: Path,
    data_dir: Path,
    context: RunContext,
    interruption: Interruption,
    *,
    resume: bool = True,
    metrics_port: int | None = None,
    fabric_min_gbps: float | None = None,
    track: Sequence[str] = (),
    log_json: bool = False,
    power: PowerAsked = NOTHING_ASKED,
) -> int:
    """Trains to the end or to an interruption.

    Args:
        config: what to compute.
        run_dir: where everything is written.
        data_dir: the data set's shards; prepared there when missing.
        context: what the launcher knows.
        interruption: asked after every step, installed already.
        resume: go on from the newest valid checkpoint; False refuses a directory that has one.
        metrics_port: for Prometheus; None for no endpoint.
        fabric_min_gbps: bus bandwidth without which the run does not start, Gbit/s; None to start on any fabric.
        track: targets that rank 0 shows the run to besides, see trainer.tracking.
        log_json: print the lines of stats.jsonl.
        power: limits of the GPUs that were asked for.

    Returns:
        The exit code: 0 done, 75 interrupted.

    Raises:
        TrainerError: on every rank; UnhealthyError for a fabric that is too slow.
    """
    with (
        distributed.start(config.backend) as world,
        serving(world, metrics_port) as endpoint,
        Reporter(run_dir, config, world, context, endpoint, track=track, log_json=log_json) as reporter,
        limiting(world, power, gpu_of(world)) as limiter,
    ):
        # Set-up: data, networks, the newest valid checkpoint, outputs.
        config.check_workers(world.world_size, equal_shares=world.on_xla)
        precision = world.together(lambda: choose(config.precision, world.device))
        check_graphs(config, world.device)
        set_tf32(enabled=config.tf32)
        kernels = choose_kernels(world.device, deterministic=config.deterministic, channels_last=config.channels_last)
        world.first(lambda: check_run_dir(run_dir, data_dir))
        allocator = keep_freed_memory()
        world.first(lambda: prepare_if_missing(config, data_dir))
        data = open_on_all(config, data_dir, world)
        state = TrainState.create(config, world.device)
        choices = {"precision": state.use(precision), **kernels}
        sha256 = data.index.sha256
        restored = world.together(lambda: restore(state, config, run_dir, data_dir, sha256, resume=resume))
        same_everywhere(world.gather(state.images), run_dir)
        if state.images >= config.total_images and is_done(run_dir / "run.json"):
            if world.rank == 0:
                print(f"{run_dir}: done already, {state.images:,} images; a larger --kimg goes on", flush=True)
            return 0
        metrics = MetricsInTraining(config, data, world, lambda: _request(interruption, reporter) >= Request.STOP)
        fabric = check_fabric(world, fabric_min_gbps, context.fabric_gbps)
        choices["shard"] = shard(state, config, world)
        reporter.begin(state, data, restored, allocator, fabric)
        told = start_told()
        if told and not state.images:
            world.first(lambda: reporter.note(state, "start-delayed", **told))
        if fabric.verdict == "below":
            reporter.end(state, "unhealthy-fabric")
            raise unhealthy(fabric)
        if limiter is not None:
            limiter.begin(partial(reporter.note, state))
        with enough_memory(config, world):
            interrupted = _run(state, config, world, data, metrics, reporter, interruption, choices, limiter)

        # The end, for now or for good: the state is on disk before anything else is said.
        reporter.checkpoint(state)
        causes, waited = world.gather(interruption.cause), max(world.gather(interruption.waited_sec))
        reporter.end(state, next(filter(None, causes)) if interrupted else "", waited)
        return EXIT_INTERRUPTED if interrupted else 0


def _run(
    state: TrainState,
    config: TrainConfig,
    world: World,
    data: ShardedImages,
    metrics: MetricsInTraining,
    reporter: Reporter,
    interruption: Interruption,
    choices: dict[str, str],
    limiter: Limiter | None,
) -> bool:
    """Steps until the last image or an agreed interruption; returns whether it was the latter."""
    networks = (state.generator, state.discriminator)
    batch = Batch(config, world, data)
    losses = DLoss(state.discriminator, config), GLoss(state.generator, state.discriminator, config)
    compiled = compile_losses(*losses, state, batch, config, world)

    def chosen() -> dict[str, str]:
        power = {} if limiter is None else {"power": limiter.choice}
        return {**choices, "compile": compiled.choice, **power}

    reporter.chosen(state, chosen())
    d_loss, g_loss = (world.wrap(loss) for loss in losses)
    sums = Sums(config, world.device)
    while state.images < config.total_images:
        # Discriminator steps, on a batch each; every r1_interval steps their loss carries the penalties.
        penalised, signs = state.step % config.r1_interval == 0, sent(torch.zeros(()), world.device)
        for images in range(state.images, state.images + config.step_images, config.batch_size):
            sums.saw(batch.order(images))
            state.opt_d.zero_grad()
            for micro in batch.for_discriminator(state, images):
                with torch.no_grad():
                    fakes = state.generator(micro.inputs.latents, micro.inputs.labels)
                with world.accumulating(d_loss, last=micro.last):
                    terms = d_loss(micro.inputs, fakes, penalised)
                    state.scale_d.backward(micro.weight * terms.total)
                sums.add_d(micro.weight, terms)
                signs += terms.real_sign * len(fakes)
            state.discriminator.drop_idle_gradients()
            state.scale_d.step(world, state.opt_d)

        # Generator step; the discriminator judges without collecting gradients of its own.
        state.discriminator.requires_grad_(False)
        state.opt_g.zero_grad()
        for micro in batch.for_generator(state):
            with world.accumulating(g_loss, last=micro.last):
                loss_g = g_loss(micro.inputs)
                state.scale_g.backward(micro.weight * loss_g)
            sums.add_g(micro.weight, loss_g)
        state.generator.drop_idle_gradients()
        state.scale_g.step(world, state.opt_g)
        state.discriminator.requires_grad_(True)

        # Images seen, averaged generator, phase of networks that grow.
        sums.close_step(penalised=penalised)
        state.advance()
        world.flush()

        # Augmentation adapts to how sure the discriminator is; all workers count the same signs.
        if ada.is_due(config, state.step):
            state.augment_p = ada.adapted(state.augment_p, world.total(round(signs.item())), config)

        # Every worker must have the same networks, or what they average means nothing.
        if config.check_gradients_steps and state.step % config.check_gradients_steps == 0:
            check_same(world, state)

        # What a worker asks for counts for all: a checkpoint, a stop, or the end because one could not be written.
        request = world.highest(_request(interruption, reporter))
        if request == Request.FAIL:
            reporter.fail()

        # A line of statistics, when it is time or the run stops.
        interrupted = request == Request.STOP
        if state.passed(config.stats_kimg) or interrupted or state.images >= config.total_images:
            line = reporter.tick(state, sums, networks, batch.stall_sec)
            sums = Sums(config, world.device)
            changed = limiter is not None and limiter.after(line)
            if compiled.given_up(world, state.images) or changed:
                reporter.chosen(state, chosen())

        # Samples and checkpoint.
        if state.passed(config.sample_kimg):
            reporter.samples(state)
        if state.passed(config.checkpoint_kimg):
            reporter.checkpoint(state)
        if request == Request.SAVE:
            reporter.checkpoint(state, world.gather(interruption.notice))
            interruption.saved()

        # Quality metrics, when they are due: of a state that is saved, and no longer than until a worker has to stop.
        if metrics.due(state):
            reporter.checkpoint(state)
            reporter.quality(state, metrics.moment(state))

        # Interruption, agreed by all workers within this step.
        if interrupted:
            return state.images < config.total_images
    return False


def _request(interruption: Interruption, reporter: Reporter) -> Request:
    """What this worker wants now."""
    return max(interruption.request(), reporter.request)
