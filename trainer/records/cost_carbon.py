"""Dollars and emissions of a run from its sessions, energy, prices and the launcher's context."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import (
    CapacityUse,
    CarbonRecord,
    CostRecord,
    EnergyRecord,
    RunContext,
    SessionRecord,
)

CAPACITY_VARIABLE = "GANGWAY_CAPACITY"
_SPOT = "spot"
_NOT_SPOT = "on-demand"
_JOULES_PER_KWH = 3.6e6
_GRAMS_PER_KG = 1000.0
_NO_ENERGY = Quantity.absent("J", "ended before its first line")
_NO_PUE = Quantity.absent("1", "the launcher gave no PUE")
_NO_INTENSITY = Quantity.absent("gCO2e/kWh", "the launcher gave no carbon intensity")


def own_capacity() -> str:
    """The kind of capacity that this node's scripts set; empty without one."""
    return os.environ.get(CAPACITY_VARIABLE, "")


def by_node(kinds: Sequence[tuple[int, str]]) -> list[str]:
    """The kind of each node by rank, from every worker's node rank and kind."""
    return [kind for _, kind in sorted(dict(kinds).items())]


def price(reported_kind: str, context: "RunContext") -> tuple[str, Quantity]:
    """The kind and hourly price of a node that reported `reported_kind`. Metadata only distinguish spot: `on-demand`
    means the ladder's only other kind. An empty kind counts as the first rung.
    """
    ladder, prices = context.capacity, context.usd_per_hour_by_kind
    firm = [kind for kind in ladder if kind != _SPOT]
    kind = (
        firm[0] if reported_kind == _NOT_SPOT and reported_kind not in ladder and len(set(firm)) == 1 else reported_kind
    )
    if kind in prices:
        return kind, prices[kind]
    first = ladder[0] if ladder else ""
    if kind in ("", first):
        unknown = Quantity.absent("USD/h", "the launcher gave no price")
        return kind or (first if len(set(ladder)) == 1 else ""), context.usd_per_hour or unknown
    return kind, Quantity.absent("USD/h", f"the launcher gave no price of {kind} nodes")


Sessions = Mapping[int, SessionRecord]
Contexts = Mapping[int, RunContext]


def product(unit: str, method: str, first: Quantity, second: Quantity, scale: float = 1.0) -> Quantity:
    """A figure computed from two others, at best estimated; absent if one is."""
    for factor in (first, second):
        if factor.value is None:
            return Quantity.absent(unit, factor.source)
    assert first.value is not None
    assert second.value is not None
    return Quantity(
        value=first.value * second.value * scale,
        unit=unit,
        provenance="estimated",
        source=f"{method}; {second.provenance}: {second.source}",
        as_of=second.as_of,
        note=f"{first.provenance}: {first.source}",
    )


def total(quantities: Sequence[Quantity]) -> Quantity:
    """A sum: absent if a part is, measured only if all parts are, dated by the oldest."""
    absent = next((quantity for quantity in quantities if quantity.value is None), None)
    if absent is not None:
        return absent
    measured = all(quantity.provenance == "measured" for quantity in quantities)
    return Quantity(
        value=sum(quantity.value for quantity in quantities if quantity.value is not None),
        unit=quantities[0].unit,
        provenance="measured" if measured else "estimated",
        source="; ".join(dict.fromkeys(quantity.source for quantity in quantities)),
        as_of=min((quantity.as_of for quantity in quantities if quantity.as_of), default=None),
        note="; ".join(dict.fromkeys(quantity.note for quantity in quantities if quantity.note)),
    )


def cost(sessions: Sessions, contexts: Contexts) -> CostRecord:
    """Dollars of the used capacity: each session's nodes at the price of their kind, by the session's context."""
    uses = tuple(use for number in sessions for use in _uses(number, sessions[number], contexts[number]))
    kinds = dict.fromkeys(use.capacity for use in uses)
    components = {
        f"compute, {kind}" if kind else "compute": total([use.usd for use in uses if use.capacity == kind])
        for kind in kinds
    }
    return CostRecord(components=components, total_usd=total(list(components.values())), uses=uses)


def _uses(number: int, session: SessionRecord, context: RunContext) -> Iterator[CapacityUse]:
    kinds = [*session.capacity, *[""] * (session.num_nodes - len(session.capacity))]
    for kind, num_nodes in Counter(kinds).items():
        capacity, per_hour = price(kind, context)
        hours = Quantity.measured(session.wall_sec * num_nodes / 3600, "h", "wall clock of the session x its nodes")
        yield CapacityUse(
            session=number,
            capacity=capacity,
            num_nodes=num_nodes,
            start=session.start,
            end=session.end,
            node_hours=hours,
            usd_per_hour=per_hour,
            usd=product("USD", "node hours x price of a node", hours, per_hour),
        )


def energy(devices: Mapping[str, Quantity], sessions: Sessions, contexts: Contexts) -> EnergyRecord:
    """Joules of the devices over all sessions, and with the buildings' overhead."""
    it_joules = total(list(devices.values())) if devices else _NO_ENERGY
    parts = [(facility, pue) for facility, pue, _ in _by_site(sessions, contexts)]
    facility = total([joules for joules, _ in parts])
    return EnergyRecord(
        devices=dict(devices),
        it_joules=it_joules,
        pue=_mean([pue for _, pue in parts], facility, it_joules),
        facility_joules=facility,
    )


def carbon(record: EnergyRecord, sessions: Sessions, images: int, contexts: Contexts) -> CarbonRecord:
    """Emissions of energy and manufacturing, and per 1,000 images: (E * I + M) / R. Repeated `images` count once."""
    method = "operational, location-based: IT energy x PUE x grid intensity"
    parts = [
        (product("gCO2e", method, facility, intensity, scale=1 / _JOULES_PER_KWH), intensity)
        for facility, _, intensity in _by_site(sessions, contexts)
    ]
    grams = total([each for each, _ in parts])
    embodied, low, high = (
        total([_embodied_share(sessions[number], contexts[number], end) for number in sessions])
        for end in ("embodied_kg_per_accelerator", "embodied_kg_low", "embodied_kg_high")
    )
    both = total([grams, embodied])
    per_run = both.model_copy(update={"source": f"SCI, (E * I + M) / R with R one run: {both.source}"})
    return CarbonRecord(
        gco2e=grams,
        intensity_g_per_kwh=_mean([each for _, each in parts], grams, record.facility_joules, _JOULES_PER_KWH),
        method=method,
        embodied_gco2e=embodied,
        embodied_gco2e_low=low,
        embodied_gco2e_high=high,
        sci_g_per_run=both if both.value is None else per_run,
        sci_g_per_kimg=_per_kimg(both, images),
    )


def _by_site(sessions: Sessions, contexts: Contexts) -> list[tuple[Quantity, Quantity, Quantity]]:
    # Sessions without a line have unknown energy, and only count if there is no other.
    known = {number: each.it_joules for number, each in sessions.items() if each.it_joules.value is not None}
    by_site: dict[tuple[Quantity, Quantity], list[Quantity]] = {}
    for number, joules in (known or {max(sessions): _NO_ENERGY}).items():
        context = contexts[number]
        site = context.pue or _NO_PUE, context.intensity_g_per_kwh or _NO_INTENSITY
        by_site.setdefault(site, []).append(joules)
    return [
        (product("J", "IT energy x PUE", total(joules), pue), pue, intensity)
        for (pue, intensity), joules in by_site.items()
    ]


def _mean(factors: Sequence[Quantity], whole: Quantity, base: Quantity, scale: float = 1.0) -> Quantity:
    """The factor from `base` to `whole`: the given one if all are equal, else the sessions' weighted mean."""
    different = list(dict.fromkeys(factors))
    if len(different) == 1 or whole.value is None or not base.value:
        return different[-1]
    return Quantity(
        value=whole.value / base.value * scale,
        unit=different[0].unit,
        provenance="estimated",
        source="; ".join(dict.fromkeys(each.source for each in different)),
        as_of=min((each.as_of for each in different if each.as_of), default=None),
        note=f"mean over sessions by energy, of {', '.join(f'{each.value:g}' for each in different)}",
    )


def _embodied_share(session: SessionRecord, context: RunContext, field: str) -> Quantity:
    cards, unknown = context.accelerators_per_node, Quantity.absent("kg", "the launcher gave no emissions of a machine")
    if not cards:
        return Quantity.absent("gCO2e", "the launcher did not say how many accelerators a node has")
    hours = session.wall_sec * session.num_nodes * cards / 3600
    card_hours = Quantity.measured(hours, "h", f"wall clock x nodes x {cards} accelerators a node")
    made: Quantity | None = getattr(context, field)
    kg = product("kg", "accelerator hours x kg of a machine for each of them", card_hours, made or unknown)
    life = context.accelerator_life_hours
    if kg.value is None or life is None or life.value is None:
        return Quantity.absent("gCO2e", kg.source if kg.value is None else "the launcher gave no life of a machine")
    return kg.model_copy(
        update={
            "value": kg.value * _GRAMS_PER_KG / life.value,
            "unit": "gCO2e",
            "source": f"{kg.source}, over {life.value:g} h of use ({life.provenance}: {life.source})",
        }
    )


def _per_kimg(both: Quantity, images: int) -> Quantity:
    if both.value is None or not images:
        return Quantity.absent("gCO2e/kimg", "no image has been trained on" if both.value is not None else both.source)
    return both.model_copy(
        update={
            "value": both.value / (images / 1000),
            "unit": "gCO2e/kimg",
            "source": f"SCI, (E * I + M) / R with R 1,000 images: {both.source}",
        }
    )
