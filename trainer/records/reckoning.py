"""Dollars and emissions of a run, from its sessions, its energy and what the launcher knew. Only arithmetic.

Every figure says what it is made of, is absent where a part is, and never better than an estimate: prices, intensity
and the emissions of making cards are somebody's word. What the cloud charges for booting, for waiting and between
sessions is not in here; `gangway reconcile` shows it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from trainer.figure import Figure
from trainer.record import CarbonRecord, CostRecord, EnergyRecord, RunContext, SessionRecord
from trainer.records.capacity import CapacityUse, price

__all__ = ["carbon", "cost", "product", "total"]

_JOULES_PER_KWH = 3.6e6
_GRAMS_PER_KG = 1000.0


def product(unit: str, method: str, first: Figure, second: Figure, scale: float = 1.0) -> Figure:
    """A figure computed from two others; absent when one is, and never better than an estimate."""
    for factor in (first, second):
        if factor.value is None:
            return Figure.absent(unit, factor.source)
    assert first.value is not None
    assert second.value is not None
    return Figure(
        value=first.value * second.value * scale,
        unit=unit,
        provenance="estimated",
        source=f"{method}; {second.provenance}: {second.source}",
        as_of=second.as_of,
        note=f"{first.provenance}: {first.source}",
    )


def total(figures: Sequence[Figure]) -> Figure:
    """A sum is absent when a part is, measured only when all parts are, and as old as the oldest."""
    absent = next((figure for figure in figures if figure.value is None), None)
    if absent is not None:
        return absent
    measured = all(figure.provenance == "measured" for figure in figures)
    return Figure(
        value=sum(figure.value for figure in figures if figure.value is not None),
        unit=figures[0].unit,
        provenance="measured" if measured else "estimated",
        source="; ".join(dict.fromkeys(figure.source for figure in figures)),
        as_of=min((figure.as_of for figure in figures if figure.as_of), default=None),
        note="; ".join(dict.fromkeys(figure.note for figure in figures if figure.note)),
    )


def cost(sessions: Mapping[int, SessionRecord], contexts: Mapping[int, RunContext]) -> CostRecord:
    """Dollars of the capacity really used: each session's nodes at the price of their own kind.

    Args:
        sessions: by number.
        contexts: what the launcher knew at the beginning of each.
    """
    uses = tuple(use for number in sessions for use in _uses(number, sessions[number], contexts[number]))
    kinds = dict.fromkeys(use.capacity for use in uses)
    components = {
        f"compute, {kind}" if kind else "compute": total([use.usd for use in uses if use.capacity == kind])
        for kind in kinds
    }
    return CostRecord(components=components, total_usd=total(list(components.values())), uses=uses)


def _uses(number: int, session: SessionRecord, context: RunContext) -> Iterator[CapacityUse]:
    """The session's nodes by their kind; nodes that told nothing are together."""
    told = [*session.capacity, *[""] * (session.num_nodes - len(session.capacity))]
    for kind, num_nodes in Counter(told).items():
        capacity, per_hour = price(kind, context)
        hours = Figure.measured(session.wall_sec * num_nodes / 3600, "h", "wall clock of the session x its nodes")
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


def carbon(energy: EnergyRecord, sessions: Sequence[SessionRecord], images: int, context: RunContext) -> CarbonRecord:
    """Emissions of the energy used and of making the cards, and both for 1,000 images: (E * I + M) / R.

    Args:
        energy: of the run.
        sessions: all of them.
        images: that the training has got to; what had to be done again counts once.
        context: what the launcher knew last.
    """
    intensity = context.intensity_g_per_kwh or Figure.absent("gCO2e/kWh", "the launcher gave no carbon intensity")
    method = "operational, location-based: IT energy x PUE x grid intensity"
    grams = product("gCO2e", method, energy.facility_joules, intensity, scale=1 / _JOULES_PER_KWH)
    embodied = _embodied(sessions, context)
    both = total([grams, embodied])
    per_run = both.model_copy(update={"source": f"SCI, (E * I + M) / R with R one run: {both.source}"})
    return CarbonRecord(
        gco2e=grams,
        intensity_g_per_kwh=intensity,
        method=method,
        embodied_gco2e=embodied,
        sci_g_per_run=both if both.value is None else per_run,
        sci_g_per_kimg=_per_kimg(both, images),
    )


def _embodied(sessions: Sequence[SessionRecord], context: RunContext) -> Figure:
    """The run's share of making its cards, by their hours in use of those that a card lives."""
    cards, unknown = context.accelerators_per_node, Figure.absent("kg", "the launcher gave no emissions of a card")
    if not cards:
        return Figure.absent("gCO2e", "the launcher did not say how many accelerators a node has")
    seconds = [session.wall_sec * session.num_nodes for session in sessions]
    card_hours = Figure.measured(sum(seconds) * cards / 3600, "h", f"wall clock x nodes x {cards} cards a node")
    kg = product("kg", "card hours x kg of a card", card_hours, context.embodied_kg_per_accelerator or unknown)
    life = context.accelerator_life_hours
    if kg.value is None or life is None or life.value is None:
        return Figure.absent("gCO2e", kg.source if kg.value is None else "the launcher gave no life of a card")
    return kg.model_copy(
        update={
            "value": kg.value * _GRAMS_PER_KG / life.value,
            "unit": "gCO2e",
            "source": f"{kg.source}, over {life.value:g} h of use ({life.provenance}: {life.source})",
        }
    )


def _per_kimg(both: Figure, images: int) -> Figure:
    if both.value is None or not images:
        return Figure.absent("gCO2e/kimg", "no image has been trained on" if both.value is not None else both.source)
    return both.model_copy(
        update={
            "value": both.value / (images / 1000),
            "unit": "gCO2e/kimg",
            "source": f"SCI, (E * I + M) / R with R 1,000 images: {both.source}",
        }
    )
