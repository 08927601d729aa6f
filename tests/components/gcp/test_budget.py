"""The budget: who counts, who hears, and that the body is one of the API."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.gcp.budget import Budget, BudgetAlarm, plan_amount, plan_budget_alarms, units_and_nanos


@pytest.fixture
def args(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "project": "lab",
        "project_number": "123456789012",
        "billing_account": "012345-6789AB-CDEF01",
        "region": "us-east5",
        "monthly_usd": 1500.25,
        "emails": ["a@example.com", "b@example.com"],
        "alert_percent": [50, 80, 100],
        "stop_at_percent": None,
        "tag_key": "gangway-stack",
        "tag_value": "demo",
        "tags": labels,
    }


def test_alarms_at_each_percentage_and_one_on_the_forecast() -> None:
    forecast = BudgetAlarm(100, "FORECASTED_SPEND")
    spent = [BudgetAlarm(percent, "CURRENT_SPEND") for percent in (50, 80, 100)]
    assert plan_budget_alarms([100, 50, 80]) == [*spent, forecast]
    assert plan_budget_alarms([50, 80], 100) == [*spent, forecast], "people hear of the stop"


def test_the_budget_is_one_of_the_api(
    make: Callable[..., Any], args: Any, api_mistakes: Callable[..., list[str]]
) -> None:
    budget = make(Budget, args).one("Budget").inputs
    assert budget["billingAccount"] == "012345-6789AB-CDEF01"
    assert budget["budgetFilter"] == {
        "calendarPeriod": "MONTH",
        "projects": ["projects/123456789012"],
        "labels": {"gangway-stack": "demo"},
    }
    assert [rule["thresholdPercent"] for rule in budget["thresholdRules"]] == [0.5, 0.8, 1, 1]
    told = budget["allUpdatesRule"]
    body = {
        "displayName": budget["displayName"],
        "amount": budget["amount"],
        # The provider makes a list of the one value.
        "budgetFilter": {**budget["budgetFilter"], "labels": {"gangway-stack": ["demo"]}},
        "thresholdRules": budget["thresholdRules"],
        "notificationsRule": told,
    }
    assert api_mistakes("billingbudgets.v1", "GoogleCloudBillingBudgetsV1Budget", body) == []
    assert budget["amount"]["specifiedAmount"] == {"currencyCode": "USD", "units": "1500", "nanos": 250_000_000}


def test_people_and_the_topic_hear_of_it(make: Callable[..., Any], args: Any, labels: dict[str, str]) -> None:
    made = make(Budget, {**args, "kms_key_name": "key"})
    channels, topic = made.of("NotificationChannel"), made.one("Topic")
    assert [c.inputs["labels"] for c in channels] == [{"email_address": email} for email in args["emails"]]
    assert {c.inputs["type"] for c in channels} == {"email"}
    assert all(c.inputs["userLabels"] == labels for c in channels)
    assert (topic.inputs["kmsKeyName"], topic.inputs["labels"]) == ("key", labels)
    told = made.one("Budget").inputs["allUpdatesRule"]
    assert told["pubsubTopic"] == topic.id
    assert told["monitoringNotificationChannels"] == [c.id for c in channels]
    assert told["disableDefaultIamRecipients"] is True
    assert not made.of("Workflow")


def test_what_others_take_of_it(declare: Callable[..., Any], args: Any) -> None:
    seen: dict[str, str] = {}

    def program() -> None:
        budget = Budget("demo", args)
        budget.topic_id.apply(lambda topic: seen.update(topic=topic))
        budget.budget_name.apply(lambda name: seen.update(name=name))

    made = declare(program)
    assert seen == {"topic": "${Topic.demo-budget.id}", "name": "${Budget.demo-budget.name}"}
    (own,) = [r for r in made.resources if r.type == "gangway:gcp:Budget"]
    assert made.outputs[own.urn] == {"budget_name", "topic_id"}
    assert {r.parent for r in made.resources if r is not own} == {own.urn}


def test_more_addresses_than_a_budget_takes(make: Callable[..., Any], args: Any) -> None:
    with pytest.raises(InputError, match="more addresses") as caught:
        make(Budget, {**args, "emails": [f"{n}@example.com" for n in range(7)]})
    assert caught.value.fix == "remove 2, or write to a group's address"


@pytest.mark.parametrize("wrong", ["012345-6789ab-cdef01", "billingAccounts/012345-6789AB-CDEF01", "x", ""])
def test_what_is_no_billing_account(make: Callable[..., Any], args: Any, wrong: str) -> None:
    with pytest.raises(InputError, match="not the id of a billing account") as caught:
        make(Budget, {**args, "billing_account": wrong})
    assert caught.value.place == "gangway:budget.billing_account"


def test_a_billing_account_in_another_currency_has_a_limit_in_it(make: Callable[..., Any], args: Any) -> None:
    """Dollars under another code would be another limit: 160000 JPY for 160000 USD."""
    budget = make(Budget, {**args, "currency": "JPY", "monthly_amount": 230000}).one("Budget").inputs
    assert budget["amount"]["specifiedAmount"] == {"currencyCode": "JPY", "units": "230000", "nanos": 0}
    assert plan_amount(1500.25) == ("USD", 1500.25)
    assert plan_amount(1500, "EUR", 1380.5) == ("EUR", 1380.5)


@pytest.mark.parametrize(
    ("currency", "amount", "place", "fix"),
    [
        ("EUR", None, "gangway:gcp", "add monthly_amount"),
        (None, 5.0, "gangway:gcp", "add currency: EUR, or the one of the account"),
        ("USD", 5.0, "gangway:gcp.currency", "leave currency and monthly_amount out"),
        ("euro", 5.0, "gangway:gcp.currency", "write currency: EUR, or the account's"),
    ],
)
def test_a_currency_that_is_half_told(currency: str | None, amount: float | None, place: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_amount(1500, currency, amount, "gangway:gcp")
    assert (caught.value.place, caught.value.fix) == (place, fix)


@given(st.decimals(min_value="0.01", max_value="10000000", places=2))
def test_money_is_exact_to_the_cent(usd: Any) -> None:
    units, nanos = units_and_nanos(float(usd))
    assert int(units) * 10**9 + nanos == int(usd * 10**9)
    assert 0 <= nanos < 10**9
