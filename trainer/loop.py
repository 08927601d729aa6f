"""The training loop: one step shows one global batch of real images, on however many workers there are.

Not here: what is written (trainer.reporter), what a run goes on from (trainer.resume), the losses (trainer.losses),
what a worker's share of a step is (trainer.batch).
"""

from pathlib import Path

import torch

from trainer import distributed
from trainer.batch import Batch
from trainer.config import TrainConfig
from trainer.data import ShardedImages, open_matching, prepare_if_missing
from trainer.distributed import World
from trainer.draws import Purpose
from trainer.errors import UnhealthyError
from trainer.exit_codes import EXIT_INTERRUPTED
from trainer.fabric import FabricRecord, check_fabric
from trainer.interruption import Interruption, Request
from trainer.losses import DLoss, GLoss
from trainer.memory import keep_freed_memory
from trainer.record import RunContext
from trainer.reporter import Reporter
from trainer.resume import check_run_dir, is_done, restore, same_everywhere
from trainer.state import TrainState
from trainer.telemetry import serving

__all__ = ["train"]

_CHECK_GRADIENTS_EVERY_STEPS = 100


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
    log_json: bool = False,
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
        log_json: print the lines of stats.jsonl.

    Returns:
        The exit code: 0 done, 75 interrupted.

    Raises:
        TrainerError: on every rank; UnhealthyError for a fabric that is too slow.
    """
    with distributed.start(config.backend) as world, serving(world, metrics_port) as endpoint:
        # Set-up: data, networks, the newest valid checkpoint, outputs.
        config.check_workers(world.world_size, equal_shares=world.on_xla)
        world.first(lambda: check_run_dir(run_dir, data_dir))
        allocator = keep_freed_memory()
        world.first(lambda: prepare_if_missing(config, data_dir))
        data = world.together(lambda: open_matching(config, data_dir))
        state = TrainState.create(config, world.device)
        sha256 = data.index.sha256
        restored = world.together(lambda: restore(state, config, run_dir, data_dir, sha256, resume=resume))
        same_everywhere(world.gather(state.images), run_dir)
        if state.images >= config.total_images and is_done(run_dir / "run.json"):
            if world.rank == 0:
                print(f"{run_dir}: done already, {state.images:,} images; a larger --kimg goes on", flush=True)
            return 0
        fabric = check_fabric(world, fabric_min_gbps, context.fabric_gbps)
        reporter = Reporter(run_dir, config, world, context, endpoint, log_json=log_json)
        reporter.begin(state, data, restored, allocator, fabric)
        if fabric.verdict == "below":
            reporter.end(state, "unhealthy-fabric")
            raise _unhealthy(fabric)
        interrupted = _run(state, config, world, data, reporter, interruption)

        # The end, for now or for good: the state is on disk before anything else is said.
        reporter.checkpoint(state)
        causes = world.gather(interruption.cause)
        reporter.end(state, next(filter(None, causes)) if interrupted else "")
        return EXIT_INTERRUPTED if interrupted else 0


def _run(
    state: TrainState,
    config: TrainConfig,
    world: World,
    data: ShardedImages,
    reporter: Reporter,
    interruption: Interruption,
) -> bool:
    """Steps until the last image or an agreed interruption; returns whether it was the latter."""
    networks = (state.generator, state.discriminator)
    d_loss = world.wrap(DLoss(state.discriminator, config.augment, config.r1_gamma / 2 * config.r1_interval))
    g_loss = world.wrap(GLoss(state.generator, state.discriminator, config.augment))
    batch = Batch(config, world, data)
    sums = torch.zeros(4).to(world.device)
    while state.images < config.total_images:
        # Discriminator step; every r1_interval steps its loss carries the R1 penalty.
        with_r1 = config.r1_gamma > 0 and state.step % config.r1_interval == 0
        with torch.no_grad():
            fakes = state.generator(batch.latents(state.images, Purpose.D_LATENTS))
        terms = d_loss(
            batch.reals(state.images),
            fakes,
            batch.uniforms(state.images, Purpose.REAL_AUGMENT),
            batch.uniforms(state.images, Purpose.FAKE_AUGMENT),
            with_r1,
        )
        state.opt_d.zero_grad()
        (batch.weight * terms.total).backward()
        world.step(state.opt_d)

        # Generator step; the discriminator judges without collecting gradients of its own.
        state.discriminator.requires_grad_(False)
        loss_g = g_loss(batch.latents(state.images, Purpose.G_LATENTS), batch.uniforms(state.images, Purpose.G_AUGMENT))
        state.opt_g.zero_grad()
        (batch.weight * loss_g).backward()
        world.step(state.opt_g)
        state.discriminator.requires_grad_(True)

        # Averaged generator.
        state.images += config.batch_size
        state.update_ema()

        # Statistics, weighted like the losses: shares of the global batch may differ by an image.
        means = torch.stack([loss_g.detach(), terms.logistic, terms.penalty, loss_g.new_tensor(float(with_r1))])
        sums += batch.weight * means
        world.flush()

        # Every worker must have the same gradients, or they train different networks.
        if state.step % _CHECK_GRADIENTS_EVERY_STEPS == 0:
            for network in networks:
                world.check_gradients(network.named_parameters())

        # A line of statistics, when it is time or the run stops.
        request = world.highest(interruption.request())
        interrupted = request == Request.STOP
        if state.passed(config.stats_kimg) or interrupted or state.images >= config.total_images:
            reporter.tick(state, sums, networks)
            sums = torch.zeros(4).to(world.device)  # not zero_(): on XLA that would be one more program

        # Samples and checkpoint.
        if state.passed(config.sample_kimg):
            reporter.samples(state)
        if state.passed(config.checkpoint_kimg):
            reporter.checkpoint(state)
        if request == Request.SAVE:
            reporter.checkpoint(state, world.gather(interruption.notice))
            interruption.saved()

        # Interruption, agreed by all workers within this step.
        if interrupted:
            return state.images < config.total_images
    return False


def _unhealthy(fabric: FabricRecord) -> UnhealthyError:
    expected = "" if fabric.expected.value is None else f"; {fabric.expected.value:.3g} Gbit/s are expected"
    return UnhealthyError(
        place="--fabric-min-gbps",
        problem=f"the fabric is too slow: {fabric.reason}",
        value=fabric.threshold.value,
        allowed=f"a bus bandwidth above it{expected}",
        fix="look for a node without EFA or with a sick network card (NCCL_DEBUG=INFO), or lower the threshold",
    )
