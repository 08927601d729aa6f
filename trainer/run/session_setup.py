"""A session's set-up, checked before a file is written: options, device, data, networks and the newest checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from gangway.trainer.checkpoint import store
from gangway.trainer.checkpoint.resume import (
    Restored,
    check_run_dir,
    check_same_images,
    is_done,
    newest_images,
    restore,
)
from gangway.trainer.config.segment_plan import Stretch, check_workers, stretches_from
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import ControlSettings
from gangway.trainer.config.values.metric_names import parse
from gangway.trainer.core.console import info, warn
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.dataset import open_on_all, prepare_if_missing
from gangway.trainer.data.loader import AS_SUITS, Reading
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.data.verification import Verification
from gangway.trainer.distributed.world import World
from gangway.trainer.families.registry import get_family
from gangway.trainer.metrics.metric_registry import check_applies
from gangway.trainer.networks.precision import Precision, choose, choose_kernels, set_tf32
from gangway.trainer.phases.optimisers import frozen_by_role
from gangway.trainer.power.limits import NOTHING_ASKED, PowerAsked
from gangway.trainer.run.memory import check_networks_fit, keep_freed_memory
from gangway.trainer.steps.compilation import check_graphs
from gangway.trainer.steps.pipelining import divide
from gangway.trainer.steps.sharding import shard
from gangway.trainer.steps.state import TrainState


@dataclass(frozen=True)
class RunOptions:
    """One session's options of the command line, beside TrainConfig.

    Attributes:
        resume: continue from the newest valid checkpoint; False refuses a directory that has one.
        metrics_port: for Prometheus; None for no endpoint.
        fabric_min_gbps: least bus bandwidth with which the run starts, Gbit/s; None for any fabric.
        track: further targets that rank 0 reports to, see gangway.trainer.telemetry.
        log_json: print the lines of stats.jsonl instead of sentences about them.
        reading: how images are read by default.
        control: the controller's settings; None for no controller.
    """

    resume: bool = True
    metrics_port: int | None = None
    fabric_min_gbps: float | None = None
    track: tuple[str, ...] = ()
    log_json: bool = False
    power: PowerAsked = NOTHING_ASKED
    reading: Reading = AS_SUITS
    control: ControlSettings | None = None

    def say(self, sentence: str) -> None:
        """Prints a sentence, on stderr where stdout is for JSON alone."""
        (warn if self.log_json else info)(sentence)


PLAIN = RunOptions()


class Ready(NamedTuple):
    """What a worker needs for its first step.

    Attributes:
        config: of the run, with the segments that a controller decided.
        verification: of the data's files; use it as a context.
        complete: whether the run is done already.
        allocator: the C library's memory setting.
        choices: each with its reason.
    """

    config: TrainConfig
    state: TrainState
    data: ShardedImages
    verification: Verification
    restored: Restored
    complete: bool
    allocator: str
    choices: dict[str, str]


def check_start(config: TrainConfig, world: World, images: int = 0) -> Mapping[str, Precision]:
    """Checks configuration, workers and machine before data is read; returns the precisions of the segments ahead.

    Raises TrainerError on every rank. Plans use the same rules (`gangway.trainer.config.refusals`).
    """
    precisions = _check_segments(config, world, images)
    check_graphs(config, world.device)
    check_layers(config)
    for each in stretches_from(config, images):
        world.run_on_all(partial(check_networks_fit, each.config, world, each.span))
    for name in parse(config.metrics):
        check_applies(name, config)
    return precisions


def _check_segments(config: TrainConfig, world: World, images: int) -> Mapping[str, Precision]:
    check_workers(config, images, world.world_size, equal_shares=world.on_xla)
    ahead = stretches_from(config, images)
    found: dict[str, Precision] = {}
    for each in ahead:
        found[each.config.precision] = world.run_on_all(partial(_choose_precision, each, world))
    return found


def _choose_precision(stretch: Stretch, world: World) -> Precision:
    try:
        return choose(stretch.config.precision, world.device)
    except TrainerError as error:
        raise (error.at(f"TrainConfig.{stretch.place}.precision") if stretch.place else error) from None


def check_layers(config: TrainConfig) -> None:
    """Raises TrainerError for layers that the networks do not have, without allocating them."""
    if config.freeze or config.layer_rates:
        with torch.device("meta"):
            frozen_by_role(config, get_family(config).roles(config))


def setup_session(config: TrainConfig, run_dir: Path, data_dir: Path, world: World, *, resume: bool) -> Ready:
    """Makes this worker ready; all workers call it together. Prepares missing shards in `data_dir`.

    `resume` False refuses a directory that has a checkpoint. Raises TrainerError on every rank.
    """
    seen = max(world.gather(newest_images(run_dir / "checkpoints") if world.rank == 0 else 0))
    precisions = check_start(config, world, seen)
    set_tf32(enabled=config.tf32)
    kernels = choose_kernels(world.device, deterministic=config.deterministic, channels_last=config.channels_last)
    world.run_on_rank0(lambda: check_run_dir(run_dir, data_dir))
    allocator = keep_freed_memory()
    world.run_on_rank0(lambda: prepare_if_missing(config, data_dir))
    data = open_on_all(config, data_dir, world)
    # Each worker moves only its own parts to the device.
    in_parts = (config.shard != "ddp" and world.mesh is not None) or world.is_pipelined
    state = TrainState.create(config, torch.device("cpu") if in_parts else world.device)
    shared = (divide if config.pipeline_stages > 1 else shard)(state, config, world)
    damaged = world.run_on_all(lambda: store.damaged_parts(run_dir / "checkpoints", world))
    sha256 = data.index.sha256
    restored = world.run_on_all(
        lambda: restore(state, config, run_dir, data_dir, sha256, resume=resume, damaged=damaged)
    )
    check_same_images(world.gather(state.images), run_dir)
    if state.images != seen or restored.config != config:
        # The newest checkpoint was skipped for one of an earlier segment, or a controller has decided segments.
        config = restored.config
        precisions = _check_segments(config, world, state.images)
    now = next(stretches_from(config, state.images)).config
    state.enter(now)
    choices = {"precision": state.use(precisions[now.precision]), **kernels}
    complete = state.images >= config.total_images and is_done(run_dir / "run.json")
    choices["shard"] = shared
    return Ready(config, state, data, Verification(data, world), restored, complete, allocator, choices)
