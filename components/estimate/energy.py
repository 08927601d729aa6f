"""Energy and carbon envelopes from board power, before anything runs: E = PUE * t * n * (gpus * board watts *
share + host watts). Estimates from rated power err by 27 to 37 % against meters, hence the band (studies in
docs/decisions.md). Carbon is location-based; with the emissions of making the machines it is Software Carbon
Intensity's E * I + M.
"""

from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

from components.catalog.embodied import life_hours, machine_emissions
from components.catalog.schema import Fact, MachineType, Region

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

UTILISATION_SOURCE = "arXiv 2506.14551 (abstract): 8 x H100 rated 10.2 kW at 76 %"

ERROR_BAND = 0.37
"""The wide end of what estimates from rated power err by (the same abstract); nothing goes beyond its rating."""


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

    def unknown(self, why: str) -> "EnergyEstimate":
        """The same where nobody can tell how much of its rating a machine draws."""
        return replace(self, kwh=None, it_kwh=None, kwh_low=None, kwh_high=None, source=f"absent: {why}")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


@dataclass(frozen=True)
class CarbonEstimate:
    """Emissions of a run in gCO2e, location-based; None where its energy or its grid is not known. The grid's marginal
    intensity and the provider's market-based one stand beside, counted by nothing; None where nobody publishes them.
    """

    gco2e: float | None
    intensity_g_per_kwh: float | None
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
    """A run's share of the emissions of making its machines, gCO2e, with the band that the sources leave open; all None
    where nobody knows those of such a machine. `machine_share`: of a whole machine, that one of the type counts as.
    """

    gco2e: float | None
    gco2e_low: float | None
    gco2e_high: float | None
    kg_per_machine: float | None
    kg_low: float | None
    kg_high: float | None
    machine_share: float
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
        pue_as_of=region.pue.as_of_text,
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
        gco2e=None if energy.kwh is None or intensity.value is None else energy.kwh * intensity.value,
        intensity_g_per_kwh=intensity.value,
        method="location-based annual mean; IT energy x PUE x intensity; embodied emissions apart",
        source=intensity.source,
        as_of=intensity.as_of_text,
        grid=region.grid,
        marginal_g_per_kwh=marginal.value,
        marginal_source=marginal.source,
        market_g_per_kwh=market.value,
        market_source=market.source,
    )


def estimate_embodied(machine: MachineType, num_nodes: int, hours: float) -> EmbodiedEstimate:
    """What making the machines emitted, shared out over their life: the part of `hours` on `num_nodes` of them."""
    made, life = machine_emissions(machine), life_hours()
    kgs = made.kg.value, made.low.value, made.high.value
    gco2e, low, high = (None if kg is None else num_nodes * kg * 1000 * hours / life.value for kg in kgs)
    return EmbodiedEstimate(
        gco2e=gco2e,
        gco2e_low=low,
        gco2e_high=high,
        kg_per_machine=made.kg.value,
        kg_low=made.low.value,
        kg_high=made.high.value,
        machine_share=made.share,
        life_hours=life.value,
        source=f"{made.kg.source}; {life.source}",
        as_of=made.kg.as_of_text,
        confidence=made.kg.confidence,
    )
