"""`gangway quote` and `gangway tco`: rank all offers for a job; compare renting nodes with owning them. Offline."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import EXIT_FINDINGS, OVERWRITE, check_new_file, check_range, choose, print_json
from gangway.components.core.findings import InputError
from gangway.stacks.config.corrections import TPU_SLICE, Span, parse_number

if TYPE_CHECKING:
    from gangway.components.catalog.loader import Catalog
    from gangway.components.estimate.offers import Carrier, Offer
    from gangway.components.estimate.quotes import Job, Sort
    from gangway.components.estimate.regions import DataAt, RegionLimits
    from gangway.finops.quotes.quote_tables import AdviceGiven
    from gangway.finops.quotes.tco_tables import Tco
    from gangway.stacks.base.provider import Provider


_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(h|d)?")
MOST_NODES = 1_000_000
MOST_HOURS = 876_000.0
"""A hundred years: longer is a slip, and summing over its interruptions would take hours."""


def quote(
    accelerator: Annotated[str, typer.Option(help="Accelerators of a node, such as H100x8; or a TPU slice: v5p-64.")],
    hours: Annotated[str, typer.Option(help="Training time without interruptions: 100, 100h or 4d.")],
    nodes: Annotated[int, typer.Option(help="Number of nodes; with TPUs, of slices.")] = 1,
    deadline: Annotated[str | None, typer.Option(help="Deadline, from the first step: 130h or 6d.")] = None,
    providers: Annotated[str | None, typer.Option(help="Only these providers, such as aws,gcp.")] = None,
    max_intensity: Annotated[float | None, typer.Option(help="Highest grid intensity, gCO2e per kWh.")] = None,
    allow: Annotated[str | None, typer.Option(help="Only these regions, such as aws:eu-,gcp:europe-west4.")] = None,
    deny: Annotated[str | None, typer.Option(help="Not these regions.")] = None,
    residency: Annotated[str | None, typer.Option(help="Only these countries or groups, such as EU,CH.")] = None,
    interruptions: Annotated[
        float | None,
        typer.Option(help="Share of spot nodes interrupted per month, 0 to 1, where no rate is published."),
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="REGION=GIB", help="Data to read, aws:us-east-1=40.")] = None,
    kimg: Annotated[float | None, typer.Option(help="Thousands of images: adds SCI, g per image.")] = None,
    sort: Annotated[str, typer.Option(help="Sort by cost, carbon or risk.")] = "cost",
    here: Annotated[
        str | None, typer.Option(help="Offer of a running job with --hours left: advise whether to move it.")
    ] = None,
    carry_gib: Annotated[float, typer.Option(help="With --here: checkpoint and data to move, GiB.")] = 10.0,
    top: Annotated[int, typer.Option(help="Number of rows with figures and reasons; 0: all.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, each figure with its source.")] = False,
) -> None:
    """Rank every way to get an accelerator by expected cost, time at risk and gCO2e, with the reasons.

    Exit code 0: at least one suitable offer. 1: none, or none with a known price. 2: invalid options.
    """
    from gangway.components.estimate.offers import find_offers, permitted_offers
    from gangway.components.estimate.quotes import SORTS, rank
    from gangway.components.estimate.quotes import quote as quote_one
    from gangway.finops.quotes.quote_tables import Answer, answer_json, show_answer
    from gangway.stacks.config.sections import parse_limits

    limits = parse_limits(allow, deny, residency)
    job = _job(nodes, hours, deadline, interruptions)
    job = replace(job, data=None if data is None else _parse_data(data, limits), kimg=kimg)
    by = choose("--sort", "cannot sort by this", sort, SORTS)
    _check_numbers(kimg, carry_gib, max_intensity, top)
    offers = find_offers(carriers(accelerator, chosen_providers(providers)))
    permitted, refused = permitted_offers(offers, limits)
    within = [offer for offer in permitted if max_intensity is None or _is_clean(offer, max_intensity)]
    ranking = rank([quote_one(offer, job) for offer in within], by)
    answer = Answer(accelerator, job, by, max_intensity, len(permitted) - len(within), ranking, top, refused=refused)
    if here is not None:
        answer = replace(answer, advice=_advice(here, offers, within, job, by, carry_gib))
    if as_json:
        print_json(answer_json(answer))
    else:
        from rich.console import Console

        show_answer(answer, Console())
    raise typer.Exit(0 if ranking.ranked else EXIT_FINDINGS)


def _is_clean(offer: "Offer", max_intensity: float) -> bool:
    grams = None if offer.place is None else offer.place.intensity_g_per_kwh.value
    return grams is not None and grams <= max_intensity


def _parse_data(text: str, limits: "RegionLimits") -> "DataAt":
    from gangway.components.estimate.regions import DataAt, read_place, refusal

    region, _, gib = text.rpartition("=")
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", gib):
        raise InputError(
            "--data", "not a region and size", value=text, allowed="REGION=GIB", fix="write --data aws:us-east-1=40"
        )
    place = read_place(region, "--data")
    if (refused := refusal(limits, place)) is not None:
        raise InputError(
            "--data", f"{refused.said} (--{refused.why})", value=text,
            allowed="a region that --allow, --deny and --residency permit",
            fix=f"first copy the data to a permitted region, or change --{refused.why}",
        )  # fmt: skip
    return DataAt(place, float(gib))


def _check_numbers(kimg: float | None, carry_gib: float, max_intensity: float | None, top: int) -> None:
    is_intensity = max_intensity is None or 0 <= max_intensity < math.inf
    is_size = 0 <= carry_gib < math.inf
    check_range("--kimg", kimg, is_valid=kimg is None or 0 < kimg < math.inf, allowed="above 0", example=1000)
    check_range("--carry-gib", carry_gib, is_valid=is_size, allowed="GiB, 0 or more", example=10)
    allowed = "gCO2e per kWh, 0 or more"
    check_range("--max-intensity", max_intensity, is_valid=is_intensity, allowed=allowed, example=200)
    check_range("--top", top, is_valid=top >= 0, allowed="0 (all) or more", example=0)


def _advice(
    label: str, offers: "Sequence[Offer]", within: "Sequence[Offer]", job: "Job", by: "Sort", carry_gib: float
) -> "AdviceGiven":
    from gangway.components.estimate.move_cost import Luggage, advise
    from gangway.components.estimate.regions import Place, traffic_price
    from gangway.finops.quotes.quote_tables import AdviceGiven

    here = next((offer for offer in offers if offer.label == label.rstrip("*")), None)
    if here is None:
        raise InputError.not_among("--here", "no such offer", label, [offer.label for offer in offers])
    source = Place(here.provider, here.region)
    luggage = Luggage(carry_gib, lambda offer: traffic_price(source, Place(offer.provider, offer.region)))
    return AdviceGiven(advise(here, within, job, luggage, by), luggage, by)


def get_hours(text: str, place: str) -> float:
    """Parse a duration above 0 and up to `MOST_HOURS` (`100`, `130h`, `5d`) in hours. InputError: invalid."""
    match = _LENGTH.fullmatch(text.strip())
    hours = 0.0 if match is None else float(match[1]) * (24 if match[2] == "d" else 1)
    if not 0 < hours <= MOST_HOURS:
        meant = parse_number("hours", text, Span(above=0, high=MOST_HOURS))
        raise InputError(
            place,
            "invalid duration",
            value=text,
            allowed=f"hours above 0 and up to {MOST_HOURS:g} (100 or 100h), or days (4d)",
            fix=f"write {place} {100 if meant is None else meant:.10g}h",
        )
    return hours


def chosen_providers(text: str | None) -> "tuple[Provider, ...]":
    """Parse a list such as `aws,gcp`; None means all with a catalogue. InputError: an unknown provider."""
    from gangway.stacks.base.registry import chosen_sellers, sellers

    if text is None:
        return sellers()
    chosen = {chosen_sellers(word.strip(), "--providers")[0].name for word in text.split(",")}
    return tuple(provider for provider in sellers() if provider.name in chosen)


def carriers(accelerator: str, providers: "Sequence[Provider]", place: str = "--accelerator") -> "list[Carrier]":
    """The machine types or TPU slices with the accelerator. InputError: no provider has it; the fix is the nearest."""
    from gangway.components.estimate.offers import get_carriers, unknown_accelerator

    tpu_provider = next((provider for provider in providers if provider.has_tpus), None)
    if tpu_provider is not None and TPU_SLICE.fullmatch(accelerator):
        return [_slice(accelerator, tpu_provider.catalog_here(), place)]
    catalogs = {provider.name: provider.catalog_here() for provider in providers}
    found = get_carriers(accelerator, catalogs)
    if not found:
        also = "" if tpu_provider is None else "; TPUs such as v5p-64"
        raise unknown_accelerator(accelerator, catalogs, place, also)
    return found


def _slice(accelerator: str, catalog: "Catalog", place: str) -> "Carrier":
    from gangway.components.estimate.offers import Carrier
    from gangway.components.gcp.slices import plan_slice, slice_machine, slice_prices

    try:
        plan = plan_slice(accelerator_type=accelerator)
    except InputError as mistake:
        fix = f"write {accelerator.lower()}" if accelerator != accelerator.lower() else mistake.fix
        raise InputError(place, mistake.problem, value=accelerator, allowed=mistake.allowed, fix=fix) from None
    return Carrier(
        machine=slice_machine(plan),
        prices=slice_prices(plan),
        regions=catalog.regions,
        interruptions=catalog.interruptions,
        capacity=frozenset({"on-demand", "spot"}),
    )


def _job(nodes: int, hours: str, deadline: str | None, interruptions: float | None) -> "Job":
    from gangway.components.estimate.quotes import Job

    nearest = max(1, min(abs(nodes), MOST_NODES))
    check_range(
        "--nodes", nodes, is_valid=1 <= nodes <= MOST_NODES, allowed=f"1 to {MOST_NODES:,}", example=nearest
    )  # fmt: skip
    length = get_hours(hours, "--hours")
    due = None if deadline is None else get_hours(deadline, "--deadline")
    if due is not None and due < length:
        raise InputError(
            "--deadline",
            "shorter than the training time without interruptions",
            value=deadline,
            allowed=f"{length:g}h or more",
            fix=f"write --deadline {math.ceil(length * 1.2)}h, or use more nodes and fewer --hours",
        )
    if interruptions is not None:
        meant = parse_number("interruptions", interruptions, Span(low=0, below=1)) or 0.15
        check_range(
            "--interruptions", interruptions, is_valid=0 <= interruptions < 1, allowed="0 up to but not including 1",
            example=f"{meant:g} for {meant:.0%} per month",
        )  # fmt: skip
    return Job(nodes, length, due, interruptions)


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
