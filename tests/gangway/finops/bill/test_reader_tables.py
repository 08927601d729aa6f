"""Tables in files: every kind is read alike, row by row, and a damaged one is named."""

import gzip
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.finops.bill import reader
from gangway.finops.bill.reader import open_table

pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
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
