"""Use of the machines for the run record: share of peak, waits, load. No torch."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gangway.trainer.records.quantity import Frozen, Quantity
from gangway.trainer.records.stats_log import Line

_OLD = "the lines are of a version that did not count it"


class UtilisationRecord(Frozen):
    """Use of the machines, over all sessions. Shares are 0..1.

    Attributes:
        flop_per_image: counted work of a step per real image.
        peak_flops: of one device in the run's number format.
        mfu: model FLOPs utilisation: work over what all devices could have done at peak in that time.
        loader_stall_share: of the wall time that steps waited for images.
        checkpoint_stall_share: waits for a copy of the state or the previous save; saves beside training do not count.
        telemetry_share: waits for statistics lines, sample grids and trackers.
        controller_share: waits for decisions and their changes, in sessions with a controller.
        cpu_utilisation: CPU time of the workers over their nodes' cores.
        gpu_utilisation: share of the time in which a GPU ran any kernel, as NVML samples it.
        host_memory_gib: in use on all nodes by all processes; the maximum of all lines.
    """

    flop_per_image: Quantity
    peak_flops: Quantity
    mfu: Quantity
    loader_stall_share: Quantity
    checkpoint_stall_share: Quantity
    telemetry_share: Quantity
    cpu_utilisation: Quantity
    gpu_utilisation: Quantity
    host_memory_gib: Quantity
    controller_share: Quantity = Quantity.absent("1", _OLD)


def utilisation(ticks: Sequence[Line], beginnings: Sequence[Line]) -> UtilisationRecord:
    """The record from statistics lines in order and the first line of each session."""
    per_image, peak = _flops(beginnings[-1])
    stretches = _stretches(ticks, beginnings)
    return UtilisationRecord(
        flop_per_image=per_image,
        peak_flops=peak,
        mfu=_mfu(ticks, beginnings),
        loader_stall_share=_share(ticks, "loader_stall_sec", "time.perf_counter around the loader, slowest worker"),
        checkpoint_stall_share=_share(ticks, "checkpoint_stall_sec", "time.monotonic around saves, slowest worker"),
        telemetry_share=_share(ticks, "telemetry_sec", "time.monotonic around lines and grids, slowest worker"),
        cpu_utilisation=_over_time(stretches, "cpu_utilisation", "time.process_time of workers, cores of nodes"),
        gpu_utilisation=_over_time(stretches, "gpu_utilisation", "NVML, sampled at each line"),
        controller_share=_share(ticks, "controller_sec", "time.monotonic around decisions, slowest worker"),
        host_memory_gib=_peak(ticks, "host_memory_gib", "GiB", "/proc/meminfo: total less available"),
    )


def _flops(beginning: Line) -> tuple[Quantity, Quantity]:
    flops = {name: Quantity.model_validate(quantity) for name, quantity in beginning.get("flops", {}).items()}
    return flops.get("per_image", Quantity.absent("FLOP", _OLD)), flops.get("peak", Quantity.absent("FLOP/s", _OLD))


def _mfu(ticks: Sequence[Line], beginnings: Sequence[Line]) -> Quantity:
    """Work over capacity, summed over the sessions, whose devices may differ."""
    last_of_session = {line["session"]: line for line in ticks}
    work, capacity = [], []
    for beginning in beginnings:
        last = last_of_session.get(beginning["session"])
        per_image, peak = _flops(beginning)
        for part in (per_image, peak):
            if part.value is None:
                return Quantity.absent("1", part.source)
        if last is not None and "wall_sec" in last and per_image.value is not None and peak.value is not None:
            work.append((last["images"] - beginning["images"]) * per_image.value)
            capacity.append(last["wall_sec"] * beginning["world_size"] * peak.value)
    if not math.fsum(capacity):
        return Quantity.absent("1", "no statistics line has it")
    return Quantity(
        value=math.fsum(work) / math.fsum(capacity),
        unit="1",
        provenance="estimated",
        source=f"images x FLOP per image / (wall time x devices x peak); peak {peak.provenance}: {peak.source}",
        as_of=peak.as_of,
        note=f"from the first step to the last line of {len(work)} session(s), all waits included; "
        f"FLOP {per_image.source}",
    )


def _share(ticks: Sequence[Line], key: str, source: str) -> Quantity:
    counted = [line for line in ticks if key in line]
    last_of_session: Mapping[int, Line] = {line["session"]: line for line in counted if line[key] is not None}
    wall_sec = math.fsum(line["wall_sec"] for line in last_of_session.values())
    if not wall_sec:
        why = "no session had one" if counted else _OLD if ticks else "the run ended before its first line"
        return Quantity.absent("1", why)
    return Quantity.measured(math.fsum(line[key] for line in last_of_session.values()) / wall_sec, "1", source)


class _Stretch(NamedTuple):
    line: Line
    node_sec: float


def _stretches(ticks: Sequence[Line], beginnings: Sequence[Line]) -> list[_Stretch]:
    nodes = {beginning["session"]: beginning["num_nodes"] for beginning in beginnings}
    counted_sec = dict.fromkeys(nodes, 0.0)
    found = []
    for line in (line for line in ticks if "wall_sec" in line):  # lines of the first version have none
        session, wall_sec = line["session"], line["wall_sec"]
        found.append(_Stretch(line, (wall_sec - counted_sec[session]) * nodes[session]))
        counted_sec[session] = wall_sec
    return found


def _over_time(stretches: Sequence[_Stretch], key: str, source: str) -> Quantity:
    known = [stretch for stretch in stretches if stretch.line.get(key) is not None]
    node_sec = math.fsum(stretch.node_sec for stretch in known)
    if not node_sec:
        return Quantity.absent("1", "no statistics line has it")
    mean = math.fsum(stretch.line[key] * stretch.node_sec for stretch in known) / node_sec
    return Quantity.measured(mean, "1", source, note=f"over the {node_sec:.4g} node seconds of {len(known)} lines")


def _peak(ticks: Sequence[Line], key: str, unit: str, source: str) -> Quantity:
    known = [line[key] for line in ticks if line.get(key) is not None]
    if not known:
        return Quantity.absent(unit, "no statistics line has it")
    return Quantity.measured(max(known), unit, source, note=f"greatest of {len(known)} lines")
