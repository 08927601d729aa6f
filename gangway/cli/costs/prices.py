"""`gangway prices`: show the prices that estimates use, refresh them from the providers, and compare them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import EXIT_FINDINGS, print_json
from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from gangway.finops.prices.difference import Price
    from gangway.finops.prices.refresh import Report

EXIT_INTERRUPTED = 130

app = typer.Typer(help="The prices behind estimates: source, age, refresh from the providers.", no_args_is_help=True)

_Item = Annotated[
    str | None,
    typer.Argument(help="A machine type, a service such as nat-gateway, or a TPU generation such as v5p."),
]
_Provider = Annotated[str | None, typer.Option("--provider", help="Only this provider, such as aws.")]
_Region = Annotated[str | None, typer.Option("--region", help="Only this region.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, each price with its source.")]


@app.command()
def show(item: _Item = None, provider: _Provider = None, region: _Region = None, as_json: _Json = False) -> None:
    """Show prices of machines, services and TPU chips: value, date, confidence, source."""
    chosen = _regions(provider, region)
    everywhere = [price for name in chosen for price in _load_prices(name)]
    known_items = dict.fromkeys(price.item for price in everywhere)
    if item is not None and item not in known_items:
        raise InputError.not_among("ITEM", "no such machine type, service or TPU generation", item, known_items)
    prices = [one for one in everywhere if region in (None, one.region) and item in (None, one.item)]
    known = [price for price in prices if price.fact.value is not None]
    if as_json:
        from gangway.finops.prices.difference import price_json

        print_json([price_json(price) for price in prices])
        return
    from rich.console import Console

    from gangway.components.catalog.validators import SERVICE_FIELD
    from gangway.finops.prices.difference import FIELD_NAMES, show_prices

    console = Console()
    is_by_hour = all(price.unit == "hour" and price.field != SERVICE_FIELD for price in known)
    per = " per node-hour" if is_by_hour else ", per node-hour if no unit is given"
    title = f"prices of {item or ', '.join(chosen)}{f' in {region}' if region else ''}, USD{per}"
    show_prices(known, title, console)
    if item is not None:
        for place in dict.fromkeys(price.region for price in prices):
            unknown = [FIELD_NAMES[p.field] for p in prices if p.region == place and p.fact.value is None]
            if unknown:
                console.print(f"unknown in {place}: {'; '.join(unknown)}", highlight=False)
    console.print(f"{len(known)} known, {len(prices) - len(known)} unknown", highlight=False)


@app.command()
def refresh(
    provider: _Provider = None,
    region: _Region = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and compare, but write nothing.")] = False,
    as_json: _Json = False,
) -> None:
    """Read the providers' prices, reject suspicious ones, and write the rest as today's overlay.

    Exit code 0: all read. 1: some regions or providers failed; the others are written. 2: nothing could be read.
    """
    from rich.console import Console

    from gangway.components.catalog.prices import OVERLAYS_VARIABLE, overlay_folder
    from gangway.finops.prices.refresh import report_json, show_report

    chosen, folder, now = _regions(provider, region), overlay_folder(), datetime.now(UTC)
    if folder is None and not dry_run:
        fix = f"unset {OVERLAYS_VARIABLE}, or add --dry-run"
        raise InputError(OVERLAYS_VARIABLE, "overlays are turned off, so none can be written", value="none", fix=fix)
    console, documents = Console(), []
    failures: dict[str, str] = {}
    for name, regions in chosen.items():
        report, failure = _fetch(name, regions, now)
        if report is None:
            failures[name] = failure
            continue
        failures.update({f"{name} {where}": reason for where, reason in report.failed.items()})
        written = None if dry_run or folder is None else _write(folder, report, now)
        if as_json:
            documents.append(report_json(report, written))
        else:
            show_report(report, console, written)
    if all(name in failures for name in chosen):
        reasons = "".join(f"\n  {name}: {reason}" for name, reason in failures.items())
        raise InputError(
            "gangway prices refresh",
            f"no price could be read; nothing was written{reasons}",
            allowed="a network, and for Google Cloud credentials",
            fix="check the network and the credentials; until then the known prices stay in use",
        )
    if as_json:
        print_json({"providers": documents, "failed": failures})
    for name in (name for name in chosen if name in failures):
        typer.secho(f"{name}: not read: {failures[name]}", fg=typer.colors.RED, err=True)
    raise typer.Exit(EXIT_FINDINGS if failures else 0)


@app.command()
def diff(
    before: Annotated[
        str, typer.Argument(metavar="A", help="catalogue, overlay (the newest), a day such as 2026-11-21, or a file.")
    ] = "catalogue",
    now: Annotated[str, typer.Argument(metavar="B", help="What to compare it with, in the same form.")] = "overlay",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two sets of prices; by default the catalogue and the newest overlays."""
    from gangway.finops.prices.difference import difference, get_prices

    found = difference(get_prices(before, "A"), get_prices(now, "B"))
    if as_json:
        print_json([each.to_json() for each in found])
        return
    from rich.console import Console

    from gangway.finops.prices.difference import difference_table

    console = Console()
    if found:
        console.print(difference_table(found, f"from {before} to {now}, USD"))
    console.print(f"{len(found)} prices differ", highlight=False)


def _fetch(name: str, regions: Sequence[str], now: datetime) -> "tuple[Report | None, str]":
    """A report; or None and the reason, if no region could be read."""
    from rich.console import Console
    from rich.progress import Progress

    from gangway.finops.prices.refresh import refresh as refresh_one
    from gangway.finops.prices.source import SourceError, open_source

    try:
        source, console = open_source(name, now), Console(stderr=True)
        # Printed before reading, which can take long.
        console.print(f"{name}: {source.how}", highlight=False)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(name, total=len(regions))

            def on_region(region: str) -> None:
                progress.update(task, description=f"{name} {region}", completed=regions.index(region))

            report = refresh_one(source, name, regions, now.date(), on_region)
    except SourceError as problem:
        return None, str(problem)
    except KeyboardInterrupt:
        typer.echo(f"stopped: nothing of {name} was written", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if not report.regions:
        return None, next(iter(report.failed.values()))
    return report, ""


def _write(folder: "Path", report: "Report", now: datetime) -> "Path | None":
    """Write the new overlay and return its path; None if it would repeat the last one."""
    from gangway.finops.prices.refresh import write_overlay

    if not report.changes and not report.confirmed:
        return None
    try:
        return write_overlay(folder, report, now.date())
    except OSError as error:
        problem = f"the overlay cannot be written: {error.strerror}"
        raise InputError(str(folder), problem, fix="make the folder writable") from None


def _regions(provider: str | None, region: str | None) -> dict[str, list[str]]:
    from gangway.stacks.base.registry import chosen_sellers

    by_provider = {one.name: list(one.catalog_here().regions) for one in chosen_sellers(provider, "--provider")}
    if region is None:
        return by_provider
    known = [name for names in by_provider.values() for name in names]
    if region not in known:
        raise InputError.not_among("--region", "no such region", region, sorted(known))
    return {name: [region] for name, names in by_provider.items() if region in names}


def _load_prices(name: str) -> "list[Price]":
    from gangway.components.catalog.loader import load_tpus
    from gangway.finops.prices.difference import flatten
    from gangway.stacks.base.registry import get_provider

    facts = get_provider(name)
    catalog, tpus = facts.catalog_here(), load_tpus().prices if facts.has_tpus else ()
    return list(flatten(name, catalog.prices, tpus, catalog.services))
