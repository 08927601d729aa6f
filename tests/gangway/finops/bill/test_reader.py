"""Bills of several files: which export each is, what stands there twice, and columns that are not there."""

import csv
import gzip
import json
import sys
import tracemalloc
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.finops.bill import reader
from gangway.finops.bill.charge import Charge, moment
from gangway.finops.bill.reader import Bills, open_table

pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
Write = Callable[..., Path]
Row = Callable[..., dict[str, str]]


def test_azures_rows_are_days_in_the_accounts_currency(samples: Path) -> None:
    first = next(iter(Bills([samples / "azure_focus.csv"]).charges()))
    assert (first.service_provider_name, first.service_category, first.billing_currency) == ("azure", "Compute", "EUR")
    assert (first.charge_period_end - first.charge_period_start).total_seconds() == 86_400
    assert first.tags["gangway_stack"] == "azure-ndv5-spot"


def test_awss_focus_export(samples: Path) -> None:
    charges = list(Bills([samples / "aws_focus.csv"]).charges())
    assert sum(charge.billed_cost for charge in charges) == pytest.approx(353.3)
    assert {charge.charge_category for charge in charges} == {"Usage", "Credit", "Tax"}
    assert [charge.billed_cost for charge in charges if charge.charge_class == "Correction"] == [-1]


def as_parquet(source: Path, target: Path) -> Path:
    """The same bill with numbers, timestamps and a map of tags, as AWS writes Parquet."""
    with source.open(encoding="utf-8-sig", newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for row in rows:
        for column in row:
            if column in ("BilledCost", "EffectiveCost"):
                row[column] = float(row[column])
            elif column.startswith(("ChargePeriod", "BillingPeriod")):
                row[column] = moment(row[column])
        row["Tags"] = list(json.loads(row["Tags"] or "{}").items())
    tags = ("Tags", pyarrow.map_(pyarrow.string(), pyarrow.string()))
    inferred = pyarrow.Table.from_pylist([{**row, "Tags": None} for row in rows]).schema
    schema = pyarrow.schema([tags if field.name == "Tags" else field for field in inferred])
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), target)
    return target


@pytest.mark.parametrize("name", ["azure_focus.csv", "aws_focus.csv"])
def test_parquet_holds_the_same_bill(samples: Path, tmp_path: Path, name: str) -> None:
    path = as_parquet(samples / name, tmp_path / "bill.parquet")
    assert list(Bills([path]).charges()) == list(Bills([samples / name]).charges())


def test_within_a_delivery_no_row_is_left_out(samples: Path, tmp_path: Path) -> None:
    """Identical rows are charges of their own: two machines of one kind in one hour, say."""
    for name, rows in (("aws_focus.csv", 38), ("aws_cur2.csv", 16), ("gcp_detailed.jsonl", 13)):
        lines = (samples / name).read_text("utf-8").splitlines(keepends=True)
        header = [] if name.endswith("jsonl") else lines[:1]
        (tmp_path / name).write_text("".join([*lines, *lines[len(header) :]]), "utf-8")
        once, twice = Bills([samples / name]), Bills([tmp_path / name])
        assert [*sorted([*once.charges()] * 2, key=str)] == sorted(twice.charges(), key=str)
        assert (once.num_rows, twice.num_rows) == (rows, 2 * rows)
        assert [*once.notes(), *twice.notes()] == []


def test_null_is_no_value_in_every_column(tmp_path: Path, write_csv: Write, focus_row: Row) -> None:
    """As in the FinOps Foundation's sample of FOCUS 1.0, whose times have no zone either."""
    row = focus_row(
        Tags="NULL",
        ResourceId="NULL",
        RegionId="NULL",
        ChargeClass="NULL",
        ServiceCategory="NULL",
        BillingPeriodStart="2026-10-01 00:00:00",
        ChargePeriodStart="2026-10-05 10:00:00",
        ChargePeriodEnd="2026-10-05 11:00:00",
    )
    parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "bill.parquet")
    for path in (write_csv([row]), tmp_path / "bill.parquet"):
        (charge,) = Bills([path]).charges()
        assert (charge.tags, charge.resource_id, charge.region_id, charge.charge_class) == ({}, "", "", "")
        assert (charge.service_category, charge.billing_period) == ("", "2026-10-01")
    for column in ("BilledCost", "ChargePeriodEnd", "ChargeCategory"):
        with pytest.raises(InputError, match=f"row 1: {column}: (cannot be read|not a FOCUS category)"):
            list(Bills([write_csv([{**row, column: "NULL"}])]).charges())


def test_days_of_parquet_are_read(tmp_path: Path, focus_row: Row) -> None:
    days = {"ChargePeriodStart": date(2026, 10, 5), "ChargePeriodEnd": date(2026, 10, 6), "BilledCost": 1.0}
    parquet.write_table(pyarrow.Table.from_pylist([{**focus_row(), **days}]), tmp_path / "bill.parquet")
    (charge,) = Bills([tmp_path / "bill.parquet"]).charges()
    assert charge.charge_period_end - charge.charge_period_start == timedelta(days=1)


def test_a_column_that_stands_there_twice_is_refused(tmp_path: Path, write_csv: Write, focus_row: Row) -> None:
    path = write_csv([focus_row()])
    header, line = path.read_text().splitlines()
    path.write_text(f"{header},BilledCost\n{line},7\n")
    with pytest.raises(InputError, match=r"bill.csv: duplicate column(.|\n)*'BilledCost'"):
        list(Bills([path]).charges())


def test_two_formats_of_one_bill_are_refused(samples: Path) -> None:
    names = "aws_focus.csv", "aws_cur2.csv"
    with pytest.raises(InputError, match=r"aws_cur2.csv: covers the same billing period as .*aws_focus.csv"):
        list(Bills([samples / name for name in names]).charges())


def test_progress_is_told(write_csv: Write, focus_row: Row) -> None:
    path = write_csv([focus_row(BilledCost=str(number)) for number in range(2500)])
    told: list[int] = []
    list(Bills([path]).charges(told.append))
    assert told == [1000, 2000]


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ({"EffectiveCost": "EfectiveCost"}, r"lacks a column of FOCUS\n  got: +'EffectiveCost'(.|\n)*'EfectiveCost'"),
        ({"Tags": "ResourceTags"}, r"lacks a column of FOCUS\n  got: +'Tags or x_Labels'"),
        ({"ServiceProviderName": "Supplier"}, r"got: +'ServiceProviderName or ProviderName'"),
        ({"BilledCost": "BiledCost"}, r"is not a known bill format(.|\n)*did you mean column BilledCost\?"),
        ({"BilledCost": "x_run_id"}, "is not a bill: `gangway report` wrote it"),
        ({"BilledCost": "lineItem/UnblendedCost"}, "Cost and Usage Report older than 2.0"),
    ],
)
def test_a_wrong_column_is_named(write_csv: Write, focus_row: Row, rename: dict[str, str], message: str) -> None:
    row = {rename.get(column, column): value for column, value in focus_row().items()}
    with pytest.raises(InputError, match=message):
        list(Bills([write_csv([row])]).charges())


def test_a_table_that_is_no_bill_at_all(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("colour,size\nred,3\n")
    with pytest.raises(InputError, match="export the bill in one of these formats"):
        list(Bills([tmp_path / "t.csv"]).charges())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"BilledCost": "12,5"}, r"bill.csv: row 2: BilledCost: cannot be read(.|\n)*'12,5'"),
        ({"ChargePeriodEnd": "05.10.2026"}, "row 2: ChargePeriodEnd: cannot be read"),
        ({"ChargePeriodEnd": "9999-12-31T23:59:59-05:00"}, "row 2: ChargePeriodEnd: cannot be read"),
        (
            {"ChargePeriodEnd": "2026-01-01T00:00:00Z"},
            "row 2: charge period: ends before it starts(.|\n)*to 2026-01-01",
        ),
        ({"Tags": "{"}, "row 2: Tags: cannot be read"),
        ({"Tags": "[" * 5000}, "row 2: Tags: cannot be read"),
        ({"ChargeCategory": "Support"}, r"row 2: ChargeCategory: not a FOCUS category(.|\n)*Usage, Purchase"),
    ],
)
def test_a_bad_value_is_named_with_its_row(
    write_csv: Write, focus_row: Row, values: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        list(Bills([write_csv([focus_row(), focus_row(**values)])]).charges())


def test_brackets_without_end_are_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"deep.json: is damaged or cut short"):
        list(Bills([tmp_path / "deep.json"]).charges())


def test_a_month_without_charges(write_csv: Write, focus_row: Row, tmp_path: Path) -> None:
    path = write_csv([focus_row()])
    path.write_text(path.read_text().splitlines()[0] + "\n")
    bills = Bills([path])
    assert (list(bills.charges()), bills.num_rows) == ([], 0)


def test_a_folder_of_an_export(tmp_path: Path, write_csv: Write, focus_row: Row) -> None:
    folder = tmp_path / "2026-10"
    folder.mkdir()
    part = write_csv([focus_row()]).rename(folder / "part-1.csv")
    (folder / "Manifest.json").write_text("{}")
    (folder / "notes.txt").write_text("x")
    assert [each.paths for each in Bills([folder, part]).deliveries.used] == [(part.resolve(),)]
    for place in (tmp_path / "nowhere", tmp_path / ("x" * 300)):
        with pytest.raises(InputError, match="--bill: no such file or folder"):
            Bills([place])
    part.unlink()
    with pytest.raises(InputError, match="--bill: contains no table"):
        Bills([folder])


def test_charges_are_plain_data(samples: Path) -> None:
    assert all(isinstance(charge, Charge) for charge in Bills([samples / "gcp_detailed.jsonl"]).charges())


ROWS = [{"a": "1", "b": 'x, "y"\nz'}, {"a": "2", "b": "ü"}]


def csv_bytes() -> bytes:
    return '\ufeffa,b\r\n1,"x, ""y""\nz"\r\n\r\n2,ü\r\n'.encode()


def as_files(folder: Path) -> dict[str, bytes]:
    lines = "\n".join(json.dumps(row) for row in ROWS)
    plain = {"t.csv": csv_bytes(), "t.jsonl": f"\n{lines}\n\n".encode(), "t.json": json.dumps(ROWS, indent=2).encode()}
    packed = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in plain.items()}
    buffer = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), buffer)
    return {**plain, **packed, "T.PARQUET": buffer.getvalue().to_pybytes()}


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl", "t.jsonl.gz", "t.json", "t.json.gz", "T.PARQUET"])
def test_every_kind_of_file_is_read_alike(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(as_files(tmp_path)[name])
    table = open_table(path)
    assert table.columns == ("a", "b")
    assert [row for _, row in table.rows] == ROWS


def test_a_header_alone_is_a_bill_without_charges(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n")
    table = open_table(tmp_path / "t.csv")
    assert (table.columns, list(table.rows)) == (("a", "b"), [])


@pytest.mark.slow
@given(values=st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none(), min_size=1), min_size=1))
def test_an_array_is_read_across_chunks(values: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("t") / "t.json"
    path.write_text(json.dumps(values))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_CHUNK", 5)
        assert [row for _, row in open_table(path).rows] == values


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "is empty, without a header"),
        ("t.csv.gz", gzip.compress(b"", mtime=0), "is empty, without a header"),
        ("t.csv", b"a,b\n1,2\n3\n", r"row 2: number of fields differs from the header"),
        ("t.csv", b'a,b\n1,"2\n', "is damaged or cut short"),
        ("t.csv", b"a,b\n\xff,2\n", "is damaged or cut short"),
        ("t.csv.gz", gzip.compress(csv_bytes() * 99, mtime=0)[:60], "is damaged or cut short"),
        ("t.csv.gz", b"a,b\n1,2\n", "is damaged or cut short"),
        ("t.json", b'[{"a": 1}, {"a"', "is damaged or cut short"),
        ("t.jsonl", b'{"a": 1}\n3\n', "row 2: is not a JSON object"),
        ("t.parquet", b"PAR1 and no more", "is not a Parquet file"),
        ("t.xlsx", b"x", "unknown file type"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        list(open_table(path).rows)
    assert str(path) in str(caught.value)
    assert "fix:" in str(caught.value)


def test_a_damaged_row_group_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"a": [f"{n:064d}" for n in range(20_000)]}), path, compression="none")
    content = bytearray(path.read_bytes())
    content[4:4000] = b"\xff" * 3996
    path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged or cut short"):
        list(open_table(path).rows)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        open_table(tmp_path / "t.csv")


def test_parquet_without_pyarrow_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'pyarrow>=22'"):
        open_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("name", ["t.csv", "t.json"])
def test_a_large_file_is_never_held_whole(tmp_path: Path, name: str, write_large: Callable[[Path], int]) -> None:
    size = write_large(tmp_path / name)
    tracemalloc.start()
    try:
        assert sum(1 for _ in open_table(tmp_path / name).rows) == 50_000
        assert tracemalloc.get_traced_memory()[1] < size / 4
    finally:
        tracemalloc.stop()


@pytest.fixture
def write_large() -> Callable[[Path], int]:
    """Writes 50,000 rows and gives the file's size."""

    def write(path: Path) -> int:
        rows = ({"number": str(n), "text": "x" * 100} for n in range(50_000))
        if path.suffix == ".csv":
            path.write_text("number,text\n" + "\n".join(f"{row['number']},{row['text']}" for row in rows) + "\n")
        else:
            path.write_text(json.dumps(list(rows)))
        return path.stat().st_size

    return write


ENDLESS = {
    "t.csv": b"a,b\n1," + b"x" * 1_100_000,
    "t.csv.gz": gzip.compress(b"a,b\n1," + b'"x\n",' * 300_000),  # a row of many lines, each of them short
    "t.jsonl": b'{"a": "' + b"x" * 1_100_000,
    "t.json.gz": gzip.compress(b'[{"a": "' + b"x" * 50_000_000),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_row_without_an_end_is_given_up_early(tmp_path: Path, name: str) -> None:
    """Without a bound, kilobytes of a packed file fill the memory, and time grows with the square of a row."""
    path = tmp_path / name
    path.write_bytes(ENDLESS[name])
    tracemalloc.start()
    with pytest.raises(InputError, match="a row of more than 1,048,576 characters"):
        list(open_table(path).rows)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 40 << 20


def test_a_long_row_is_a_row(tmp_path: Path) -> None:
    for name, content in {"t.csv": f"a,b\n{'x' * 100_000},\n", "t.json": json.dumps([{"a": "x" * 900_000}])}.items():
        (tmp_path / name).write_text(content)
        assert len(list(open_table(tmp_path / name).rows)) == 1
