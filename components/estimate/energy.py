"""Energy and carbon of a run from board power, before anything runs.

E = PUE * t * n * (gpus * board watts * share + host watts), for the expected and the maximum hours. Estimates from
rated power err by 27 to 37 % against meters, hence the band (studies in docs/decisions.md). Carbon is location-based;
with embodied emissions it is Software Carbon Intensity's E * I + M.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple, Self

from gangway.components.catalog.machine_facts import load_embodied, load_power, machine_emissions
from gangway.components.catalog.schema import Fact, MachineType, Region


def board_share(machine: MachineType, waiting: float = 0.0) -> Fact[float]:
    """Average share of board power: measured, or else as in heavy training. `waiting`: idle share of a step, 0..1."""
    board, mean = machine.accelerator_watts, machine.accelerator_mean_watts
    table = load_power()
    if mean is None or board.value is None:
        busy = table.busy_share
    else:
        source = f"{mean.source}: {mean.value:g} of {board.value:g} W on average"
        busy = mean.model_copy(update={"value": mean.value / board.value, "source": source})
    if waiting == 0 or board.value is None:
        return busy
    if (idle := table.waiting.get(machine.accelerator.rpartition("x")[0])) is None:
        idle = table.waiting_others
    else:
        idle = idle.model_copy(update={"value": idle.value / board.value})
    source = f"{busy.source}; waits {waiting:.0%} of a step at {idle.value:.0%} of its rating ({idle.source})"
    mixed = busy.value + waiting * (min(idle.value, busy.value) - busy.value)
    return busy.model_copy(update={"value": mixed, "source": source, "confidence": "assumed"})


class RunHours(NamedTuple):
    """Hours of a run: expected with a band, None if the speed is unknown, and at most."""

    low: float | None
    mid: float | None
    high: float | None
    most: float

    @classmethod
    def exactly(cls, hours: float) -> Self:
        """A run of known length."""
        return cls(hours, hours, hours, hours)

    @classmethod
    def at_most(cls, hours: float) -> Self:
        """A run with only an upper limit."""
        return cls(None, None, None, hours)


@dataclass(frozen=True)
class EnergyEstimate:
    """Energy of a run in kWh: `it_kwh` for machines, `kwh` for the data centre. None if the accelerators' power is
    unpublished; expected values also if the length is unknown.

    Attributes:
        kwh_low: the shortest expected run, minus the estimate's error.
        kwh_high: the longest expected run, plus that error; at most the rating.
        kwh_most: all of `hours_most` at the rating.
        waiting: share of a step without computation.
        source: of the watts, or why there are none.
    """

    kwh: float | None
    it_kwh: float | None
    pue: float
    kwh_low: float | None
    kwh_high: float | None
    kwh_most: float | None
    hours: float | None
    hours_most: float
    waiting: float
    source: str
    pue_source: str
    pue_as_of: str
    pue_confidence: str


@dataclass(frozen=True)
class CarbonEstimate:
    """Location-based emissions of a run in gCO2e over its energy band; None if energy or mean intensity is unknown.
    Marginal and market-based intensities are informative; None if unpublished.
    """

    gco2e: float | None
    gco2e_low: float | None
    gco2e_high: float | None
    gco2e_most: float | None
    intensity_g_per_kwh: float | None
    method: str
    source: str
    as_of: str
    grid: str
    marginal_g_per_kwh: float | None
    marginal_source: str
    market_g_per_kwh: float | None
    market_source: str


@dataclass(frozen=True)
class EmbodiedEstimate:
    """A run's share of the emissions of making its machines, gCO2e; None if unknown. `gco2e_most`: the maximum hours at
    the high end; `machine_share`: of a whole machine per machine of the type.
    """

    gco2e: float | None
    gco2e_low: float | None
    gco2e_high: float | None
    gco2e_most: float | None
    kg_per_machine: float | None
    kg_low: float | None
    kg_high: float | None
    machine_share: float
    life_hours: float
    source: str
    as_of: str
    confidence: str


def estimate_energy(
    machine: MachineType, num_nodes: int, hours: RunHours | float, region: Region, waiting: float = 0.0
) -> EnergyEstimate:
    """Estimate the energy of `num_nodes` machines over `hours` in `region`. `waiting`: as in `board_share`."""
    run = hours if isinstance(hours, RunHours) else RunHours.exactly(hours)
    board, pue = machine.accelerator_watts, region.pue.value
    band = load_power().error_band.value
    mean_kw = rated_kw = high_kw = None
    if board.value is not None:
        boards_kw = num_nodes * machine.num_accelerators.value * board.value / 1000
        host_kw = num_nodes * machine.host_watts.value / 1000
        busy = board_share(machine).value
        mean_kw = boards_kw * board_share(machine, waiting).value + host_kw
        rated_kw = (boards_kw * busy + host_kw) / busy
        high_kw = min(mean_kw * (1 + band), rated_kw)  # never beyond the rating
    return EnergyEstimate(
        kwh=_product(mean_kw, run.mid, pue),
        it_kwh=_product(mean_kw, run.mid),
        pue=pue,
        kwh_low=_product(mean_kw, run.low, pue * (1 - band)),
        kwh_high=_product(high_kw, run.high, pue),
        kwh_most=_product(rated_kw, run.most, pue),
        hours=run.mid,
        hours_most=run.most,
        waiting=waiting,
        source=f"absent: {board.source}" if mean_kw is None else f"estimated: {_watts(machine, waiting)}",
        pue_source=region.pue.source,
        pue_as_of=region.pue.as_of_text,
        pue_confidence=region.pue.confidence,
    )


def _product(*factors: float | None) -> float | None:
    """The product; None if a factor is."""
    known = [factor for factor in factors if factor is not None]
    return prod(known) if len(known) == len(factors) else None


def _watts(machine: MachineType, waiting: float) -> str:
    board, host, share = machine.accelerator_watts, machine.host_watts, board_share(machine, waiting).value
    waits = f" (waits {waiting:.0%} of a step)" if waiting else ""
    return (
        f"{machine.num_accelerators.value} x {board.value:g} W ({board.confidence}) x {share:.3g}{waits} "
        f"+ {host.value:g} W host ({host.confidence}) per node"
    )


def estimate_carbon(energy: EnergyEstimate, region: Region) -> CarbonEstimate:
    """Multiply facility energy by the grid's mean intensity."""
    intensity, marginal, market = region.intensity_g_per_kwh, region.marginal_g_per_kwh, region.market_g_per_kwh
    return CarbonEstimate(
        gco2e=_product(energy.kwh, intensity.value),
        gco2e_low=_product(energy.kwh_low, intensity.value),
        gco2e_high=_product(energy.kwh_high, intensity.value),
        gco2e_most=_product(energy.kwh_most, intensity.value),
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


def estimate_embodied(machine: MachineType, num_nodes: int, hours: RunHours | float) -> EmbodiedEstimate:
    """Spread the emissions of making the machines over their life, for `hours` on `num_nodes` of them."""
    run = hours if isinstance(hours, RunHours) else RunHours.exactly(hours)
    made, life = machine_emissions(machine), load_embodied().life_hours
    g_per_kg_and_hour = num_nodes * 1000 / life.value
    return EmbodiedEstimate(
        gco2e=_product(made.kg.value, run.mid, g_per_kg_and_hour),
        gco2e_low=_product(made.low.value, run.low, g_per_kg_and_hour),
        gco2e_high=_product(made.high.value, run.high, g_per_kg_and_hour),
        gco2e_most=_product(made.high.value, run.most, g_per_kg_and_hour),
        kg_per_machine=made.kg.value,
        kg_low=made.low.value,
        kg_high=made.high.value,
        machine_share=made.share,
        life_hours=life.value,
        source=f"{made.kg.source}; {life.source}",
        as_of=made.kg.as_of_text,
        confidence=made.kg.confidence,
    )


@dataclass(frozen=True)
class SciEstimate:
    """Software Carbon Intensity, (E * I + M) / R, gCO2e per 1,000 images; None if unknown. `..._most`: at most."""

    g_per_kimg: float | None
    g_per_kimg_low: float | None
    g_per_kimg_high: float | None
    g_per_kimg_most: float | None


def estimate_sci(
    carbon: CarbonEstimate, embodied: EmbodiedEstimate, kimg: tuple[float, float, float] | None
) -> SciEstimate:
    """`kimg`: thousands of images of the run: most, expected, fewest; None if unknown."""
    if kimg is None:
        return SciEstimate(None, None, None, None)
    fast, usual, slow = kimg
    return SciEstimate(
        _ratio(carbon.gco2e, embodied.gco2e, usual),
        _ratio(carbon.gco2e_low, embodied.gco2e_low, fast),
        _ratio(carbon.gco2e_high, embodied.gco2e_high, slow),
        _ratio(carbon.gco2e_most, embodied.gco2e_most, slow),
    )


def _ratio(emitted: float | None, made: float | None, kimg: float) -> float | None:
    return None if emitted is None or made is None or kimg == 0 else (emitted + made) / kimg


class Footprint(NamedTuple):
    """Energy and emissions of a run."""

    energy: EnergyEstimate
    carbon: CarbonEstimate
    embodied: EmbodiedEstimate
    sci: SciEstimate


def estimate_footprint(
    machine: MachineType,
    num_nodes: int,
    hours: RunHours,
    region: Region,
    kimg: tuple[float, float, float] | None,
    *,
    waiting: float = 0.0,
    unknown_power: str = "",
) -> Footprint:
    """All of the above for one run. `unknown_power`: why the mean draw is unknown; empty if it is known."""
    energy = estimate_energy(machine, num_nodes, hours, region, waiting)
    if unknown_power:
        source = f"absent: {unknown_power}"
        energy = replace(energy, kwh=None, it_kwh=None, kwh_low=None, kwh_high=None, kwh_most=None, source=source)
    carbon, embodied = estimate_carbon(energy, region), estimate_embodied(machine, num_nodes, hours)
    return Footprint(energy, carbon, embodied, estimate_sci(carbon, embodied, kimg))
