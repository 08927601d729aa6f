"""Compute the run record from config.json and stats.jsonl. No torch."""

import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.cost_carbon import carbon, cost, energy, total
from gangway.trainer.records.decisions import decisions
from gangway.trainer.records.digest import get_sums
from gangway.trainer.records.quality import latest_judgements, quality_in_training
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import (
    UNCOUNTED,
    DatasetRecord,
    DataVerification,
    FabricRecord,
    InterruptionRecord,
    RunContext,
    RunRecord,
    SegmentRecord,
    SessionRecord,
    Summary,
    UtilisationRecord,
)
from gangway.trainer.records.stats_log import STATS_FILE, Line, StatsLog, iso, read_stats_log

SAVE_BUDGET_SEC = 20.0  # From a notice to the saved state. Google Cloud and Azure give about 30 s in all, AWS 120.
_SERIES = {"loss_g": "1", "loss_d": "1", "r1": "1", "grad_norm_g": "1", "grad_norm_d": "1"}
_BEGINNINGS = ("start", "resume")
_ENDINGS = ("interrupt", "done", "failed")
_SILENT_SEC = 60.0
_SILENT_GAPS = 5


def interruptions(
    sessions: Mapping[int, SessionRecord], beginnings: Sequence[Line], lines: Sequence[Line]
) -> Iterable[InterruptionRecord]:
    """One record per session that was stopped, killed or failed; `beginnings` are the sessions' first lines."""
    for number, session in sessions.items():
        if session.ended_by not in ("interrupt", "failed", "killed"):
            continue
        before = [line for line in lines if line["session"] <= number]
        interrupt = next((line for line in before[::-1] if line.get("event") == "interrupt"), None)
        agreed = interrupt if session.ended_by == "interrupt" else None
        resumed = next((line for line in beginnings if line["session"] > number), None)
        if resumed is None:
            images = max((line["images"] for line in before if line.get("event") == "checkpoint"), default=0)
            lost = Quantity.absent("s", "not resumed yet")
        else:
            images = resumed["images"]
            lost = _lost_sec(before, resumed)
        yield InterruptionRecord(
            at=session.end,
            images=images,
            cause=agreed["cause"] if agreed else session.ended_by,
            lost_sec=lost,
            save_sec=_save_sec(before, agreed),
            stop_sec=_stop_sec(agreed),
        )


def stop_notes(records: Sequence[InterruptionRecord], sessions: Sequence[SessionRecord]) -> list[str]:
    """Notes on stops that took longer than a cloud waits, and on clocks that went back."""
    slow = [
        f"the stop at {record.images:,} images took {record.stop_sec.value:.0f} s to be on disk, more than the "
        f"{SAVE_BUDGET_SEC:.0f} s that a preemption leaves"
        for record in records
        if (record.stop_sec.value or 0) > SAVE_BUDGET_SEC
    ]
    back = [
        f"the clock of session {number} is behind the end of the one before: the time lost between them is unknown"
        for number, (earlier, later) in enumerate(itertools.pairwise(sessions), 1)
        if later.start < earlier.end
    ]
    return [*slow, *back]


def _save_sec(before: Sequence[Line], agreed: Line | None) -> Quantity:
    if agreed is None:
        return Quantity.absent("s", "not an agreed stop: nothing was saved at it")
    if not agreed["images"]:
        return Quantity.absent("s", "no step had been made, and there was nothing to save")
    saves = [line for line in before if line.get("event") == "checkpoint" and line["images"] == agreed["images"]]
    seconds = saves[-1].get("sec") if saves else None
    if seconds is None:
        return Quantity.absent("s", "the checkpoint's line is lost")
    return Quantity.measured(seconds, "s", "wall clock of the checkpoint made at the stop")


def _stop_sec(agreed: Line | None) -> Quantity:
    if agreed is None or agreed.get("stop_sec") is None:
        return Quantity.absent("s", "no signal was taken" if agreed is None else "the session did not say")
    return Quantity.measured(agreed["stop_sec"], "s", "wall clock, from the first worker's signal to the state on disk")


def _lost_sec(before: Sequence[Line], resumed: Line) -> Quantity:
    passed_at = [line["time"] for line in before if line["images"] >= resumed["images"]]
    if not passed_at:
        return Quantity.absent("s", "the lines that say when the run first held those images are lost")
    if resumed["time"] < min(passed_at):
        return Quantity.absent("s", "the clock went back between the two sessions")
    return Quantity.measured(
        resumed["time"] - min(passed_at),
        "s",
        "wall clock, from first holding the images it resumed from to resuming from them",
        note="stopping, downtime, starting up and work done again",
    )


def summarise(run_dir: Path, now: float | None = None) -> RunRecord:
    """The record of stats.jsonl so far; `now` distinguishes killed sessions (TrainerError: no readable run)."""
    stats_log = read_stats_log(run_dir)
    if not stats_log.beginnings:
        damaged = stats_log.unreadable or stats_log.lines
        raise TrainerError(
            place=str(run_dir / STATS_FILE),
            problem=f"is damaged: {stats_log.losses(1)} can be read" if damaged else "no run has begun here",
            fix="start the run's train command: it resumes from its newest checkpoint and starts the file again",
        )
    config = TrainConfig.from_file(run_dir / "config.json")
    try:
        record = _summarise_log(config, stats_log, now or time.time())
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        # Valid lines with our keys, but values that no trainer writes.
        raise TrainerError(
            place=str(run_dir / STATS_FILE),
            problem=f"is damaged: a line holds a value that no session writes ({type(error).__name__})",
            value=str(error).partition("\n")[0],
            fix="restore it from a copy; without it the run's record cannot be written again",
        ) from error
    return record.model_copy(update={"files": get_sums(run_dir)})


def _summarise_log(config: TrainConfig, stats_log: StatsLog, now: float) -> RunRecord:
    begun = {line["session"]: line for line in stats_log.beginnings}
    # Sessions without a beginning would add energy but no time: they are left out, with a note.
    lines = [line for line in stats_log.lines if line["session"] in begun and line.get("event") != "quality"]
    newest = max(begun)
    is_silent, why = _silence([line["time"] for line in lines if line["session"] == newest], now)
    sessions = {number: _session(number, lines, number < newest or is_silent) for number in sorted(begun)}
    ended_by = sessions[newest].ended_by
    has_no_end = ended_by in ("killed", "running")
    notes = [f"session {newest} has no end; {why}: taken as {ended_by}"] if has_no_end else []
    notes += [f"session {line['session']} failed: {line['why']}" for line in lines if line.get("event") == "failed"]
    notes += dict.fromkeys(line["why"] for line in lines if line.get("event") == "nccl-unqualified")
    losses = stats_log.losses(newest + 1)
    lost = f"stats.jsonl is damaged ({losses}): time, images/s, energy and dollars leave out what is lost"
    return _record(config, sessions, lines, stats_log, [*([lost] if losses else []), *notes])


def _record(
    config: TrainConfig,
    sessions: Mapping[int, SessionRecord],
    lines: Sequence[Line],
    stats_log: StatsLog,
    notes: Sequence[str],
) -> RunRecord:
    first, latest = stats_log.beginnings[0], stats_log.beginnings[-1]
    last_session = sessions[latest["session"]]
    context = RunContext.model_validate(latest["context"])
    ticks = [line for line in lines if "event" not in line]
    wall_sec = sum(session.wall_sec for session in sessions.values())
    shown = sum(session.images_to - session.images_from for session in sessions.values())
    contexts = {line["session"]: RunContext.model_validate(line["context"]) for line in stats_log.beginnings}
    used = energy(_devices(ticks), sessions, contexts)
    stops = tuple(interruptions(sessions, stats_log.beginnings, lines))
    done = next((line for line in reversed(lines) if line.get("event") == "done"), None)
    ended_by = last_session.ended_by
    segments = [line["segment"] for line in lines if line.get("event") == "segment"]
    return RunRecord(
        id=first["run_id"],
        status="done" if ended_by == "done" else "running" if ended_by == "running" else "interrupted",
        notes=(*notes, *stop_notes(stops, list(sessions.values()))),
        stack=context.stack,
        provider=context.provider,
        region=context.region,
        machine_type=context.machine_type,
        capacity=context.capacity,
        num_nodes=context.num_nodes,
        sessions=tuple(sessions.values()),
        interruptions=stops,
        code_sha256=latest["code_sha256"],
        image_digest=context.image_digest,
        seed=config.seed,
        dataset=DatasetRecord.model_validate(latest["dataset"]),
        config=config,
        images=last_session.images_to,
        wall_sec=Quantity.measured(wall_sec, "s", "wall clock, first step to last of each session"),
        images_per_sec=_ratio(shown, wall_sec, "images/s"),
        sec_per_kimg=_ratio(wall_sec * 1000, shown, "s/kimg"),
        scaling_efficiency=Quantity.absent("1", "needs a run of the same configuration on one worker to compare with"),
        summaries={name: _summary([line.get(name) for line in ticks], unit) for name, unit in _SERIES.items()},
        quality=tuple(each.quality for each in latest_judgements(stats_log.lines)),
        quality_in_training=quality_in_training(stats_log.lines, wall_sec),
        segments=tuple({each["from_image"]: SegmentRecord.model_validate(each) for each in segments}.values()),
        decisions=tuple(decisions(lines)),
        choices=next((line["choices"] for line in lines[::-1] if line.get("event") == "choices"), {}),
        fabric=FabricRecord.model_validate(latest["fabric"]) if latest.get("fabric") else None,
        utilisation=utilisation(ticks, stats_log.beginnings),
        energy=used,
        carbon=carbon(used, sessions, last_session.images_to, contexts),
        cost=cost(sessions, contexts),
        peak_memory_gib=_peak_memory(ticks),
        state_sha256=done["state_sha256"] if done and ended_by == "done" else {},
        versions=latest["versions"],
    )


def _silence(times: Sequence[float], now: float) -> tuple[bool, str]:
    longest = max((later - earlier for earlier, later in itertools.pairwise(sorted(times))), default=0.0)
    limit, age = max(_SILENT_SEC, _SILENT_GAPS * longest), now - max(times)
    return age > limit, f"its last line is {age:.0f} s old, {'more' if age > limit else 'not more'} than {limit:.0f} s"


def _session(number: int, lines: Sequence[Line], is_over: bool) -> SessionRecord:
    own = [line for line in lines if line["session"] == number]
    began = next(line for line in own if line.get("event") in _BEGINNINGS)
    last = max(own, key=lambda line: float(line["time"]))
    ending = next((line["event"] for line in own if line.get("event") in _ENDINGS), None)
    readings: Mapping[str, Any] = next((line["energy"] for line in reversed(own) if "event" not in line), {})
    return SessionRecord(
        start=iso(began["time"]),
        end=iso(last["time"]),
        world_size=began["world_size"],
        num_nodes=began["num_nodes"],
        images_from=began["images"],
        images_to=max(line["images"] for line in own),
        ended_by=ending or ("killed" if is_over else "running"),
        wall_sec=last["time"] - began["time"],
        backend=began["backend"],
        device=began["device"],
        capacity=began.get("capacity", ()),
        it_joules=total([_reading(each) for each in readings.values()])
        if readings
        else Quantity.absent("J", "ended before its first line"),
        data_verified=tuple(
            DataVerification.model_validate({**node, "at": iso(node["at"])})
            for line in own
            if line.get("event") == "data-verified"
            for node in line["nodes"]
        ),
    )


def _devices(ticks: Sequence[Line]) -> dict[str, Quantity]:
    # Each session's last line holds its energy.
    last_of_session = {line["session"]: line["energy"] for line in ticks}
    devices: dict[str, Quantity] = {}
    for readings in last_of_session.values():
        for device, reading in readings.items():
            devices[device] = total([*([devices[device]] if device in devices else []), _reading(reading)])
    return devices


def _reading(reading: Sequence[Any]) -> Quantity:
    joules, source, method = reading
    return Quantity(value=joules, unit="J", provenance=source, source=method)


def _summary(values: Sequence[float | None], unit: str) -> Summary:
    known = [value for value in values if value is not None]
    if not known:
        nothing = Quantity.absent(unit, "no statistics line has it")
        return Summary(last=nothing, mean=nothing)
    source = "stats.jsonl"
    return Summary(
        last=Quantity.measured(known[-1], unit, source, note="the last line's"),
        mean=Quantity.measured(math.fsum(known) / len(known), unit, source, note=f"over {len(known)} lines"),
    )


def _ratio(numerator: float, denominator: float, unit: str) -> Quantity:
    if not denominator:
        return Quantity.absent(unit, "no step has been made")
    note = "over all sessions, without the gaps between them; samples and checkpoints included"
    return Quantity.measured(numerator / denominator, unit, "wall clock and images shown", note=note)


def _peak_memory(ticks: Sequence[Line]) -> Quantity:
    if not ticks:
        return Quantity.absent("GiB", "the run ended before its first line")
    on_gpu = ticks[-1]["gpu_gib"] is not None
    key, what = (
        ("gpu_gib", "torch.cuda.max_memory_allocated") if on_gpu else ("rss_gib", "peak resident set (getrusage)")
    )
    peak = max(line[key] for line in ticks if line[key] is not None)
    return Quantity.measured(peak, "GiB", f"{what}, summed over workers")


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
    return flops.get("per_image", Quantity.absent("FLOP", UNCOUNTED)), flops.get(
        "peak", Quantity.absent("FLOP/s", UNCOUNTED)
    )


def _mfu(ticks: Sequence[Line], beginnings: Sequence[Line]) -> Quantity:
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
        why = "no session had one" if counted else UNCOUNTED if ticks else "the run ended before its first line"
        return Quantity.absent("1", why)
    return Quantity.measured(math.fsum(line[key] for line in last_of_session.values()) / wall_sec, "1", source)


def _stretches(ticks: Sequence[Line], beginnings: Sequence[Line]) -> list[tuple[Line, float]]:
    """Returns each line with the node seconds since the one before it."""
    nodes = {beginning["session"]: beginning["num_nodes"] for beginning in beginnings}
    counted_sec = dict.fromkeys(nodes, 0.0)
    found = []
    for line in (line for line in ticks if "wall_sec" in line):  # lines of the first version have none
        session, wall_sec = line["session"], line["wall_sec"]
        found.append((line, (wall_sec - counted_sec[session]) * nodes[session]))
        counted_sec[session] = wall_sec
    return found


def _over_time(stretches: Sequence[tuple[Line, float]], key: str, source: str) -> Quantity:
    known = [(line[key], sec) for line, sec in stretches if line.get(key) is not None]
    node_sec = math.fsum(sec for _, sec in known)
    if not node_sec:
        return Quantity.absent("1", "no statistics line has it")
    mean = math.fsum(value * sec for value, sec in known) / node_sec
    return Quantity.measured(mean, "1", source, note=f"over the {node_sec:.4g} node seconds of {len(known)} lines")


def _peak(ticks: Sequence[Line], key: str, unit: str, source: str) -> Quantity:
    known = [line[key] for line in ticks if line.get(key) is not None]
    if not known:
        return Quantity.absent(unit, "no statistics line has it")
    return Quantity.measured(max(known), unit, source, note=f"greatest of {len(known)} lines")
