"""Energy that was metered in different ways: marked over rows, and in no mean, no change and no front."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.report.comparison.charts import front_drawing
from gangway.report.comparison.groups import Member, Source
from gangway.report.comparison.series import meters_note
from gangway.report.comparison.tables import Report, as_json, get_report
from gangway.report.comparison.write import ComparisonReport
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import EnergyRecord

Make = Callable[..., Member]
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
