"""The record as a fold over stats.jsonl: sessions, interruptions, energy, carbon and dollars by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.records.summary import summarise

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
