"""A quote as text, and as JSON in which every figure has value, unit, source, date and confidence.

Formats only: `gangway.components.estimate.offers` and `gangway.components.estimate.quotes` compute the figures.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from gangway.components.catalog.geography import Route, load_routes
from gangway.components.catalog.machine_facts import load_power
from gangway.components.catalog.schema import Fact, Region
from gangway.components.estimate.move_cost import UNITS, Advice, Luggage, Move
from gangway.components.estimate.offers import Offer
from gangway.components.estimate.quotes import BEST, Job, Quoted, Ranking, Sort, share_in_words
from gangway.components.estimate.regions import Carried, Why
from gangway.components.estimate.statistics import Band

if TYPE_CHECKING:
    from rich.console import Console

# Advice on moving a job (`gangway.components.estimate.move_cost`) as text and JSON.


@dataclass(frozen=True)
class AdviceGiven:
    """Advice and its inputs."""

    advice: Advice
    luggage: Luggage
    sort: Sort


def advice_json(given: AdviceGiven) -> dict[str, Any]:
    """Plain JSON data."""
    advice, luggage, sort = given.advice, given.luggage, given.sort
    best = advice.best
    return {
        "here": advice.here.offer.label,
        "go": advice.go,
        "reason": advice.reason,
        "to": None if best is None else best.to.offer.label,
        "saves": None if best is None else {**_finite_band(best.saves), "unit": UNITS[sort], "confidence": "estimated"},
        "hours_without_training": None if best is None else {**_finite_band(best.hours), "confidence": "assumed"},
        "egress": None
        if best is None
        else {
            "gib": luggage.gib,
            "usd": best.traffic_usd,
            "usd_per_gib": best.traffic.value,
            "source": best.traffic.source,
            "confidence": best.traffic.confidence,
        },
        "route": None if best is None else route_row(_route(advice.here.offer, best.to.offer)),
    }


def route_row(route: Route | None) -> dict[str, Any] | None:
    """The known facts of a route between two regions."""
    if route is None:
        return None
    stream = route.stream_mbps
    return {
        "rtt_ms": route.rtt_ms.model_dump(mode="json"),
        "one_stream_mbps": None if stream is None else stream.model_dump(mode="json"),
    }


def advice_lines(given: AdviceGiven) -> Iterator[str]:
    """What to do, why, and how."""
    advice, luggage, sort = given.advice, given.luggage, given.sort
    here, best = advice.here, advice.best
    trouble = here.problem or here.missing or here.unpriced
    stays = trouble or f"{_amount_text(_current_amount(advice, sort), sort)} to finish"
    yield f"you are on {here.offer.label}: {stays}"
    if best is None:
        yield f"stay: {advice.reason}"
        return
    label = best.to.offer.label
    verb = f"move to {label}" if advice.go else f"stay: {advice.reason}; nearest is {label}"
    yield (
        f"{verb}: saves {_savings_text(best, sort)}, the move included: {best.hours.mid:.1f} h without training, "
        + _transfer_text(best, luggage, _route(here.offer, best.to.offer))
    )
    if advice.go:
        offer = best.to.offer
        yield (
            f"to move: check for capacity, stop the job (it saves), copy its run folder to a bucket there, set "
            f"region {offer.region} and capacity kind {offer.kind} of {offer.machine.name} in a stack file of provider "
            f"{offer.provider}, and run `pulumi up`: the run resumes from the checkpoint; then `pulumi destroy` here"
        )


def _current_amount(advice: Advice, sort: Sort) -> float | None:
    current = advice.here
    return {"cost": current.usd, "carbon": current.gco2e, "risk": current.hours}[sort]


def _amount_text(value: float | None, sort: Sort) -> str:
    if value is None:
        return "?"
    match sort:
        case "cost":
            return f"${value:,.0f}"
        case "carbon":
            return f"{value / 1000:,.0f} kg CO2e"
        case "risk":
            return f"{value:,.1f} h"


def _savings_text(move: Move, sort: Sort) -> str:
    if move.saves.mid == float("inf"):
        return "staying does not finish"
    low = "nothing known" if move.saves.low == float("-inf") else _amount_text(move.saves.low, sort)
    high = "all" if move.saves.high == float("inf") else _amount_text(move.saves.high, sort)
    return f"{_amount_text(move.saves.mid, sort)} ({low} to {high})"


def _transfer_text(move: Move, luggage: Luggage, route: Route | None) -> str:
    measured = ""
    if route is not None:
        rtt, stream = route.rtt_ms, route.stream_mbps
        carries = "" if stream is None else f", one stream {stream.value:g} Mbit/s"
        measured = f" ({rtt.value:g} ms round trip{carries}, {rtt.dated})"
    if not move.traffic_usd:
        return f"and free transfer{measured}"
    return f"${move.traffic_usd:,.2f} for {luggage.gib:g} GiB of transfer{measured}"


def _route(origin: Offer, target: Offer) -> Route | None:
    return load_routes().route(f"{origin.provider}:{origin.region}", f"{target.provider}:{target.region}")


def _finite_band(band: Band) -> dict[str, float | None]:
    ends = {"low": band.low, "value": band.mid, "high": band.high}
    return {name: value if abs(value) != float("inf") else None for name, value in ends.items()}


@dataclass(frozen=True)
class Answer:
    """`max_intensity`: gCO2e per kWh; `top`: offers printed with reasons, 0 for all."""

    accelerator: str
    job: Job
    sort: Sort
    max_intensity: float | None
    left_out: int
    ranking: Ranking
    top: int = 0
    advice: AdviceGiven | None = None
    refused: Mapping[Why, int] = field(default_factory=dict)


def answer_json(answer: Answer) -> dict[str, Any]:
    """Plain JSON data."""
    job, ranking = answer.job, answer.ranking
    return {
        "accelerator": answer.accelerator,
        "nodes": job.num_nodes,
        "hours": job.hours,
        "deadline_hours": job.deadline_hours,
        "interruptions": job.interruptions,
        "kimg": job.kimg,
        **({} if job.data is None else {"data": {"region": job.data.place.name, "gib": job.data.gib}}),
        "sort": answer.sort,
        "max_intensity_g_per_kwh": answer.max_intensity,
        "left_out": answer.left_out,
        "left_out_by_regions": {str(limit): number for limit, number in answer.refused.items()},
        **({} if answer.advice is None else {"move": advice_json(answer.advice)}),
        "currency": "USD",
        "ranked": [
            {"rank": place, **_row(quoted), "reason": reason}
            for place, (quoted, reason) in enumerate(ranking.ranked, start=1)
        ],
        "infeasible": [{**_row(quoted), "reason": quoted.problem} for quoted in ranking.infeasible],
        "unknown": [
            {**_row(quoted), "reason": _unknown(quoted), "elsewhere": _elsewhere_json(quoted, ranking)}
            for quoted in ranking.unknown
        ],
    }


def _row(quoted: Quoted) -> dict[str, Any]:
    offer = quoted.offer
    price = offer.price
    known = {"source": price.source, **_days(price), "confidence": price.confidence}
    return {
        "provider": offer.provider,
        "region": offer.region,
        "machine_type": offer.machine.name,
        "kind": offer.kind,
        "price": {"value": price.value, "unit": "USD/node-hour", **known, "note": offer.note, **_range(offer)},
        "usd": {
            "value": quoted.usd,
            "high": quoted.usd_high,
            "unit": "USD",
            "priced_in": _priced_in(offer),
            **known,
            "confidence": "estimated",
        },
        "interruptions": _interruptions(quoted),
        "failures": _failures(offer.failures),
        "spot": None if quoted.spot is None else quoted.spot.to_json(),
        "hours": _finite(quoted.hours),
        "wall_hours": _finite(quoted.wall_hours),
        "risk_hours": _finite(quoted.risk_hours),
        "in_time": quoted.in_time,
        **_footprint(quoted),
        "grid": None if offer.place is None else _grid(offer.place),
        "details": quoted.details,
        **({} if quoted.carried is None else {"data": _data(quoted.carried)}),
    }


def _data(transfer: Carried) -> dict[str, Any]:
    price, route = transfer.price, transfer.route
    return {
        "usd": transfer.usd,
        "usd_per_gib": price.value,
        "source": price.source,
        "confidence": price.confidence,
        "hours_of_one_stream": transfer.stream_hours,
        **(route_row(route) or {"rtt_ms": None, "one_stream_mbps": None}),
    }


def _interruptions(quoted: Quoted) -> dict[str, Any] | None:
    rate = quoted.rate
    if rate is None:
        return None
    confidence = "unknown" if rate.value is None else "assumed" if rate.confidence == "stated" else rate.confidence
    return {
        "value": rate.value,
        "unit": "share of nodes a month",
        "source": rate.source,
        "url": rate.url,
        "as_of": None if rate.as_of is None else rate.as_of.isoformat(),
        "confidence": confidence,
    }


def _failures(fact: Fact[float] | None) -> dict[str, Any] | None:
    if fact is None:
        return None
    return {
        "value": fact.value,
        "unit": "per node-hour",
        "source": fact.source,
        **_days(fact),
        "confidence": fact.confidence,
    }


def _days(fact: Fact[Any]) -> dict[str, str | None]:
    return {"as_of": fact.as_of_text or None, "read_on": fact.read_on.isoformat() if fact.read_on else None}


def _range(offer: Offer) -> dict[str, Any]:
    quote = offer.quote
    low, high = (None, None) if quote is None else (quote.low, quote.high)
    return {"low": low, "high": high, "is_limit": bool(quote and quote.limit), "priced_in": _priced_in(offer)}


def _priced_in(offer: Offer) -> str | None:
    return None if offer.quote is None else offer.quote.priced_in


def _finite(hours: float) -> float | None:
    return None if hours == float("inf") else hours


def _footprint(quoted: Quoted) -> dict[str, Any]:
    """Energy, emissions and SCI: expected with band, and maximum; no SCI without `--kimg`."""
    found = quoted.footprint
    units = {"energy": "kWh", "carbon": "gCO2e", "sci": "gCO2e/kimg"}
    if found is None:
        return {name: _value(quoted, (None, None, None, None), unit) for name, unit in units.items()}
    energy, carbon, made, sci = found
    figures = {
        "energy": (energy.kwh, energy.kwh_low, energy.kwh_high, energy.kwh_most),
        "carbon": (carbon.gco2e, carbon.gco2e_low, carbon.gco2e_high, carbon.gco2e_most),
        "sci": (sci.g_per_kimg, sci.g_per_kimg_low, sci.g_per_kimg_high, sci.g_per_kimg_most),
    }
    values = {name: _value(quoted, figures[name], unit) for name, unit in units.items()}
    missing = "absent without --kimg, without emissions of its energy or of making the machines"
    values["sci"]["source"] += f"; {missing if sci.g_per_kimg is None else made.source}"
    return values


def _value(quoted: Quoted, values: tuple[float | None, ...], unit: str) -> dict[str, Any]:
    """An estimate with low end, high end and maximum; dated by its oldest fact, undated if one is."""
    value, low, high, maximum = values
    watts, place = quoted.offer.machine.accelerator_watts, quoted.offer.place
    if place is None:
        source, days = f"absent: {_grid_or_watts(quoted)}", [watts.as_of_text]
    else:
        source = f"{watts.source}; {place.pue.source}"
        days = [fact.as_of_text for fact in (watts, place.pue, place.intensity_g_per_kwh)]
    return {
        "value": value,
        "low": low,
        "high": high,
        "most": maximum,
        "unit": unit,
        "source": source,
        "as_of": min(days) or None,
        "confidence": "unknown" if value is None else "estimated",
        "error_band": load_power().error_band.value,
    }


def _grid(place: Region) -> dict[str, Any]:
    """The average intensity, which is used for ranking, and the two others, which are not."""
    facts: dict[str, Fact[float] | Fact[float | None]] = {
        "average": place.intensity_g_per_kwh,
        "marginal": place.marginal_g_per_kwh,
        "market_based": place.market_g_per_kwh,
    }
    return {
        "zone": place.grid,
        "counted": "average",
        **{
            name: {
                "value": fact.value,
                "unit": "gCO2e/kWh",
                "source": fact.source,
                "as_of": fact.as_of_text or None,
                "confidence": "unknown" if fact.value is None else fact.confidence,
            }
            for name, fact in facts.items()
        },
    }


def _unknown(quoted: Quoted) -> str:
    return quoted.missing or f"emissions not known: {_grid_or_watts(quoted)}"


def _grid_or_watts(quoted: Quoted) -> str:
    offer = quoted.offer
    if offer.place is None:
        return f"no grid intensity and PUE of {offer.region} in the catalogue"
    return offer.machine.accelerator_watts.source


def show_answer(answer: Answer, console: "Console") -> None:
    """Print the top offers with reasons, the others by machine, then those infeasible or without a figure."""
    job, ranking = answer.job, answer.ranking
    deadline = "" if job.deadline_hours is None else f", done within {job.deadline_hours:g} h"
    _print_paragraph(
        console,
        f"{answer.accelerator}, {job.num_nodes} node{'s' * (job.num_nodes > 1)}, "
        f"{job.hours:g} h of training{deadline}; by {answer.sort}",
    )
    other_count = len(ranking.infeasible) + len(ranking.unknown)
    if ranking.ranked:
        first = ranking.ranked[0][0]
        sure = ", its rate of interruptions assumed" if _is_assumed(first) else ""
        _print_paragraph(console, f"{BEST[answer.sort]}: {_label_and_usd(first)}{sure}", style="bold")
        steady = next((quoted for quoted, _ in ranking.ranked if quoted.rate is None), None)
        if steady is not None and first.rate is not None:
            _print_paragraph(console, f"the first that cannot be interrupted: {_label_and_usd(steady)}")
    else:
        _print_paragraph(console, "no suitable offer: see below", style="yellow")
    _print_paragraph(
        console, f"ranked: {len(ranking.ranked)} offers; not ranked, with their reasons below: {other_count}"
    )
    _show_ranked(answer, console)
    if ranking.infeasible:
        _print_paragraph(console, "not suitable", style="bold red")
        for quoted in ranking.infeasible:
            _print_paragraph(console, f"{_label_and_usd(quoted)}: {quoted.problem}", indent=2)
    if ranking.unknown:
        more = "" if answer.top == 0 else "; --top 0 names the regions"
        _print_paragraph(console, f"a figure is missing, so not ranked{more}", style="bold yellow")
        for line in _gaps(ranking) if answer.top == 0 else _gaps_in_short(ranking):
            _print_paragraph(console, line, indent=2)
    if answer.left_out:
        _print_paragraph(
            console, f"{answer.left_out} offers excluded: their grid has more than {answer.max_intensity:g} g/kWh"
        )
    for limit, number in answer.refused.items():
        _print_paragraph(console, f"{number} offers excluded: {_REFUSED[limit]}")
    for line in _assumptions(ranking):
        _print_paragraph(console, line, style="dim")
    for line in () if answer.advice is None else advice_lines(answer.advice):
        _print_paragraph(console, line, style="bold")
    band = load_power().error_band.value
    _print_paragraph(
        console,
        f"Nodes only: storage, network and the head node are the plan's. Energy is estimated, +-{band:.0%} "
        "and never beyond its rating; CO2e location-based, the grid's average of one year. --json has every source.",
        style="dim",
    )


def _print_paragraph(console: "Console", text: str, *, indent: int = 0, hang: int = 2, style: str = "") -> None:
    from rich.text import Text

    before, more = " " * indent, " " * (indent + hang)
    lines = wrap(text, console.width, initial_indent=before, subsequent_indent=more, break_on_hyphens=False)
    console.print(Text("\n".join(lines), style=style), highlight=False, soft_wrap=True)


def _label_and_usd(quoted: Quoted) -> str:
    if quoted.own_usd is None:
        return quoted.offer.label
    high = "" if quoted.usd_high in (None, quoted.usd) else f", up to ${quoted.usd_high:,.0f}"
    return f"{quoted.offer.label}, ${quoted.own_usd:,.0f}{high}"


_REFUSED = {
    Why.NOT_ALLOWED: "in none of the regions of --allow",
    Why.DENIED: "in a region of --deny",
    Why.RESIDENCY: "in none of the countries of --residency",
}
_FEW_REGIONS = 4
"""Regions named per machine without --top 0."""
_BY = {"cost": "expected dollars", "carbon": "kg CO2e", "risk": "hours at risk"}
_HEADINGS = ("", "USD", "hours", "risk", "kWh", "kgCO2e", "offer")


def _show_ranked(answer: Answer, console: "Console") -> None:
    """A line for each top offer, with price and reason below; a paragraph per machine for the others."""
    ranked = answer.ranking.ranked
    if not ranked:
        return
    top = answer.top or len(ranked)
    lines = [
        (_cells(place, quoted), _explain_offer(quoted, reason, answer.job))
        for place, (quoted, reason) in enumerate(ranked[:top], 1)
    ]
    rows = [_HEADINGS, *(cells for cells, _ in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS) - 1)]
    for row, details in [(_HEADINGS, ""), *lines]:
        figures = " ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=False))
        before = len(figures) - len(figures.lstrip())
        offer_at = len(figures) + 1 - before
        _print_paragraph(
            console, f"{figures.lstrip()} {row[-1]}", indent=before, hang=offer_at, style="bold" if details else ""
        )
        if details:
            _print_paragraph(console, details, indent=widths[0] + 1, hang=0)
    rest = [quoted for quoted, _ in ranked[top:]]
    if rest:
        _print_paragraph(
            console, f"the other {len(rest)}, by {answer.sort} ({_BY[answer.sort]}); --top 0: a line and reasons each"
        )
        for line in _machine_paragraphs(rest, answer.sort):
            _print_paragraph(console, line, indent=2)


def _machine_paragraphs(ranked: Iterable[Quoted], sort: Sort) -> Iterator[str]:
    regions: dict[tuple[str, str], dict[str, str]] = {}
    for quoted in ranked:
        offer = quoted.offer
        star = "*" if _is_assumed(quoted) else ""
        name = (f"{offer.provider} {offer.machine.name}", f"{offer.kind}{star}")
        regions.setdefault(name, {})[offer.region] = _figure(quoted, sort)
    kinds: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for (machine, kind), figures in regions.items():
        kinds.setdefault((machine, tuple(figures.items())), []).append(kind)
    for (machine, of_regions), alike in kinds.items():
        first, rest = of_regions[:_FEW_REGIONS], of_regions[_FEW_REGIONS:]
        more = (
            f"; {len(rest)} more region{'s' * (len(rest) > 1)}, up to {rest[-1][1].removeprefix('at most ')}"
            if rest
            else ""
        )
        yield f"{machine} {', '.join(alike)}: {', '.join(f'{region} {figure}' for region, figure in first)}{more}"


def _figure(quoted: Quoted, sort: Sort) -> str:
    match sort:
        case "cost":
            quote = quoted.offer.quote
            prefix = "at most " if quote and quote.limit else ""
            return f"{prefix}${_number(quoted.own_usd, ',.0f')}"
        case "carbon":
            return _number(None if quoted.gco2e is None else quoted.gco2e / 1000, ",.0f")
        case "risk":
            return _number(quoted.risk_hours, ".2f")


def _cells(place: int, quoted: Quoted) -> tuple[str, ...]:
    return (
        str(place),
        _number(quoted.own_usd, ",.0f"),
        _number(quoted.hours, ".1f"),
        _number(quoted.risk_hours, ".2f"),
        _number(quoted.kwh, ",.0f"),
        _number(None if quoted.gco2e is None else quoted.gco2e / 1000, ",.0f"),
        quoted.offer.label + ("*" if _is_assumed(quoted) else ""),
    )


def _explain_offer(quoted: Quoted, reason: str, job: Job) -> str:
    offer = quoted.offer
    price, note = quoted.unpriced, f" ({offer.note})" if offer.note else ""
    if offer.price.value is not None:
        price = f"${offer.price.value:,.2f} per node-hour, {offer.price.confidence} {offer.price.dated}"
    late = "" if quoted.in_time is None or quoted.in_time > 0.9995 else f"; {quoted.in_time:.1%} likely in time"
    data = "" if quoted.carried is None or job.data is None else f"; data: {quoted.carried.in_words(job.data)}"
    return f"{price}{note}; {reason}{late}{data}{_sci(quoted)}"


def _sci(quoted: Quoted) -> str:
    """Grams per 1,000 images; empty if the number of images is unknown."""
    sci = None if quoted.footprint is None else quoted.footprint.sci
    if sci is None or sci.g_per_kimg is None or sci.g_per_kimg_most is None:
        return ""
    return f"; SCI (1,000 images) {sci.g_per_kimg:.3g} g expected, {sci.g_per_kimg_most:.3g} g at most"


def _number(value: float | None, spec: str) -> str:
    return "?" if value is None else format(value, spec)


def _is_assumed(quoted: Quoted) -> bool:
    return (
        quoted.rate is not None
        and quoted.rate.confidence == "assumed"
        and quoted.offer.interruptions is not None
        and (quoted.offer.interruptions.value is None)
    )


def _assumptions(ranking: Ranking) -> list[str]:
    sentences = {}
    for quoted in (*(quoted for quoted, _ in ranking.ranked), *ranking.infeasible):
        rate = quoted.rate
        if rate is not None and rate.value is not None and _is_assumed(quoted):
            sentences[quoted.offer.provider] = (
                f"* {quoted.offer.provider} publishes no rate of interruptions for these: "
                f"{share_in_words(rate.value)}, assumed: {rate.source} ({rate.as_of}); --interruptions states another"
            )
    return list(sentences.values())


def _cheapest_elsewhere(quoted: Quoted, ranking: Ranking) -> Quoted | None:
    """The cheapest region with a price for the same machine and kind, as an indication."""
    offer = quoted.offer
    known = (
        each
        for each, _ in ranking.ranked
        if each.usd is not None and (each.offer.machine.name, each.offer.kind) == (offer.machine.name, offer.kind)
    )
    is_own = offer.price.value is not None and (offer.quote is None or not offer.quote.foreign_region)
    return None if is_own else min(known, key=lambda each: each.usd or 0.0, default=None)


def _elsewhere_json(quoted: Quoted, ranking: Ranking) -> dict[str, Any] | None:
    found = _cheapest_elsewhere(quoted, ranking)
    return None if found is None else {"region": found.offer.region, "value": found.usd, "unit": "USD"}


def _gaps_in_short(ranking: Ranking) -> Iterator[str]:
    found: dict[tuple[str, str], dict[str, list[Quoted]]] = {}
    for quoted in ranking.unknown:
        machine = f"{quoted.offer.provider} {quoted.offer.machine.name}"
        found.setdefault((machine, _unknown(quoted)), {}).setdefault(quoted.offer.kind, []).append(quoted)
    for (machine, reason), of_kinds in found.items():
        alike: dict[tuple[int, str], list[str]] = {}
        for kind, those in of_kinds.items():
            best = _cheapest_elsewhere(those[0], ranking)
            known = "" if best is None else f", in {best.offer.region} ${_number(best.usd, ',.0f')}"
            if best is None and those[0].usd is not None:
                known = f", from ${min(each.usd for each in those if each.usd is not None):,.0f}"
            alike.setdefault((len(those), known), []).append(kind)
        said = [
            f"{', '.join(kinds)} in {number} region{'s' * (number > 1)}{known}"
            for (number, known), kinds in alike.items()
        ]
        yield f"{machine}: {reason}: {'; '.join(said)}"


def _gaps(ranking: Ranking) -> list[str]:
    regions: dict[tuple[str, str, str], list[str]] = {}
    for quoted in ranking.unknown:
        offer, found = quoted.offer, _cheapest_elsewhere(quoted, ranking)
        reason = _unknown(quoted)
        if found is not None:
            reason += f"; in {found.offer.region} ${found.usd:,.0f}"
        elif quoted.usd is not None:
            reason += f"; ${quoted.usd:,.0f}"
        regions.setdefault((f"{offer.provider} {offer.machine.name}", reason, offer.kind), []).append(offer.region)
    kinds: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (machine, reason, kind), names in regions.items():
        kinds.setdefault((machine, reason, tuple(names)), []).append(kind)
    return [
        f"{machine} {', '.join(of)} in {', '.join(names)}: {reason}" for (machine, reason, names), of in kinds.items()
    ]
