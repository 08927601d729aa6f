"""Deliveries of bills: three of one month, the last one restated, in every format; only the newest counts, whole."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.finops.bill.reader import Bills
from tests.gangway.finops.bill.delivered import (
    FIRST,
    LAYOUTS,
    OVERWRITE,
    SECOND,
    THIRD,
    TIMES,
    Layout,
    azure_ea,
    bigquery,
    cur2,
    focus,
    write_table,
)

pytest.importorskip("pyarrow")
EVERY = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda each: each.name)
NAMED = {layout.name: layout for layout in (*LAYOUTS, OVERWRITE)}
BOTH = "covers the same billing period as .*; which of the two is newer is unknown"


def total(*places: Path) -> float:
    return sum(charge.billed_cost for charge in Bills(places).charges())


@EVERY
def test_three_deliveries_with_a_restatement(layout: Layout, tmp_path: Path) -> None:
    for number, (amounts, parts, usd) in enumerate([(FIRST, 1, 20.0), (SECOND, 2, 27.0), (THIRD, 1, 25.5)]):
        run = layout.deliver(tmp_path, number, amounts, parts)
        assert total(tmp_path) == pytest.approx(usd)
        assert total(run) == pytest.approx(usd), "a run's folder alone"
    bills = Bills([tmp_path])
    charges = list(bills.charges())
    assert {charge.billing_period for charge in charges} == {"2026-10-01"}
    assert all("gangway_stack" in charge.tags for charge in charges)
    assert sum(charge.effective_cost for charge in charges) == pytest.approx(25.5)
    assert bills.num_rows == 5
    assert any("skipped" in note for note in bills.notes())


@pytest.mark.slow
@given(data=st.data())
def test_content_again_in_another_order_or_split_has_the_total_of_the_newest(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    layout = data.draw(st.sampled_from(LAYOUTS))
    cents = st.integers(-5000, 5000).map(lambda each: each / 100)
    folder, newest = tmp_path_factory.mktemp("bills"), [0.0]
    amounts = data.draw(st.lists(cents, min_size=1, max_size=6))
    for number in data.draw(st.permutations(range(3))):
        again = data.draw(st.permutations(amounts))
        restated = again if data.draw(st.booleans()) else [*again[1:], data.draw(cents)]
        layout.deliver(folder, number, restated, data.draw(st.integers(1, 3)))
        newest = restated if number == 2 else newest
    places = [folder, folder] if data.draw(st.booleans()) else [folder]
    assert total(*places) == pytest.approx(sum(newest), abs=1e-9)
    shutil.rmtree(folder)


def test_overwritten_parts(tmp_path: Path) -> None:
    """A smaller delivery needs fewer parts; AWS empties the others, and its manifest no longer names them."""
    for number, (amounts, parts, usd) in enumerate([(FIRST, 1, 20.0), (SECOND, 3, 27.0), (THIRD, 2, 25.5)]):
        month = OVERWRITE.deliver(tmp_path, number, amounts, parts)
        if number == 2:
            (month / "cur-00003.csv.gz").write_bytes(b"")
        for place in (tmp_path, month):
            assert total(place) == pytest.approx(usd)


@EVERY
def test_without_manifests_a_run_folder_tells_its_time(layout: Layout, tmp_path: Path) -> None:
    for number, amounts in enumerate((FIRST, SECOND, THIRD)):
        layout.deliver(tmp_path, number, amounts, 2)
    for manifest in tmp_path.rglob("*anifest.json"):
        manifest.unlink()
    assert total(tmp_path) == pytest.approx(25.5)


@EVERY
def test_two_without_a_mark_are_refused_by_name(layout: Layout, tmp_path: Path) -> None:
    for name, amounts in (("old", FIRST), ("new", SECOND)):
        write_table(tmp_path / name / f"bill{layout.suffix}", layout.rows(amounts), [*layout.rows([0])[0]])
    for places in ([tmp_path], [tmp_path / "old", tmp_path / "new"]):
        with pytest.raises(InputError, match=BOTH) as caught:
            total(*places)
        for name in ("old", "new"):
            assert str(tmp_path / name / f"bill{layout.suffix}") in str(caught.value)
    assert total(tmp_path / "new") == 27


def test_overwritten_months_copied_to_two_places_are_refused(tmp_path: Path) -> None:
    for number, name in enumerate(("monday", "tuesday")):
        OVERWRITE.deliver(tmp_path / name, number, FIRST)
    with pytest.raises(InputError, match=BOTH):
        total(tmp_path)


def test_azures_older_layout_has_a_file_a_day_and_no_mark(tmp_path: Path) -> None:
    """EXPORT/RANGE/EXPORT_GUID.csv, each with all of the month to date."""
    for guid in ("b8a1", "1c2f"):
        name = tmp_path / "daily" / "20261001-20261031" / f"daily_{guid}.csv"
        write_table(name, azure_ea(FIRST), [*azure_ea([0])[0]])
    with pytest.raises(InputError, match=rf"daily_b8a1.csv: {BOTH}|daily_1c2f.csv: {BOTH}"):
        total(tmp_path)


def test_other_months_accounts_and_subscriptions_are_added(tmp_path: Path) -> None:
    columns = [*focus("AWS", "1.0")([0])[0]]
    for name, change in {
        "a": {},
        "b": {"BillingPeriodStart": "2026-11-01T00:00:00Z"},
        "c": {"BillingAccountId": "9"},
        "d": {"SubAccountId": "8"},
        "e": {"ProviderName": "Microsoft"},
    }.items():
        rows = [{**row, **change} for row in focus("AWS", "1.0")(FIRST)]
        write_table(tmp_path / f"{name}.csv", rows, columns)
    assert total(tmp_path) == 100


def test_a_runs_days_are_added_where_they_do_not_meet(tmp_path: Path) -> None:
    """Azure's exports of a day or a week each; one that meets a part of another is refused."""

    def deliver(days: str, hour: str, amount: float) -> None:
        run = tmp_path / "weekly" / days / f"202611{hour}" / f"00000000-0000-0000-0000-000000{hour}"
        write_table(run / "part_0_0001.csv", azure_ea([amount]), [*azure_ea([0])[0]])

    deliver("20261001-20261007", "080300", 1.0)
    deliver("20261008-20261014", "150300", 2.0)
    assert total(tmp_path) == 3
    deliver("20261008-20261014", "160300", 5.0)
    assert total(tmp_path) == 6
    deliver("20261014-20261020", "220300", 7.0)
    with pytest.raises(InputError, match=BOTH):
        total(tmp_path)
    deliver("20261001-20261031", "300300", 11.0)
    assert total(tmp_path) == 11


def test_parts_of_googles_table_are_no_deliveries(tmp_path: Path) -> None:
    """An extract of one day's rows does not replace that of the day before, and is not added to it in silence."""
    layout = NAMED["Google BigQuery, JSON lines"]
    for number, day in enumerate(("06", "07")):
        rows = [{**row, "export_time": f"2026-10-{day} 03:00:00 UTC"} for row in bigquery(FIRST)]
        write_table(tmp_path / TIMES[number] / "bill-000000000000.json", rows, [*layout.rows([0])[0]])
    with pytest.raises(InputError, match="but lacks some of its rows, like an incomplete table"):
        total(tmp_path)


def test_a_delivery_without_one_of_its_parts_is_refused(tmp_path: Path) -> None:
    azure = NAMED["Azure actual cost, EA"]
    azure.deliver(tmp_path, 0, FIRST, 2)
    newest = azure.deliver(tmp_path, 1, SECOND, 2)
    (newest / "part_1_0001.csv").unlink()
    for place in (tmp_path, newest / "part_0_0001.csv"):
        with pytest.raises(InputError, match=r"lacks files of its manifest(.|\n)*part_1_0001"):
            total(place)
    shutil.rmtree(newest)
    assert total(tmp_path) == 20, "what is older is whole"


def test_a_newer_run_without_its_manifest_is_refused(tmp_path: Path) -> None:
    """Exports write the manifest last: the run goes on, or its download was cut short."""
    aws = NAMED["CUR 2.0, create new"]
    aws.deliver(tmp_path, 0, FIRST)
    kept = shutil.copytree(tmp_path / "cur" / "metadata", tmp_path / "kept")
    aws.deliver(tmp_path, 1, SECOND)
    shutil.rmtree(tmp_path / "cur" / "metadata")
    kept.rename(tmp_path / "cur" / "metadata")
    with pytest.raises(InputError, match=BOTH):
        total(tmp_path)


def test_data_that_was_not_downloaded_is_not_missed(tmp_path: Path) -> None:
    """Manifests stay where the data of an older run, or of another month, has been deleted."""
    aws = NAMED["CUR 2.0, create new"]
    shutil.rmtree(aws.deliver(tmp_path, 0, FIRST))
    aws.deliver(tmp_path, 2, THIRD)
    metadata = tmp_path / "cur" / "metadata"
    text = (metadata / "BILLING_PERIOD=2026-10" / "cur-Manifest.json").read_text()
    (metadata / "BILLING_PERIOD=2026-09").mkdir()
    (metadata / "BILLING_PERIOD=2026-09" / "cur-Manifest.json").write_text(text.replace("2026-10", "2026-09"))
    assert total(tmp_path) == 25.5


def test_a_newest_delivery_without_rows_counts(tmp_path: Path) -> None:
    layout = NAMED["AWS FOCUS 1.2"]
    layout.deliver(tmp_path, 0, FIRST)
    layout.deliver(tmp_path, 1, ())
    assert total(tmp_path) == 0


@pytest.mark.parametrize("dataset", ["AmortizedCost", "PriceSheet", "ReservationDetails"])
def test_azures_other_exports_are_named(dataset: str, tmp_path: Path) -> None:
    run = NAMED["Azure actual cost, EA"].deliver(tmp_path, 0, FIRST)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["exportConfig"]["type"] = dataset
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=f"is Azure's export of {dataset}, not a bill"):
        total(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"ChargeType": "UnusedReservation"},
        {"ChargeType": "UnusedSavingsPlan"},
        {"PricingModel": "Reservation"},
        {"PricingModel": "SavingsPlan"},
    ],
)
def test_amortized_cost_is_known_by_its_rows(change: dict[str, str], tmp_path: Path) -> None:
    rows = [{**row, **change} for row in azure_ea([0.5])]
    write_table(tmp_path / "bill.csv", rows, [*rows[0]])
    with pytest.raises(InputError, match="row 1: chargeType: is amortized cost"):
        total(tmp_path)


def test_days_with_the_day_first_are_no_months(tmp_path: Path) -> None:
    rows = [{**row, "Date": "05/10/2026", "BillingPeriodEndDate": "31/10/2026"} for row in azure_ea([0.5])]
    write_table(tmp_path / "bill.csv", rows, [*rows[0]])
    with pytest.raises(InputError, match="billingperiodenddate: cannot be read"):
        total(tmp_path)


def _without(key: str) -> Callable[[str], str]:
    return lambda text: json.dumps({each: value for each, value in json.loads(text).items() if each != key})


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("CUR 2.0, create new", lambda text: text[:-20], "a damaged manifest: not JSON"),
        ("CUR 2.0, create new", _without("executionId"), "executionId: a damaged manifest: missing"),
        ("CUR 2.0, create new", lambda text: text.replace("prefix/cur/data", "../../data"), "names a file outside"),
        ("Azure actual cost, EA", _without("blobs"), "blobs: a damaged manifest: missing"),
        ("Azure actual cost, EA", lambda text: text.replace(TIMES[0][:10], "soon"), "runInfo.*: a damaged manifest"),
    ],
)
def test_a_damaged_manifest_is_named(name: str, damage: Callable[[str], str], message: str, tmp_path: Path) -> None:
    NAMED[name].deliver(tmp_path, 0, FIRST)
    for manifest in tmp_path.rglob("*anifest.json"):
        manifest.write_text(damage(manifest.read_text()))
    with pytest.raises(InputError, match=message):
        total(tmp_path)


def test_a_manifest_of_something_else_is_passed_over(tmp_path: Path) -> None:
    write_table(tmp_path / "bill.csv", cur2(FIRST), [*cur2([0])[0]])
    (tmp_path / "cur-RedshiftManifest.json").write_text('{"entries": []}')
    assert total(tmp_path) == 20


def test_the_order_of_places_changes_nothing(tmp_path: Path) -> None:
    layout = NAMED["Azure FOCUS 1.2"]
    runs = [layout.deliver(tmp_path, number, amounts) for number, amounts in enumerate((FIRST, SECOND, THIRD))]
    for seed in range(6):
        places = random.Random(seed).sample(runs, 3)
        assert total(*places) == 25.5
        assert total(*(place / "part_0_0001.csv" for place in places)) == 25.5
