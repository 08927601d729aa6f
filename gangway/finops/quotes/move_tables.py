"""Advice on moving a job (`gangway.components.estimate.move_cost`) as text and JSON."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gangway.components.catalog.geography import Route, load_routes
from gangway.components.estimate.move_cost import UNITS, Advice, Luggage, Move
from gangway.components.estimate.offers import Offer
from gangway.components.estimate.quotes import Sort
from gangway.components.estimate.statistics import Band


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
        "saves": None if best is None else {**_finite(best.saves), "unit": UNITS[sort], "confidence": "estimated"},
        "hours_without_training": None if best is None else {**_finite(best.hours), "confidence": "assumed"},
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


def _finite(band: Band) -> dict[str, float | None]:
    ends = {"low": band.low, "value": band.mid, "high": band.high}
    return {name: value if abs(value) != float("inf") else None for name, value in ends.items()}
