"""Files of other tools are named in the error, with the command that takes them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.components.core.foreign_files import foreign_file

PRICE = {
    "AvailabilityZone": "us-east-2a",
    "InstanceType": "p5.48xlarge",
    "ProductDescription": "Linux/UNIX",
    "SpotPrice": "22.98",
    "Timestamp": "2026-10-05T10:00:00+00:00",
}
PRICES = [{**PRICE, "Timestamp": f"2026-10-05T{hour}:00:00+00:00"} for hour in (10, 11, 14)]
SACCT = "JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n1|train|gpu|ml|8|COMPLETED|0:0\n"
JOB_SET = "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata:\n  name: x\n"
AZURE = "InvoiceSectionName,AccountName,SubscriptionId,Date,CostInBillingCurrency,BillingCurrencyCode\n"
FILES = {
    "prices.json": (json.dumps({"SpotPriceHistory": PRICES}, indent=4), "spot prices", "gangway forecast FILE"),
    "list.json": (json.dumps(PRICES), "spot prices", "gangway forecast FILE"),
    "sacct.txt": (SACCT, "Slurm's accounting", "gangway job list --json"),
    "sacct.csv": (SACCT, "Slurm's accounting", "name,submit_hours,gpus,hours"),
    "prices.txt": (
        "SPOTPRICEHISTORY\tus-east-2a\tp5.48xlarge\tLinux/UNIX\t22.98\t2026-10-05T10:00:00+00:00\n",
        "spot prices as text",
        "--output json",
    ),
    "table.txt": (
        "JobID           JobName  Partition\n------------ ---------- ----------\n1                 train        gpu\n",
        "without -P",
        "gangway job list --json",
    ),
    "train.sbatch": ("#!/bin/bash\n# ours\n#SBATCH --gpus=8\nsrun train\n", "#SBATCH", "sbatch FILE"),
    "pytorchjob.yaml": (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: x}\n",
        "a Kubernetes manifest",
        "kubectl apply -f FILE",
    ),
    "jobset.yaml": (JOB_SET, "JobSet", "kubectl apply -f FILE"),
    "jobset.json": (json.dumps({"kind": "JobSet", "apiVersion": "x"}, indent=2), "JobSet", "kubectl apply -f FILE"),
    "azure.csv": (AZURE, "Azure's export of cost", "gangway reconcile --bill FILE"),
    "usage.csv": (
        "SubscriptionGuid,UsageDateTime,PreTaxCost,Currency\n",
        "an older version",
        "as FOCUS or actual cost",
    ),
    "focus.csv": ("BilledCost,BillingCurrency\n", "a FOCUS bill", "gangway reconcile --bill FILE"),
    "cur.csv": ("line_item_unblended_cost,line_item_product_code\n", "Cost and Usage", "gangway reconcile --bill FILE"),
}
READERS = {
    ("reconcile", "--runs", "runs", "--bill"): {"prices.json", "list.json", "sacct.txt", "sacct.csv", "usage.csv"},
    ("reconcile", "--bill", "bill", "--jobs"): {"sacct.txt", "azure.csv", "focus.csv"},
    ("job", "submit"): {"jobset.yaml", "jobset.json", "pytorchjob.yaml", "train.sbatch", "sacct.txt", "table.txt"},
    ("simulate", "--gpus", "8"): {"table.txt", "sacct.csv", "azure.csv", "focus.csv"},
    ("forecast",): {
        "prices.txt",
        "table.txt",
        "sacct.txt",
        "azure.csv",
        "focus.csv",
        "cur.csv",
        "usage.csv",
        "jobset.yaml",
    },
}


@pytest.mark.parametrize(
    ("words", "name"), [(words, name) for words, names in READERS.items() for name in sorted(names)], ids=str
)
def test_a_foreign_file_is_named_with_what_takes_it(words: tuple[str, ...], name: str, tmp_path: Path) -> None:
    text, kind, advice = FILES[name]
    path = tmp_path / name
    path.write_text(text)
    (tmp_path / "runs").mkdir()
    given = f"aws:x={path}" if words[-1] == "--jobs" else str(path)
    mistake = CliRunner().invoke(app, [*words, given]).exception
    if words[-1] == "--bill":  # runs come first
        from gangway.finops.bill.reader import open_table

        with pytest.raises(InputError) as caught:
            open_table(path)
        mistake = caught.value
    assert isinstance(mistake, InputError)
    assert kind in mistake.problem
    assert advice in mistake.fix
    assert name in mistake.place


def test_what_a_command_reads_is_not_foreign_to_it() -> None:
    for name in ("azure.csv", "focus.csv", "cur.csv"):
        assert foreign_file(name, FILES[name][0], "reconcile") is None
    for name in ("prices.json", "list.json"):
        assert foreign_file(name, FILES[name][0], "forecast") is None
    for text in (
        "",
        "time,usd_per_hour\n2026-10-05T10:00Z,1\n",
        "name: x\npreset: dcgan-digits\n",
        "JobID,State\n1,x\n",
    ):
        assert foreign_file("x", text, "anything") is None


def test_a_list_of_spot_prices_is_a_history(tmp_path: Path) -> None:
    """`--query SpotPriceHistory` leaves the list alone."""
    from gangway.sim.forecast.public_formats import read_history

    for name in ("prices.json", "list.json"):
        (tmp_path / name).write_text(FILES[name][0])
    whole, alone = (read_history(tmp_path / name) for name in ("prices.json", "list.json"))
    assert whole.values == alone.values == (22.98,) * 4


def test_a_history_without_a_price_is_named(tmp_path: Path) -> None:
    from gangway.sim.forecast.public_formats import read_history

    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"SpotPriceHistory": []}))
    with pytest.raises(InputError, match="SpotPriceHistory"):
        read_history(path)


def test_prices_of_windows_alone_are_named(tmp_path: Path) -> None:
    from gangway.sim.forecast.public_formats import read_history

    path = tmp_path / "prices.json"
    path.write_text(json.dumps([{**price, "ProductDescription": "Windows"} for price in PRICES]))
    with pytest.raises(InputError, match=r"none of Linux\n  got: +'Windows'(.|\n)*--product-descriptions Linux/UNIX"):
        read_history(path)
