"""The tables of docs/reference/changing-settings.md: what a change of each setting does to a stack that is up.

The first table has a column for each stack. The second has a row for each outcome: of settings of one or two stacks,
and of settings with the same outcome on all stacks that have them. Settings of a section with the same outcomes share a
row.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/reference/changing-settings.md"
COLUMNS = {
    "AWS": "aws-demo",
    "Google Cloud": "gcp-a3-spot",
    "TPU": "gcp-v5e-pod",
    "Azure": "azure-ndv5-spot",
    "OpenStack": "openstack-gpu",
    "hosts": "hosts-lab",
    "Slurm": "aws-p5-slurm",
    "Kubernetes": "eks-p5-kueue",
}
UNTRIED, NOT_HERE = "?", "n/a"
_FIRST, _SECOND = "| setting | AWS |", "| setting | on |"
_FEW = 2
_ALL, _NONE = "all", "none"


class SettingsTable:
    """Setting -> column -> what happens."""

    def __init__(self) -> None:
        text = PAGE.read_text("utf-8")
        self.cells: dict[str, dict[str, str]] = {}
        for names, cells in _rows(text, _FIRST):
            for name in names:
                self.cells[name] = dict(zip(COLUMNS, cells, strict=True))
        for names, (columns, cell) in _rows(text, _SECOND):
            for name in names:
                row = self.cells.setdefault(name, dict.fromkeys(COLUMNS, NOT_HERE))
                on = {_ALL: list(COLUMNS), _NONE: []}.get(columns, columns.split(", "))
                row.update(dict.fromkeys(on, cell))

    def rendered(self, names: Sequence[str]) -> str:
        """The page with rows of these settings, in this order."""
        text = PAGE.read_text("utf-8")
        before, _, rest = text.partition(_FIRST)
        between = rest.partition("\n\n")[2].partition(_SECOND)[0]
        short = [name for name in names if self._is_short(name)]
        long = [name for name in names if name not in short]
        first = [f"{_FIRST} {' | '.join(list(COLUMNS)[1:])} |", f"|---|{'---|' * len(COLUMNS)}"]
        first += [f"| {_quoted(same)} | {' | '.join(row)} |" for same, row in self._grouped(long)]
        second = [f"{_SECOND} what happens |", "|---|---|---|"]
        second += [f"| {_quoted(same)} | {columns} | {cell} |" for columns, cell, same in self._outcomes(short)]
        return "\n".join([before + first[0], *first[1:], "", between + second[0], *second[1:], ""])

    def _is_short(self, name: str) -> bool:
        columns = self._columns(name)
        return len(columns) <= _FEW or len({self.cells.get(name, {}).get(column) for column in columns}) == 1

    def _columns(self, name: str) -> list[str]:
        return [column for column, cell in zip(COLUMNS, self._row(name), strict=True) if cell != NOT_HERE]

    def _row(self, name: str) -> tuple[str, ...]:
        return tuple(self.cells.get(name, {}).get(column, UNTRIED) for column in COLUMNS)

    def _grouped(self, names: Iterable[str]) -> Iterator[tuple[list[str], tuple[str, ...]]]:
        """Settings of a section with the same cells."""
        found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for name in names:
            found.setdefault((name.partition(".")[0], self._row(name)), []).append(name)
        for (_, row), same in found.items():
            yield same, row

    def _outcomes(self, names: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
        """Stacks, what happens there, and the settings of a section with which it does."""
        found: dict[tuple[str, str, str], list[str]] = {}
        for name in names:
            columns: dict[str, list[str]] = {}
            for column in self._columns(name):
                columns.setdefault(self.cells.get(name, {}).get(column, UNTRIED), []).append(column)
            for cell, its in columns.items() if columns else [(NOT_HERE, [_NONE])]:
                on = _ALL if its == list(COLUMNS) else ", ".join(its)
                section = "" if on in (_ALL, _NONE) else name.partition(".")[0]
                found.setdefault((section, on, cell), []).append(name)
        for (_, on, cell), same in found.items():
            yield on, cell, same

    def measured(self, column: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """The first of neighbours with the same cells, if it means something to the stack, with its cell."""
        for _, same in groupby(names, lambda name: (name.partition(".")[0], self._row(name))):
            name = next(same)
            cell = self.cells[name][column]
            if cell not in (NOT_HERE, "-"):
                yield name, cell


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _rows(text: str, heading: str) -> Iterator[tuple[list[str], list[str]]]:
    table = (heading + text.partition(heading)[2]).partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        names, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        yield names.replace("`", "").split(", "), cells
