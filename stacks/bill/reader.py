"""Bills in files of whatever format and cloud, one charge after another; nothing is held but what tells rows apart.

A row that stands there twice, word for word or by AWS's own identity, is counted once and said: the same export given
twice, or parts that overlap, must not double a bill. That takes about 0.1 kB of memory a row.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from components.findings import InputError, nearest
from stacks.bill import aws, focus, gcp
from stacks.bill.charge import Charge
from stacks.bill.tables import SUFFIXES, Table, open_table
from stacks.report.runs import is_there

__all__ = ["Bills", "find_bills"]

OWN_MARK = "x_run_id"
"""A column that `gangway report --format focus` writes: what was recorded, and no bill."""


class _Format(NamedTuple):
    name: str
    mark: str
    needed: tuple[tuple[str, ...], ...]
    charges: Callable[[Mapping[str, Any]], Iterator[Charge]]
    identity: Callable[[Mapping[str, Any]], tuple[Any, ...] | None]


FORMATS = (
    _Format("FOCUS", focus.MARK, focus.NEEDED, focus.charges, lambda row: None),
    _Format("AWS Cost and Usage Report 2.0", aws.MARK, aws.NEEDED, aws.charges, aws.identity),
    _Format("Google Cloud billing export", gcp.MARK, gcp.NEEDED, gcp.charges, lambda row: None),
)


def find_bills(places: Sequence[Path]) -> tuple[Path, ...]:
    """The files that `places` name: themselves, or all tables below a folder but for its manifests.

    Raises:
        InputError: nothing is there, or a folder without a table.
    """
    found: list[Path] = []
    for place in places:
        if not is_there(place):
            raise InputError("--bill", "no such file or folder", value=str(place), fix="name an export's file")
        below = (
            sorted(path for path in place.rglob("*") if path.name.lower().endswith(SUFFIXES)) if place.is_dir() else []
        )
        tables = [path for path in below if "manifest" not in path.name.lower()]
        if place.is_dir() and not tables:
            raise InputError(
                "--bill", "no table in this folder", value=str(place), allowed=", ".join(SUFFIXES), fix="name a file"
            )
        found += tables or [place]
    return tuple(dict.fromkeys(path.resolve() for path in found))


class Bills:
    """Some files of bills. After a pass over `charges` the other attributes tell of it.

    Attributes:
        paths: of the files.
        num_rows: rows read, duplicates among them.
        num_duplicates: rows that were left out because they had been read before.
        sources: formats by provider, account and billing period.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self.num_rows = self.num_duplicates = 0
        self.sources: dict[tuple[str, str, str], set[str]] = {}

    def charges(self, progress: Callable[[int], object] = lambda rows: None) -> Iterator[Charge]:
        """One charge after another, over all files.

        Args:
            progress: told every thousand rows how many there have been.

        Raises:
            InputError: a file that is no bill, or a row with a value that is none.
        """
        self.num_rows = self.num_duplicates = 0
        self.sources = {}
        seen: set[int] = set()
        for path in self.paths:
            table = open_table(path)
            kind = _format_of(path, table)
            for number, row in table.rows:
                self.num_rows += 1
                if not self.num_rows % 1000:
                    progress(self.num_rows)
                mark = _mark((kind.name, *(kind.identity(row) or row.values())))
                if mark in seen:
                    self.num_duplicates += 1
                    continue
                seen.add(mark)
                yield from self._charges(kind, f"{path}: row {number}", row)

    def _charges(self, kind: _Format, place: str, row: Mapping[str, Any]) -> Iterator[Charge]:
        try:
            for charge in kind.charges(row):
                key = (charge.service_provider_name, charge.billing_account_id, charge.billing_period)
                self.sources.setdefault(key, set()).add(kind.name)
                _check_period(charge)
                yield charge
        except InputError as mistake:
            raise mistake.within(place) from None

    def notes(self) -> Iterator[str]:
        """What a reader must know of the last pass."""
        if self.num_duplicates:
            yield f"{self.num_duplicates:,} rows stand there more than once, and are counted once"
        twice = Counter(provider for (provider, _, _), names in self.sources.items() if len(names) > 1)
        for provider in sorted(twice):
            yield f"{provider}: the same billing period in two formats: its cost is counted twice; give one of them"


def _check_period(charge: Charge) -> None:
    """A charge that ends before it begins would be of no run, and nobody would see that it is damaged."""
    start, end = charge.charge_period_start, charge.charge_period_end
    if end < start:
        raise InputError(
            "charge period",
            "ends before it begins",
            value=f"from {start.isoformat()} to {end.isoformat()}",
            allowed="an end that is not before its start",
            fix="download or export it again",
        )


def _mark(key: tuple[Any, ...]) -> int:
    """A number that differs where keys do. Of text, since Python hashes -1 and -2 alike, and records not at all."""
    try:
        return hash("\x1f".join(key))
    except TypeError:  # numbers, times, lists and records of JSON and Parquet
        return hash(repr(key))


def _format_of(path: Path, table: Table) -> _Format:
    """Which export this is.

    Raises:
        InputError: none that is known, one without a column that is needed, or no bill at all.
    """
    columns = table.columns
    if OWN_MARK in columns:
        raise InputError(
            str(path), "is no bill: `gangway report` wrote it", value=OWN_MARK, fix="give the cloud's own export"
        )
    if aws.OLD_MARK in columns:
        raise InputError(
            str(path),
            "is a Cost and Usage Report of before 2.0, whose columns change from month to month",
            allowed="Cost and Usage Report 2.0, or FOCUS with AWS columns",
            fix="make such an export in AWS Data Exports",
        )
    for kind in FORMATS:
        if kind.mark in columns:
            _check(path, kind, columns)
            return kind
    marks = {kind.mark: kind.name for kind in FORMATS}
    close = next((near for column in columns if (near := nearest(column, marks))), None)
    raise InputError(
        str(path),
        "is no bill that is known",
        value=", ".join(columns[:8]),
        allowed="; ".join(f"{name} (column {mark})" for mark, name in marks.items()),
        fix=f"is one of its columns meant to be {close}?" if close else "export the bill in one of these formats",
    )


def _check(path: Path, kind: _Format, columns: Sequence[str]) -> None:
    # Rows of JSON leave out what is empty, and a row without a needed value is refused by its number.
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
                fix=f"is {close!r} meant to be it?" if close else f"export it with {names[0]}",
            )
