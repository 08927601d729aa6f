"""What the trainer refuses at its start because of configuration and machine, for plans; and the commands that
prepare a data set or train on it, for messages. No torch.

The refusals themselves are where the trainer meets the machine (gangway.trainer.distributed, gangway.trainer.steps),
the data (gangway.trainer.data) and the metrics (gangway.trainer.metrics); tests compare both.
`TrainConfig.check_workers` checks workers.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from gangway.trainer.config.network_size import device_gib, host_gib, largest_batch_gpu, smaller_networks, state_gib
from gangway.trainer.config.parts.fields import RESOLUTIONS, SELF_PREPARED
from gangway.trainer.config.parts.rules import largest_share, replicas
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.segment_plan import Stretch, stretches
from gangway.trainer.config.step_memory import get_parts, images_at_once
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import Bounds
from gangway.trainer.config.values.metric_names import FEWEST_IMAGES, METRICS, NONE, parse
from gangway.trainer.config.values.segments import Span
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.host import program

_ANY = (1, 3)


class Machine(NamedTuple):
    """A node for workers, one for each accelerator; memory is None if unknown."""

    kind: Literal["cuda", "xla"]
    name: str
    has_bf16: bool = True
    num_workers: int = 1
    memory_gib: float | None = None
    device_memory_gib: float | None = None


class Refusal(NamedTuple):
    """One reason not to start: the `field` of TrainConfig to blame, and the nearest accepted values, if any."""

    field: str
    problem: str
    allowed: str
    changes: Mapping[str, object]


class DataSet(NamedTuple):
    """Possible shards of a data set; no `resolutions` means any, `num_classes` None that the files decide."""

    channels: tuple[int, ...]
    resolutions: tuple[int, ...]
    is_video: bool
    num_classes: int | None


DATA_SETS: Mapping[str, DataSet] = {
    "digits": DataSet((1,), (), False, 10),
    "photos": DataSet(_ANY, (), False, 7),
    "day-dusk": DataSet(_ANY, (), False, 2),
    "clips": DataSet(_ANY, (), True, 3),
    "cifar10": DataSet((3,), (32,), False, 10),
    "celeba": DataSet(_ANY, (), False, 0),
    "ucf101": DataSet(_ANY, (), True, 101),
    "folder": DataSet(_ANY, (), False, None),
}
"""By name in TrainConfig."""


def refusals(config: TrainConfig, machine: Machine, num_nodes: int = 1) -> Iterator[Refusal]:
    """All reasons not to start this configuration on so many machines."""
    yield from _backend(config, machine)
    for stretch in stretches(config):
        for found in (*_device(stretch.config, machine), *_memory(stretch, machine, num_nodes)):
            # A segment is fixed in the list of segments.
            where = f"{stretch.place}: {found.problem}"
            yield Refusal("segments", where, found.allowed, {}) if stretch.place else found
    yield from _data(config)
    yield from _metrics(config)


def _backend(config: TrainConfig, machine: Machine) -> Iterator[Refusal]:
    if machine.kind == "cuda" and config.backend == "xla":
        problem = f"backend xla: it needs torch_xla, which the environment for {machine.name} does not have"
        yield Refusal("backend", problem, "auto, gloo or nccl", {"backend": "auto"})
    if machine.kind == "xla" and config.backend != "xla":
        does = "needs CUDA" if config.backend == "nccl" else "would train on the hosts' processors"
        problem = f"backend {config.backend}: it {does}, and not on {machine.name}"
        yield Refusal("backend", problem, "xla", {"backend": "xla"})
    for field, only in (("shard", "ddp"), ("pipeline_stages", 1)):
        if machine.kind == "xla" and (value := getattr(config, field)) != only:
            problem = f"{field} {value}: networks are whole with PyTorch/XLA, on {machine.name}"
            yield Refusal(field, problem, str(only), {field: only})


def _device(config: TrainConfig, machine: Machine) -> Iterator[Refusal]:
    on_cpu = config.backend == "gloo"  # whatever devices there are
    kind, name = ("cpu", "a CPU") if on_cpu else (machine.kind, machine.name)
    if config.precision == "fp16" and kind == "xla":
        problem = f"precision fp16: PyTorch/XLA, on {name}, has no fp16 with scaled losses here"
        yield Refusal("precision", problem, "fp32 or bf16", {"precision": "bf16"})
    if config.precision == "bf16" and kind == "cuda" and not machine.has_bf16:
        instead = "fp16" if config.shard == "ddp" else "fp32"  # sharded networks have no scaled losses
        allowed = "fp32 or fp16" if config.shard == "ddp" else "fp32"
        problem = f"precision bf16: {name} is older than its instructions (compute capability 8.0)"
        yield Refusal("precision", problem, allowed, {"precision": instead})
    if config.cuda_graphs and kind != "cuda":
        problem = f"cuda_graphs true: a worker computes on {name}, which has no CUDA graphs"
        yield Refusal("cuda_graphs", problem, "false", {"cuda_graphs": False})


def _memory(stretch: Stretch, machine: Machine, num_nodes: int) -> Iterator[Refusal]:
    config, span = stretch.config, stretch.span
    on_cpu, workers, memory_gib = config.backend == "gloo", machine.num_workers, machine.memory_gib

    def on_device(each: TrainConfig) -> Iterator[Refusal]:
        if on_cpu or machine.device_memory_gib is None:
            return
        if machine.kind == "xla":
            yield from xla_memory(each, machine.device_memory_gib, machine.name, span)
        else:
            yield from device_memory(each, workers, num_nodes, machine.device_memory_gib, machine.name, span)

    def needed_gib(each: TrainConfig) -> float:
        return workers * host_gib(each, trains_here=on_cpu and each.shard == "ddp")

    if memory_gib is None or needed_gib(config) <= memory_gib:
        yield from on_device(config)
        return
    workers_text = f"{workers} worker{'s' if workers > 1 else ''} on a node"
    yield _networks_refusal(
        config,
        needed_gib,
        lambda each: needed_gib(each) <= memory_gib and not any(on_device(each)),
        f"the networks need {needed_gib(config):,.1f} GiB for {workers_text}",
        f"the node's {memory_gib:,.1f} GiB",
    )


def _networks_refusal(
    config: TrainConfig,
    needed_gib: Callable[[TrainConfig], float],
    fits: Callable[[TrainConfig], bool],
    need: str,
    room: str,
    also: Mapping[str, object] = MappingProxyType({}),
) -> Refusal:
    field, value = smaller_networks(config, needed_gib, fits)
    changes = {} if value is None else {field: value, **also}
    return Refusal(field, f"{field} {getattr(config, field)}: {need}", f"what fits into {room}", changes)


def device_memory(
    config: TrainConfig, workers: int, num_nodes: int, memory_gib: float, name: str, span: Span | None = None
) -> Iterator[Refusal]:
    """Refuse a step above `memory_gib` on one of a node's devices; suggest a smaller micro-batch, else networks."""
    parts, at_once = get_parts(config, workers, num_nodes), images_at_once(config, workers * num_nodes)
    graphs_off: dict[str, object] = {"cuda_graphs": False} if config.cuda_graphs else {}
    needed = device_gib(config, at_once, parts, span)
    if needed <= memory_gib:
        return
    least, room = f"a step needs {needed:,.1f} GiB at least", f"the {memory_gib:,.1f} GiB of {name}"
    size = largest_batch_gpu(
        config, config.batch_size, lambda size: device_gib(config, size, parts, span) <= memory_gib
    )
    if size is not None:
        problem = f"batch_gpu {config.batch_gpu}: {least}, for {at_once} image{'s' if at_once > 1 else ''} at once"
        yield Refusal("batch_gpu", problem, f"{size} or less on {room}", {"batch_gpu": size, **graphs_off})
        return

    def needed_gib(each: TrainConfig) -> float:
        return device_gib(each, 1, parts, span)

    also = {"batch_gpu": config.group, **graphs_off}
    yield _networks_refusal(config, needed_gib, lambda each: needed_gib(each) <= memory_gib, least, room, also)


def xla_memory(config: TrainConfig, memory_gib: float, name: str, span: Span | None = None) -> Iterator[Refusal]:
    """Refuse what stays on an XLA device between steps in `span` or the whole run: XLA may recompute the rest."""

    def needed_gib(each: TrainConfig) -> float:
        return state_gib(each, span)

    if (needed := needed_gib(config)) > memory_gib:
        need, room = f"weights, moments and average need {needed:,.1f} GiB", f"the {memory_gib:,.1f} GiB of {name}"
        yield _networks_refusal(config, needed_gib, lambda each: needed_gib(each) <= memory_gib, need, room)


def _data(config: TrainConfig) -> Iterator[Refusal]:
    data, name = DATA_SETS[config.dataset], config.dataset
    if config.channels not in data.channels:
        only = data.channels[0]
        yield Refusal("channels", f"channels {config.channels}: {name} has {only}", str(only), {"channels": only})
    if data.resolutions and config.resolution not in data.resolutions:
        only = data.resolutions[0]
        problem = f"resolution {config.resolution}: {name} is {only}x{only}"
        yield Refusal("resolution", problem, str(only), {"resolution": only})
    if (config.frames > 1) != data.is_video:
        allowed = "2 or more" if data.is_video else "1"
        changes = {} if data.is_video else {"frames": 1}
        what = "clips of several frames" if data.is_video else "single images"
        yield Refusal("frames", f"frames {config.frames}: {name} is made of {what}", allowed, changes)
    known = f"{data.num_classes} classes" if data.num_classes else "no labels"
    if config.translates and data.num_classes not in (None, config.num_labels):
        problem = f"dataset {name}: it has {known}, and the networks translate between two"
        yield Refusal("dataset", problem, "day-dusk, or a folder of two folders of pictures", {"dataset": "folder"})
    if data.num_classes is not None and config.num_classes not in (0, data.num_classes):
        allowed = f"0 or {data.num_classes}" if data.num_classes else "0"
        problem = f"num_classes {config.num_classes}: {name} has {known}"
        yield Refusal("num_classes", problem, allowed, {"num_classes": data.num_classes})


def _metrics(config: TrainConfig) -> Iterator[Refusal]:
    names = parse(config.metrics)
    for name in names:
        if found := misfit(name, config):
            suitable = [other for other in METRICS if other in found.instead.replace(",", "").split()]
            changes = {"metrics": ",".join(suitable[0] if other == name else other for other in names)}
            yield Refusal("metrics", f"metrics {name}: it {found.why}", found.instead, changes)
    needed = max((FEWEST_IMAGES[name] for name in names), default=0)
    if config.metrics_samples < needed:
        problem = f"metrics_samples {config.metrics_samples}: fewer than {config.metrics} can be computed of"
        yield Refusal("metrics_samples", problem, f"{needed} or more", {"metrics_samples": needed})


class Misfit(NamedTuple):
    """Why a metric means nothing for a run's data, with names of others that do."""

    why: str
    instead: str


def misfit(name: str, config: TrainConfig) -> Misfit | None:
    """Why a metric means nothing for the run's data; None if it fits."""
    on_video = config.frames > 1
    if (name in ("fd-enl0-frames", "video-is")) != on_video:
        if on_video:
            return Misfit("is for images, and the run makes video", "fd-enl0-frames or video-is")
        return Misfit("is for video, and the run's images have one frame", "fd-enl0")
    if name == "is" and config.dataset == "celeba":
        why = "means nothing for faces: it rewards spread over ImageNet's classes, of which none is a face"
        return Misfit(why, "fid, kid or precision-recall")
    if name == "digits-classes" and (config.dataset, config.resolution) != ("digits", 32):
        return Misfit("knows the ten digits of the data set digits at 32x32 only", "fd-enl0")
    if name == "video-is" and (config.channels, config.frames) != (3, 16):
        return Misfit("needs colour clips of 16 frames, which C3D was made for", "fd-enl0-frames")
    return None


class BoundsMisfit(NamedTuple):
    """A bound of `Bounds` that cannot be kept, with the nearest value as its `fix`."""

    field: str
    problem: str
    value: tuple[int | str, ...]
    allowed: str
    fix: tuple[int | str, ...]


def bounds_misfits(
    bounds: Bounds, config: TrainConfig, workers: int, *, least_workers: int | None = None
) -> Iterator[BoundsMisfit]:
    """Bounds that do not fit this configuration on so many workers, or `least_workers` at times."""
    if bounds.batch_size is not None:
        (least, most), start, fewest = bounds.batch_size, config.batch_size, workers * config.group
        fix = (max(min(least, start), fewest), max(most, start, fewest))
        if least < fewest:
            share = "an image" if config.group == 1 else f"a group of {config.group} images (minibatch_std)"
            why = f"less than {share} for each of {workers} workers"
            yield BoundsMisfit("batch_size", why, bounds.batch_size, f"from {fewest} on", fix)
        elif not least <= start <= most:
            why = f"leaves out the batch that the run begins with, {start}"
            yield BoundsMisfit("batch_size", why, bounds.batch_size, f"bounds around {start}", fix)
    largest = max(config.batch_size, (bounds.batch_size or (0, 0))[1])
    worker_share = largest_share(largest, replicas(config, least_workers or workers), config.group)
    if bounds.batch_gpu is not None and bounds.batch_gpu[0] > worker_share:
        why = f"more than a worker's share of the batch, {worker_share} images"
        yield BoundsMisfit("batch_gpu", why, bounds.batch_gpu, f"up to {worker_share}", (worker_share, worker_share))
    if bounds.precision and config.precision not in bounds.precision:
        why = f"leaves out what the run begins with, {config.precision}"
        allowed = f"words with {config.precision} among them"
        yield BoundsMisfit("precision", why, bounds.precision, allowed, (config.precision, *bounds.precision))


def prepare_command(config: TrainConfig, folder: Path | str, source: str = "PATH_OR_URL") -> str:
    """The shell command that prepares the configured data set in `folder` from the originals at `source`."""
    command = [f"{program()} data prepare", config.dataset]
    if config.dataset not in SELF_PREPARED:
        command.append(f"--source {shlex.quote(source)}")
    if config.dataset != "cifar10":
        command.append(f"--resolution {config.resolution}")
    if config.channels == 1 and config.dataset != "digits":
        command.append("--channels 1")
    if config.frames > 1:
        command.append(f"--frames {config.frames}")
    if config.num_labels and config.dataset == "folder":
        command.append("--labels")
    return " ".join([*command, f"--out {shlex.quote(str(folder))}"])


def untrainable(shape: Sequence[int]) -> str:
    """Why no network trains on images or clips of that shape, and what to prepare instead; empty if one does."""
    *_, height, width = shape
    if height != width or height not in RESOLUTIONS:
        nearest = min(RESOLUTIONS, key=lambda each: (abs(each - height), -each))
        sizes = ", ".join(map(str, RESOLUTIONS))
        return f"no network here trains on {height}x{width}, but on {sizes}: to train, prepare --resolution {nearest}"
    # A clip grows in time as it does in height and width, so it has at most as many frames.
    lengths = [each for each in get_args(TrainConfig.model_fields["frames"].annotation) if 1 < each <= height]
    frames = shape[1] if len(shape) > 3 else 1
    if len(shape) > 3 and frames not in lengths:
        nearest = min(lengths, key=lambda each: (abs(each - frames), -each))
        counts = ", ".join(map(str, lengths))
        return (
            f"no network here trains on clips of {frames} frames at {height}x{width}, but of {counts}: to train, "
            + (f"prepare --frames {nearest}")
        )
    return ""


def train_command(dataset: str, shape: Sequence[int], folder: Path | str) -> str:
    """The command of the preset nearest to these shards, with flags for differences; empty if `untrainable`."""
    if untrainable(shape):
        return ""
    channels, *_, size = shape
    wanted = {
        "dataset": dataset,
        "resolution": size,
        "channels": channels,
        "frames": shape[1] if len(shape) > 3 else 1,
    }
    flags = [(name, found) for name, preset in PRESETS.items() if (found := _flags(preset, wanted)) is not None]
    name, changes = min(flags, key=lambda each: ("dataset" in each[1], len(each[1])))
    flag_words = [f"--{field} {value}" for field, value in changes.items()]
    return " ".join([f"{program()} train --preset {name}", *flag_words, f"--data {shlex.quote(str(folder))}"])


def _flags(preset: TrainConfig, wanted: Mapping[str, object]) -> dict[str, object] | None:
    if preset.translates and preset.dataset != wanted["dataset"]:
        return None
    changes = {field: value for field, value in wanted.items() if value != getattr(preset, field)}
    if preset.dataset == wanted["dataset"] == "folder":
        return {} if preset.frames == wanted["frames"] else None  # size and channels are those of the pictures
    try:
        trained = preset.replace(changes)
    except TrainerError:
        return None
    misfits = any(misfit(name, trained) for name in parse(trained.metrics))
    return {**changes, "metrics": NONE} if misfits else changes
