"""`gangway tco`: compare renting nodes with owning them.

    $ gangway tco --accelerator H100x8 --nodes 4 --years 3
    $ gangway tco --accelerator A100x8 --capex 250000 --utilisation 0.5 --out runs/tco

Every input has a source: the catalogue, a stated assumption (`components/catalog/onprem.yaml`), or the command line.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import OVERWRITE, check_new_file, print_json
from gangway.cli.costs.quote import MOST_NODES
from gangway.components.core.findings import InputError
from gangway.stacks.config.corrections import Span, parse_number

if TYPE_CHECKING:
    from gangway.finops.quotes.tco_tables import Tco

_RANGES: Mapping[str, tuple[float, float, str]] = {
    "nodes": (1, MOST_NODES, f"1 to {MOST_NODES:,}"),
    "years": (0.1, 20, "0.1 to 20 years"),
    "usd_per_hour": (0.001, math.inf, "USD per node and hour, above 0"),
    "fixed": (0, math.inf, "USD per node and hour, 0 or more"),
    "utilisation": (0.001, 1, "a share of the hours, above 0 and up to 1"),
    "capex": (1, math.inf, "USD per node, 1 or more"),
    "resale": (0, 1, "a share of the price, 0 to 1"),
    "kw": (0.001, math.inf, "kW per node, above 0"),
    "pue": (1, 10, "1 to 10"),
    "usd_per_kwh": (0, math.inf, "USD, 0 or more"),
    "colo": (0, math.inf, "USD per node and month, 0 or more"),
    "ops": (0, math.inf, "USD per node and month, 0 or more"),
    "availability": (0.5, 1, "a share of the hours, 0.5 to 1"),
    "cost_of_capital": (0, 1, "a share per year, 0 to 1"),
    "reserved-1y": (0.001, math.inf, "USD per node and hour, above 0"),
    "reserved-3y": (0.001, math.inf, "USD per node and hour, above 0"),
}
"""The smallest and largest value of each flag, and the range in words."""

Number = float | None


def tco(
    accelerator: Annotated[str, typer.Option(help="Accelerators of a node, such as H100x8.")],
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 1,
    years: Annotated[float, typer.Option(help="Years of use.")] = 3,
    utilisation: Annotated[Number, typer.Option(help="Share of hours in which the nodes work, 0 to 1.")] = None,
    providers: Annotated[str | None, typer.Option(help="Rent only from these, such as aws,gcp.")] = None,
    usd_per_hour: Annotated[
        Number, typer.Option(help="Rent of a node, USD per hour; the cheapest on-demand price if omitted.")
    ] = None,
    fixed: Annotated[Number, typer.Option(help="Rent that is always paid, USD per hour.")] = None,
    capex: Annotated[Number, typer.Option(help="Price of a node with its share of network and racks, USD.")] = None,
    resale: Annotated[Number, typer.Option(help="Resale value as a share of the price, 0 to 1.")] = None,
    kw: Annotated[Number, typer.Option(help="Mean power of a node, kW.")] = None,
    pue: Annotated[Number, typer.Option(help="Power usage effectiveness of the building.")] = None,
    usd_per_kwh: Annotated[Number, typer.Option(help="Price of electricity, USD per kWh.")] = None,
    colo: Annotated[Number, typer.Option(help="Colocation of a node without electricity, USD per month.")] = None,
    ops: Annotated[Number, typer.Option(help="Operation of a node, USD per month.")] = None,
    availability: Annotated[Number, typer.Option(help="Share of hours in which an owned node is available.")] = None,
    cost_of_capital: Annotated[Number, typer.Option(help="Cost of capital per year, such as 0.08.")] = None,
    reserved_1y: Annotated[Number, typer.Option(help="Rent with a one-year commitment, USD per hour.")] = None,
    reserved_3y: Annotated[Number, typer.Option(help="Rent with a three-year commitment, USD per hour.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the plot, as .png and .svg.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=OVERWRITE)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, each input with its source.")] = False,
) -> None:
    """Compare renting with owning: total costs, and the utilisation and month from which owning is cheaper."""
    given: dict[str, Number] = {
        "usd_per_hour": usd_per_hour,
        "fixed": fixed,
        "utilisation": utilisation,
        "capex": capex,
        "resale": resale,
        "kw": kw,
        "pue": pue,
        "usd_per_kwh": usd_per_kwh,
        "colo": colo,
        "ops": ops,
        "availability": availability,
        "cost_of_capital": cost_of_capital,
        "reserved-1y": reserved_1y,
        "reserved-3y": reserved_3y,
    }
    for name, value in {"nodes": nodes, "years": years, **given}.items():
        _check(name, value)
    from gangway.cli.costs.quote import carriers, chosen_providers
    from gangway.components.estimate.offers import find_offers
    from gangway.finops.quotes.tco_inputs import gather
    from gangway.finops.quotes.tco_tables import compare, plot_files, write_plot

    if out is not None:
        check_new_file(out, overwrite=overwrite, outputs=plot_files)
    offers = find_offers(carriers(accelerator, chosen_providers(providers)))
    result = compare(gather(accelerator, nodes, years, offers, given))
    _print_result(result, [] if out is None else write_plot(result, out), as_json=as_json)


def _print_result(result: "Tco", written: Sequence[Path], *, as_json: bool) -> None:
    from gangway.finops.quotes.tco_tables import show, to_json

    if as_json:
        print_json({**to_json(result), "files": [str(path) for path in written]})
        return
    from rich.console import Console

    console = Console()
    show(result, console)
    for path in written:
        console.print(f"wrote {path}", highlight=False)


def _check(name: str, value: float | None) -> None:
    low, high, allowed = _RANGES[name]
    # Comparisons with NaN are false, so NaN is refused too.
    if value is not None and not (low <= value <= high and value < math.inf):
        option = f"--{name.replace('_', '-')}"
        nearest = parse_number(name, value, Span(low=low, high=high, whole=name == "nodes"))
        if nearest is None:
            nearest = high if value > low else low
        fix = "write a finite number" if math.isinf(nearest) else f"write {option} {nearest:.10g}"
        raise InputError(option, "out of range", value=value, allowed=allowed, fix=fix)
