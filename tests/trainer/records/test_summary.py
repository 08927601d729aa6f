"""The record as a fold over stats.jsonl: sessions, interruptions, energy, carbon and dollars by hand."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext, SessionRecord
from gangway.trainer.records.summary import interruptions, stop_notes, summarise, utilisation

PRICE = Quantity(value=36.0, unit="USD/h", provenance="list-price", source="catalogue", as_of="2026-09-06")
CONTEXT = RunContext(
    stack="demo",
    num_nodes=2,
    capacity=("spot",),
    usd_per_hour=PRICE,
    pue=Quantity(value=1.5, unit="1", provenance="assumed", source="operator"),
    intensity_g_per_kwh=Quantity(value=400.0, unit="gCO2e/kWh", provenance="assumed", source="grid table"),
)


def _begin(session: int, time: float, images: int, context: RunContext) -> dict[str, Any]:
    return {
        "event": "resume" if session else "start",
        "images": images,
        "time": time,
        "session": session,
        "run_id": "the-run",
        "world_size": 4,
        "num_nodes": 2,
        "backend": "gloo (no CUDA here)",
        "device": "cpu",
        "dataset": {"name": "digits", "sha256": "ab", "images": 1797},
        "context": context.model_dump(mode="json"),
        "code_sha256": "cd",
        "versions": {"torch": "2"},
    }


def _tick(session: int, time: float, images: int, joules: float | None, source: str = "measured") -> dict[str, Any]:
    return {
        "images": images,
        "time": time,
        "session": session,
        "loss_g": 1.0 + session,
        "loss_d": 0.5,
        "r1": None,
        "grad_norm_g": 2.0,
        "grad_norm_d": 3.0,
        "rss_gib": 1.0 + session,
        "gpu_gib": None,
        "energy": {"node0/cpu": [joules, source, "the meter"]},
    }


def _event(event: str, session: int, time: float, images: int, **more: object) -> dict[str, Any]:
    return {"event": event, "session": session, "time": time, "images": images, **more}


@pytest.fixture
def run_dir(tmp_path: Path, tiny_config: TrainConfig) -> Path:
    (tmp_path / "config.json").write_text(tiny_config.to_json())
    return tmp_path


def _write(run_dir: Path, *lines: dict[str, Any]) -> Path:
    (run_dir / "stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run_dir


FIRST = (_begin(0, 1000, 0, CONTEXT), _tick(0, 1010, 160, 1.8e6), _tick(0, 1020, 320, 3.6e6))
INTERRUPTED = (*FIRST, _event("checkpoint", 0, 1021, 320), _event("interrupt", 0, 1022, 320, cause="SIGTERM"))
RESUMED = (_begin(1, 1060, 320, CONTEXT), _tick(1, 1070, 480, 3.6e6))
DONE = _event("done", 1, 1072, 480, state_sha256={"g": "ef"})


def test_an_agreed_interruption_and_its_lost_seconds(run_dir: Path) -> None:
    record = summarise(_write(run_dir, *INTERRUPTED, *RESUMED, DONE))
    assert (record.id, record.status, record.images) == ("the-run", "done", 480)
    assert [(s.images_from, s.images_to, s.ended_by, s.wall_sec) for s in record.sessions] == [
        (0, 320, "interrupt", 22.0),
        (320, 480, "done", 12.0),
    ]
    (interruption,) = record.interruptions
    assert (interruption.cause, interruption.images) == ("SIGTERM", 320)
    assert interruption.lost_sec.value == 40  # held 320 images at 1020, went on from them at 1060
    assert record.state_sha256 == {"g": "ef"}


def test_a_killed_session_loses_the_work_after_its_checkpoint(run_dir: Path) -> None:
    record = summarise(_write(run_dir, *FIRST, _begin(1, 1060, 160, CONTEXT), _tick(1, 1070, 320, 1.0)), now=1075)
    assert [s.ended_by for s in record.sessions] == ["killed", "running"]
    (interruption,) = record.interruptions
    assert (interruption.cause, interruption.images, interruption.lost_sec.value) == ("killed", 160, 50)
    assert record.images_per_sec.value == pytest.approx((320 + 160) / (20 + 10))
    assert (record.status, record.state_sha256) == ("running", {})


def test_an_interruption_not_yet_resumed_has_no_lost_seconds(run_dir: Path) -> None:
    record = summarise(_write(run_dir, *INTERRUPTED))
    assert record.status == "interrupted"
    assert record.interruptions[0].lost_sec.provenance == "absent"


def test_energy_carbon_and_dollars_by_hand(run_dir: Path) -> None:
    record = summarise(_write(run_dir, *INTERRUPTED, *RESUMED, DONE))
    assert record.energy.it_joules.value == 7.2e6
    assert record.energy.it_joules.provenance == "measured"
    assert record.energy.facility_joules.value == pytest.approx(7.2e6 * 1.5)
    assert record.carbon.gco2e.value == pytest.approx(2 * 1.5 * 400)  # 2 kWh
    assert record.carbon.gco2e.provenance == "estimated"
    assert record.cost.total_usd.value == pytest.approx(36 * 2 * 34 / 3600)
    assert record.cost.total_usd.as_of == "2026-09-06"
    assert "list-price" in record.cost.total_usd.source
    assert record.peak_memory_gib.value == 2.0
    assert record.summaries["loss_g"].last.value == 2.0
    assert record.summaries["loss_g"].mean.value == pytest.approx(4 / 3)
    assert record.summaries["r1"].last.provenance == "absent"


def test_dollars_and_joules_of_each_session_are_of_its_own_nodes(run_dir: Path) -> None:
    by_kind = {"spot": PRICE, "on-demand": PRICE.model_copy(update={"value": 72.0})}
    known = CONTEXT.model_copy(update={"usd_per_hour_by_kind": by_kind, "capacity": ("spot", "on-demand")})
    first = {**_begin(0, 1000, 0, known), "capacity": ["spot", "spot"]}
    second = {**_begin(1, 1060, 320, known), "capacity": ["spot", "on-demand"]}
    record = summarise(_write(run_dir, first, *INTERRUPTED[1:], second, *RESUMED[1:], DONE))
    assert [session.capacity for session in record.sessions] == [("spot", "spot"), ("spot", "on-demand")]
    assert [session.it_joules.value for session in record.sessions] == [3.6e6, 3.6e6]
    assert record.cost.components["compute, spot"].value == pytest.approx(36 * (2 * 22 + 12) / 3600)
    assert record.cost.components["compute, on-demand"].value == pytest.approx(72 * 12 / 3600)


def test_one_estimated_session_makes_the_sum_an_estimate(run_dir: Path) -> None:
    lines = (*INTERRUPTED, _begin(1, 1060, 320, CONTEXT), _tick(1, 1070, 480, 1.0, "estimated"))
    assert summarise(_write(run_dir, *lines)).energy.it_joules.provenance == "estimated"


def test_what_nobody_knows_is_absent_with_its_reason(run_dir: Path) -> None:
    lines = (_begin(0, 1000, 0, RunContext()), _tick(0, 1010, 160, None, "absent"))
    record = summarise(_write(run_dir, *lines))
    for figure in (record.energy.it_joules, record.carbon.gco2e, record.cost.total_usd, record.scaling_efficiency):
        assert figure.provenance == "absent"
        assert figure.source
    just_begun = summarise(_write(run_dir, lines[0]))
    for figure in (just_begun.images_per_sec, just_begun.peak_memory_gib, just_begun.energy.it_joules):
        assert figure.provenance == "absent"


def test_a_directory_without_a_run_is_named(run_dir: Path) -> None:
    with pytest.raises(TrainerError, match="no run has begun here"):
        summarise(run_dir)


SILENT = "session 0 has no end; its last line is {} s old, {} than 60 s: taken as {}"


def test_a_session_that_fell_silent_was_killed_and_would_resume_from_its_checkpoint(run_dir: Path) -> None:
    _write(run_dir, *FIRST, _event("checkpoint", 0, 1015, 160))
    alive, killed = summarise(run_dir, now=1020 + 59), summarise(run_dir, now=1020 + 61)
    assert (alive.status, alive.sessions[0].ended_by, alive.notes) == (
        "running",
        "running",
        (SILENT.format(59, "not more", "running"),),
    )
    assert (killed.status, killed.sessions[0].ended_by) == ("interrupted", "killed")
    assert [(stop.cause, stop.images) for stop in killed.interruptions] == [("killed", 160)]
    assert killed.notes == (SILENT.format(61, "more", "killed"),)


def test_a_session_with_rare_lines_may_be_silent_for_longer(run_dir: Path) -> None:
    _write(run_dir, _begin(0, 1000, 0, CONTEXT), _tick(0, 1100, 160, 1.0))
    assert summarise(run_dir, now=1100 + 499).status == "running"
    assert summarise(run_dir, now=1100 + 501).status == "interrupted"


def test_lost_lines_are_left_out_and_told(run_dir: Path) -> None:
    _write(run_dir, *INTERRUPTED, *RESUMED, DONE)
    path = run_dir / "stats.jsonl"
    path.write_text("{nonsense\n" + "".join(path.read_text().splitlines(keepends=True)[1:]))
    record = summarise(run_dir)
    assert [session.images_from for session in record.sessions] == [320]
    assert (record.id, record.status, record.wall_sec.value, record.energy.it_joules.value) == (
        "the-run",
        "done",
        12,
        3.6e6,
    )
    (note,) = record.notes
    assert "1 unreadable line(s) and no beginning of session(s) 0" in note


def test_lost_seconds_are_absent_when_their_lines_are(run_dir: Path) -> None:
    record = summarise(_write(run_dir, _begin(0, 1000, 0, CONTEXT), *RESUMED, DONE))
    assert record.interruptions[0].lost_sec.provenance == "absent"
    assert "lost" in record.interruptions[0].lost_sec.source


def test_a_diary_without_a_readable_beginning_is_named(run_dir: Path) -> None:
    _write(run_dir, FIRST[1])
    with pytest.raises(TrainerError, match=r"stats\.jsonl: is damaged: no beginning of session\(s\) 0"):
        summarise(run_dir)


def _session(start: float, end: float, ended_by: Literal["done", "interrupt", "killed"]) -> SessionRecord:
    return SessionRecord(
        start=f"2026-11-21T00:{start:02.0f}:00+00:00",
        end=f"2026-11-21T00:{end:02.0f}:00+00:00",
        world_size=2,
        num_nodes=1,
        images_from=0,
        images_to=320,
        ended_by=ended_by,
        wall_sec=60 * (end - start),
        backend="gloo",
        device="cpu",
    )


def _line(session: int, time: float, images: int, **more: Any) -> dict[str, Any]:
    return {"session": session, "time": time, "images": images, **more}


SAVED = (
    _line(0, 60, 160),
    _line(0, 61, 160, event="checkpoint", sec=0.5),
    _line(0, 120, 320),
    _line(0, 121, 320, event="checkpoint", sec=0.25),
)
STOPPED = _line(0, 122, 320, event="interrupt", cause="spot-interruption", stop_sec=1.5)


def test_an_agreed_stop_says_how_fast_it_was() -> None:
    sessions = {0: _session(0, 2, "interrupt"), 1: _session(3, 4, "done")}
    begun = _line(1, 180, 320, event="resume")
    (stop,) = interruptions(sessions, [_line(0, 0, 0, event="start"), begun], [*SAVED, STOPPED, begun])
    assert (stop.cause, stop.images) == ("spot-interruption", 320)
    assert (stop.save_sec.value, stop.stop_sec.value, stop.lost_sec.value) == (0.25, 1.5, 60)
    assert stop.save_sec.provenance == stop.stop_sec.provenance == "measured"
    assert stop_notes([stop], list(sessions.values())) == []


def test_a_killed_session_saved_nothing_at_its_end() -> None:
    begun = _line(1, 180, 160, event="resume")
    sessions = {0: _session(0, 2, "killed"), 1: _session(3, 4, "done")}
    (stop,) = interruptions(sessions, [begun], [*SAVED[:3], begun])
    assert (stop.cause, stop.images, stop.lost_sec.value) == ("killed", 160, 120)
    assert stop.save_sec.source == "not an agreed stop: nothing was saved at it"
    assert stop.stop_sec.source == "no signal was taken"


def test_what_an_older_or_damaged_diary_does_not_say_is_absent() -> None:
    told = {**STOPPED, "stop_sec": None}
    (stop,) = interruptions({0: _session(0, 2, "interrupt")}, [], [SAVED[0], told])
    assert stop.lost_sec.source == "not resumed yet"
    assert stop.save_sec.source == "the checkpoint's line is lost"
    assert stop.stop_sec.source == "the session did not say"
    begun = _line(1, 180, 640, event="resume")
    sessions = {0: _session(0, 2, "interrupt"), 1: _session(3, 4, "done")}
    (stop,) = interruptions(sessions, [begun], [*SAVED, told, begun])
    assert stop.lost_sec.source.startswith("the lines that say when")


@pytest.mark.parametrize(("stop_sec", "told"), [(19.0, False), (31.0, True)])
def test_a_stop_beyond_a_preemptions_notice_is_noted(stop_sec: float, told: bool) -> None:
    sessions = {0: _session(0, 2, "interrupt")}
    stops = list(interruptions(sessions, [], [*SAVED, {**STOPPED, "stop_sec": stop_sec}]))
    assert any("took 31 s" in note for note in stop_notes(stops, list(sessions.values()))) == told


def test_a_clock_that_went_back_between_sessions_is_noted() -> None:
    sessions = {0: _session(10, 12, "interrupt"), 1: _session(3, 4, "done")}
    begun = _line(1, 30, 320, event="resume")
    stops = list(interruptions(sessions, [begun], [*SAVED, STOPPED, begun]))
    assert stops[0].lost_sec.source == "the clock went back between the two sessions"
    (note,) = stop_notes(stops, list(sessions.values()))
    assert note.startswith("the clock of session 1 is behind the end of the one before")


@pytest.fixture
def recorded(repo: Path, tmp_path: Path) -> Path:
    """A recorded run's folder."""
    source = repo / "tests/gangway/report/comparison/recorded"
    record = json.loads((source / "run.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(record["config"]), "utf-8")
    (tmp_path / "stats.jsonl").write_bytes((source / "stats.jsonl").read_bytes())
    return tmp_path


def damage(recorded: Path, event: str | None, changes: dict[str, Any]) -> None:
    """Changes the first line of that event; None for the last line of statistics."""
    path = recorded / "stats.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    of_event = [line for line in lines if line.get("event") == event]
    of_event[0 if event else -1].update(changes)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def test_the_recorded_run_has_a_record(recorded: Path) -> None:
    assert summarise(recorded).images > 0


@pytest.mark.parametrize(
    ("event", "changes"),
    [
        (None, {"loss_g": "x"}),
        (None, {"loss_g": 10**400}),
        (None, {"energy": 5}),
        (None, {"energy": {"node0/cpu": ["a", "b"]}}),
        (None, {"time": 1e300}),
        (None, {"time": 1e18}),
        (None, {"images": 10**400}),
        (None, {"cpu_utilisation": "much"}),
        ("start", {"num_nodes": "two"}),
        ("start", {"context": []}),
    ],
)
def test_a_value_of_nobodys_is_a_damaged_file(recorded: Path, event: str | None, changes: dict[str, Any]) -> None:
    damage(recorded, event, changes)
    with pytest.raises(TrainerError, match=r"stats\.jsonl: is damaged: a line holds a value that no session writes"):
        summarise(recorded)


@pytest.mark.parametrize("number", [10**9, -1, 0.5, 10**400])
def test_a_session_of_an_impossible_number_is_a_line_that_cannot_be_read(recorded: Path, number: float) -> None:
    """One of 10^9 took gigabytes for the names of those before it."""
    first = (recorded / "stats.jsonl").read_text("utf-8").splitlines()[0]
    line = json.dumps({**json.loads(first), "session": number})
    with (recorded / "stats.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    assert any("1 unreadable line(s)" in note for note in summarise(recorded).notes)


@pytest.mark.parametrize(
    "line", [b'{"event": [], "images": 1, "time": 1, "session": 0}', b'{"images": ' + b"9" * 5000 + b"}"]
)
def test_a_line_of_nobodys_is_one_that_cannot_be_read(recorded: Path, line: bytes) -> None:
    path = recorded / "stats.jsonl"
    path.write_bytes(path.read_bytes() + line + b"\n")
    assert any("1 unreadable line(s)" in note for note in summarise(recorded).notes)


WORK = Quantity(value=1e9, unit="FLOP", provenance="estimated", source="counted")
PEAK = Quantity(value=1e15, unit="FLOP/s", provenance="assumed", source="data sheet")


def _beginning(
    session: int = 0, images: int = 0, workers: int = 1, nodes: int = 1, **flops: Quantity
) -> dict[str, Any]:
    told = {name: figure.model_dump(mode="json") for name, figure in flops.items()}
    return {"session": session, "images": images, "world_size": workers, "num_nodes": nodes, "flops": told}


def _load(session: int, wall_sec: float, stall: float, **more: Any) -> dict[str, Any]:
    stalls = {"loader_stall_sec": stall, "checkpoint_stall_sec": stall / 2, "telemetry_sec": stall / 10}
    load = {"cpu_utilisation": 0.5, "gpu_utilisation": None, "host_memory_gib": 4.0, "mfu": None}
    return {"session": session, "wall_sec": wall_sec, "images": 0, **stalls, **load, **more}


def test_shares_are_of_all_sessions_wall_time() -> None:
    ticks = [_load(0, 50, 1), _load(0, 100, 2), _load(1, 100, 4)]
    found = utilisation(ticks, [_beginning(session, per_image=WORK, peak=PEAK) for session in range(2)])
    assert found.loader_stall_share.value == pytest.approx(6 / 200)
    assert found.checkpoint_stall_share.value == pytest.approx(3 / 200)
    assert found.telemetry_share.value == pytest.approx(0.6 / 200)
    assert found.telemetry_share.provenance == "measured"


def test_a_controllers_share_is_of_the_sessions_that_had_one() -> None:
    beginnings = [_beginning(session, per_image=WORK, peak=PEAK) for session in range(2)]
    without, with_one = (
        _load(0, 100, 2, controller_sec=None),
        _load(1, 50, 2, controller_sec=0.5),
    )
    assert utilisation([without, with_one], beginnings).controller_share.value == pytest.approx(0.01)
    absent = [utilisation(ticks, beginnings[:1]).controller_share for ticks in ([without], [_load(0, 100, 2)])]
    assert [each.value for each in absent] == [None, None]
    assert absent[0].source != absent[1].source, "there was none, or the lines are too old to say"


def test_a_line_counts_for_its_time_so_that_a_stall_is_not_one_line_among_many() -> None:
    # A thousand images in 1 s, a thousand in 9 s of which most was a stall.
    ticks = [
        _load(0, 1, 0, images=1000, cpu_utilisation=0.8, host_memory_gib=6.0, mfu=1e-3, gpu_utilisation=0.9),
        _load(0, 10, 0, images=2000, cpu_utilisation=0.1, mfu=1e-3 / 9),
    ]
    found = utilisation(ticks, [_beginning(per_image=WORK, peak=PEAK)])
    assert found.cpu_utilisation.value == pytest.approx((0.8 * 1 + 0.1 * 9) / 10)
    assert found.host_memory_gib.value == 6.0
    assert (found.gpu_utilisation.value, found.gpu_utilisation.note) == (0.9, "over the 1 node seconds of 1 lines")
    assert found.mfu.value == pytest.approx(2000 * 1e9 / (10 * 1e15))
    assert (found.mfu.provenance, found.peak_flops, found.flop_per_image) == ("estimated", PEAK, WORK)
    assert "peak assumed: data sheet" in found.mfu.source


def test_sessions_of_other_sizes_and_devices_add_up() -> None:
    """The second has twice the workers and nodes, a device of half the peak, and did again what the first had lost."""
    slow = Quantity(value=5e14, unit="FLOP/s", provenance="assumed", source="data sheet")
    beginnings = [
        _beginning(0, 0, 1, 1, per_image=WORK, peak=PEAK),
        _beginning(1, 800, 2, 2, per_image=WORK, peak=slow),
        _beginning(2, 2800, 2, 2, per_image=WORK, peak=slow),
    ]
    ticks = [
        _load(0, 10, 0, images=1000, cpu_utilisation=0.9),
        _load(1, 10, 0, images=2800, cpu_utilisation=0.3),
    ]
    found = utilisation(ticks, beginnings)
    assert found.mfu.value == pytest.approx((1000 + 2000) * 1e9 / (10 * 1e15 + 10 * 2 * 5e14))
    assert found.cpu_utilisation.value == pytest.approx((0.9 * 10 + 0.3 * 20) / 30)
    assert "2 session(s)" in found.mfu.note


@pytest.mark.parametrize("missing", ["per_image", "peak"])
def test_without_work_or_peak_there_is_no_mfu_and_the_reason_is_told(missing: str) -> None:
    flops = {"per_image": WORK, "peak": PEAK, missing: Quantity.absent("1", "why not")}
    beginning = _beginning(per_image=flops["per_image"], peak=flops["peak"])
    found = utilisation([_load(0, 1, 0)], [beginning])
    assert (found.mfu.value, found.mfu.source) == (None, "why not")


def test_lines_of_an_earlier_version_are_no_zeros() -> None:
    old = {"session": 0, "wall_sec": 10.0}
    found = utilisation([old], [{"session": 0, "num_nodes": 1}])
    assert all(figure.value is None for _, figure in found)
    assert "did not count it" in found.loader_stall_share.source
    assert "did not count it" in found.mfu.source
    nothing = utilisation([], [_beginning(per_image=WORK, peak=PEAK)])
    assert nothing.loader_stall_share.source == "the run ended before its first line"
    assert nothing.mfu.value is None
