"""Records as rows of FOCUS 1.4: dollars, energy and emissions by session, kind of capacity and month."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.finops.bill.focus import EXPORTED_COLUMNS, focus_rows, priced, problems, without_rows
from trainer.records.run_record import RunContext, RunRecord, SessionRecord

Sessions = Callable[..., SessionRecord]
Records = Callable[..., RunRecord]


def test_a_row_by_hand(run_1: RunRecord) -> None:
    (row,) = focus_rows(run_1, "111122223333")
    assert problems(EXPORTED_COLUMNS, [row]) == []
    assert tuple(row) != EXPORTED_COLUMNS
    assert set(row) == set(EXPORTED_COLUMNS)
    assert (row["BilledCost"], row["BillingAccountId"], row["InvoiceIssuerName"]) == (0, "111122223333", "AWS")
    assert row["EffectiveCost"] == row["ListCost"] == pytest.approx(7 * 22.98)
    assert (row["PricingQuantity"], row["ListUnitPrice"], row["PricingCategory"]) == (7, 22.98, "Dynamic")
    assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == ("2026-10-05T10:00:00Z", "2026-10-05T13:30:00Z")
    assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == ("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z")
    assert json.loads(row["Tags"]) == {"gangway-stack": "aws-p5-spot", "gangway-run": "run-1"}
    assert (row["x_run_id"], row["x_session"], row["x_capacity"]) == ("run-1", "0", "spot")
    assert (row["x_energy_kwh"], row["x_energy_provenance"]) == (1.25, "measured")
    assert row["x_gco2e"] == 500
    assert row["x_embodied_gco2e"] == pytest.approx(7 * 8 * 575_000 / 35_040)
    assert (row["x_cost_provenance"], row["x_cost_source"]) == ("estimated", "catalogue, 2026-09-06")


def test_kinds_of_capacity_have_rows_of_their_own(record_of: Records, session_of: Sessions) -> None:
    record = record_of([session_of(1, 2, "spot", "spot", "on-demand"), session_of(3, 4, "on-demand")])
    rows = focus_rows(record, "1")
    assert [(row["x_session"], row["x_capacity"], row["PricingCategory"]) for row in rows] == [
        ("0", "spot", "Dynamic"),
        ("0", "on-demand", "Standard"),
        ("1", "on-demand", "Standard"),
    ]
    assert [row["EffectiveCost"] for row in rows] == pytest.approx([45.96, 55.04, 55.04])
    (use, *_) = record.cost.uses
    block = use.model_copy(update={"capacity": "capacity-block"})
    bought = record.model_copy(update={"cost": record.cost.model_copy(update={"uses": (block, *record.cost.uses[1:])})})
    assert focus_rows(bought, "1")[0]["PricingCategory"] == "Dynamic", "a block costs what is asked on that day"
    assert [row["x_energy_kwh"] for row in rows] == pytest.approx([1.25 * 2 / 3, 1.25 / 3, 1.25])


def test_a_session_over_midnight_of_a_month_is_two_rows(record_of: Records, session_of: Sessions) -> None:
    """From 22:00 on the 31st of October to 04:00 on the 1st of November."""
    rows = focus_rows(record_of([session_of(26 * 24 + 22, 27 * 24 + 4, "spot")]), "1")
    assert [(row["ChargePeriodStart"], row["ChargePeriodEnd"]) for row in rows] == [
        ("2026-10-31T22:00:00Z", "2026-11-01T00:00:00Z"),
        ("2026-11-01T00:00:00Z", "2026-11-01T04:00:00Z"),
    ]
    assert [row["BillingPeriodStart"] for row in rows] == ["2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"]
    assert [row["ConsumedQuantity"] for row in rows] == pytest.approx([2, 4])


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
    record_of: Records, session_of: Sessions, given_sessions: list[tuple[float, float, list[str]]]
) -> None:
    sessions = [session_of(start, start + hours, *kinds) for start, hours, kinds in given_sessions]
    record = record_of(sessions)
    rows = focus_rows(record, "1")
    assert problems(EXPORTED_COLUMNS, rows) == []
    assert sum(row["EffectiveCost"] for row in rows) == pytest.approx(record.cost.total_usd.value, abs=1e-9)
    assert sum(row["x_energy_kwh"] for row in rows) == pytest.approx(1.25 * len(sessions))
    assert sum(row["x_gco2e"] for row in rows) == pytest.approx(record.carbon.gco2e.value)
    if record.carbon.embodied_gco2e.value:
        assert sum(row["x_embodied_gco2e"] for row in rows) == pytest.approx(record.carbon.embodied_gco2e.value)
    for row in rows:
        assert row["ListCost"] == pytest.approx(row["ListUnitPrice"] * row["PricingQuantity"])
        assert (
            row["BillingPeriodStart"] <= row["ChargePeriodStart"] <= row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
        )


def test_sessions_keep_their_energy_where_one_before_is_lost(record_of: Records, session_of: Sessions) -> None:
    """A damaged diary leaves sessions 1 and 4: the second in the record, and no fifth."""
    record = record_of([session_of(1, 2, "spot", joules=7.2e6), session_of(3, 4, "on-demand")])
    numbers = {0: 1, 1: 4}
    uses = tuple(use.model_copy(update={"session": numbers[use.session]}) for use in record.cost.uses)
    torn = record.model_copy(update={"cost": record.cost.model_copy(update={"uses": uses})})
    rows = focus_rows(torn, "1")
    assert [(row["x_session"], row["x_energy_kwh"]) for row in rows] == [("1", 2.5), ("4", 1.25)]


def test_unknown_energy_is_null(record_of: Records, session_of: Sessions) -> None:
    (row,) = focus_rows(record_of([session_of(1, 2, "spot", joules=None)]), "1")
    assert (row["x_energy_kwh"], row["x_gco2e"], row["x_energy_provenance"]) == (None, None, "absent")


def test_without_a_price_there_is_no_row(record_of: Records, session_of: Sessions) -> None:
    record = record_of([session_of(1, 3, "spot"), session_of(4, 5, "")], context=RunContext())
    assert without_rows(record).startswith("no dollars recorded (the launcher gave no price of spot nodes)")
    (first, second) = focus_rows(priced(record, 3.0), "1")
    assert (first["EffectiveCost"], second["EffectiveCost"]) == (6, 3)
    assert (first["x_cost_source"], second["x_capacity"]) == ("--usd-per-hour", None)
    assert second["ChargeDescription"].endswith("capacity not told")
    assert without_rows(priced(record, 3.0)) == ""


def test_a_price_of_somebodys_word_replaces_none(run_1: RunRecord) -> None:
    assert focus_rows(priced(run_1, 1.0), "1") == focus_rows(run_1, "1")


def test_an_older_record_has_no_rows(run_1: RunRecord) -> None:
    older = run_1.model_copy(update={"cost": run_1.cost.model_copy(update={"uses": ()})})
    assert "recorded by an older version" in without_rows(older)
