"""The clouds' own bill exports as charges: which rows count, and what is refused."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.finops.bill import exports
from gangway.finops.bill.charge import Charge

Read = Callable[..., list[Charge]]


@pytest.fixture
def charges(charges_in: Read, samples: Path) -> list[Charge]:
    return charges_in(samples / "aws_cur2.csv")


def test_usage_on_spot(charges: list[Charge]) -> None:
    first = charges[0]
    assert (first.service_provider_name, first.billing_account_id) == ("aws", "111122223333")
    assert (first.billing_period, first.region_id) == ("2026-10-01", "us-east-2")
    assert (first.service_name, first.service_category) == ("AmazonEC2", "Compute")
    assert (first.charge_category, first.charge_class) == ("Usage", "")
    assert (first.billed_cost, first.effective_cost, first.billing_currency) == (22.98, 22.98, "USD")
    assert first.charge_period_start.isoformat() == "2026-10-05T10:00:00+00:00"
    assert first.tags == {"gangway_stack": "aws-p5-spot", "gangway_run": "shared"}


def test_disks_are_ec2_too_but_no_machines(charges: list[Charge]) -> None:
    (disk,) = [charge for charge in charges if charge.resource_id.startswith("vol-")]
    assert (disk.service_name, disk.service_category) == ("AmazonEC2", "Other")


def test_commitments_are_shared_out_over_what_used_them(charges: list[Charge]) -> None:
    """Billed: fees and unblended usage. Effective: AWS's own formula for amortised cost, by hand."""
    billed: dict[str, float] = defaultdict(float)
    effective: dict[str, float] = defaultdict(float)
    for charge in charges:
        billed[charge.charge_category] += charge.billed_cost
        effective[charge.charge_category] += charge.effective_cost
    # Four spot hours, a disk, the refund; the savings plan's and the reservation's usage are in their fees.
    assert billed["Usage"] == pytest.approx(4 * 22.98 + 0.02 - 2)
    assert billed["Purchase"] == 40 + 100 + 500 + 10
    assert effective["Usage"] == pytest.approx(4 * 22.98 + 0.02 - 2 + 31 + 38)
    assert effective["Purchase"] == (40 - 31) + (2 + 60)
    assert (billed["Tax"], billed["Credit"], billed["Adjustment"]) == (9, -5, -1)
    assert (effective["Tax"], effective["Credit"], effective["Adjustment"]) == (9, -5, -1)


def test_a_refund_corrects_usage(charges: list[Charge]) -> None:
    corrections = [charge for charge in charges if charge.charge_class == "Correction"]
    assert [(charge.charge_category, charge.billed_cost) for charge in corrections] == [("Usage", -2)]


def test_a_row_without_a_cost_is_refused() -> None:
    row = {
        "line_item_line_item_type": "Usage",
        "line_item_usage_start_date": "2026-10-05T10:00:00Z",
        "line_item_usage_end_date": "2026-10-05T11:00:00Z",
        "line_item_unblended_cost": "",
    }
    with pytest.raises(InputError, match="line_item_unblended_cost: cannot be read: there is no number"):
        list(exports.aws_charges(row))


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
        list(exports.gcp_charges({**rows[0], **change}))
