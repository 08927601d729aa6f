"""The record of a job: what stands in it by what is known, and never a figure without a source."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gangway.jobs.base import JobStatus, Move, Phase, RunInterval
from gangway.jobs.figures import REPORTED, Absent, Figure, Maybe, Reported, Source, no_report, worst
from gangway.jobs.job_record import FIGURES, EngineInfo, JobRecord, StartCounts, get_record
from gangway.jobs.sites import Nodes, find_nodes
from gangway.stacks.config.engines_file import NamedEngine

START = datetime(2026, 11, 27, 12, tzinfo=UTC)
NOW = START + timedelta(hours=9)
SILENT = no_report("it says nothing")
LISTED = find_nodes("a", NamedEngine(engine="local:/a", region="aws:us-east-1", machine_type="p5.48xlarge"))
TOLD = Nodes(10.0, "engines.a.usd_per_node_hour", is_declared=True)
MOVE = Move("file:///a/mine-1/run", "local:/b", START, 4.0, 2**30, 0.02, "0.02 USD/GiB")


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def done(**more: object) -> JobStatus:
    """On two nodes for one hour and for half of one, within four hours."""
    found = JobStatus(
        "mine-1", "mine", "ann", "", Phase.DONE, ("n",), 2, 0, "", START, at(1), at(4),
        stretches=(RunInterval(at(1), at(2), 2), RunInterval(at(3.5), at(4), 2)),
    )  # fmt: skip
    return replace(found, **more)  # type: ignore[arg-type]  # of JobStatus, each


def said(**numbers: float) -> Reported:
    figures: dict[str, Maybe] = {**SILENT.figures}
    for name, value in numbers.items():
        figures[name] = Figure(value=value, unit=REPORTED[name], source=Source.REPORTED)
    return Reported(figures, {})


def made(
    nodes: Nodes | None = None, status: JobStatus | None = None, reported: Reported = SILENT, failures: int = 0
) -> JobRecord:
    return get_record(EngineInfo("local", "/a", nodes), status or done(), StartCounts(failures, 3), reported, NOW)


def values(record: JobRecord) -> Mapping[str, float]:
    return {name: figure.value for name, figure in record.figures.items()}


def test_what_the_engine_has_noted() -> None:
    record = made(TOLD)
    found = values(record)
    assert (found["wall_sec"], found["on_nodes_sec"], found["waiting_sec"]) == (4 * 3600, 1.5 * 3600, 2.5 * 3600)
    assert (found["node_hours"], found["starts"], found["failures"], found["interruptions"]) == (3, 2, 0, 1)
    assert (found["usd"], record.figures["usd"].source) == (30, Source.DECLARED)
    assert not record.so_far
    assert found["moves_usd"] == 0


@pytest.mark.parametrize(
    ("starts", "failures", "interruptions"),
    [(0, 0, 0), (1, 0, 0), (3, 0, 2), (2, 1, 0), (4, 4, 0), (6, 4, 2), (1, 1, 0)],
)
def test_a_start_after_no_failure_is_after_an_interruption(starts: int, failures: int, interruptions: int) -> None:
    """Three restarts: the fourth failure has none after it."""
    assert values(made(status=done(starts=starts), failures=failures))["interruptions"] == interruptions


def test_by_a_list_cost_and_energy_are_there_and_say_so() -> None:
    record = made(LISTED, reported=said(images=50_000))
    found = record.figures
    assert found["usd_per_node_hour"].source is found["usd"].source is Source.LIST_PRICE
    assert found["usd"].value == pytest.approx(3 * found["usd_per_node_hour"].value)
    assert found["usd_per_1000_images"].value == pytest.approx(found["usd"].value / 50)
    assert found["usd_per_1000_images"].source is Source.LIST_PRICE
    assert found["joules"].source is found["gco2e"].source is found["joules_per_image"].source is Source.ESTIMATED
    # Eight boards of 700 W and their host draw less than 11 kW, and more than half of that.
    assert 3 * 5_000 * 3600 < found["joules"].value < 3 * 11_000 * 3600


def test_what_the_job_has_reported_comes_before_an_estimate() -> None:
    record = made(LISTED, reported=said(joules=3_600_000.0, images=1000))
    found = record.figures
    assert (found["joules"].value, found["joules"].source) == (3_600_000, Source.REPORTED)
    assert (found["joules_per_image"].value, found["joules_per_image"].source) == (3600, Source.REPORTED)
    assert found["gco2e"].source is Source.ESTIMATED
    assert 50 < found["gco2e"].value < 1500, "one kWh, by a grid and a PUE"
    assert made(LISTED, reported=said(gco2e=7.0)).figures["gco2e"].value == 7


def test_without_a_price_and_a_machine_there_is_a_reason_and_no_zero() -> None:
    record = made()
    assert {"usd", "usd_per_node_hour", "joules", "gco2e", "images", "usd_per_1000_images"} <= record.absent.keys()
    assert "engines.yaml" in record.absent["usd_per_node_hour"]
    assert "it says nothing; no estimate either" in record.absent["joules"]
    assert record.absent["usd_per_1000_images"] == "no usd, no images"


def test_none_of_nothing_is_no_ratio() -> None:
    assert made(TOLD, reported=said(images=0)).absent["usd_per_1000_images"] == "images is 0"
    assert made(TOLD, reported=said(images=1e-320)).absent["usd_per_1000_images"] == "images is next to 0"


def test_while_it_runs_figures_go_so_far_and_none_is_divided_by_another() -> None:
    status = done(phase=Phase.RUNNING, ended_at=None, exit_code=None, stretches=(RunInterval(at(1), None, 2),))
    record = made(TOLD, status, said(images=1000, joules=5.0))
    found = values(record)
    assert record.so_far
    assert (found["wall_sec"], found["node_hours"], found["usd"]) == (9 * 3600, 16, 160)
    assert "not over" in record.absent["usd_per_1000_images"]
    assert "not over" in record.absent["joules_per_image"]


def test_where_an_engine_has_forgotten_its_nodes_all_that_follows_is_absent() -> None:
    record = made(LISTED, done(stretches=None))
    assert {"on_nodes_sec", "node_hours", "waiting_sec", "usd", "joules", "gco2e"} <= record.absent.keys()
    assert "no longer knows" in record.absent["node_hours"]
    assert "wall_sec" in record.figures
    assert {"wall_sec", "waiting_sec"} <= made(status=done(ended_at=None)).absent.keys()


def test_of_a_moved_job_no_cost_of_here_is_divided_by_work_of_everywhere() -> None:
    status = done(moves=(MOVE, replace(MOVE, sec=6.0)))
    record = made(LISTED, status, said(images=1000))
    found = values(record)
    assert (found["moves"], found["moves_sec"], found["moves_usd"]) == (2, 10, 0.04)
    assert "this engine only" in record.figures["usd"].note
    assert "this engine only" in record.figures["joules"].note
    assert "on earlier engines" in record.absent["usd_per_1000_images"]
    assert "on earlier engines" in record.absent["joules_per_image"]
    counted = made(LISTED, status, said(images=1000, joules=5000.0))
    assert counted.figures["joules_per_image"].value == 5
    unpriced = made(LISTED, done(moves=(MOVE, replace(MOVE, usd=None, why_usd="nobody has said where"))))
    assert unpriced.absent["moves_usd"] == "nobody has said where"


def test_where_failures_are_not_said_they_are_absent() -> None:
    record = get_record(EngineInfo("local", "/a", None), done(), Absent("far away"), SILENT, NOW)
    assert record.absent["failures"] == record.absent["interruptions"] == "far away"


def test_the_worst_source_is_that_of_what_is_made_of_them() -> None:
    assert worst(Source.MEASURED, Source.ESTIMATED, Source.DECLARED) is Source.ESTIMATED
    assert worst(Source.REPORTED, Source.MEASURED) is Source.REPORTED


def test_a_record_that_lacks_a_figure_is_none() -> None:
    plain = made().model_dump()
    plain["absent"].pop("usd")
    with pytest.raises(ValidationError):
        JobRecord.model_validate(plain)


AMOUNTS = st.floats(min_value=0, max_value=1e40)
MOMENTS = st.floats(min_value=0, max_value=8).map(at)
STRETCHES = st.tuples(MOMENTS, st.none() | MOMENTS, st.integers(1, 9)).map(
    lambda each: RunInterval(each[0], None if each[1] is None else max(each[0], each[1]), each[2])
)
STATUSES = st.builds(
    done,
    phase=st.sampled_from(Phase),
    starts=st.integers(0, 9),
    submitted_at=st.none() | MOMENTS,
    ended_at=st.none() | MOMENTS,
    stretches=st.none() | st.lists(STRETCHES, max_size=3).map(tuple),
    moves=st.lists(st.sampled_from([MOVE, replace(MOVE, usd=None)]), max_size=2).map(tuple),
)
NODES = st.sampled_from([None, TOLD, LISTED, Nodes(None, "no list")])
SAID = st.dictionaries(st.sampled_from([*REPORTED]), AMOUNTS).map(lambda numbers: said(**numbers))


@given(STATUSES, NODES, SAID, st.integers(0, 9))
def test_every_figure_has_a_source_or_a_reason_and_unknown_is_no_zero(
    status: JobStatus, nodes: Nodes | None, reported: Reported, failures: int
) -> None:
    record = made(nodes, status, reported, failures)
    assert {*record.figures, *record.absent} == set(FIGURES)
    assert all(record.absent.values())
    assert all(isinstance(each.source, Source) for each in record.figures.values())
    known = {name for name, each in reported.figures.items() if isinstance(each, Figure)}
    assert known <= record.figures.keys()
    for name in REPORTED.keys() - known - {"joules", "gco2e"}:
        assert name in record.absent
    if status.stretches is None:
        assert {"node_hours", "usd"} <= record.absent.keys()
        assert known >= record.figures.keys() & {"joules"}
    if nodes is None or nodes.usd_per_hour is None:
        assert not {"usd", "usd_per_node_hour", "usd_per_1000_images"} & record.figures.keys()
    if nodes is not LISTED:
        assert record.figures.keys() & {"joules", "gco2e"} == known & {"joules", "gco2e"}
    for name, parts in {"usd_per_1000_images": ("usd", "images"), "joules_per_token": ("joules", "tokens")}.items():
        if name in record.figures:
            assert record.figures[name].source is worst(*(record.figures[part].source for part in parts))
    assert JobRecord.model_validate_json(record.model_dump_json()) == record
