"""Records as rows of FOCUS: dollars, energy and emissions by session, kind of capacity and month; beside a bill they
change no sum of it.
"""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.finops.bill import focus
from gangway.finops.bill.focus import Version, exported_columns, focus_rows, missing_rows_reason, priced
from gangway.trainer.records.run_record import RunContext, RunRecord, SessionRecord
from tests.gangway.finops.bill.focus_rules import ALLOWED, COLUMNS, MANDATORY, get_columns, mandatory, problems

Sessions = Callable[..., SessionRecord]
Records = Callable[..., RunRecord]
NO_METRICS = ("Id", "Name", "Tags", "Type", "Unit", "Status", "Category", "Class", "Start", "End", "Currency")
"""Ends of the names of FOCUS's columns that are no numbers."""


def sums(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """What a spreadsheet adds up: each column of FOCUS that has numbers, whatever it is called."""
    found: Counter[str] = Counter()
    for row in rows:
        for column, value in row.items():
            if value in (None, "") or column.startswith("x_") or column.endswith(NO_METRICS):
                continue
            try:
                found[column] += float(value)  # type: ignore[assignment]  # a Counter of floats adds them up too
            except ValueError:
                continue
    return dict(found)


@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize("bill", ["aws_focus.csv", "azure_focus.csv"])
def test_beside_a_bill_every_sum_is_the_bills(bill: str, version: Version, samples: Path, run_1: RunRecord) -> None:
    with (samples / bill).open(encoding="utf-8-sig", newline="") as file:
        charged: list[dict[str, Any]] = list(csv.DictReader(file))
    ours = focus_rows(run_1, "111122223333", version)
    assert problems(exported_columns(version), ours, version) == []
    before = sums(charged)
    assert {"BilledCost", "EffectiveCost", "ContractedCost", "ListCost", "ConsumedQuantity"} <= set(before)
    assert sums([*charged, *ours]) == {**dict.fromkeys(sums(ours), 0.0), **before}
    assert sum(row["x_cost_usd"] for row in ours) == pytest.approx(run_1.cost.total_usd.value)


def test_of_an_older_version_are_the_providers_columns(run_1: RunRecord) -> None:
    (new,), (old,) = focus_rows(run_1, "1"), focus_rows(run_1, "1", Version.V1_2)
    assert set(old) == set(exported_columns(Version.V1_2))
    assert set(new) - set(old) == {"HostProviderName", "ServiceProviderName"}
    assert set(old) - set(new) == {"ProviderName", "PublisherName"}
    assert problems(exported_columns(Version.V1_2), [old]) == [
        "lacks HostProviderName",
        "lacks ServiceProviderName",
    ] + [f"{column} is not a FOCUS column" for column in ("ProviderName", "PublisherName")]
    assert problems(exported_columns(Version.V1_2), [old], Version.V1_2) == []


def test_a_row_by_hand(run_1: RunRecord) -> None:
    (row,) = focus_rows(run_1, "111122223333")
    assert problems(exported_columns(), [row]) == []
    assert tuple(row) != exported_columns()
    assert set(row) == set(exported_columns())
    assert (row["BilledCost"], row["BillingAccountId"], row["InvoiceIssuerName"]) == (0, "111122223333", "AWS")
    assert row["EffectiveCost"] == row["ListCost"] == row["PricingQuantity"] == 0, "the bill charges for them"
    assert row["x_cost_usd"] == pytest.approx(7 * 22.98)
    assert (row["x_node_hours"], row["x_usd_per_node_hour"], row["PricingCategory"]) == (7, 22.98, "Dynamic")
    assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == ("2026-10-05T10:00:00Z", "2026-10-05T13:30:00Z")
    assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == ("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z")
    assert json.loads(row["Tags"]) == {"gangway-stack": "aws-p5-spot", "gangway-run": "run-1"}
    assert (row["x_run_id"], row["x_session"], row["x_capacity"]) == ("run-1", "0", "spot")
    assert (row["x_energy_kwh"], row["x_energy_provenance"]) == (1.25, "measured")
    assert row["x_gco2e"] == 500
    assert row["x_embodied_gco2e"] == pytest.approx(7 * 8 * 575_000 / 35_040)
    assert (row["x_cost_provenance"], row["x_cost_source"]) == ("estimated", "catalogue, 2026-09-06")


def test_kinds_of_capacity_have_rows_of_their_own(get_record: Records, session_of: Sessions) -> None:
    record = get_record([session_of(1, 2, "spot", "spot", "on-demand"), session_of(3, 4, "on-demand")])
    rows = focus_rows(record, "1")
    assert [(row["x_session"], row["x_capacity"], row["PricingCategory"]) for row in rows] == [
        ("0", "spot", "Dynamic"),
        ("0", "on-demand", "Standard"),
        ("1", "on-demand", "Standard"),
    ]
    assert problems(exported_columns(), rows) == []
    assert [row["x_cost_usd"] for row in rows] == pytest.approx([45.96, 55.04, 55.04])
    (use, *_) = record.cost.uses
    block = use.model_copy(update={"capacity": "capacity-block"})
    bought = record.model_copy(update={"cost": record.cost.model_copy(update={"uses": (block, *record.cost.uses[1:])})})
    assert focus_rows(bought, "1")[0]["PricingCategory"] == "Dynamic", "a block costs what is asked on that day"
    assert [row["x_energy_kwh"] for row in rows] == pytest.approx([1.25 * 2 / 3, 1.25 / 3, 1.25])


def test_a_session_over_midnight_of_a_month_is_two_rows(get_record: Records, session_of: Sessions) -> None:
    """From 22:00 on the 31st of October to 04:00 on the 1st of November."""
    rows = focus_rows(get_record([session_of(26 * 24 + 22, 27 * 24 + 4, "spot")]), "1")
    assert [(row["ChargePeriodStart"], row["ChargePeriodEnd"]) for row in rows] == [
        ("2026-10-31T22:00:00Z", "2026-11-01T00:00:00Z"),
        ("2026-11-01T00:00:00Z", "2026-11-01T04:00:00Z"),
    ]
    assert [row["BillingPeriodStart"] for row in rows] == ["2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"]
    assert [row["x_node_hours"] for row in rows] == pytest.approx([2, 4])


@given(
    st.lists(
        st.tuples(
            st.floats(0, 900),
            st.floats(0, 900),
            st.lists(st.sampled_from(["spot", "on-demand"]), min_size=1, max_size=4),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_rows_add_up_to_the_record(
    get_record: Records, session_of: Sessions, given_sessions: list[tuple[float, float, list[str]]]
) -> None:
    sessions = [session_of(start, start + hours, *kinds) for start, hours, kinds in given_sessions]
    record = get_record(sessions)
    rows = focus_rows(record, "1")
    assert problems(exported_columns(), rows) == []
    assert sum(row["x_cost_usd"] for row in rows) == pytest.approx(record.cost.total_usd.value, abs=1e-9)
    assert sum(row["x_energy_kwh"] for row in rows) == pytest.approx(1.25 * len(sessions))
    assert sum(row["x_gco2e"] for row in rows) == pytest.approx(record.carbon.gco2e.value)
    if record.carbon.embodied_gco2e.value:
        assert sum(row["x_embodied_gco2e"] for row in rows) == pytest.approx(record.carbon.embodied_gco2e.value)
    for row in rows:
        assert row["x_cost_usd"] == pytest.approx(row["x_usd_per_node_hour"] * row["x_node_hours"])
        assert (
            row["BillingPeriodStart"] <= row["ChargePeriodStart"] <= row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
        )


def test_sessions_keep_their_energy_where_one_before_is_lost(get_record: Records, session_of: Sessions) -> None:
    """A damaged diary leaves sessions 1 and 4: the second in the record, and no fifth."""
    record = get_record([session_of(1, 2, "spot", joules=7.2e6), session_of(3, 4, "on-demand")])
    numbers = {0: 1, 1: 4}
    uses = tuple(use.model_copy(update={"session": numbers[use.session]}) for use in record.cost.uses)
    torn = record.model_copy(update={"cost": record.cost.model_copy(update={"uses": uses})})
    rows = focus_rows(torn, "1")
    assert [(row["x_session"], row["x_energy_kwh"]) for row in rows] == [("1", 2.5), ("4", 1.25)]


def test_unknown_energy_is_null(get_record: Records, session_of: Sessions) -> None:
    (row,) = focus_rows(get_record([session_of(1, 2, "spot", joules=None)]), "1")
    assert (row["x_energy_kwh"], row["x_gco2e"], row["x_energy_provenance"]) == (None, None, "absent")


def test_without_a_price_there_is_no_row(get_record: Records, session_of: Sessions) -> None:
    record = get_record([session_of(1, 3, "spot"), session_of(4, 5, "")], context=RunContext())
    assert missing_rows_reason(record).startswith("no dollars recorded (the launcher gave no price of spot nodes)")
    (first, second) = focus_rows(priced(record, 3.0), "1")
    assert (first["x_cost_usd"], second["x_cost_usd"]) == (6, 3)
    assert (first["x_cost_source"], second["x_capacity"]) == ("--usd-per-hour", None)
    assert second["ChargeDescription"].endswith("unknown capacity")
    assert missing_rows_reason(priced(record, 3.0)) == ""


def test_a_price_of_somebodys_word_replaces_none(run_1: RunRecord) -> None:
    assert focus_rows(priced(run_1, 1.0), "1") == focus_rows(run_1, "1")


def test_an_older_record_has_no_rows(run_1: RunRecord) -> None:
    older = run_1.model_copy(update={"cost": run_1.cost.model_copy(update={"uses": ()})})
    assert "recorded by an older version" in missing_rows_reason(older)


def test_the_dataset_has_the_specifications_columns() -> None:
    assert (len(MANDATORY), len(COLUMNS)) == (21, 65)
    assert {"ProviderName", "PublisherName"}.isdisjoint(COLUMNS), "taken out in 1.4"
    assert (len(mandatory(Version.V1_2)), len(get_columns(Version.V1_2))) == (21, 57)
    assert set(ALLOWED) <= COLUMNS
    assert all(set(names) & COLUMNS for names in focus.NEEDED)


def test_what_breaks_the_rules_is_told() -> None:
    row = dict.fromkeys(MANDATORY, "x") | {"ChargeCategory": "Usage", "ChargeClass": None}
    columns = [*MANDATORY, "x_run_id"]
    assert problems(columns, [row]) == []
    assert problems(columns[1:], [row]) == ["lacks BilledCost"]
    assert problems([*columns, "run_id"], [row]) == [
        "run_id is not a FOCUS column",
        "custom columns come before others",
    ]
    assert problems(columns, [{**row, "BilledCost": None}]) == ["row 1: BilledCost is null"]
    assert problems(columns, [row, {**row, "ChargeCategory": "Support"}]) == ["row 2: ChargeCategory is 'Support'"]
