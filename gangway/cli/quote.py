"""`gangway quote`: what a job costs everywhere, and which offer to take.

    $ gangway quote --accelerator H100x8 --nodes 4 --hours 100 --deadline 130h
    $ gangway quote --accelerator v5p-64 --nodes 1 --hours 100 --sort risk --interruptions 0.15 --json
    $ gangway quote --accelerator H100x8 --nodes 4 --hours 60 --here "aws us-east-1 p5.48xlarge on-demand"

Reads the catalogue, asks nobody. Heavy imports stand inside the command: `gangway --help` imports this module.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from components.core.findings import InputError
from stacks.config.corrections import TPU_SLICE, Span, parse_number

if TYPE_CHECKING:
    from components.catalog.loader import Catalog
    from components.estimate.data_transfer import DataAt
    from components.estimate.offers import Carrier, Offer
    from components.estimate.quotes import Job, Sort
    from components.estimate.regions import RegionLimits
    from gangway.finops.quotes.move_tables import AdviceGiven
    from stacks.base.provider import Provider

EXIT_NOTHING = 1
_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(h|d)?")
MOST_NODES = 1_000_000
MOST_HOURS = 876_000.0
"""A hundred years: what is longer is a slip, and sums over its interruptions would take hours themselves."""


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
    from components.estimate.offers import find_offers, permitted_offers
    from components.estimate.quotes import quote as quote_one
    from components.estimate.quotes import rank
    from gangway.finops.quotes.quote_tables import Answer, answer_json, show_answer
    from stacks.config.region_settings import parse_limits

    limits = parse_limits(allow, deny, residency)
    job = replace(_job(nodes, hours, deadline, interruptions), data=None if data is None else _data(data, limits))
    job = replace(job, kimg=_kimg(kimg))
    _check_carried(carry_gib)
    by = _sort(sort)
    _check_shown(max_intensity, top)
    offers = find_offers(carriers(accelerator, chosen_providers(providers)))
    permitted, refused = permitted_offers(offers, limits)
    within = [offer for offer in permitted if max_intensity is None or _is_clean(offer, max_intensity)]
    ranking = rank([quote_one(offer, job) for offer in within], by)
    answer = Answer(accelerator, job, by, max_intensity, len(permitted) - len(within), ranking, top, refused=refused)
    if here is not None:
        answer = replace(answer, advice=_advice(here, offers, within, job, by, carry_gib))
    if as_json:
        import json

        typer.echo(json.dumps(answer_json(answer), indent=2))
    else:
        from rich.console import Console

        show_answer(answer, Console())
    raise typer.Exit(0 if ranking.ranked else EXIT_NOTHING)


def _is_clean(offer: "Offer", max_intensity: float) -> bool:
    """Whether the grid is known to emit at most so much."""
    grams = None if offer.place is None else offer.place.intensity_g_per_kwh.value
    return grams is not None and grams <= max_intensity


def _data(text: str, limits: "RegionLimits") -> "DataAt":
    """`aws:us-east-1=40`. InputError: it is none, or where the limits let no data be."""
    from components.estimate.data_transfer import DataAt
    from components.estimate.regions import read_place, refusal

    region, _, gib = text.rpartition("=")
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", gib):
        raise InputError(
            "--data", "no region and size", value=text, allowed="REGION=GIB", fix="write --data aws:us-east-1=40"
        )
    place = read_place(region, "--data")
    if (refused := refusal(limits, place)) is not None:
        raise InputError(
            "--data", f"{refused.said} (--{refused.why})", value=text, allowed="data where --allow, --deny and "
            "--residency let them be", fix=f"copy them to a region that is allowed first, or change --{refused.why}",
        )  # fmt: skip
    return DataAt(place, float(gib))


def _kimg(kimg: float | None) -> float | None:
    if kimg is not None and not 0 < kimg < math.inf:
        raise InputError("--kimg", "no number of images", value=kimg, allowed="above 0", fix="write --kimg 1000")
    return kimg


def _check_carried(gib: float) -> None:
    if not 0 <= gib < math.inf:
        raise InputError("--carry-gib", "no size", value=gib, allowed="GiB, 0 or more", fix="write --carry-gib 10")


def _advice(
    label: str, offers: "Sequence[Offer]", within: "Sequence[Offer]", job: "Job", by: "Sort", carry_gib: float
) -> "AdviceGiven":
    """InputError: no such offer."""
    from components.estimate.move_cost import Luggage, advise
    from components.estimate.regions import Place
    from components.estimate.traffic import traffic_price
    from gangway.finops.quotes.move_tables import AdviceGiven

    here = next((offer for offer in offers if offer.label == label.rstrip("*")), None)
    if here is None:
        raise InputError.not_among("--here", "no such offer", label, [offer.label for offer in offers])
    source = Place(here.provider, here.region)
    luggage = Luggage(carry_gib, lambda offer: traffic_price(source, Place(offer.provider, offer.region)))
    return AdviceGiven(advise(here, within, job, luggage, by), luggage, by)


def get_hours(text: str, place: str) -> float:
    """A length of time as people write it: `100`, `130h`, `5d`; above 0 and up to `MOST_HOURS`, in hours. InputError:
    it is none.
    """
    match = _LENGTH.fullmatch(text.strip())
    hours = 0.0 if match is None else float(match[1]) * (24 if match[2] == "d" else 1)
    if not 0 < hours <= MOST_HOURS:
        raise InputError(
            place,
            "no length of time",
            value=text,
            allowed=f"hours above 0 and up to {MOST_HOURS:g} (100 or 100h), or days (4d)",
            fix=f"write {place} {_hours_meant(text):.10g}h",
        )
    return hours


def _hours_meant(text: str) -> float:
    meant = parse_number("hours", text, Span(above=0, high=MOST_HOURS))
    return 100 if meant is None else meant


def chosen_providers(text: str | None) -> "tuple[Provider, ...]":
    """The providers of a list such as `aws,gcp`; without one, all with a catalogue. InputError: an unknown one."""
    from stacks.base.registry import chosen_sellers, sellers

    if text is None:
        return sellers()
    chosen = {chosen_sellers(word.strip(), "--providers")[0].name for word in text.split(",")}
    return tuple(provider for provider in sellers() if provider.name in chosen)


def carriers(accelerator: str, providers: "Sequence[Provider]", place: str = "--accelerator") -> "list[Carrier]":
    """What carries the accelerator at these providers: machine types, or a TPU slice. InputError: nobody of them has
    it; the nearest is named.
    """
    from components.estimate.offers import get_carriers, unknown_accelerator

    sells_slices = next((provider for provider in providers if provider.has_tpus), None)
    if sells_slices is not None and TPU_SLICE.fullmatch(accelerator):
        return [_slice(accelerator, sells_slices.catalog_here(), place)]
    catalogs = {provider.name: provider.catalog_here() for provider in providers}
    found = get_carriers(accelerator, catalogs)
    if not found:
        further = "" if sells_slices is None else "; of TPUs such as v5p-64"
        raise unknown_accelerator(accelerator, catalogs, place, further)
    return found


def _slice(accelerator: str, catalog: "Catalog", place: str) -> "Carrier":
    """A TPU slice as a carrier: priced by the chip, on demand and spot."""
    from components.estimate.offers import Carrier
    from components.gcp.slices import plan_slice, slice_machine, slice_prices

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
    from components.estimate.quotes import Job

    if not 1 <= nodes <= MOST_NODES:
        raise InputError(
            "--nodes",
            "no number of nodes",
            value=nodes,
            allowed=f"1 to {MOST_NODES:,}",
            fix=f"write --nodes {max(1, min(abs(nodes), MOST_NODES))}",
        )
    length = get_hours(hours, "--hours")
    due = None if deadline is None else get_hours(deadline, "--deadline")
    if due is not None and due < length:
        raise InputError(
            "--deadline",
            "shorter than the training takes without any interruption",
            value=deadline,
            allowed=f"{length:g}h or more",
            fix=f"write --deadline {math.ceil(length * 1.2)}h, or take more nodes and fewer --hours",
        )
    if interruptions is not None and not 0 <= interruptions < 1:
        meant = parse_number("interruptions", interruptions, Span(low=0, below=1))
        raise InputError(
            "--interruptions",
            "no share of nodes",
            value=interruptions,
            allowed="0 up to but not including 1",
            fix=f"write --interruptions {meant or 0.15:g} for {meant or 0.15:.0%} a month",
        )
    return Job(nodes, length, due, interruptions)


def _sort(word: str) -> "Sort":
    from components.estimate.quotes import SORTS

    for sort in SORTS:
        if sort == word:
            return sort
    raise InputError.not_among("--sort", "nothing to sort by", word, SORTS)


def _check_shown(max_intensity: float | None, top: int) -> None:
    """What is left out of the answer."""
    if max_intensity is not None and not 0 <= max_intensity < math.inf:
        raise InputError(
            "--max-intensity",
            "no carbon intensity",
            value=max_intensity,
            allowed="gCO2e per kWh, 0 or more",
            fix="write --max-intensity 200",
        )
    if top < 0:
        raise InputError("--top", "no number of offers", value=top, allowed="0 (all) or more", fix="write --top 0")
