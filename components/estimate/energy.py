"""Energy and carbon envelopes from board power, before anything runs: E = PUE * t * n * (gpus * board watts *
share + host watts). Estimates from rated power err by 27 to 37 % against meters, hence the band (studies in
docs/decisions.md). Carbon is location-based; with the emissions of making the machines it is Software Carbon
Intensity's E * I + M.
"""

from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from components.catalog.schema import Fact, MachineType, Region
from components.catalog.tables import card_kg, life_hours

__all__ = [
    "ERROR_BAND",
    "UTILISATION",
    "UTILISATION_SOURCE",
    "CarbonEstimate",
    "EmbodiedEstimate",
    "EnergyEstimate",
    "board_share",
    "estimate_carbon",
    "estimate_embodied",
    "estimate_energy",
]

UTILISATION = 0.76
"""Mean share of its rating that a node draws in heavy training, taken of boards: measured of 8 x H100 as a whole."""

UTILISATION_SOURCE = "heavy training on 8 x H100 draws 76 % of the node's rated 10.2 kW (arXiv 2506.14551, abstract), taken of each board"

ERROR_BAND = 0.37
"""The wide end of what estimates from rated power err by (the same abstract); upwards never beyond all at its rating."""


def board_share(machine: MachineType) -> Fact[float]:
    """Of its board power, what an accelerator draws on average: its maker's measurement, or else UTILISATION."""
    board, mean = machine.accelerator_watts, machine.accelerator_mean_watts
    if mean is None or board.value is None:
        url, as_of = "https://arxiv.org/abs/2506.14551", date(2025, 6, 17)
        return Fact[float](value=UTILISATION, source=UTILISATION_SOURCE, url=url, as_of=as_of, confidence="assumed")
    source = f"{mean.source}: {mean.value:g} of {board.value:g} W on average"
    return mean.model_copy(update={"value": mean.value / board.value, "source": source})


@dataclass(frozen=True)
class EnergyEstimate:
    """Energy of a run in kWh: of the machines (`it_kwh`) and of the data centre (`kwh`), with the error band. All four
    are None where nobody publishes what the accelerators draw; `source` then says so.
    """

    kwh: float | None
    it_kwh: float | None
    pue: float
    kwh_low: float | None
    kwh_high: float | None
    hours: float
    source: str
    pue_source: str
    pue_as_of: str
    pue_confidence: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


@dataclass(frozen=True)
class CarbonEstimate:
    """Emissions of a run in gCO2e, location-based; None where its energy is not known. The grid's marginal intensity and
    the provider's market-based one stand beside, counted by nothing; None where nobody publishes them.
    """

    gco2e: float | None
    intensity_g_per_kwh: float
    method: str
    source: str
    as_of: str
    grid: str
    marginal_g_per_kwh: float | None
    marginal_source: str
    market_g_per_kwh: float | None
    market_source: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


@dataclass(frozen=True)
class EmbodiedEstimate:
    """A run's share of the emissions of making its cards, gCO2e; None where nobody knows those of such a card."""

    gco2e: float | None
    kg_per_card: float | None
    life_hours: float
    source: str
    as_of: str
    confidence: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def estimate_energy(machine: MachineType, num_nodes: int, hours: float, region: Region) -> EnergyEstimate:
    """The energy `num_nodes` machines use in `hours`, in `region`'s data centre."""
    board, share = machine.accelerator_watts, board_share(machine).value
    it_kwh = kwh = None
    if board.value is not None:
        watts = machine.num_accelerators.value * board.value * share + machine.host_watts.value
        it_kwh = num_nodes * watts * hours / 1000
        kwh = it_kwh * region.pue.value
    return EnergyEstimate(
        kwh=kwh,
        it_kwh=it_kwh,
        pue=region.pue.value,
        kwh_low=None if kwh is None else kwh * (1 - ERROR_BAND),
        kwh_high=None if kwh is None else kwh * min(1 + ERROR_BAND, 1 / share),
        hours=hours,
        source=f"absent: {board.source}" if kwh is None else f"estimated: {_watts(machine)}",
        pue_source=region.pue.source,
        pue_as_of=region.pue.as_of.isoformat(),
        pue_confidence=region.pue.confidence,
    )


def _watts(machine: MachineType) -> str:
    board, host, share = machine.accelerator_watts, machine.host_watts, board_share(machine).value
    return (
        f"{machine.num_accelerators.value} x {board.value:g} W ({board.confidence}) x {share:.3g} "
        f"+ {host.value:g} W host ({host.confidence}) per node"
    )


def estimate_carbon(energy: EnergyEstimate, region: Region) -> CarbonEstimate:
    """Facility energy times the grid's mean intensity."""
    intensity, marginal, market = region.intensity_g_per_kwh, region.marginal_g_per_kwh, region.market_g_per_kwh
    return CarbonEstimate(
        gco2e=None if energy.kwh is None else energy.kwh * intensity.value,
        intensity_g_per_kwh=intensity.value,
        method="location-based annual mean; IT energy x PUE x intensity; embodied emissions apart",
        source=intensity.source,
        as_of=intensity.as_of.isoformat(),
        grid=region.grid,
        marginal_g_per_kwh=marginal.value,
        marginal_source=marginal.source,
        market_g_per_kwh=market.value,
        market_source=market.source,
    )


def estimate_embodied(machine: MachineType, num_nodes: int, hours: float) -> EmbodiedEstimate:
    """What making the cards emitted, shared out over their life: the part of `hours` on `num_nodes` machines."""
    card, life = card_kg(machine.accelerator), life_hours()
    cards = num_nodes * machine.num_accelerators.value
    return EmbodiedEstimate(
        gco2e=None if card.value is None else cards * card.value * 1000 * hours / life.value,
        kg_per_card=card.value,
        life_hours=life.value,
        source=f"{card.source}; {life.source}",
        as_of=card.as_of.isoformat(),
        confidence=card.confidence,
    )
