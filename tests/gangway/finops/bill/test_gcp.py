"""Google Cloud's billing export in the words of FOCUS: nested as JSON, flat as CSV; hand-made, in its shape."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.finops.bill import gcp
from gangway.finops.bill.charge import Charge

Read = Callable[..., list[Charge]]


@pytest.fixture
def rows(samples: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (samples / "gcp_detailed.jsonl").read_text().splitlines()]


def test_a_machines_part(charges_in: Read, samples: Path) -> None:
    first = charges_in(samples / "gcp_detailed.jsonl")[0]
    assert (first.service_provider_name, first.service_name, first.service_category) == (
        "gcp",
        "Compute Engine",
        "Compute",
    )
    assert (first.billing_period, first.region_id) == ("2026-10-01", "us-east4")
    assert first.resource_id == "//compute.googleapis.com/projects/demo/instances/a3-1"
    assert first.charge_period_start.isoformat() == "2026-10-05T10:00:00+00:00"
    assert first.tags == {"gangway_stack": "gcp-a3-spot", "gangway_run": "shared"}


def test_credits_are_charges_of_their_own(charges_in: Read, samples: Path) -> None:
    charges = charges_in(samples / "gcp_detailed.jsonl")
    given = [charge for charge in charges if charge.charge_category == "Credit"]
    assert [charge.billed_cost for charge in given] == [-1.5] * 4
    assert {charge.tags["gangway_stack"] for charge in given} == {"gcp-a3-spot"}


def test_the_sum_of_charges_is_the_sum_of_costs_and_credits(charges_in: Read, samples: Path, rows: list[Any]) -> None:
    whole = sum(row["cost"] + sum(credit["amount"] for credit in row.get("credits", [])) for row in rows)
    assert sum(charge.billed_cost for charge in charges_in(samples / "gcp_detailed.jsonl")) == pytest.approx(whole)


def test_taxes_rounding_and_adjustments(charges_in: Read, samples: Path) -> None:
    odd = [
        (charge.charge_category, charge.charge_class, charge.billed_cost)
        for charge in charges_in(samples / "gcp_detailed.jsonl")
        if charge.charge_category not in ("Usage", "Credit")
    ]
    assert odd == [("Tax", "", 4), ("Adjustment", "", -0.01), ("Adjustment", "Correction", -2)]


def test_as_csv_it_is_flat(charges_in: Read, samples: Path, rows: list[dict[str, Any]], write_csv: Any) -> None:
    flat = [
        {
            "billing_account_id": row["billing_account_id"],
            "invoice_month": row["invoice"]["month"],
            "project_id": row.get("project", {}).get("id", ""),
            "service_description": row["service"]["description"],
            "sku_description": row["sku"]["description"],
            "location_region": row["location"]["region"],
            "resource_global_name": row.get("resource", {}).get("global_name", ""),
            "usage_start_time": row["usage_start_time"],
            "usage_end_time": row["usage_end_time"],
            "cost": str(row["cost"]),
            "currency": row["currency"],
            "cost_type": row["cost_type"],
            "adjustment_info_type": row.get("adjustment_info", {}).get("type", ""),
            "labels": json.dumps(row.get("labels", [])),
            "credits": json.dumps(row.get("credits", [])),
        }
        for row in rows
    ]
    assert charges_in(write_csv(flat)) == charges_in(samples / "gcp_detailed.jsonl")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"service": "Compute Engine"}, "service: not a record"),
        ({"credits": "{}"}, "credits: cannot be read: not a list of credits"),
        ({"cost": None}, "cost: cannot be read: there is no number"),
        ({"usage_start_time": "yesterday"}, "usage_start_time: cannot be read"),
    ],
)
def test_a_bad_value_is_named(rows: list[dict[str, Any]], change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(gcp.charges({**rows[0], **change}))
