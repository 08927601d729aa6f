"""A session's set-up, checked before a file is written: options, device, data, networks and the newest checkpoint."""

import ctypes
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from gangway.trainer.config.network_size import host_gib, smaller_networks
from gangway.trainer.config.refusals import device_memory, xla_memory
from gangway.trainer.config.segment_plan import Stretch, check_workers, stretches_from
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import ControlSettings
from gangway.trainer.config.values.metric_names import parse
from gangway.trainer.config.values.segments import Span
from gangway.trainer.core.console import info, warn
from gangway.trainer.core.errors import LoneError, TrainerError
from gangway.trainer.data.loader import AS_SUITS, Reading
from gangway.trainer.data.shards import ShardedImages, open_on_all, prepare_if_missing
from gangway.trainer.data.verification import Verification
from gangway.trainer.distributed.world import World, is_shared_failure
from gangway.trainer.families import get_family
from gangway.trainer.metrics.metric_registry import check_applies
from gangway.trainer.networks.precision import Precision, choose, choose_kernels, set_tf32
from gangway.trainer.phases.optimisers import frozen_by_role
from gangway.trainer.power.limits import NOTHING_ASKED, PowerAsked
from gangway.trainer.steps.compilation import check_graphs
from gangway.trainer.steps.sharding import divide, shard
from gangway.trainer.steps.state import TrainState
from gangway.trainer.telemetry.devices import device_memory_gib, free_host_memory_gib

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # From malloc.h of glibc
_GIB = 1 << 30
_CPU_REFUSED = re.compile(r"DefaultCPUAllocator: .*allocate (\d+) bytes")
"""torch raises a plain RuntimeError with this message."""


def keep_freed_memory() -> str:
    """Lets this process keep 1 GiB of freed memory, which saved a quarter of the CPU time; returns the setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return "unchanged: the C library has no mallopt"
    done = mallopt(_M_MMAP_THRESHOLD, _GIB) and mallopt(_M_TRIM_THRESHOLD, _GIB)
    return "glibc, freed memory kept" if done else "unchanged: mallopt refused"


def check_networks_fit(config: TrainConfig, world: World, span: Span | None = None) -> None:
    """Raises TrainerError where networks exceed the memory of node, GPU or TPU: the kernel would kill the process.

    A step's tensors are only estimated (gangway.trainer.config.step_memory), so they refuse nothing.
    """
    trains_here = world.device.type == "cpu" and config.shard == "ddp"
    workers = world.world_size // world.num_nodes
    _check_host(config, workers, trains_here=trains_here)
    memory_gib = device_memory_gib(world.device)
    if memory_gib is None:
        return
    on_gpu = partial(device_memory, config, workers, world.num_nodes, memory_gib, "this GPU", span)
    for one in xla_memory(config, memory_gib, "this device", span) if world.on_xla else on_gpu():
        flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in one.changes.items())
        raise TrainerError(
            place=f"TrainConfig.{one.field}",
            problem=one.problem,
            value=getattr(config, one.field),
            allowed=one.allowed,
            fix=flags or "smaller networks, or devices with more memory",
        )


def _check_host(config: TrainConfig, workers: int, *, trains_here: bool) -> None:
    def needed_gib(each: TrainConfig) -> float:
        return workers * host_gib(each, trains_here=trains_here)

    free_gib = free_host_memory_gib()
    if needed_gib(config) <= free_gib:
        return
    field, _ = smaller_networks(config, needed_gib, lambda each: needed_gib(each) <= free_gib)
    parts = "weights, gradients, moments and average" if trains_here else "weights and average"
    owners = f"{workers} workers" if workers > 1 else "a worker"
    raise TrainerError(
        place=f"TrainConfig.{field}",
        problem=f"the networks' {parts} need {needed_gib(config):,.1f} GiB for {owners} on a node",
        value=getattr(config, field),
        allowed=f"what fits into the {free_gib:,.1f} GiB that are free here",
        fix=f"a smaller --{field.replace('_', '-')}{', fewer workers on a node' if workers > 1 else ''}, "
        "or a node with more memory",
    )


@contextmanager
def enough_memory(config: TrainConfig, world: World) -> Iterator[None]:
    """Turns running out of memory into a LoneError that names batch_gpu and the next smaller size."""
    try:
        yield
    except RuntimeError as error:
        found = _allocator_message(error)
        if not found or is_shared_failure(error):  # of metrics, or samples: no batch_gpu makes them smaller
            raise
        share = world.slice(config.batch_size, config.group)
        size = config.batch_gpu or share.stop - share.start
        smaller = [each for each in range(config.group, size, config.group) if config.batch_size % each == 0]
        flags = f"--batch-gpu {smaller[-1] if smaller else 1}{' --cuda-graphs false' if config.cuda_graphs else ''}"
        fewer = f"{flags}: a run that has begun may change it" if smaller else "smaller networks"
        raise LoneError(
            place="TrainConfig.batch_gpu",
            problem=f"worker {world.rank}'s memory does not hold a step on {size} image(s) at once ({found})",
            value=config.batch_gpu,
            allowed=f"a divisor of the batch of {config.batch_size} below {size}" if smaller else "",
            fix=f"{fewer}; or machines with more memory, or more of them",
        ) from error


def _allocator_message(error: RuntimeError) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return str(error).split(". ", maxsplit=1)[0]
    refused = _CPU_REFUSED.search(str(error))
    return f"no room for a tensor of {int(refused[1]) / _GIB:,.1f} GiB" if refused else ""


@dataclass(frozen=True)
class RunOptions:
    """One session's options of the command line, beside TrainConfig."""

    resume: bool = True  # continue from the newest valid checkpoint; False refuses a directory that has one
    metrics_port: int | None = None  # for Prometheus; None for no endpoint
    fabric_min_gbps: float | None = None  # least bus bandwidth with which the run starts, Gbit/s; None for any fabric
    track: tuple[str, ...] = ()  # further targets that rank 0 reports to, see gangway.trainer.telemetry
    log_json: bool = False  # print the lines of stats.jsonl instead of sentences about them
    power: PowerAsked = NOTHING_ASKED
    reading: Reading = AS_SUITS  # how images are read by default
    control: ControlSettings | None = None  # the controller's settings; None for no controller

    def say(self, sentence: str) -> None:
        """Prints a sentence, on stderr where stdout is for JSON alone."""
        (warn if self.log_json else info)(sentence)


PLAIN = RunOptions()


class Ready(NamedTuple):
    """What a worker needs for its first step."""

    config: TrainConfig  # of the run, with the segments that a controller decided
    state: TrainState
    data: ShardedImages
    verification: Verification  # of the data's files; use it as a context
    restored: Restored
    complete: bool  # whether the run is done already
    allocator: str  # the C library's memory setting
    choices: dict[str, str]  # each with its reason


def check_start(config: TrainConfig, world: World, images: int = 0) -> Mapping[str, Precision]:
    """Checks configuration, workers and machine before data is read; returns the precisions of the segments ahead."""
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
    return {each.config.precision: world.run_on_all(partial(_choose_precision, each, world)) for each in ahead}


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
    """Makes this worker ready; collective. `resume` False refuses a directory that has a checkpoint (TrainerError)."""
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
