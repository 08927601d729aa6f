"""The rate of a stack and the caps of a suite."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gangway.bench.journal import Attempt, Progress
from gangway.bench.results import Caps, Rate, get_rate
from gangway.bench.suite import Item, SuiteConfig, get_items
from gangway.components.core.findings import InputError
from gangway.stacks.plan.plan import Plan

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def stood(hours: float, usd_per_hour: float | None = 2.0, at_once: float = 0.0) -> Progress:
    return Progress(attempts=(Attempt(NOON - timedelta(hours=hours), NOON, usd_per_hour, at_once),))


@pytest.fixture
def items(make_suite: Callable[..., SuiteConfig]) -> tuple[Item, ...]:
    return get_items(make_suite(), local=False)


def test_the_dearest_rung_counts(demo_plan: Plan, items: tuple[Item, ...]) -> None:
    """Nobody knows beforehand which rung has room."""
    dearest = max(rung.hourly or 0.0 for rung in demo_plan.rungs)
    rate = get_rate(demo_plan, items[0], 3, "s.yaml")
    assert rate.usd_per_hour == dearest > (demo_plan.rungs[0].hourly or 0.0)
    assert rate.usd_run == pytest.approx(3 * dearest + rate.usd_at_once)
    assert "on-demand" in rate.source


def test_a_rung_without_a_price_makes_no_cap(demo_plan: Plan, items: tuple[Item, ...]) -> None:
    rungs = (demo_plan.rungs[0], replace(demo_plan.rungs[1], hourly=None))
    with pytest.raises(InputError, match="its price is unknown") as told:
        get_rate(replace(demo_plan, rungs=rungs), items[0], 3, "s.yaml")
    assert "usd_per_hour" in told.value.fix


@pytest.fixture
def partly(demo_plan: Plan) -> Plan:
    """A plan whose Lustre nobody has priced: its rungs have figures all the same."""
    return replace(demo_plan, cost=replace(demo_plan.cost, unknown=("demo-lustre: 8192 GiB",)))


def test_a_part_without_a_price_makes_no_cap(partly: Plan, items: tuple[Item, ...]) -> None:
    assert all(rung.hourly is not None for rung in partly.rungs)
    with pytest.raises(InputError, match="no price for demo-lustre: 8192 GiB"):
        get_rate(partly, items[0], 3, "s.yaml")


def priced(make_suite: Callable[..., SuiteConfig], usd: float) -> Item:
    return get_items(make_suite(stacks=[{"stack": "aws-demo", "usd_per_hour": usd}]), local=False)[0]


def test_a_price_of_the_suites_own(partly: Plan, make_suite: Callable[..., SuiteConfig]) -> None:
    rate = get_rate(partly, priced(make_suite, 5000), 3, "s.yaml")
    assert (rate.usd_per_hour, rate.source) == (5000, "s.yaml: usd_per_hour")
    with pytest.raises(InputError, match="less than the parts with a price cost"):
        get_rate(partly, priced(make_suite, 0.01), 3, "s.yaml")


def test_a_price_that_the_plan_knows_is_not_set_aside(demo_plan: Plan, make_suite: Callable[..., SuiteConfig]) -> None:
    with pytest.raises(InputError, match="the plan has a price"):
        get_rate(demo_plan, priced(make_suite, 5000), 3, "s.yaml")


def test_nothing_is_no_price(make_suite: Callable[..., SuiteConfig]) -> None:
    with pytest.raises(ValidationError, match="usd_per_hour"):
        make_suite(stacks=[{"stack": "aws-demo", "usd_per_hour": 0}])


@given(hours=st.lists(st.floats(0, 100), min_size=4, max_size=4), limit=st.floats(0.01, 500), hourly=st.floats(0, 50))
def test_nothing_is_begun_that_could_go_over(make_suite: Any, hours: list[float], limit: float, hourly: float) -> None:
    items = get_items(make_suite(), local=False)
    accounts = [(item, stood(part, hourly)) for item, part in zip(items, hours, strict=True)]
    rate = Rate(hourly, 1.0, 1.0 + 4 * hourly, "the plan")
    left = limit - sum(hours) * hourly
    refused = Caps(limit, {}).unaffordable_reason(rate, items[0], accounts, NOON)
    if left >= rate.usd_run + 1e-6:
        assert refused == ""
    elif left < rate.usd_run - 1e-6:
        assert "refused" in refused


def test_a_stacks_own_limit_is_of_its_runs_alone(make_suite: Callable[..., SuiteConfig]) -> None:
    stacks = [{"stack": "aws-g5-dev", "usd_limit": 10}, "azure-nc-dev"]
    suite = make_suite(stacks=stacks)
    caps, items = Caps.of(suite), get_items(suite, local=False)
    assert caps == Caps(100, {"aws-g5-dev": 10, "azure-nc-dev": 60})
    accounts = [(item, stood(5)) for item in items]
    assert caps.overspend_reason(items[0], accounts, NOON).startswith(
        "over the cap: $20.00 of $10.00 spent for stack aws-g5-dev"
    )
    assert caps.overspend_reason(items[2], accounts, NOON) == ""


def test_what_stands_costs_until_now() -> None:
    attempt = Attempt(NOON, None, 3.0, 5.0)
    assert attempt.usd(NOON + timedelta(hours=2)) == pytest.approx(11.0)
    assert Attempt(NOON, NOON, None, 1.0).usd(NOON) == 1.0


def test_no_budget_is_no_cap(make_suite: Callable[..., SuiteConfig]) -> None:
    suite = make_suite(stacks=["local"], budget=None)
    item = get_items(suite, local=False)[0]
    assert Caps.of(suite) == Caps(None, {})
    assert Caps.of(suite).overspend_reason(item, [(item, stood(1e6))], NOON) == ""
