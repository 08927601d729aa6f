"""The comparison of renting and owning: figures, tables, JSON and plot."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator

from gangway.components.catalog.schema import Fact
from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import write_whole
from gangway.components.estimate.cost import HOURS_PER_MONTH
from gangway.components.estimate.quotes import TERM_HOURS
from gangway.components.estimate.tco import (
    RULE_MONTHS,
    RULE_UTILISATION,
    CloudSide,
    break_even_months,
    break_even_utilisation,
    cloud_usd,
    discounted_hours,
    keeps_rule,
    onprem_usd,
    onprem_usd_per_hour,
)
from gangway.finops.quotes.tco_inputs import UNITS, Inputs
from gangway.render.drawing import LIGHT, draw

if TYPE_CHECKING:
    from rich.console import Console

SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_WORDS = {
    "usd_per_hour": "rent, on demand",
    "fixed": "rent that is always paid",
    "utilisation": "utilisation",
    "capex": "price of a node",
    "resale": "resale",
    "kw": "mean draw",
    "pue": "PUE",
    "usd_per_kwh": "electricity",
    "colo": "colocation",
    "ops": "operations",
    "availability": "availability",
    "cost_of_capital": "cost of capital",
}
_KINDS: Final[tuple[Literal["png", "svg"], ...]] = ("png", "svg")


@dataclass(frozen=True)
class Commitment:
    """A reservation, paid whether used or not. `usd`: whole terms of all nodes; `pays_above`: a utilisation."""

    label: str
    short: str
    price: Fact[float | None]
    on_demand: float
    usd: float
    paid_hours: float
    pays_above: float
    onprem_months: float


@dataclass(frozen=True)
class Tco:
    """A comparison.

    Attributes:
        cloud_usd: all nodes rented by the hour, over the years, in today's dollars.
        onprem_usd_per_node_hour: per hour, used or not.
        onprem_usd_per_used_hour: per hour of work at the given utilisation.
        utilisation: break-even over these years; above 1 never.
        months: break-even at the given utilisation; infinite for never.
        rule_holds: whether 70 to 80 % utilisation pays within 12 to 24 months here.
    """

    inputs: Inputs
    cloud_usd: float
    onprem_usd: float
    onprem_usd_per_node_hour: float
    onprem_usd_per_used_hour: float
    utilisation: float
    months: float
    by_share: tuple[tuple[float, float], ...]
    rule_holds: bool
    reserved: tuple[Commitment, ...]


def compare(inputs: Inputs) -> Tco:
    """Compute a comparison."""
    cloud, onprem, hours, rate = inputs.cloud, inputs.onprem, inputs.hours, inputs.rate
    per_hour = onprem_usd_per_hour(onprem, hours, rate)
    return Tco(
        inputs=inputs,
        cloud_usd=inputs.num_nodes * cloud_usd(cloud, hours, rate),
        onprem_usd=inputs.num_nodes * onprem_usd(onprem, hours, rate),
        onprem_usd_per_node_hour=per_hour,
        onprem_usd_per_used_hour=per_hour / inputs.value("utilisation"),
        utilisation=break_even_utilisation(cloud, onprem, hours, rate),
        months=break_even_months(cloud, onprem, rate),
        by_share=tuple((share, break_even_months(cloud.at(share), onprem, rate)) for share in SHARES),
        rule_holds=keeps_rule(cloud, onprem, rate),
        reserved=_commitments(inputs),
    )


def _commitments(inputs: Inputs) -> tuple[Commitment, ...]:
    found = []
    for offer in inputs.reserved:
        price, on_demand = offer.price.value, offer.on_demand
        assert price is not None and on_demand is not None, "only offers with both prices are gathered"  # noqa: PT018
        always = CloudSide(price, 1.0, inputs.cloud.fixed_usd_per_hour)
        rate = inputs.rate
        # Terms are sold whole; a rounding error is not a term.
        term = TERM_HOURS[offer.kind]
        paid_hours = math.ceil(round(inputs.hours / term, 9)) * term
        found.append(
            Commitment(
                label=offer.label,
                short=f"{offer.provider} {offer.kind}",
                price=offer.price,
                on_demand=on_demand,
                usd=inputs.num_nodes
                * (
                    price * discounted_hours(paid_hours, rate)
                    + inputs.cloud.fixed_usd_per_hour * discounted_hours(inputs.hours, rate)
                ),
                paid_hours=paid_hours,
                pays_above=price / on_demand,
                onprem_months=break_even_months(always, inputs.onprem, rate),
            )
        )
    return tuple(sorted(found, key=lambda each: each.usd))


def to_json(answer: Tco) -> dict[str, Any]:
    """The comparison as JSON data; never is null."""
    inputs = answer.inputs
    estimated = {"source": "gangway.components.estimate.tco, from the inputs", "confidence": "estimated"}
    return {
        "accelerator": inputs.accelerator,
        "nodes": inputs.num_nodes,
        "years": inputs.years,
        "hours": inputs.hours,
        "rented": None if inputs.rented is None else inputs.rented.label,
        "inputs": {
            name: {"value": fact.value, "unit": UNITS[name], **_provenance(fact)} for name, fact in inputs.facts.items()
        },
        "cloud": {"value": answer.cloud_usd, "unit": "USD", **estimated},
        "onprem": {"value": answer.onprem_usd, "unit": "USD", **estimated},
        "onprem_node_hour": {"value": answer.onprem_usd_per_node_hour, "unit": "USD/node-hour", **estimated},
        "onprem_used_hour": {"value": answer.onprem_usd_per_used_hour, "unit": "USD/used node-hour", **estimated},
        "break_even": {
            "utilisation": answer.utilisation,
            "months": _finite(answer.months),
            "by_utilisation": [{"utilisation": share, "months": _finite(month)} for share, month in answer.by_share],
        },
        "rule_of_thumb": {"utilisation": RULE_UTILISATION, "months": RULE_MONTHS, "holds": answer.rule_holds},
        "reserved": [
            {
                "offer": each.label,
                "price": {"value": each.price.value, "unit": "USD/node-hour", **_provenance(each.price)},
                "on_demand_usd_per_hour": each.on_demand,
                "usd": each.usd,
                "paid_hours": each.paid_hours,
                "pays_above_utilisation": each.pays_above,
                "onprem_months": _finite(each.onprem_months),
            }
            for each in answer.reserved
        ],
        "reserved_unpriced": list(inputs.unpriced),
    }


def _provenance(fact: Fact[Any]) -> dict[str, str | None]:
    return {"source": fact.source, "as_of": fact.as_of_text or None, "confidence": fact.confidence}


def _finite(number: float) -> float | None:
    return None if math.isinf(number) else number


def show(answer: Tco, console: "Console") -> None:
    """Print inputs, both bills, the break-evens and the reservations."""
    from rich.markup import escape

    inputs = answer.inputs
    use, years = inputs.value("utilisation"), f"{inputs.years:g} year{'s' * (inputs.years != 1)}"
    console.print(_inputs_table(inputs))
    cheaper = "owning" if answer.onprem_usd < answer.cloud_usd else "renting"
    console.print(
        f"\n[bold]{escape(inputs.accelerator)}[/], {inputs.num_nodes} node{'s' * (inputs.num_nodes > 1)}, {years}, "
        f"{use:.0%} used: rented [bold]${answer.cloud_usd:,.0f}[/], owned [bold]${answer.onprem_usd:,.0f}[/], "
        f"in today's dollars: {cheaper} is cheaper",
        highlight=False,
    )
    console.print(
        f"an hour of an owned node costs [bold]${answer.onprem_usd_per_node_hour:,.2f}[/], used or not, and an hour of "
        f"its work at {use:.0%} use [bold]${answer.onprem_usd_per_used_hour:,.2f}[/]: "
        f"gangway:site: {{usd_per_node_hour: {answer.onprem_usd_per_used_hour:.2f}}}",
        highlight=False,
    )
    console.print(f"over {years}, owning is cheaper {_break_even_text(answer.utilisation)}", highlight=False)
    console.print(f"at {use:.0%} use, owning is cheaper {_after(answer.months)}", highlight=False)
    console.print(_months_table(answer.by_share))
    low, high = (dict(answer.by_share)[share] for share in RULE_UTILISATION)
    console.print(
        "rule of thumb (70 to 80 % use pays within 12 to 24 months): "
        f"[bold]{'holds' if answer.rule_holds else 'does not hold'}[/] here, months {_month(high)} to {_month(low)}",
        highlight=False,
    )
    for each in answer.reserved:
        console.print(
            f"{escape(each.label)}: ${each.price.value:,.2f} of ${each.on_demand:,.2f} an hour, pays above "
            f"[bold]{each.pays_above:.0%}[/] use; ${each.usd:,.0f} over {years}{_whole_terms(each, inputs)}; owning is "
            f"cheaper {_after(each.onprem_months)}",
            highlight=False,
        )
    if inputs.unpriced:
        console.print(
            f"[yellow]no price of {escape(', '.join(inputs.unpriced))} for these nodes in the catalogue: add "
            "--reserved-1y or --reserved-3y, USD per node-hour[/]",
            highlight=False,
        )


def _whole_terms(each: Commitment, inputs: Inputs) -> str:
    return f" (whole terms: {each.paid_hours:,.0f} h)" if each.paid_hours > inputs.hours + 1 else ""


def _inputs_table(inputs: Inputs) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="inputs", title_justify="left", padding=(0, 1, 0, 0), show_edge=False, expand=True)
    table.add_column("what", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("unit")
    table.add_column("source", overflow="fold", ratio=1)
    for name, fact in inputs.facts.items():
        prefix = f"{inputs.rented.label}: " if name == "usd_per_hour" and inputs.rented else ""
        source = f"{prefix}{fact.source}, {fact.dated}, {fact.confidence}"
        table.add_row(_WORDS[name], f"{round(fact.value, 4):,.10g}", UNITS[name], f"[dim]{escape(source)}[/]")
    return table


def _months_table(rows: Sequence[tuple[float, float]]) -> Any:
    from rich.table import Table

    table = Table(padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("use")
    for share, _ in rows:
        table.add_column(f"{share:.0%}", justify="right")
    table.add_row("months", *(_month(month) for _, month in rows))
    return table


def _month(month: float) -> str:
    return "never" if math.isinf(month) else f"{month:.1f}"


def _break_even_text(utilisation: float) -> str:
    if utilisation > 1:
        return f"at no use: even 100 % cost less rented ({utilisation:.0%} would be needed)"
    return "at any use" if utilisation <= 0 else f"from [bold]{utilisation:.0%}[/] use on"


def _after(months: float) -> str:
    return "never" if math.isinf(months) else f"after [bold]{months:.1f}[/] months"


def plot_files(out: Path) -> list[Path]:
    """`out` as .png and .svg, replacing such a suffix. InputError: no file name."""
    if not out.name:
        place, fix = "a path that ends with a name", "write --out tco"
        raise InputError("--out", "has no file name", value=str(out), allowed=place, fix=fix)
    stem = out.with_suffix("") if out.suffix.lstrip(".") in _KINDS else out
    return [stem.with_name(f"{stem.name}.{kind}") for kind in _KINDS]


def write_plot(answer: Tco, out: Path) -> list[Path]:
    """Write the files of `plot_files`. InputError: they cannot be written."""
    paths = plot_files(out)
    # Draws everything before writing anything.
    plots = {path: draw_plot(answer, kind) for path, kind in zip(paths, _KINDS, strict=True)}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            "--out", f"cannot be written: {error.strerror}", value=str(out), fix="name a file in a writable folder"
        ) from None
    return [write_whole(path, content) for path, content in plots.items()]


def draw_plot(answer: Tco, kind: Literal["png", "svg"]) -> bytes:
    """Draw the plot as bytes of a file of that kind."""

    def paint(_: object, panels: Sequence[Axes]) -> None:
        for axes in panels:
            axes.spines["left"].set(visible=True, color=LIGHT.grid)
            axes.grid(color=LIGHT.grid, linewidth=0.8)
        _draw_bills(panels[0], answer)
        _draw_break_even(panels[1], answer)

    return draw(paint, kind, LIGHT, panels=2)


def _draw_bills(axes: Axes, answer: Tco) -> None:
    """Payments up to each month in millions; owning is net of the resale."""
    inputs = answer.inputs
    end = inputs.hours / HOURS_PER_MONTH
    months = [end * step / 60 for step in range(61)]
    million, rate = inputs.num_nodes / 1e6, inputs.rate
    rented = [cloud_usd(inputs.cloud, month * HOURS_PER_MONTH, rate) * million for month in months]
    owned = [onprem_usd(inputs.onprem, month * HOURS_PER_MONTH, rate) * million for month in months]
    use = inputs.value("utilisation")
    axes.plot(months, rented, color=LIGHT.series[0], linewidth=2, label=f"rented on demand, {use:.0%} used")
    axes.plot(months, owned, color=LIGHT.series[1], linewidth=2, label="owned, net of resale")
    for each in answer.reserved[:1]:
        axes.plot(
            months,
            [each.usd / 1e6 * discounted_hours(month, rate) / discounted_hours(end, rate) for month in months],
            color=LIGHT.series[0],
            linestyle="--",
            label=f"{each.short}, always paid",
        )
    if answer.months <= end:
        paid = onprem_usd(inputs.onprem, answer.months * HOURS_PER_MONTH, rate) * million
        axes.plot([answer.months], [paid], "o", color=LIGHT.ink)
        axes.annotate(
            f"month {answer.months:.1f}",
            (answer.months, paid),
            (8, -14),
            textcoords="offset points",
            color=LIGHT.ink,
        )
    nodes = f"{inputs.num_nodes} x {inputs.accelerator}"
    axes.set_title(f"{nodes}: paid so far", color=LIGHT.ink)
    axes.set_xlabel("months", color=LIGHT.quiet)
    axes.set_ylabel("million USD of today", color=LIGHT.quiet)
    axes.set_xlim(0, end)
    axes.xaxis.set_major_locator(MultipleLocator(6 if end <= 60 else 24))
    # The steepest line is at two thirds of its height where the legend ends, and so below it.
    axes.set_ylim(0, 1.45 * axes.dataLim.y1)
    axes.legend(frameon=False, labelcolor=LIGHT.ink, loc="upper left")


def _draw_break_even(axes: Axes, answer: Tco) -> None:
    """The break-even month by utilisation, with the rule of thumb as a box."""
    inputs = answer.inputs
    top = 1.15 * max(48.0, inputs.years * 12)  # with room for the words beside a point
    shares = [share / 200 for share in range(10, 201)]
    points = [(share, break_even_months(inputs.cloud.at(share), inputs.onprem, inputs.rate)) for share in shares]
    finite = [(share * 100, month) for share, month in points if not math.isinf(month)]
    axes.plot([use for use, _ in finite], [month for _, month in finite], color=LIGHT.series[1], linewidth=2)
    (low, high), (first, last) = RULE_UTILISATION, RULE_MONTHS
    axes.fill_between([low * 100, high * 100], first, last, color=LIGHT.series[0], alpha=0.18, linewidth=0)
    axes.annotate(
        "rule of thumb", ((low + high) * 50, last), (0, 4), textcoords="offset points", ha="center",
        color=LIGHT.series[0],
    )  # fmt: skip
    if 0 < answer.utilisation <= 1:
        use, month = answer.utilisation * 100, inputs.years * 12
        axes.plot([use], [month], "o", color=LIGHT.ink)
        axes.annotate(
            f"{use:.0f} % over {inputs.years:g} years", (use, month), (8, 4), textcoords="offset points",
            color=LIGHT.ink,
        )  # fmt: skip
    axes.set_title("owning is cheaper above the line", color=LIGHT.ink)
    axes.set_xlabel("utilisation, %", color=LIGHT.quiet)
    axes.set_ylabel("months", color=LIGHT.quiet)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, top)
