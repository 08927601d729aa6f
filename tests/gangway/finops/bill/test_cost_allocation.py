"""Where each charge of a bill belongs; nothing is lost and nothing counts twice."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.finops.bill.charge import Charge
from gangway.finops.bill.cost_allocation import CostAllocation, Span, Window, billed

DAY = datetime(2026, 10, 5, tzinfo=UTC)
Make = Callable[..., Charge]


def window(*spans: tuple[float, float, int], run_id: str = "run-1", stack: str = "aws-p5-spot") -> Window:
    hours = (Span(DAY + timedelta(hours=start), DAY + timedelta(hours=end), nodes) for start, end, nodes in spans)
    return Window(run_id, "aws", stack, tuple(hours))


def filled(windows: Sequence[Window], charges: Sequence[Charge], **options: Any) -> CostAllocation:
    ledger = CostAllocation(windows, **options)
    for charge in charges:
        ledger.add(charge)
    return ledger


def test_a_charge_belongs_to_the_run_under_way(charge_of: Make) -> None:
    charges = [charge_of(hour, hour + 1, 10) for hour in range(8, 16)]
    ledger = filled([window((10, 13.5, 2))], charges)
    assert ledger.runs["run-1"].usd == 40, "the fourth hour was begun, and is billed"
    assert ledger.unexplained["aws", "aws-p5-spot"].usd == 40
    assert (ledger.untagged, ledger.total.usd) == ({}, 80)


def test_between_two_sessions_nothing_is_under_way(charge_of: Make) -> None:
    charges = [charge_of(hour, hour + 1, 10) for hour in (10, 11, 12)]
    ledger = filled([window((10, 11, 2), (12, 13, 1))], charges)
    assert (ledger.runs["run-1"].usd, ledger.unexplained["aws", "aws-p5-spot"].usd) == (20, 10)


def test_runs_of_one_stack_share_by_their_node_hours(charge_of: Make) -> None:
    """A day's charge, as Azure bills: two nodes for an hour, one node for four."""
    windows = [window((1, 2, 2)), window((10, 14, 1), run_id="run-2")]
    ledger = filled(windows, [charge_of(0, 24, 60)])
    assert (ledger.runs["run-1"].usd, ledger.runs["run-2"].usd) == (20, 40)
    assert ledger.runs["run-2"].longest_sec == 86_400


def test_a_run_tag_decides_alone(charge_of: Make) -> None:
    windows = [window((10, 12, 2)), window((1, 2, 2), run_id="Run.2")]
    tags = {"gangway_stack": "aws-p5-spot", "gangway_run": "run-2"}
    unknown = {**tags, "gangway_run": "run-9"}
    shared = {**tags, "gangway_run": "shared"}
    ledger = filled(windows, [charge_of(10, 11, usd, tags=t) for usd, t in ((1, tags), (2, unknown), (4, shared))])
    assert (ledger.runs["Run.2"].usd, ledger.unexplained["aws", "aws-p5-spot"].usd, ledger.runs["run-1"].usd) == (
        1,
        2,
        4,
    )


def test_labels_of_google_are_in_lower_case(charge_of: Make) -> None:
    ours = Window("r", "gcp", "My_Stack.1", (Span(DAY, DAY + timedelta(hours=1), 1),))
    charge = charge_of(0, 1, 3, "my-stack-1", service_provider_name="gcp")
    assert filled([ours], [charge]).runs["r"].usd == 3


def test_one_name_on_two_clouds_is_two_stacks(charge_of: Make) -> None:
    ledger = filled([window((10, 12, 2))], [charge_of(10, 11, 5, service_provider_name="azure")])
    assert ledger.runs["run-1"].num_charges == 0
    assert ledger.unexplained["azure", "aws-p5-spot"].usd == 5


def test_credits_refunds_and_taxes_go_where_their_tags_say(charge_of: Make) -> None:
    charges = [
        charge_of(10, 11, 30),
        charge_of(10, 11, -4, charge_category="Credit"),
        charge_of(10, 11, -1, charge_class="Correction"),
        charge_of(0, 24, 7, None, charge_category="Tax", service_name="Tax"),
    ]
    ledger = filled([window((10, 12, 2))], charges)
    assert ledger.runs["run-1"].usd == 25
    assert dict(ledger.runs["run-1"].by_category) == {"Usage": 29, "Credit": -4}
    assert dict(ledger.untagged["aws"].by_service) == {"Tax": 7}


def test_a_charge_of_no_length_is_a_moment(charge_of: Make) -> None:
    charges = [charge_of(10, 10, 500, charge_category="Purchase"), charge_of(9, 9, 1)]
    ledger = filled([window((10, 12, 2))], charges)
    assert (ledger.runs["run-1"].usd, ledger.unexplained["aws", "aws-p5-spot"].usd) == (500, 1)


def test_machines_are_told_from_the_rest_where_the_bill_does(charge_of: Make) -> None:
    told = [charge_of(10, 11, 20), charge_of(10, 11, 5, service_category="Storage")]
    assert filled([window((10, 12, 1))], told).runs["run-1"].compute_usd == 20
    untold = [*told, charge_of(10, 11, 1, service_category=""), charge_of(10, 11, 1)]
    assert filled([window((10, 12, 1))], untold).runs["run-1"].compute_usd is None


def test_other_currencies_are_apart_unless_there_is_a_rate(charge_of: Make) -> None:
    charges = [charge_of(10, 11, 10), charge_of(10, 11, 10, billing_currency="EUR")]
    ledger = filled([window((10, 12, 1))], charges)
    assert (ledger.runs["run-1"].usd, ledger.total.usd, ledger.foreign) == (10, 10, {"EUR": 10})
    ledger = filled([window((10, 12, 1))], charges, rates={"EUR": 1.1})
    assert ledger.runs["run-1"].usd == pytest.approx(21)
    assert ledger.foreign == {}


def test_as_invoiced_or_shared_out(charge_of: Make) -> None:
    charges = [charge_of(10, 11, 0, effective_cost=38.0)]
    assert filled([window((10, 12, 1))], charges).runs["run-1"].usd == 38
    assert filled([window((10, 12, 1))], charges, cost=billed).runs["run-1"].usd == 0


def test_a_resource_that_bears_its_tag_elsewhere_is_known(charge_of: Make) -> None:
    charges = [
        charge_of(10, 11, 1, None, resource_id="i-1"),
        charge_of(11, 12, 2, resource_id="i-1"),
        charge_of(10, 11, 4, None, resource_id="i-2"),
        charge_of(10, 11, 8, None, resource_id="i-3"),
        charge_of(11, 12, 8, "one", resource_id="i-3"),
        charge_of(12, 13, 8, "other", resource_id="i-3"),
    ]
    first = filled([window((10, 13, 1))], charges)
    assert first.late == {"i-1": "aws-p5-spot"}, "i-2 never bore one, i-3 bore two"
    second = filled([window((10, 13, 1))], charges, known=first.late)
    assert (first.runs["run-1"].usd, second.runs["run-1"].usd) == (2, 3)
    assert second.untagged["aws"].usd == 12


CHARGES = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(0, 48),
        st.floats(-100, 100),
        st.sampled_from(["aws-p5-spot", "other", None]),
        st.sampled_from(["shared", "run-1", "run-7"]),
        st.sampled_from(["USD", "EUR"]),
    ),
    max_size=30,
)
SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=4)


@given(CHARGES, SPANS, SPANS, st.booleans())
def test_the_parts_add_up_to_the_bill(
    charge_of: Make, given_charges: list[Any], one: list[Any], two: list[Any], has_rate: bool
) -> None:
    windows = [
        window(*((start, start + hours, nodes) for start, hours, nodes in spans), run_id=run_id)
        for run_id, spans in (("run-1", one), ("run-2", two))
    ]
    charges = [
        charge_of(start, start + hours, usd, stack, billing_currency=currency)._replace(
            tags={"gangway_run": run, **({"gangway_stack": stack} if stack else {})}
        )
        for start, hours, usd, stack, run, currency in given_charges
    ]
    ledger = filled(windows, charges, rates={"EUR": 1.25} if has_rate else {})
    parts = [*ledger.runs.values(), *ledger.unexplained.values(), *ledger.untagged.values()]
    rates = {"USD": 1.0, "EUR": 1.25 if has_rate else 0.0}
    whole = sum(charge.effective_cost * rates[charge.billing_currency] for charge in charges)
    assert sum(part.usd for part in parts) == pytest.approx(ledger.total.usd, abs=1e-6)
    assert ledger.total.usd == pytest.approx(whole, abs=1e-6)
    for part in parts:
        assert sum(part.by_service.values()) == pytest.approx(part.usd, abs=1e-6)
        assert sum(part.by_category.values()) == pytest.approx(part.usd, abs=1e-6)
    assert sum(ledger.foreign.values()) == pytest.approx(
        sum(charge.effective_cost for charge in charges if not rates[charge.billing_currency]), abs=1e-6
    )
