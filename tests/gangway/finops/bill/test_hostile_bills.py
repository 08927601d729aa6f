"""A bill is a download: every text in it is refused with its column, or shows up as the text that it is."""

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import visible
from gangway.finops.bill.charge import Charge
from gangway.finops.bill.reader import Bills
from gangway.finops.bill.reconcile import reconcile, show
from gangway.runs.run_folders import Run
from gangway.trainer.records.run_record import RunRecord
from tests.hostile import LONG, SEEN, UNSEEN

pytestmark = pytest.mark.attack("a bill's writer", "texts of a bill that say more to CSV or a terminal")


def as_bill(columns: list[str], rows: list[list[str]], path: Path) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def first_row(samples: Path, name: str) -> dict[str, str]:
    with (samples / name).open(encoding="utf-8-sig", newline="") as file:
        return next(csv.DictReader(file))


def charge_or_mistake(path: Path) -> Charge | InputError:
    try:
        (charge,) = Bills([path]).charges()
    except InputError as mistake:
        return mistake
    return charge


@pytest.mark.parametrize(
    ("sample", "name"),
    [
        *(
            ("aws_focus.csv", name)
            for name in ("line break", "escape sequence", "NUL", "formula", "HTML", "YAML", "double quote")
        ),
        *((sample, name) for sample in ("azure_focus.csv", "aws_cur2.csv") for name in ("C1 control", "HTML")),
    ],
)
def test_a_bills_texts_stay_texts(sample: str, name: str, samples: Path, tmp_path: Path) -> None:
    text = {**UNSEEN, **SEEN}[name]
    row = first_row(samples, sample)
    shown = 0
    for column in row:
        path = as_bill([*row], [[*{**row, column: text}.values()]], tmp_path / "bill.csv")
        charge = charge_or_mistake(path)
        if isinstance(charge, InputError):
            assert column in charge.place or column.lower() in charge.place.replace(" ", "_").lower()
            assert str(charge).replace("\n", "").isprintable()
            continue
        texts = [each for each in charge if isinstance(each, str)]
        assert all(each.replace("\n", "").isprintable() for each in texts)
        shown += visible(text) in texts
    assert shown > 1


@pytest.mark.parametrize("name", [*UNSEEN, "HTML", "formula"])
def test_nothing_of_a_bill_acts_on_a_terminal(
    name: str, samples: Path, tmp_path: Path, run_1: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = {**UNSEEN, **SEEN}[name]
    row = first_row(samples, "aws_focus.csv")
    hostile = {**row, "ServiceName": text, "RegionId": text, "BillingAccountId": text, "ProviderName": text}
    assert hostile.keys() == row.keys()
    path = as_bill([*row], [[*hostile.values()]], tmp_path / "bill.csv")
    printed = io.StringIO()
    result = reconcile(Bills([path]), [Run(tmp_path, run_1, None)])
    show(result, Console(file=printed, force_terminal=True, color_system=None, width=200))
    assert visible(text).partition("\n")[0][:20].lower() in printed.getvalue().lower()
    assert printed.getvalue().replace("\n", "").isprintable()
    assert json.loads(json.dumps(result.to_json())) == result.to_json()


def test_a_row_without_an_end_is_refused(samples: Path, tmp_path: Path) -> None:
    row = first_row(samples, "aws_focus.csv")
    path = as_bill([*row], [[*{**row, "ServiceName": LONG * 20}.values()]], tmp_path / "bill.csv")
    with pytest.raises(InputError, match=r"bill\.csv"):
        list(Bills([path]).charges())


def test_a_number_of_many_digits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bill.jsonl"
    path.write_text('{"cost": ' + "9" * 5000 + "}\n", "utf-8")
    with pytest.raises(InputError, match=r"bill\.jsonl: is damaged"):
        list(Bills([path]).charges())
