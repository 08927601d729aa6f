"""AWS's Cost and Usage Report 2.0 in the words of FOCUS, from a hand-made report of its shape."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.finops.bill import aws
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
        list(aws.charges(row))
