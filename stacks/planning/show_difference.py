"""The difference between two plans as a person reads it. Computes nothing."""

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from stacks.planning.difference import Change, Delta, Difference
from stacks.planning.show import short_type

__all__ = ["show_difference"]


def show_difference(difference: Difference, console: Console) -> None:
    """Prints resources, figures and findings that changed."""
    console.print(_resources(difference))
    console.print(_figures(difference.figures))
    for sign, colour, findings in (("+", "yellow", difference.findings_new), ("-", "green", difference.findings_gone)):
        for finding in findings:
            console.print(f"[{colour}]{sign} finding {escape(finding)}[/]", highlight=False)


def _resources(difference: Difference) -> Tree:
    counts = (len(difference.added), len(difference.removed), len(difference.changed))
    tree = Tree("[bold]against the earlier plan[/]: {} added, {} removed, {} changed".format(*counts))
    for sign, colour, changes in (
        ("+", "green", difference.added),
        ("-", "red", difference.removed),
        ("~", "yellow", difference.changed),
    ):
        for change in changes:
            tree.add(f"[{colour}]{sign} {_label(change)}[/]")
    return tree


def _label(change: Change) -> str:
    kind = change.type if change.type.startswith("gangway:") else short_type(change.type)
    inputs = f" [dim]{escape(', '.join(change.inputs))}[/]" if change.inputs else ""
    return f"{escape(kind)} {escape(change.name)}{inputs}"


def _figures(figures: Iterable[Delta]) -> Table:
    table = Table(title="figures", title_justify="left")
    for column in ("what", "before", "now", "change"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for figure in figures:
        table.add_row(
            f"{figure.what}, {figure.unit}",
            _number(figure.before),
            _number(figure.now),
            _number(figure.change, "+"),
        )
    return table


def _number(value: float | None, sign: str = "") -> str:
    return "unknown" if value is None else f"{value:{sign},.2f}"
