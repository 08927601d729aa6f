"""Reads bills of any supported format and cloud (CSV, JSON, Parquet) row by row, never as a whole."""

import csv
import gzip
import importlib
import io
import itertools
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from gangway.components.core.findings import InputError, nearest
from gangway.components.core.foreign_files import foreign_file
from gangway.components.core.safe_text import all_visible
from gangway.finops.bill import exports, focus
from gangway.finops.bill.charge import Charge, get_value, moment
from gangway.finops.bill.deliveries import SUFFIXES, Delivery, conflict, find_deliveries
from gangway.trainer.core.regular_files import check_file

_NULL = "NULL"
"""The null of databases in any column; the FinOps Foundation's sample of FOCUS 1.0 has it."""
_EXPORT_AGAIN = "download or export it again"
_CHUNK = 1 << 18
_HEAD = 4096
_MAX_ROW = 1 << 20
"""Characters. Real rows have some thousand; an endless one would fill the memory."""
_TOO_LONG = f"a row of more than {_MAX_ROW:,} characters"
OWN_MARK = "x_run_id"
"""A column of `gangway report --format focus`, which is not a bill."""


class Table(NamedTuple):
    """An open table. `columns`: for JSON the keys of the first row; `rows`: with their 1-based numbers."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[int, dict[str, Any]]]


def open_table(path: Path) -> Table:
    """Open a table by its suffix. InputError: unreadable, empty or an unknown format; also while rows are read."""
    name = path.name.lower()
    if foreign := foreign_file(str(path), _head(path), "reconcile"):
        raise foreign
    if not name.endswith(SUFFIXES):
        raise InputError(
            str(path),
            "unknown file type",
            value=path.name,
            allowed=", ".join(SUFFIXES),
            fix="unpack or convert it",
        )
    try:
        check_file(path)
        size = path.stat().st_size
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", fix="name a bill's file") from None
    if not size:
        raise _empty(path)
    if name.endswith(".parquet"):
        return _parquet(path)
    is_csv = ".csv" in name
    rows = _report_damage(path, _csv(path) if is_csv else _json(path))
    first = next(rows, None)
    if first is None:
        raise _empty(path)
    # CSV has its header before the rows; for JSON the first row is the header.
    return Table(tuple(first[1]), rows if is_csv else itertools.chain([first], rows))


def _empty(path: Path) -> InputError:
    return InputError(str(path), "is empty, without a header", fix=_EXPORT_AGAIN)


def _text(path: Path) -> io.TextIOWrapper:
    binary = gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")  # noqa: SIM115 - the text closes it
    return io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")


def _head(path: Path) -> str:
    """The first characters; empty if unreadable, which the later read reports."""
    try:
        check_file(path)
        with _text(path) as text:
            return "" if path.name.lower().endswith(".parquet") else text.read(_HEAD)
    except (OSError, EOFError, zlib.error, ValueError):
        return ""


def _report_damage(path: Path, rows: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        yield from rows
    except InputError:
        raise
    except (csv.Error, EOFError, zlib.error, OSError, RecursionError, ValueError) as error:
        raise InputError(str(path), f"is damaged or cut short: {error}", fix=_EXPORT_AGAIN) from None


def _csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with _text(path) as text:
        bounded = _BoundedRows(text)
        lines = csv.reader(bounded, strict=True)
        header = next(lines, None)
        if header is None:
            return
        if twice := sorted({name for name in header if header.count(name) > 1}):
            raise InputError(
                str(path), "duplicate column", value=", ".join(twice), allowed="unique columns", fix=_EXPORT_AGAIN
            )
        yield 0, dict.fromkeys(header)
        for number, line in enumerate(lines, 1):
            bounded.length = 0
            if len(line) == len(header):
                yield number, dict(zip(header, line, strict=True))
            elif line:
                raise InputError(
                    f"{path}: row {number}",
                    "number of fields differs from the header",
                    value=len(line),
                    allowed=str(len(header)),
                    fix=_EXPORT_AGAIN,
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
                    f"{path}: row {number}", "is not a JSON object", value=value, fix="export rows as objects"
                )
            yield number, value


class _BoundedRows:
    """Lines for csv, which does not limit the fields of a row. `length`: of the row; the consumer resets it."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._lines = _short_lines(text)
        self.length = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.length += len(line)
            if self.length > _MAX_ROW:
                raise csv.Error(_TOO_LONG)
            yield line


def _short_lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(_MAX_ROW + 1):
        if len(line) > _MAX_ROW:
            raise csv.Error(_TOO_LONG)
        yield line


def _lines(begin: str, text: io.TextIOWrapper) -> Iterator[Any]:
    for line in _short_lines(text):
        whole, begin = begin + line, ""
        if whole.strip():
            yield json.loads(whole)


def _array(text: io.TextIOWrapper) -> Iterator[Any]:
    """Items of a JSON array, with at most one chunk and one item in memory."""
    decoder, buffer, at = json.JSONDecoder(), "", 0
    while True:
        while at < len(buffer) and buffer[at] in " \t\r\n,":
            at += 1
        if buffer[at : at + 1] == "]":
            return
        try:
            value, at = decoder.raw_decode(buffer, at)
        except json.JSONDecodeError:
            # Each attempt parses the item from its start: without a bound, time would be quadratic in its length.
            if len(buffer) - at > _MAX_ROW:
                raise csv.Error(_TOO_LONG) from None
            more = text.read(_CHUNK)
            if not more:
                raise
            buffer, at = buffer[at:] + more, 0
            continue
        yield value


def pyarrow_missing(path: Path) -> InputError:
    """The error for Parquet without pyarrow."""
    return InputError(
        str(path),
        "Parquet needs pyarrow, which is not installed",
        allowed="CSV or JSON without it",
        fix="pip install 'pyarrow>=22' (Gangway's extra `billing`)",
    )


def _parquet(path: Path) -> Table:
    try:
        # Imported by name: it has no types.
        pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise pyarrow_missing(path) from None
    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(str(path), f"is not a Parquet file: {error}", fix=_EXPORT_AGAIN) from None

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        with file:
            try:
                for batch in file.iter_batches(batch_size=4096):
                    for number, row in enumerate(batch.to_pylist(), number + 1):  # noqa: B020 - it counts on
                        yield number, row
            except (pyarrow.ArrowException, OSError) as error:
                raise InputError(str(path), f"is damaged or cut short: {error}", fix=_EXPORT_AGAIN) from None

    return Table(tuple(file.schema_arrow.names), rows())


class _Format(NamedTuple):
    name: str
    mark: str
    needed: tuple[tuple[str, ...], ...]
    charges: Callable[[Mapping[str, Any]], Iterator[Charge]]
    exported_at: str = ""
    """Column with the row's export time, if any."""
    fold: Callable[[str], str] = str
    """Normalises column names across versions."""


FORMATS = (
    _Format("FOCUS", focus.MARK, focus.NEEDED, focus.charges, "x_ExportTime"),
    _Format("AWS Cost and Usage Report 2.0", exports.AWS_MARK, exports.AWS_NEEDED, exports.aws_charges),
    _Format("Google Cloud billing export", exports.GCP_MARK, exports.GCP_NEEDED, exports.gcp_charges, "export_time"),
    _Format(exports.AZURE_NAME, exports.AZURE_MARK, exports.AZURE_NEEDED, exports.azure_charges, fold=str.lower),
)
_Key = tuple[str, str, str, str]
"""Provider, paying account, using account and billing period."""


class Bills:
    """Bills in files and folders; a pass over `charges` counts its rows. InputError: see `find_deliveries`."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.deliveries = find_deliveries(places)
        self._exports = Counter(delivery.export for delivery in self.deliveries.used)
        self._start()

    def _start(self) -> None:
        self.num_rows = self.num_replaced = 0
        self._keys: dict[Delivery, dict[_Key, Delivery | None]] = {}
        self._first_exported: dict[Delivery, datetime] = {}
        self._formats: set[str] = set()

    def charges(self, progress: Callable[[int], object] = lambda rows: None) -> Iterator[Charge]:
        """Charges of the newest delivery per account and period. InputError: no bill, or an invalid value or order."""
        self._start()
        for delivery in self.deliveries.used:
            keys = self._keys[delivery] = {}
            for kind, place, row in self._rows(delivery):
                self.num_rows += 1
                if not (self.num_rows + self.num_replaced) % 1000:
                    progress(self.num_rows + self.num_replaced)
                exported = self._export_time(delivery, kind, row)
                for number, charge in enumerate(self._charges(kind, place, row)):
                    key = _key(charge)
                    if key not in keys:
                        keys[key] = self._newer(delivery, key)
                    newer = keys[key]
                    if newer is None:
                        yield charge
                        continue
                    if not number:
                        self.num_rows, self.num_replaced = self.num_rows - 1, self.num_replaced + 1
                    if exported is not None and exported < self._first_exported.get(newer, exported):
                        raise conflict(newer, delivery, ", but lacks some of its rows, like an incomplete table")

    def _rows(self, delivery: Delivery) -> Iterator[tuple[_Format, str, Mapping[str, Any]]]:
        for number, path in enumerate(delivery.paths):
            if number and _is_blank(path):  # AWS empties the parts that a smaller delivery no longer needs
                continue
            table = open_table(path)
            kind = _find_format(path, table)
            self._formats.add(kind.name)
            for line, row in table.rows:
                if _NULL in row.values():
                    row = {column: None if value == _NULL else value for column, value in row.items()}
                yield kind, f"{path}: row {line}", row

    def _charges(self, kind: _Format, place: str, row: Mapping[str, Any]) -> Iterator[Charge]:
        try:
            for charge in map(_make_printable, kind.charges(row)):
                _check_period(charge)
                yield charge
        except InputError as mistake:
            raise mistake.within(place) from None

    def _newer(self, delivery: Delivery, key: _Key) -> Delivery | None:
        """The newer delivery of this account and period, if any. InputError: another has it, in unknown order."""
        for other, keys in self._keys.items():
            if other is delivery:
                continue
            if other.export != delivery.export:
                if keys.get(key, delivery) is None:
                    raise conflict(delivery, other)
            elif not (other.days and delivery.days) and any(
                counts is None and (*mine[:2], mine[3]) == (*key[:2], key[3]) for mine, counts in keys.items()
            ):
                if not other.is_newer(delivery):
                    raise conflict(delivery, other)
                return other
        return None

    def _export_time(self, delivery: Delivery, kind: _Format, row: Mapping[str, Any]) -> datetime | None:
        """Needed only if another delivery of the export may have the row's period."""
        if self._exports[delivery.export] < 2 or not row.get(kind.exported_at):
            return None
        exported = get_value(row, kind.exported_at, moment)
        first = self._first_exported.setdefault(delivery, exported)
        self._first_exported[delivery] = min(first, exported)
        return exported

    def notes(self) -> Iterator[str]:
        """Yield what readers must know about the last pass."""
        replaced = Counter(newer for _, newer in self.deliveries.replaced)
        for newer, number in replaced.items():
            at = f", of {newer.delivered_at:%Y-%m-%d %H:%M}" if newer.delivered_at else ""
            yield f"{newer.place}: the newest delivery of its period{at}; {number} older skipped"
        if self.num_replaced:
            yield f"{self.num_replaced:,} rows skipped: newer deliveries cover their billing period"
        if exports.AZURE_NAME in self._formats:
            yield "Azure's actual cost counts a reservation when it is purchased, not when it is used; FOCUS has both"


def _key(charge: Charge) -> _Key:
    period = charge.billing_period or f"{charge.charge_period_start:%Y-%m}-01"
    return charge.service_provider_name, charge.billing_account_id, charge.sub_account_id, period


def _is_blank(path: Path) -> bool:
    if path.name.lower().endswith(".parquet"):
        return not path.stat().st_size
    return not _head(path)


def _make_printable(charge: Charge) -> Charge:
    """Escape unprintable text; nearly all charges have none."""
    texts = (each for each in charge if isinstance(each, str))
    if all(map(str.isprintable, texts)) and all(map(str.isprintable, charge.tags.values())):
        return charge
    return Charge._make(all_visible(each) for each in charge)


def _check_period(charge: Charge) -> None:
    """A charge that ends before it starts would match no run, silently."""
    start, end = charge.charge_period_start, charge.charge_period_end
    if end < start:
        raise InputError(
            "charge period",
            "ends before it starts",
            value=f"from {start.isoformat()} to {end.isoformat()}",
            allowed="an end that is not before its start",
            fix="download or export it again",
        )


def _find_format(path: Path, table: Table) -> _Format:
    """Identify the export. InputError: unknown, a required column is missing, or not a bill."""
    columns = table.columns
    if OWN_MARK in columns:
        raise InputError(
            str(path), "is not a bill: `gangway report` wrote it", value=OWN_MARK, fix="pass the cloud's export"
        )
    if exports.OLD_AWS_MARK in columns:
        raise InputError(
            str(path),
            "is a Cost and Usage Report older than 2.0, whose columns change monthly",
            allowed="Cost and Usage Report 2.0, or FOCUS with AWS columns",
            fix="create such an export in AWS Data Exports",
        )
    for kind in FORMATS:
        folded = [kind.fold(column) for column in columns]
        if kind.mark in folded:
            _check(path, kind, folded)
            return kind
    marks = {kind.mark: kind.name for kind in FORMATS}
    close = next((near for column in columns if (near := nearest(column, marks))), None)
    raise InputError(
        str(path),
        "is not a known bill format",
        value=", ".join(columns[:8]),
        allowed="; ".join(f"{name} (column {mark})" for mark, name in marks.items()),
        fix=f"did you mean column {close}?" if close else "export the bill in one of these formats",
    )


def _check(path: Path, kind: _Format, columns: Sequence[str]) -> None:
    # JSON rows omit empty fields; rows that lack a required value are refused by number.
    if ".json" in path.name.lower():
        return
    for names in kind.needed:
        if not set(names) & set(columns):
            close = nearest(names[0], columns)
            raise InputError(
                str(path),
                f"lacks a column of {kind.name}",
                value=" or ".join(names),
                allowed=", ".join(" or ".join(names) for names in kind.needed),
                fix=f"did you mean {close!r}?" if close else f"export it with {names[0]}",
            )
