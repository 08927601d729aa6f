"""A quote as a person reads it, and as JSON whose every figure carries value, unit, source, date and confidence.

Computes nothing: what stands here was worked out by `components.estimate.quotes` and `components.estimate.quotes`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from components.catalog.schema import Fact
from components.estimate.energy import ERROR_BAND
from components.estimate.quotes import Job, Quoted, Ranking, Sort

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@dataclass(frozen=True)
class Answer:
    """A question and its answer. `max_intensity`: gCO2e per kWh that a grid may have at most; None for any; `left_out`:
    offers on other grids; `top`: how many of the ranked a person gets to see; 0 for all. JSON has them all.
    """

    accelerator: str
    job: Job
    sort: Sort
    max_intensity: float | None
    left_out: int
    ranking: Ranking
    top: int = 0


def answer_json(answer: Answer) -> dict[str, Any]:
    """Plain JSON data."""
    job, ranking = answer.job, answer.ranking
    return {
        "accelerator": answer.accelerator,
        "nodes": job.num_nodes,
        "hours": job.hours,
        "deadline_hours": job.deadline_hours,
        "interruptions": job.interruptions,
        "sort": answer.sort,
        "max_intensity_g_per_kwh": answer.max_intensity,
        "left_out": answer.left_out,
        "currency": "USD",
        "ranked": [
            {"rank": place, **_row(quoted, job), "reason": reason}
            for place, (quoted, reason) in enumerate(ranking.ranked, start=1)
        ],
        "infeasible": [{**_row(quoted, job), "reason": quoted.problem} for quoted in ranking.infeasible],
        "unknown": [{**_row(quoted, job), "reason": _unknown(quoted)} for quoted in ranking.unknown],
    }


def _row(quoted: Quoted, job: Job) -> dict[str, Any]:
    offer = quoted.offer
    price = offer.price
    known = {"source": price.source, **_days(price), "confidence": price.confidence}
    return {
        "provider": offer.provider,
        "region": offer.region,
        "machine_type": offer.machine.name,
        "kind": offer.kind,
        "price": {"value": price.value, "unit": "USD/node-hour", **known, "note": offer.note},
        "usd": {"value": quoted.usd, "unit": "USD", **known, "confidence": "estimated"},
        "interruptions": _interruptions(quoted, job),
        "failures": _failures(offer.failures),
        "spot": None if quoted.spot is None else quoted.spot.to_json(),
        "hours": _finite(quoted.hours),
        "risk_hours": _finite(quoted.risk_hours),
        "in_time": quoted.in_time,
        "energy": _value(quoted, quoted.kwh, "kWh"),
        "carbon": _value(quoted, quoted.gco2e, "gCO2e"),
        "details": quoted.details,
    }


def _interruptions(quoted: Quoted, job: Job) -> dict[str, Any] | None:
    """The rate that was counted with: published, or else the user's word; None for what is not taken back."""
    rate = quoted.offer.interruptions
    if rate is None:
        return None
    given = rate.value is None and job.interruptions is not None
    unknown = "assumed" if given else "unknown"
    return {
        "value": job.interruptions if given else rate.value,
        "unit": "share of nodes a month",
        "source": quoted.interruption_source,
        "as_of": None if given else rate.as_of_text or None,
        "confidence": unknown if rate.value is None else rate.confidence,
    }


def _failures(fact: Fact[float] | None) -> dict[str, Any] | None:
    """How often a node fails, whatever its kind of capacity."""
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
    """The source's own date, and when it was read."""
    return {"as_of": fact.as_of_text or None, "read_on": fact.read_on.isoformat() if fact.read_on else None}


def _finite(hours: float) -> float | None:
    return None if hours == float("inf") else hours


def _value(quoted: Quoted, value: float | None, unit: str) -> dict[str, Any]:
    """An estimate of energy or emissions: the oldest of its facts dates it, and an undated one leaves it undated."""
    watts, place = quoted.offer.machine.accelerator_watts, quoted.offer.place
    if place is None:
        source, days = f"absent: {_grid_or_watts(quoted)}", [watts.as_of_text]
    else:
        source = f"{watts.source}; {place.pue.source}"
        days = [fact.as_of_text for fact in (watts, place.pue, place.intensity_g_per_kwh)]
    return {
        "value": value,
        "unit": unit,
        "source": source,
        "as_of": min(days) or None,
        "confidence": "unknown" if value is None else "estimated",
        "error_band": ERROR_BAND,
    }


def _unknown(quoted: Quoted) -> str:
    """What is missing; with --sort carbon it may be the emissions alone."""
    return quoted.missing or f"emissions not known: {_grid_or_watts(quoted)}"


def _grid_or_watts(quoted: Quoted) -> str:
    """Which fact there is no energy without."""
    offer = quoted.offer
    if offer.place is None:
        return f"no grid intensity and PUE of {offer.region} in the catalogue"
    return offer.machine.accelerator_watts.source


def show_answer(answer: Answer, console: "Console") -> None:
    """Prints the ranking, then what cannot be done, then what nobody knows."""
    from rich.markup import escape

    job, ranking = answer.job, answer.ranking
    due = "" if job.deadline_hours is None else f", done within {job.deadline_hours:g} h"
    console.print(
        f"[bold]{escape(answer.accelerator)}[/], {job.num_nodes} node{'s' * (job.num_nodes > 1)}, "
        f"{job.hours:g} h of training{due}; by {answer.sort}"
    )
    if ranking.ranked:
        shown = ranking.ranked[: answer.top or None]
        console.print(_ranked_table(shown))
        if rest := len(ranking.ranked) - len(shown):
            console.print(f"{rest} more: --top 0", highlight=False)
    else:
        console.print("[yellow]no offer will do[/]: see below")
    if ranking.infeasible:
        console.print("[bold red]cannot do it[/]")
        for quoted in ranking.infeasible:
            console.print(f"  {escape(quoted.offer.label)}: {escape(quoted.problem)}", highlight=False)
    if ranking.unknown:
        console.print("[bold yellow]not known, so not ranked[/]")
        for line in _gaps(ranking.unknown):
            console.print(f"  {escape(line)}", highlight=False)
    if answer.left_out:
        console.print(f"{answer.left_out} offers left out: their grid has more than {answer.max_intensity:g} g/kWh")
    console.print(
        f"[dim]Nodes only: storage, network and the head node are the plan's. Energy is estimated, +-{ERROR_BAND:.0%}; "
        "CO2e location-based. --json has every source.[/]",
        highlight=False,
    )


def _ranked_table(ranked: Iterable[tuple[Quoted, str]]) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table(expand=True, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("", justify="right")
    table.add_column("offer, price and why it ranks here", overflow="fold", ratio=1)
    for heading in ("USD", "hours", "at\nrisk", "kWh", "kg\nCO2e"):
        table.add_column(heading, justify="right", no_wrap=True)
    for place, (quoted, reason) in enumerate(ranked, start=1):
        offer = quoted.offer
        price = f"${offer.price.value:,.2f} a node-hour, {offer.price.confidence} {offer.price.dated}"
        note = f" ({offer.note})" if offer.note else ""
        late = "" if quoted.in_time is None or quoted.in_time > 0.9995 else f"; {quoted.in_time:.1%} likely in time"
        table.add_row(
            str(place),
            f"[bold]{offer.provider} {offer.region}[/] {escape(offer.machine.name)} [bold]{offer.kind}[/]\n"
            f"[dim]{escape(price + note)}[/]\n{escape(reason + late)}",
            _number(quoted.usd, ",.0f"),
            _number(quoted.hours, ".1f"),
            _number(quoted.risk_hours, ".2f"),
            _number(quoted.kwh, ",.0f"),
            _number(None if quoted.gco2e is None else quoted.gco2e / 1000, ",.0f"),
        )
    return table


def _number(value: float | None, spec: str) -> str:
    return "?" if value is None else format(value, spec)


def _gaps(unknown: Iterable[Quoted]) -> list[str]:
    """A line for each machine, reason and set of regions, with the kinds it holds for."""
    regions: dict[tuple[str, str, str], list[str]] = {}
    for quoted in unknown:
        offer = quoted.offer
        regions.setdefault((f"{offer.provider} {offer.machine.name}", _unknown(quoted), offer.kind), []).append(
            offer.region
        )
    kinds: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (machine, why, kind), names in regions.items():
        kinds.setdefault((machine, why, tuple(names)), []).append(kind)
    return [
        f"{machine} {', '.join(of)} in {names[0] if len(names) == 1 else f'{len(names)} regions'}: {why}"
        for (machine, why, names), of in kinds.items()
    ]
