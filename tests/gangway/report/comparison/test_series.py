"""Curves and fronts as numbers: bands hold their means, later lines win, and nobody on the front is beaten."""

import statistics
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.render.drawing import Drawing
from gangway.report.comparison.charts import front_drawing
from gangway.report.comparison.groups import Group, Member, Source
from gangway.report.comparison.series import (
    Spread,
    change,
    column,
    find_clear_dominator,
    find_curve,
    find_dominators,
    get_spread,
    meters_note,
    quality_points,
    watts,
)
from gangway.report.comparison.tables import Report, as_json, get_report
from gangway.report.comparison.write import ComparisonReport
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import EnergyRecord

Make = Callable[..., Member]
POINTS = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=3), st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9
)


@given(POINTS)
def test_the_front_is_who_nobody_beats_and_all_others_are_beaten_by_one_of_it(
    points: dict[str, tuple[float, float]],
) -> None:
    beaten = find_dominators(points)
    assert beaten.keys() == points.keys()
    for name, by in beaten.items():
        if by is None:
            x, y = points[name]
            assert not [other for other in points.values() if other != (x, y) and other[0] <= x and other[1] <= y]
        else:
            assert beaten[by] is None
            assert points[by] != points[name]
            assert points[by][0] <= points[name][0]
            assert points[by][1] <= points[name][1]


@given(POINTS, st.integers(0, 4))
def test_rows_are_apart_only_where_no_runs_overlap(points: dict[str, tuple[float, float]], reach: int) -> None:
    ranges = {name: ((x - reach, x + reach), (y - reach, y + reach)) for name, (x, y) in points.items()}
    beaten = find_dominators(points)
    for name in points:
        by = find_clear_dominator(name, ranges)
        further = [one for one in points.values() if all(points[name][axis] - one[axis] > 2 * reach for axis in (0, 1))]
        assert (by is not None) == bool(further)
        assert by is None or beaten[name] is not None, "who is beaten apart is beaten by means"


def test_who_is_beaten_by_chance_is_not_told_apart(member_of: Make) -> None:
    def told(dearer: float, spread: float) -> str:
        groups = tuple(
            Group(label, tuple(
                member_of(f"{label}{seed}", seed, factor=factor * (1 + (seed - 1) * spread), usd=factor + seed * spread)
                for seed in (0, 1, 2)
            ), label, "")
            for label, factor in (("a", 1.0), ("b", dearer))
        )  # fmt: skip
        drawing = front_drawing(groups, "usd")
        assert isinstance(drawing, Drawing)
        assert drawing.as_file("svg")
        return drawing.caption

    assert "Half open, behind by means, but runs overlap or are equal: b (behind a)." in told(1.02, 0.5)
    assert "Open, behind in both with every run: b (by a)." in told(2.0, 0.01)
    alone = front_drawing((group(member_of(usd=1.0)),), "usd")
    assert isinstance(alone, Drawing)
    assert "One run alone has no range, and its place may be chance: row." in alone.caption


def line(kimg: float, value: float | None, session: int = 0, **more: Any) -> dict[str, Any]:
    return {"kimg": kimg, "loss_g": value, "session": session, **more}


def group(*members: Member) -> Group:
    return Group("row", members, "local", "")


def test_images_that_were_shown_twice_count_once_and_what_is_no_number_not_at_all(member_of: Make) -> None:
    stats = (line(1, 1.0), line(2, 2.0), line(3, None), line(4, float("nan")), {"event": "resume"}, line(2, 5.0, 1))
    assert column(member_of(stats=stats), "loss_g") == [(1.0, 1.0), (2.0, 5.0)]


def test_a_curve_is_the_mean_of_runs_with_a_band_wherever_their_lines_fall(
    member_of: Make,
) -> None:
    first = member_of(stats=(line(0, 0.0), line(2, 4.0)))
    second = member_of(stats=(line(0, 2.0), line(1, 2.0), line(3, 8.0)))
    curve = find_curve(group(first, second), lambda member: column(member, "loss_g"))
    assert curve is not None
    assert curve.kimg == (0, 1, 2, 3)
    assert curve.low == (0, 2, 4, 8)
    assert curve.high == (2, 2, 5, 8)
    assert curve.mean == (1, 2, 4.5, 8)
    assert find_curve(group(member_of(stats=())), lambda member: column(member, "loss_g")) is None


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(-100, 100)), min_size=1, max_size=600))
def test_a_long_curve_is_thinned_and_keeps_its_ends(pairs: list[tuple[int, float]]) -> None:
    points = sorted({float(kimg): value for kimg, value in pairs}.items())
    curve = find_curve(Group("row", (None,), "", ""), lambda _: points)  # type: ignore[arg-type]  # the points are given
    assert curve is not None
    assert len(curve.kimg) == min(len(points), 240)
    assert (curve.kimg[0], curve.kimg[-1]) == (points[0][0], points[-1][0])
    assert all(low <= mean <= high for low, mean, high in zip(curve.low, curve.mean, curve.high, strict=True))


def test_power_is_energy_over_time_within_each_session(member_of: Make) -> None:
    stats = (
        line(1, 1, energy_joules=10.0, wall_sec=2.0),
        line(2, 1, energy_joules=30.0, wall_sec=4.0),
        line(3, 1, energy_joules=None, wall_sec=5.0),
        line(4, 1, 1, energy_joules=7.0, wall_sec=1.0),
    )
    assert watts(member_of(stats=stats)) == [(1.0, 5.0), (2.0, 10.0), (4.0, 7.0)]


def test_quality_comes_from_the_record(member_of: Make) -> None:
    member = member_of()
    points = quality_points(member, "FD-ENL0")
    assert [kimg for kimg, _ in points] == [2.048, 4.032, 6.016]
    assert points[-1][1] == pytest.approx(715.286, abs=0.01)
    assert quality_points(member, "FID") == []


RAPL = "RAPL package counters, {} socket(s), whole node"
NVML = "NVML total energy counter, whole board"
CPU_SECONDS = "model: CPU seconds of the training processes x 3.5 W per busy vCPU (assumed: somebody); no RAPL meter"
HOST = "model: time x {} W (assumed: a catalogue) of the host; no RAPL meter can be read here"
NOTE = "metered in different ways, so not to be compared: CPU by {} ({}) and {} ({})"
ABSENT = Quantity.absent("J", "not told")


@pytest.fixture
def metered(member_of: Make) -> Make:
    """A run whose devices were metered so, 3600 J each."""

    def make(name: str, ways: dict[str, str], **more: Any) -> Member:
        devices = {device: Quantity.measured(3600, "J", source) for device, source in ways.items()}
        whole = Quantity.measured(3600.0 * len(ways), "J", "; ".join(ways.values()))
        energy = EnergyRecord(devices=devices, it_joules=whole, pue=ABSENT, facility_joules=ABSENT)
        return member_of(name, energy=energy, **more)

    return make


def report(*members: Member) -> Report:
    return get_report(Source(members, ()), None)


def test_rows_with_other_meters_are_marked_wherever_they_stand(metered: Make) -> None:
    made = report(
        metered("a", {"node0/cpu": CPU_SECONDS}, stack="one"), metered("b", {"node0/cpu": RAPL.format(2)}, stack="two")
    )
    note = NOTE.format("CPU seconds x an assumed power", "one", "RAPL counters", "two")
    assert made.table.notes == (f"Energy and carbon: {note}.",)
    ours = [row for row in made.table.rows if row.kind == "ours"]
    assert [row.cells["it_wh"].value for row in ours] == [1.0, 1.0]
    assert all(note in row.cells["it_wh"].note for row in ours)
    assert not any(note in cell.note for row in ours for key, cell in row.cells.items() if key != "it_wh")
    data = as_json(made)
    assert data["notes"] == [f"Energy and carbon: {note}."]
    assert note in data["rows"][0]["cells"]["it_wh"]["note"]
    assert f"- Mind: Energy and carbon: {note}." in ComparisonReport(made).markdown()
    assert front_drawing(made.groups, "it_wh") == f"Energy against time: {note}."


@pytest.mark.slow
def test_the_page_says_it_below_the_table_and_at_each_number(metered: Make, tmp_path: Any) -> None:
    made = report(
        metered("a", {"node0/cpu": CPU_SECONDS}, stack="one"), metered("b", {"node0/cpu": HOST.format(9)}, stack="two")
    )
    (sentence,) = made.table.notes
    html = ComparisonReport(made).write_page(tmp_path).read_text()
    assert f"<p><strong>Mind:</strong> {sentence.replace(chr(39), '&#39;')}</p>" in html
    told = [part for part in html.split('data-told="')[1:] if "metered in different ways" in part.split('"')[0]]
    assert len(told) == 4, "two rows of the table and two of the list of runs"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"node0/cpu": RAPL.format(1)}, {"node0/cpu": RAPL.format(2), "node1/cpu": RAPL.format(2)}),
        ({"node0/cpu": HOST.format(100)}, {"node0/cpu": HOST.format(700)}),
        ({"node0/cpu": RAPL.format(1)}, {"node0/cpu": RAPL.format(1), "node0/gpu0": NVML, "node0/gpu11": NVML}),
        ({"node0/cpu": "a meter of tomorrow"}, {"node0/cpu": "a meter of tomorrow"}),
    ],
)
def test_other_sizes_and_other_devices_are_no_other_meters(
    metered: Make, one: dict[str, str], other: dict[str, str]
) -> None:
    made = report(metered("a", one, stack="one"), metered("b", other, stack="two"))
    assert made.table.notes == ()
    assert not isinstance(front_drawing(made.groups, "it_wh"), str)


def test_an_unknown_meter_is_told_in_its_own_words(metered: Make) -> None:
    runs = (metered("a", {"node0/gpu0": NVML}, stack="x"), metered("b", {"node0/gpu0": "a clamp"}, stack="y"))
    assert meters_note(report(*runs).groups).endswith("GPU by NVML counters (x) and a clamp (y)")


def test_one_rows_runs_with_other_meters_have_no_mean(metered: Make) -> None:
    made = report(metered("a", {"node0/cpu": CPU_SECONDS}), metered("b", {"node0/cpu": RAPL.format(1)}, seed=1))
    cell = made.table.rows[0].cells["it_wh"]
    assert (cell.value, cell.provenance, cell.values) == (None, "absent", (("a", 1.0), ("b", 1.0)))
    assert cell.source.startswith("metered in different ways by these runs, so not to be put together: CPU by CPU seco")
    assert made.table.rows[0].cells["total_h"].value is not None


def test_no_change_is_told_against_a_control_with_another_meter(metered: Make) -> None:
    suite = {"suite": "s", "paper": "P3"}
    ways = {"c": CPU_SECONDS, "t": CPU_SECONDS, "u": RAPL.format(1)}
    runs = [metered(arm, {"node0/cpu": way}, arm=arm, **suite) for arm, way in ways.items()]
    alike, other = [row.cells for row in report(*runs).table.rows if row.kind == "change"]
    assert alike["it_wh"].value == 0
    assert (other["it_wh"].value, other["total_h"].value) == (None, 0)
    assert "RAPL counters (u)" in other["it_wh"].source


AMOUNTS = st.floats(min_value=-1e9, max_value=1e9, allow_nan=False)
FIGURES = st.lists(st.one_of(st.none(), AMOUNTS), min_size=1, max_size=12)


def figure(value: float | None, provenance: str = "measured") -> Quantity:
    if value is None:
        return Quantity.absent("h", "no meter")
    return Quantity.model_validate(
        {"value": value, "unit": "h", "provenance": provenance, "source": f"a {provenance} one"}
    )


def named(values: list[float | None]) -> dict[str, Quantity]:
    return {f"run-{place}": figure(value) for place, value in enumerate(values)}


@given(FIGURES)
def test_a_mean_lies_between_its_values_and_what_is_absent_is_counted_out(values: list[float | None]) -> None:
    spread = get_spread(named(values))
    known = [value for value in values if value is not None]
    assert spread.known == tuple(known)
    assert len(spread.values) == len(values)
    assert (spread.value is None) == (not known) == (spread.provenance == "absent")
    if spread.value is not None and spread.low is not None and spread.high is not None:
        assert min(known) == spread.low <= spread.value <= spread.high == max(known)
        assert spread.value == pytest.approx(statistics.fmean(known))
        assert (f"{len(values) - len(known)} of {len(values)} runs" in spread.note) == (len(known) < len(values))


@given(st.lists(AMOUNTS, min_size=3, max_size=12))
def test_three_values_have_a_sample_deviation_and_their_order_does_not_count(values: list[float]) -> None:
    spread, turned = get_spread(named([*values])), get_spread(named([*reversed(values)]))
    assert spread.std == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-6)
    assert (turned.value, turned.std, turned.low, turned.high) == (spread.value, spread.std, spread.low, spread.high)


def test_one_and_two_values_have_a_range_and_no_deviation() -> None:
    assert get_spread(named([4.0])).std is None
    two = get_spread(named([4.0, 5.0]))
    assert (two.value, two.low, two.high, two.std) == (4.5, 4.0, 5.0, None)


@pytest.mark.parametrize(
    ("provenances", "weakest"),
    [
        (("measured", "measured"), "measured"),
        (("measured", "list-price"), "list-price"),
        (("estimated", "measured"), "estimated"),
        (("assumed", "estimated"), "assumed"),
    ],
)
def test_a_mean_is_as_good_as_its_weakest_value(provenances: tuple[str, str], weakest: str) -> None:
    spread = get_spread({name: figure(1.0, name) for name in provenances})
    assert spread.provenance == weakest
    assert all(f"a {name} one" in spread.source for name in provenances)


def test_many_sources_are_told_as_a_few_and_a_number() -> None:
    given_figures = {f"r{n}": Quantity.measured(n, "h", f"clock {n}") for n in range(5)}
    assert get_spread(given_figures).source == "clock 0; clock 1; clock 2; and 2 more"


def of(values: dict[str, float]) -> Spread:
    return get_spread({name: Quantity.measured(value, "h", "clock") for name, value in values.items()})


def test_a_change_compares_each_seed_with_itself() -> None:
    seeds = {"c0": 0, "c1": 1, "t0": 0, "t1": 1}
    told = change(of({"c0": 10, "c1": 20}), of({"t0": 5, "t1": 5}), seeds)
    assert (told.value, told.low, told.high) == pytest.approx((100 * (0.125**0.5 - 1), -75.0, -50.0))
    assert dict(told.values) == pytest.approx({"seed 0": -50.0, "seed 1": -75.0})


def test_with_other_seeds_means_are_compared_and_that_is_said() -> None:
    told = change(of({"c0": 10, "c1": 20}), of({"t0": 30}), {"c0": 0, "c1": 1, "t0": 7})
    assert told.value == pytest.approx(100.0)
    assert told.values == ()
    assert told.source == "mean against mean: no seed is in both rows"
    twice = change(of({"a": 10, "b": 20}), of({"c": 30, "d": 30}), {"a": 0, "b": 0, "c": 0, "d": 0})
    assert twice.source == "mean against mean: a seed stands in a row more than once"


def test_a_seed_without_a_value_is_left_out_of_both_sides() -> None:
    seeds = {"c0": 0, "c1": 1, "c2": 2, "t0": 0, "t1": 1, "t2": 2}
    control = get_spread({"c0": figure(10), "c1": figure(10), "c2": figure(100)})
    told = change(control, get_spread({"t0": figure(5), "t1": figure(5), "t2": figure(None)}), seeds)
    assert told.value == pytest.approx(-50.0)
    assert dict(told.values) == pytest.approx({"seed 0": -50.0, "seed 1": -50.0})
    assert told.note == "seed 2 left out: not in both rows with a value"


@given(AMOUNTS, AMOUNTS)
def test_a_signed_quantity_changes_by_its_difference(before: float, after: float) -> None:
    told = change(of({"c": before}), of({"t": after}), {"c": 0, "t": 0}, signed=True)
    assert told.value == pytest.approx(after - before, abs=1e-9 * max(abs(before), abs(after)))
    assert told.unit == "h"
    assert told.source.startswith("difference, each seed's run")


@pytest.mark.parametrize(("before", "after"), [(None, 1.0), (1.0, None)])
def test_a_change_of_nothing_or_to_nothing_is_absent(before: float | None, after: float | None) -> None:
    told = change(get_spread({"c": figure(before)}), get_spread({"t": figure(after)}), {"c": 0, "t": 0})
    assert (told.value, told.provenance) == (None, "absent")
    assert "no meter" in told.source


@pytest.mark.parametrize(("before", "after"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_a_change_from_or_to_zero_is_a_difference(before: float, after: float) -> None:
    told = change(of({"c": before, "d": 2.0}), of({"t": after, "u": 3.0}), {"c": 0, "d": 1, "t": 0, "u": 1})
    assert told.value == pytest.approx((after - before + 1) / 2)
    assert told.unit == "h"
    assert dict(told.values) == pytest.approx({"seed 0": after - before, "seed 1": 1.0})


@given(st.floats(min_value=1e-3, max_value=1e6), st.floats(min_value=1e-3, max_value=1e6))
def test_a_change_applied_to_the_control_gives_the_treatment(before: float, after: float) -> None:
    told = change(of({"c": before}), of({"t": after}), {"c": 3, "t": 3})
    assert told.value is not None
    assert before * (1 + told.value / 100) == pytest.approx(after)
