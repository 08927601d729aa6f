"""How well a run used its machines, for its record: share of the peak, what steps waited for, how busy all was.

A part of `trainer.summary`, which gives it the diary's lines; reads no file itself, and does not import torch. The
lines themselves are trainer.meters'.
"""

import math
from collections.abc import Mapping, Sequence

from trainer.diary import Line
from trainer.figure import Figure, Frozen

__all__ = ["UtilisationRecord", "utilisation"]

_OLD = "the lines are of a version that did not count it"


class UtilisationRecord(Frozen):
    """Use of the machines, over all sessions. Shares are 0..1.

    Attributes:
        flop_per_image: work of a step for each real image shown, counted.
        peak_flops: of one device in the number format of the run.
        mfu: model FLOPs utilisation: the work done per second over what all devices could do at their peak.
        loader_stall_share: of the wall time in which steps waited for images.
        checkpoint_stall_share: in which they waited for a copy of the state, or for the save before; what a save takes
            beside training is no stall.
        telemetry_share: in which they waited for statistics lines, sample grids and trackers.
        cpu_utilisation: CPU time of the workers over what their nodes' cores offered.
        gpu_utilisation: share of the time in which a GPU ran any kernel, as NVML samples it.
        host_memory_gib: in use on all nodes, by all processes; the greatest of any line.
    """

    flop_per_image: Figure
    peak_flops: Figure
    mfu: Figure
    loader_stall_share: Figure
    checkpoint_stall_share: Figure
    telemetry_share: Figure
    cpu_utilisation: Figure
    gpu_utilisation: Figure
    host_memory_gib: Figure


def utilisation(ticks: Sequence[Line], beginnings: Sequence[Line]) -> UtilisationRecord:
    """The record.

    Args:
        ticks: statistics lines, in order.
        beginnings: the first line of each session.
    """
    flops = {name: Figure.model_validate(figure) for name, figure in beginnings[-1].get("flops", {}).items()}
    per_image = flops.get("per_image", Figure.absent("FLOP", _OLD))
    peak = flops.get("peak", Figure.absent("FLOP/s", _OLD))
    return UtilisationRecord(
        flop_per_image=per_image,
        peak_flops=peak,
        mfu=_mfu(ticks, per_image, peak),
        loader_stall_share=_share(ticks, "loader_stall_sec", "time.perf_counter around the loader, slowest worker"),
        checkpoint_stall_share=_share(ticks, "checkpoint_stall_sec", "time.monotonic around the hand-over, rank 0"),
        telemetry_share=_share(ticks, "telemetry_sec", "time.monotonic around lines and grids, slowest worker"),
        cpu_utilisation=_mean(ticks, "cpu_utilisation", "time.process_time of the workers and their nodes' cores"),
        gpu_utilisation=_mean(ticks, "gpu_utilisation", "NVML, sampled at each line"),
        host_memory_gib=_peak(ticks, "host_memory_gib", "GiB", "/proc/meminfo: total less available"),
    )


def _mfu(ticks: Sequence[Line], per_image: Figure, peak: Figure) -> Figure:
    for part in (per_image, peak):
        if part.value is None:
            return Figure.absent("1", part.source)
    mean = _mean(ticks, "mfu", "")
    if mean.value is None:
        return mean
    return Figure(
        value=mean.value,
        unit="1",
        provenance="estimated",
        source=f"images/s x FLOP per image / peak; peak {peak.provenance}: {peak.source}",
        as_of=peak.as_of,
        note=f"{mean.note}; FLOP {per_image.source}",
    )


def _share(ticks: Sequence[Line], key: str, source: str) -> Figure:
    """Sums of each session's last line over the same lines' wall time."""
    last_of_session: Mapping[int, Line] = {line["session"]: line for line in ticks if key in line}
    wall_sec = math.fsum(line["wall_sec"] for line in last_of_session.values())
    if not wall_sec:
        return Figure.absent("1", _OLD if ticks else "the run ended before its first line")
    return Figure.measured(math.fsum(line[key] for line in last_of_session.values()) / wall_sec, "1", source)


def _mean(ticks: Sequence[Line], key: str, source: str) -> Figure:
    known = [line[key] for line in ticks if line.get(key) is not None]
    if not known:
        return Figure.absent("1", "no statistics line has it")
    return Figure.measured(math.fsum(known) / len(known), "1", source, note=f"mean of {len(known)} lines")


def _peak(ticks: Sequence[Line], key: str, unit: str, source: str) -> Figure:
    known = [line[key] for line in ticks if line.get(key) is not None]
    if not known:
        return Figure.absent(unit, "no statistics line has it")
    return Figure.measured(max(known), unit, source, note=f"greatest of {len(known)} lines")
