"""Energy and carbon envelopes from board power, before anything runs: E = PUE * t * n * (gpus * board watts *
utilisation + host watts). Such estimates err by 27 to 37 % against meters (hence the band; studies in
docs/decisions.md). Carbon is location-based; with the emissions of making the cards it is Software Carbon
Intensity's E * I + M.
"""

from dataclasses import asdict, dataclass
from typing import Any

from components.catalog.schema import MachineType, Region
from components.catalog.tables import card_kg, life_hours

__all__ = [
    "ERROR_BAND",
    "UTILISATION",
    "UTILISATION_SOURCE",
    "CarbonEstimate",
    "EmbodiedEstimate",
    "EnergyEstimate",
    "estimate_carbon",
    "estimate_embodied",
    "estimate_energy",
]

UTILISATION = 0.75
"""Mean share of board power while training, assumed: see UTILISATION_SOURCE."""

UTILISATION_SOURCE = "8 x H100 nodes average about three quarters of their peak"

ERROR_BAND = 0.37
"""The wide end of what studies found."""


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
    """Emissions of a run in gCO2e, location-based; None where its energy is not known."""

    gco2e: float | None
    intensity_g_per_kwh: float
    method: str
    source: str
    as_of: str

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
    board = machine.accelerator_watts
    it_kwh = kwh = None
    if board.value is not None:
        watts = machine.num_accelerators.value * board.value * UTILISATION + machine.host_watts.value
        it_kwh = num_nodes * watts * hours / 1000
        kwh = it_kwh * region.pue.value
    return EnergyEstimate(
        kwh=kwh,
        it_kwh=it_kwh,
        pue=region.pue.value,
        kwh_low=None if kwh is None else kwh * (1 - ERROR_BAND),
        kwh_high=None if kwh is None else kwh * (1 + ERROR_BAND),
        hours=hours,
        source=f"absent: {board.source}" if kwh is None else f"estimated: {_watts(machine)}",
        pue_source=region.pue.source,
        pue_as_of=region.pue.as_of_text,
        pue_confidence=region.pue.confidence,
    )


def _watts(machine: MachineType) -> str:
    board, host = machine.accelerator_watts, machine.host_watts
    return (
        f"{machine.num_accelerators.value} x {board.value:g} W ({board.confidence}) x {UTILISATION} "
        f"+ {host.value:g} W host ({host.confidence}) per node"
    )


def estimate_carbon(energy: EnergyEstimate, region: Region) -> CarbonEstimate:
    """Facility energy times the grid's mean intensity."""
    intensity = region.intensity_g_per_kwh
    return CarbonEstimate(
        gco2e=None if energy.kwh is None else energy.kwh * intensity.value,
        intensity_g_per_kwh=intensity.value,
        method="location-based annual mean; IT energy x PUE x intensity; embodied emissions apart",
        source=intensity.source,
        as_of=intensity.as_of_text,
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
        as_of=card.as_of_text,
        confidence=card.confidence,
    )
