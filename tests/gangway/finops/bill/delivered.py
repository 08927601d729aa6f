"""Bills as exports deliver them: rows of each format from amounts, and folders in the layouts that are published."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

FIRST, SECOND, THIRD = (10.0, 5.0, 5.0), (10.0, 5.0, 5.0, 7.0), (10.0, 5.0, 5.0, 6.5, -1.0)
"""Three deliveries of a month: begun, grown, and restated with a refund. By hand: 20, 27 and 25.50."""
TIMES = ("2026-10-12T04:05:06.789Z", "2026-10-31T04:05:06.789Z", "2026-11-03T04:05:06.789Z")
Row = dict[str, Any]


def cur2(amounts: Sequence[float]) -> list[Row]:
    """AWS CUR 2.0; columns as docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html. The ids are numbered
    anew in each delivery: AWS does not keep them.
    """
    return [
        {
            "bill_billing_period_start_date": "2026-10-01T00:00:00.000Z",
            "bill_payer_account_id": "111122223333",
            "identity_line_item_id": f"id{number}",
            "identity_time_interval": "2026-10-05T10:00:00.000Z/2026-10-05T11:00:00.000Z",
            "line_item_currency_code": "USD",
            "line_item_line_item_type": "Refund" if amount < 0 else "Usage",
            "line_item_product_code": "AmazonEC2",
            "line_item_unblended_cost": amount,
            "line_item_usage_account_id": "444455556666",
            "line_item_usage_end_date": "2026-10-05T11:00:00.000Z",
            "line_item_usage_start_date": "2026-10-05T10:00:00.000Z",
            "line_item_usage_type": "USE2-SpotUsage:p5.48xlarge",
            "resource_tags": '{"user_gangway_stack": "aws-p5-spot"}',
        }
        for number, amount in enumerate(amounts)
    ]


def focus(provider: str, version: str) -> Callable[[Sequence[float]], list[Row]]:
    """FOCUS as a cloud writes it; providers' columns changed with 1.3, and Google's own export has labels for tags."""
    names = ("ProviderName",) if version < "1.3" else ("ServiceProviderName", "HostProviderName")
    google = provider == "Google Cloud"
    labels = [{"Key": "gangway-stack", "Value": "x"}]

    def rows(amounts: Sequence[float]) -> list[Row]:
        return [
            {
                "BilledCost": amount,
                "BillingAccountId": "111122223333",
                "BillingCurrency": "USD",
                "BillingPeriodStart": "2026-10-01T07:00:00Z" if google else "2026-10-01T00:00:00Z",
                "ChargeCategory": "usage" if google and version == "1.0" else "Usage",
                "ChargeClass": "Correction" if amount < 0 else None,
                "ChargePeriodEnd": "2026-10-05T11:00:00Z",
                "ChargePeriodStart": "2026-10-05T10:00:00Z",
                "EffectiveCost": amount,
                **dict.fromkeys(names, provider),
                "ServiceName": "Virtual Machines",
                "SubAccountId": "444455556666",
                **({"x_Labels": labels} if google else {"Tags": '{"gangway-stack": "x"}'}),
                **({"x_ExportTime": "2026-10-06 03:00:00 UTC"} if google else {}),
            }
            for amount in amounts
        ]

    return rows


def azure_ea(amounts: Sequence[float]) -> list[Row]:
    """Azure's actual cost of an Enterprise Agreement; MCA's columns begin in lower case and have billingProfileId."""
    return [
        {
            "BillingAccountId": "1234567",
            "BillingCurrencyCode": "USD",
            "BillingPeriodEndDate": "10/31/2026",
            "BillingPeriodStartDate": "10/01/2026",
            "ChargeType": "Refund" if amount < 0 else "Usage",
            "CostInBillingCurrency": amount,
            "Date": "10/05/2026",
            "MeterCategory": "Virtual Machines",
            "PricingModel": "Spot",
            "ResourceId": "/subscriptions/0000/resourceGroups/x/providers/Microsoft.Compute/virtualMachines/x",
            "ResourceLocation": "eastus",
            "SubscriptionId": "0000",
            "Tags": '"gangway-stack": "azure-ndv5-spot","team": "ml"',
        }
        for amount in amounts
    ]


def azure_mca(amounts: Sequence[float]) -> list[Row]:
    """The same of a Microsoft Customer Agreement."""
    rows = [{column[0].lower() + column[1:]: value for column, value in row.items()} for row in azure_ea(amounts)]
    return [{**row, "billingProfileId": "ABCD", "billingCurrency": row.pop("billingCurrencyCode")} for row in rows]


def bigquery(amounts: Sequence[float]) -> list[Row]:
    """Google's standard export; cloud.google.com/billing/docs/how-to/export-data-bigquery-tables/standard-usage. A
    charge of 5 is one of 6 with two credits inside.
    """
    return [
        {
            "billing_account_id": "012345-6789AB-CDEF01",
            "service": {"description": "Compute Engine"},
            "sku": {"description": "Spot Preemptible A3 Instance Core running in Virginia"},
            "usage_start_time": "2026-10-05 10:00:00 UTC",
            "usage_end_time": "2026-10-05 11:00:00 UTC",
            "project": {"id": "demo"},
            "labels": [{"key": "gangway-stack", "value": "gcp-a3-spot"}],
            "export_time": "2026-10-06 03:00:00 UTC",
            "cost": amount + 1,
            "currency": "USD",
            "credits": [{"amount": -0.75}, {"amount": -0.25}],
            "invoice": {"month": "202610"},
            "cost_type": "adjustment" if amount < 0 else "regular",
        }
        for amount in amounts
    ]


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """A file of the kind that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pyarrow, parquet = __import__("pyarrow"), __import__("pyarrow.parquet").parquet
        parquet.write_table(
            pyarrow.Table.from_pylist([*rows]) if rows else pyarrow.table({c: [] for c in columns}), path
        )
        return
    text = io.StringIO()
    if ".json" in path.name:
        text.writelines(json.dumps(row) + "\n" for row in rows)
    else:
        writer = csv.DictWriter(text, columns)
        writer.writeheader()
        writer.writerows({c: json.dumps(v) if isinstance(v, list) else v for c, v in row.items()} for row in rows)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def run_id(number: int) -> str:
    """Of a delivery; in no order of time."""
    return str(UUID(int=(number * 7919 + 12345) % 2**128, version=4))


@dataclass(frozen=True)
class Layout:
    """How an export lays out its deliveries. `write`: delivery `number` of rows, in so many parts."""

    name: str
    rows: Callable[[Sequence[float]], list[Row]]
    write: Callable[["Layout", Path, int, Sequence[float], int], Path]
    suffix: str

    def deliver(self, folder: Path, number: int, amounts: Sequence[float], parts: int = 1) -> Path:
        """Writes a delivery and gives its folder."""
        return self.write(self, folder, number, amounts, parts)

    def split(self, amounts: Sequence[float], parts: int) -> list[list[Row]]:
        """The rows of each part."""
        rows = self.rows(amounts)
        return [rows[part::parts] for part in range(parts)]


def aws(overwrite: bool) -> Callable[[Layout, Path, int, Sequence[float], int], Path]:
    def write(layout: Layout, folder: Path, number: int, amounts: Sequence[float], parts: int) -> Path:
        month = "billing_period=2026-10" if layout.rows is not cur2 else "BILLING_PERIOD=2026-10"
        below = month if overwrite else f"{month}/{TIMES[number]}-{run_id(number)}"
        names = [f"cur/data/{below}/cur-{part:05}{layout.suffix}" for part in range(1, parts + 1)]
        for name, rows in zip(names, layout.split(amounts, parts), strict=True):
            write_table(folder / name, rows, [*layout.rows([0])[0]])
        manifest = {
            "executionId": run_id(number),
            "exportArn": "arn:aws:bcm-data-exports:us-east-1:111122223333:export/cur-1",
            "columns": [],
            "dataFiles": [f"s3://bucket/prefix/{name}" for name in names],
            "additionalOutputFiles": [],
        }
        for place in {month, below}:
            path = folder / "cur" / "metadata" / place / "cur-Manifest.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(manifest))
        return (folder / names[0]).parent

    return write


def azure(layout: Layout, folder: Path, number: int, amounts: Sequence[float], parts: int) -> Path:
    minute = TIMES[number][:16].replace("-", "").replace("T", "").replace(":", "")
    below = f"exports/daily/20261001-20261031/{minute}/{run_id(number)}"
    names = [f"{below}/part_{part}_0001{layout.suffix}" for part in range(parts)]
    for name, rows in zip(names, layout.split(amounts, parts), strict=True):
        write_table(folder / name, rows, [*layout.rows([0])[0]])
    manifest = {
        "manifestVersion": "2024-04-01",
        "blobCount": parts,
        "exportConfig": {
            "exportName": "daily",
            "resourceId": "/subscriptions/0000/providers/Microsoft.CostManagement/exports/daily",
            "type": "FocusCost" if "FOCUS" in layout.name else "ActualCost",
            "timeFrame": "MonthToDate",
        },
        "deliveryConfig": {"partitionData": True, "dataOverwriteBehavior": "CreateNewReport"},
        "runInfo": {
            "executionType": "Scheduled",
            "submittedTime": TIMES[number].replace("789Z", "7891234Z"),
            "runId": run_id(number),
            "startDate": "2026-10-01T00:00:00",
            "endDate": f"{TIMES[number][:10]}T00:00:00Z" if number < 2 else "2026-10-31T00:00:00Z",
        },
        "blobs": [{"blobName": name, "dataRowCount": 1} for name in names],
    }
    (folder / below / "manifest.json").write_text(json.dumps(manifest))
    return folder / below


def extracted(layout: Layout, folder: Path, number: int, amounts: Sequence[float], parts: int) -> Path:
    """`bq extract` into a folder that is named after its time."""
    run = folder / "extracts" / TIMES[number]
    for part, rows in enumerate(layout.split(amounts, parts)):
        write_table(run / f"bill-{part:012}{layout.suffix}", rows, [*layout.rows([0])[0]])
    return run


LAYOUTS = (
    Layout("CUR 2.0, create new", cur2, aws(overwrite=False), ".csv.gz"),
    Layout("CUR 2.0, create new, Parquet", cur2, aws(overwrite=False), ".snappy.parquet"),
    *(
        Layout(f"AWS FOCUS {version}", focus("AWS", version), aws(overwrite=False), ".csv.gz")
        for version in ("1.0", "1.2", "1.4")
    ),
    *(
        Layout(f"Azure FOCUS {version}", focus("Microsoft", version), azure, ".csv")
        for version in ("1.0", "1.1", "1.2", "1.3")
    ),
    Layout("Azure actual cost, EA", azure_ea, azure, ".csv"),
    Layout("Azure actual cost, MCA, Parquet", azure_mca, azure, ".snappy.parquet"),
    Layout("Google FOCUS 1.0", focus("Google Cloud", "1.0"), extracted, ".json"),
    Layout("Google FOCUS 1.2", focus("Google Cloud", "1.2"), extracted, ".parquet"),
    Layout("Google BigQuery, JSON lines", bigquery, extracted, ".json"),
    Layout("Google BigQuery, Parquet", bigquery, extracted, ".parquet"),
)
OVERWRITE = Layout("CUR 2.0, overwrite", cur2, aws(overwrite=True), ".csv.gz")
