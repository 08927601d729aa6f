"""What a comparison of renting and owning goes by: each input with its source. The command line wins; then the
catalogue; then the stated assumptions of `components.estimate.tco`. What none has is asked for, never guessed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from components.catalog.schema import Fact
from components.core.findings import InputError
from components.estimate.cost import HOURS_PER_MONTH
from components.estimate.energy import UTILISATION
from components.estimate.tco import HOURS_PER_YEAR, CloudSide, OnPremSide, load_onprem

if TYPE_CHECKING:
    from components.catalog.schema import MachineType
    from components.estimate.offers import Offer

UNITS: Mapping[str, str] = {
    "usd_per_hour": "USD/node-hour",
    "fixed": "USD/node-hour",
    "utilisation": "share of the hours",
    "capex": "USD/node",
    "resale": "share of the price",
    "kw": "kW/node",
    "pue": "",
    "usd_per_kwh": "USD/kWh",
    "colo": "USD/node-month",
    "ops": "USD/node-month",
}
"""The inputs by their options' names, and what they count in."""


@dataclass(frozen=True)
class Inputs:
    """One comparison. `facts`: by the names of UNITS; `rented`: the offer whose price is compared; None where the price
    was given; `reserved`: commitments whose price is known, with the on-demand price beside it.
    """

    accelerator: str
    num_nodes: int
    years: float
    facts: Mapping[str, Fact[float]]
    rented: "Offer | None"
    reserved: "tuple[Offer, ...]"

    def value(self, name: str) -> float:
        """The number alone."""
        return self.facts[name].value

    @property
    def hours(self) -> float:
        """How long one has the nodes."""
        return self.years * HOURS_PER_YEAR

    @property
    def cloud(self) -> CloudSide:
        """One rented node."""
        return CloudSide(self.value("usd_per_hour"), self.value("utilisation"), self.value("fixed"))

    @property
    def onprem(self) -> OnPremSide:
        """One node of one's own."""
        return OnPremSide(
            capex_usd=self.value("capex"),
            resale_usd=self.value("capex") * self.value("resale"),
            kw=self.value("kw"),
            pue=self.value("pue"),
            usd_per_kwh=self.value("usd_per_kwh"),
            colo_usd_per_hour=self.value("colo") / HOURS_PER_MONTH,
            ops_usd_per_hour=self.value("ops") / HOURS_PER_MONTH,
        )


def gather(
    accelerator: str, num_nodes: int, years: float, offers: "Sequence[Offer]", given: Mapping[str, float | None]
) -> Inputs:
    """Everything a comparison needs. InputError: nobody knows a price or a draw that was not given either.
    `accelerator`: such as `H100x8`; `offers`: every way to rent such a node, at least one; `given`: what stood on
    the command line, by the names of UNITS; checked.
    """
    on_demand = [o for o in offers if o.kind == "on-demand" and o.price.value is not None]
    cheapest = min(on_demand, key=lambda o: o.price.value or 0.0, default=None)
    rented = None if given.get("usd_per_hour") is not None else cheapest
    table = load_onprem()
    found: dict[str, Fact[float] | None] = {
        "usd_per_hour": None if rented is None else _known(rented.price),
        "fixed": _assumed(0.0, "storage and head node left out on both sides"),
        "utilisation": table.utilisation,
        "resale": table.resale_share,
        "pue": table.pue,
        "usd_per_kwh": table.usd_per_kwh,
        "ops": table.ops_usd_per_node_month,
        **_node(accelerator, (rented or offers[0]).machine, given.get("kw")),
    }
    facts = {
        name: _assumed(value, "given on the command line") if (value := given.get(name)) is not None else found[name]
        for name in UNITS
    }
    reserved = tuple(o for o in offers if o.kind.startswith("reserved") and o.price.value is not None and o.on_demand)
    known = {name: _required(name, fact, accelerator) for name, fact in facts.items()}
    return Inputs(accelerator, num_nodes, years, known, rented, reserved)


def _node(accelerator: str, machine: "MachineType", kw: float | None) -> dict[str, Fact[float] | None]:
    """Price, draw and colocation of a node of one's own; None where nobody knows."""
    table = load_onprem()
    own = table.nodes.get(accelerator)
    board, host = machine.accelerator_watts, machine.host_watts
    mean = peak = None
    if board.value is not None:
        boards = machine.num_accelerators.value * board.value
        source = f"{board.source}, {UTILISATION:.0%} of it used on average; {host.source}"
        mean = Fact[float](
            value=(boards * UTILISATION + host.value) / 1000,
            source=source,
            as_of=board.as_of,
            read_on=board.read_on,
            confidence="assumed",
        )
        peak = (boards + host.value) / 1000
    if own is not None:
        peak = own.peak_kw.value
    if kw is not None and (own is None or kw > own.peak_kw.value):
        # No node draws more on average than at its peak.
        peak = kw / UTILISATION
    rate = table.colo_usd_per_kw_month
    colo = None
    if peak is not None:
        source = f"{rate.source}: {rate.value:g} USD a kW and month, for {peak:.3g} kW at the peak"
        colo = Fact[float](
            value=rate.value * peak, source=source, as_of=rate.as_of, read_on=rate.read_on, confidence=rate.confidence
        )
    return {"capex": None if own is None else own.capex_usd, "kw": mean, "colo": colo}


def _known(fact: Fact[float | None]) -> Fact[float]:
    return Fact[float].model_validate(fact.model_dump())


def _assumed(value: float, why: str) -> Fact[float]:
    return Fact[float](value=value, source=why, as_of=date.today(), confidence="assumed")


def _required(name: str, fact: Fact[float] | None, accelerator: str) -> Fact[float]:
    if fact is not None:
        return fact
    option = f"--{name.replace('_', '-')}"
    raise InputError(
        option,
        f"nobody publishes it for {accelerator}, and nothing is assumed",
        allowed=f"{UNITS[name]}, above 0",
        fix=f"give {option}",
    )
