"""Inputs of a comparison of renting and owning, each with its source: the command line wins, then the catalogue, then
the assumptions of `gangway.components.estimate.tco`. Missing inputs are requested, never guessed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from gangway.components.catalog.machine_facts import failures_per_hour, load_reliability
from gangway.components.catalog.schema import Fact
from gangway.components.core.findings import InputError
from gangway.components.estimate import tco
from gangway.components.estimate.cost import HOURS_PER_MONTH
from gangway.components.estimate.energy import board_share
from gangway.components.estimate.offers import COMMITMENTS

if TYPE_CHECKING:
    from gangway.components.catalog.schema import MachineType
    from gangway.components.estimate.offers import Offer

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
    "availability": "share of the hours",
    "cost_of_capital": "share a year",
}
"""Units of the inputs by option name."""


@dataclass(frozen=True)
class Inputs:
    """One comparison. `facts`: by the names of UNITS, `resale` at the years' end; `unpriced`: without a known price."""

    accelerator: str
    num_nodes: int
    years: float
    facts: Mapping[str, Fact[float]]
    rented: "Offer | None"
    reserved: "tuple[Offer, ...]"
    unpriced: tuple[str, ...]

    def value(self, name: str) -> float:
        """The number alone."""
        return self.facts[name].value

    @property
    def hours(self) -> float:
        """Hours of ownership."""
        return self.years * tco.HOURS_PER_YEAR

    @property
    def cloud(self) -> tco.CloudSide:
        """One rented node."""
        return tco.CloudSide(self.value("usd_per_hour"), self.value("utilisation"), self.value("fixed"))

    @property
    def onprem(self) -> tco.OnPremSide:
        """One owned node."""
        return tco.OnPremSide(
            capex_usd=self.value("capex"),
            resale_usd=self.value("capex") * self.value("resale") / (1 + self.rate) ** self.years,
            kw=self.value("kw"),
            pue=self.value("pue"),
            usd_per_kwh=self.value("usd_per_kwh"),
            colo_usd_per_hour=self.value("colo") / HOURS_PER_MONTH,
            ops_usd_per_hour=self.value("ops") / HOURS_PER_MONTH,
            availability=self.value("availability"),
        )

    @property
    def rate(self) -> float:
        """The yearly discount rate."""
        return self.value("cost_of_capital")


def gather(
    accelerator: str, num_nodes: int, years: float, offers: "Sequence[Offer]", given: Mapping[str, float | None]
) -> Inputs:
    """`given`: checked values by the names of UNITS, and commitment prices. InputError: a figure is unknown."""
    on_demand = [o for o in offers if o.kind == "on-demand" and _is_priced(o)]
    cheapest = min(on_demand, key=lambda o: o.price.value or 0.0, default=None)
    rented = None if given.get("usd_per_hour") is not None else cheapest
    table, machine = tco.load_onprem(), (rented or offers[0]).machine
    found: dict[str, Fact[float] | None] = {
        "usd_per_hour": None if rented is None else _require_value(rented.price),
        "fixed": _assumed(0.0, "storage and head node left out on both sides"),
        "utilisation": table.utilisation,
        "resale": _resale(table, years),
        "pue": table.pue,
        "usd_per_kwh": table.usd_per_kwh,
        "ops": _operations(table, num_nodes, machine.num_accelerators.value),
        "availability": _availability(machine),
        "cost_of_capital": table.cost_of_capital,
        **_node(accelerator, machine, given.get("kw")),
    }
    facts = {
        name: _assumed(value, "given on the command line") if (value := given.get(name)) is not None else found[name]
        for name in UNITS
    }
    known = {name: _required(name, fact, accelerator) for name, fact in facts.items()}
    reserved, unpriced = _commitments(offers, rented or offers[0], known["usd_per_hour"].value, given)
    return Inputs(accelerator, num_nodes, years, known, rented, reserved, unpriced)


def _commitments(
    offers: "Sequence[Offer]", like: "Offer", on_demand: float, given: Mapping[str, float | None]
) -> "tuple[tuple[Offer, ...], tuple[str, ...]]":
    """The cheapest commitment of each kind and provider, given prices first; and those without a known price."""
    ours = [
        replace(like, kind=kind, price=_given_fact(price), note="", on_demand=on_demand, interruptions=None)
        for kind in COMMITMENTS
        if (price := given.get(kind)) is not None
    ]
    listed = [offer for offer in offers if offer.kind in COMMITMENTS]
    cheapest: dict[tuple[str, str], Offer] = {}
    for offer in sorted(listed, key=lambda o: o.price.value or 0.0):
        if _is_priced(offer) and offer.on_demand:
            cheapest.setdefault((offer.provider, offer.kind), offer)
    priced = [offer for offer in listed if offer in cheapest.values()]
    known = {(offer.provider, offer.kind) for offer in (*ours, *priced)}
    lacking = dict.fromkeys(f"{o.provider} {o.kind}" for o in listed if (o.provider, o.kind) not in known)
    return (*ours, *priced), tuple(lacking)


def _is_priced(offer: "Offer") -> bool:
    """Whether the price is of the offer's region."""
    return offer.price.value is not None and not (offer.quote and offer.quote.foreign_region)


def _given_fact(price: float) -> Fact[float | None]:
    return Fact[float | None](value=price, source="given on the command line", as_of=date.today(), confidence="assumed")


def _resale(table: tco.OnPremTable, years: float) -> Fact[float]:
    sold, decline = table.sold_share, table.resale_decline
    source = f"{sold.value:.0%} of the price can be sold, and lose {decline.value:.2%} a year: {decline.source}"
    return sold.model_copy(
        update={"value": sold.value * (1 - decline.value) ** years, "source": source, "url": decline.url}
    )


def _operations(table: tco.OnPremTable, num_nodes: int, accelerators: int) -> Fact[float]:
    pay, per_engineer = table.engineer_usd_per_year, table.accelerators_per_engineer
    number = tco.engineers(num_nodes, accelerators, table.nodes_of_first_engineer.value, per_engineer.value)
    engineer_noun, node_noun = "engineer" + "s" * (number != 1), "node" + "s" * (num_nodes != 1)
    source = f"{number:.2g} {engineer_noun} for {num_nodes} {node_noun}: {pay.source}; {per_engineer.source}"
    return pay.model_copy(update={"value": pay.value * number / 12 / num_nodes, "source": source})


def _availability(machine: "MachineType") -> Fact[float]:
    """Of an owned node, which fails as rented ones do and waits for repair."""
    failures, repair = failures_per_hour(machine), load_reliability().repair.hours
    source = f"one failure in {1 / failures.value:,.0f} h, {repair.value:g} h until it works again: {failures.source}"
    return repair.model_copy(
        update={"value": tco.availability(failures.value, repair.value), "source": source, "url": failures.url}
    )


def _node(accelerator: str, machine: "MachineType", kw: float | None) -> dict[str, Fact[float] | None]:
    table = tco.load_onprem()
    own = table.nodes.get(accelerator)
    board, host, share = machine.accelerator_watts, machine.host_watts, board_share(machine).value
    mean = peak = None
    if board.value is not None:
        boards = machine.num_accelerators.value * board.value
        source = f"{board.source}, {share:.0%} of it used on average; {host.source}"
        mean = Fact[float](
            value=(boards * share + host.value) / 1000,
            source=source,
            as_of=board.as_of,
            read_on=board.read_on,
            confidence="assumed",
        )
        peak = (boards + host.value / share) / 1000
    if own is not None:
        peak = own.peak_kw.value
    if kw is not None and (own is None or kw > own.peak_kw.value):
        # No node's average draw exceeds its peak.
        peak = kw / share
    rate = table.colo_usd_per_kw_month
    colo = None
    if peak is not None:
        source = f"{rate.source}: {rate.value:g} USD a kW and month, for {peak:.3g} kW at the peak"
        colo = Fact[float](
            value=rate.value * peak, source=source, as_of=rate.as_of, read_on=rate.read_on, confidence=rate.confidence
        )
    return {"capex": None if own is None else own.capex_usd, "kw": mean, "colo": colo}


def _require_value(fact: Fact[float | None]) -> Fact[float]:
    return Fact[float].model_validate(fact.model_dump())


def _assumed(value: float, reason: str) -> Fact[float]:
    return Fact[float](value=value, source=reason, as_of=date.today(), confidence="assumed")


def _required(name: str, fact: Fact[float] | None, accelerator: str) -> Fact[float]:
    if fact is not None:
        return fact
    option = f"--{name.replace('_', '-')}"
    raise InputError(
        option,
        f"not published for {accelerator}, and no assumption is made",
        allowed=f"{UNITS[name]}, above 0",
        fix=f"give {option}",
    )
