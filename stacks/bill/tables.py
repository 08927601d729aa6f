"""Tables in files, read row by row and never whole: CSV, JSON (lines or one array), Parquet; .gz but for Parquet.

Knows nothing of bills. pyarrow is an extra (`billing`) and is imported when a Parquet file is opened.
"""

import csv
import gzip
import importlib
import io
import itertools
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from components.findings import InputError

__all__ = ["SUFFIXES", "Table", "open_table", "pyarrow_missing"]

SUFFIXES = (".csv", ".csv.gz", ".json", ".json.gz", ".jsonl", ".jsonl.gz", ".parquet")
_AGAIN = "download or export it again"
_CHUNK = 1 << 18
_BATCH_ROWS = 4096


class Table(NamedTuple):
    """An open table.

    Attributes:
        columns: their names; of JSON the keys of the first row, since rows leave out what is null.
        rows: each with its number, from 1, and its values by column.
    """

    columns: tuple[str, ...]
    rows: Iterator[tuple[int, dict[str, Any]]]


def open_table(path: Path) -> Table:
    """Opens a table by its file's suffix.

    Raises:
        InputError: the file cannot be read, is empty, or is none of these kinds; also while rows are read.
    """
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise InputError(
            str(path),
            "no kind of table that is known",
            value=path.name,
            allowed=", ".join(SUFFIXES),
            fix="unpack or convert it",
        )
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", fix="name a file of a bill") from None
    if not size:
        raise _empty(path)
    if name.endswith(".parquet"):
        return _parquet(path)
    is_csv = ".csv" in name
    rows = _guarded(path, _csv(path) if is_csv else _json(path))
    first = next(rows, None)
    if first is None:
        raise _empty(path)
    # CSV tells its header before its rows; of JSON the first row is the header too.
    return Table(tuple(first[1]), rows if is_csv else itertools.chain([first], rows))


def _empty(path: Path) -> InputError:
    return InputError(str(path), "is empty: not even a header", fix=_AGAIN)


def _text(path: Path) -> io.TextIOWrapper:
    binary = gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")  # noqa: SIM115 - the text closes it
    return io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")


def _guarded(path: Path, rows: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Turns what reading may raise into the user's words."""
    try:
        yield from rows
    except (
        UnicodeDecodeError,
        csv.Error,
        json.JSONDecodeError,
        EOFError,
        zlib.error,
        OSError,
        RecursionError,
    ) as error:
        raise InputError(str(path), f"is damaged or cut short: {error}", fix=_AGAIN) from None


def _csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with _text(path) as text:
        lines = csv.reader(text, strict=True)
        header = next(lines, None)
        if header is None:
            return
        if twice := sorted({name for name in header if header.count(name) > 1}):
            raise InputError(str(path), "has a column twice", value=", ".join(twice), allowed="each once", fix=_AGAIN)
        yield 0, dict.fromkeys(header)
        for number, line in enumerate(lines, 1):
            if len(line) == len(header):
                yield number, dict(zip(header, line, strict=True))
            elif line:
                raise InputError(
                    f"{path}: row {number}",
                    "has another number of fields than the header",
                    value=len(line),
                    allowed=str(len(header)),
                    fix=_AGAIN,
                )


def _json(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with _text(path) as text:
        begin = text.read(1)
        while begin.isspace():
            begin = text.read(1)
        values = _array(text) if begin == "[" else _lines(begin, text)
        for number, value in enumerate(values, 1):
            if not isinstance(value, dict):
                raise InputError(
                    f"{path}: row {number}", "is no JSON object", value=value, fix="export rows as objects"
                )
            yield number, value


def _lines(begin: str, text: io.TextIOWrapper) -> Iterator[Any]:
    for line in text:
        whole, begin = begin + line, ""
        if whole.strip():
            yield json.loads(whole)


def _array(text: io.TextIOWrapper) -> Iterator[Any]:
    """The items of a JSON array, of which never more than a chunk and an item is held."""
    decoder, held, at = json.JSONDecoder(), "", 0
    while True:
        while at < len(held) and held[at] in " \t\r\n,":
            at += 1
        if held[at : at + 1] == "]":
            return
        try:
            value, at = decoder.raw_decode(held, at)
        except json.JSONDecodeError:
            more = text.read(_CHUNK)
            if not more:
                raise
            held, at = held[at:] + more, 0
            continue
        yield value


def pyarrow_missing(path: Path) -> InputError:
    """What to say where Parquet is wanted and pyarrow is not installed."""
    return InputError(
        str(path),
        "Parquet needs pyarrow, which is not installed",
        allowed="CSV or JSON without it",
        fix="pip install 'pyarrow>=22' (Gangway's extra `billing`)",
    )


def _parquet(path: Path) -> Table:
    try:
        # By name: it has no types, and so no business in the type checker.
        pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise pyarrow_missing(path) from None
    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(str(path), f"is no Parquet file: {error}", fix=_AGAIN) from None

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        with file:
            try:
                for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                    for number, row in enumerate(batch.to_pylist(), number + 1):  # noqa: B020 - it counts on
                        yield number, row
            except (pyarrow.ArrowException, OSError) as error:
                raise InputError(str(path), f"is damaged or cut short: {error}", fix=_AGAIN) from None

    return Table(tuple(file.schema_arrow.names), rows())
