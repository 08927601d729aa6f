"""Offers of an accelerator by provider, region, machine and kind of capacity, with the price that a plan uses.

If a region has no price, another region's is used and marked; such an offer is not ranked by cost.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gangway.components.catalog.loader import Catalog, accelerator_hint
from gangway.components.catalog.machine_facts import failures_per_hour
from gangway.components.catalog.prices import KINDS, Kind, PriceQuote, resolve_price
from gangway.components.catalog.schema import Fact, MachinePrice, MachineType, Region
from gangway.components.catalog.tables import InterruptionTable, share_taken
from gangway.components.core.findings import InputError
from gangway.components.estimate.regions import Place, RegionLimits, Why, refusal

COMMITMENTS: tuple[Kind, ...] = ("reserved-1y", "reserved-3y")
SOLD_BY: Mapping[Kind, tuple[str, ...]] = {"capacity-block": ("aws",), "flex-start": ("gcp",)}
"""Kinds that only some providers have."""


@dataclass(frozen=True)
class Carrier:
    """A machine type and its provider's facts. `machine`: for TPUs a whole slice; `capacity`: None for all kinds."""

    machine: MachineType
    prices: Sequence[MachinePrice]
    regions: Mapping[str, Region]
    interruptions: InterruptionTable
    capacity: frozenset[str] | None = None

    @property
    def offered_in(self) -> tuple[str, ...]:
        """Regions of the catalogue that have it, if a list states them."""
        offered = self.machine.offered
        return () if offered is None else tuple(region for region in offered.regions if region in self.regions)


@dataclass(frozen=True)
class Offer:
    """A way to get a node.

    Attributes:
        price: expected US dollars per node-hour; None if unknown.
        place: the region with its grid and PUE; None if it is not in the catalogue.
        interruptions: share of such nodes interrupted per month; None for kinds that are not interrupted.
        assumed_interruptions: the share to use if it is unknown; None likewise.
        on_demand: price of the same node in the same region, None if unknown.
        failures: per node-hour, for any kind; None ignores failures.
    """

    provider: str
    region: str
    machine: MachineType
    kind: Kind
    price: Fact[float | None]
    note: str = ""
    quote: PriceQuote | None = None
    place: Region | None = field(default=None, repr=False)
    interruptions: Fact[float | None] | None = None
    assumed_interruptions: Fact[float] | None = field(default=None, repr=False)
    on_demand: float | None = None
    failures: Fact[float] | None = None

    @property
    def rate(self) -> "Fact[float] | Fact[float | None] | None":
        """`interruptions`, or else what is assumed."""
        fact = self.interruptions
        return fact if fact is None or fact.value is not None else self.assumed_interruptions or fact

    @property
    def label(self) -> str:
        """Such as `aws us-east-1 p5.48xlarge spot`."""
        return f"{self.provider} {self.region} {self.machine.name} {self.kind}"


def get_carriers(accelerator: str, catalogs: Mapping[str, Catalog]) -> list[Carrier]:
    """The machine types with `accelerator`, by provider."""
    return [
        Carrier(
            machine=machine,
            prices=catalog.get_prices(machine.name),
            regions=catalog.regions,
            interruptions=catalog.interruptions,
            # Google's and Azure's types list their kinds; AWS's depend on the region.
            capacity=None if (kinds := getattr(machine, "capacity", None)) is None else frozenset(kinds.value),
        )
        for catalog in catalogs.values()
        for machine in catalog.machines.values()
        if machine.accelerator == accelerator
    ]


def unknown_accelerator(wanted: str, catalogs: Mapping[str, Catalog], place: str, further: str = "") -> InputError:
    """An error for an unknown accelerator, with the nearest known one. `further`: other allowed values."""
    known = sorted({machine.accelerator for catalog in catalogs.values() for machine in catalog.machines.values()})
    return InputError(
        place,
        f"no such accelerator on {', '.join(catalogs)}",
        value=wanted,
        allowed=", ".join(known) + further,
        fix=accelerator_hint(wanted, known),
    )


def permitted_offers(offers: Iterable[Offer], limits: RegionLimits) -> tuple[list[Offer], dict[Why, int]]:
    """The offers within the limits, and how many each limit excludes."""
    permitted, refused = list[Offer](), Counter[Why]()
    for offer in offers:
        if (why := refusal(limits, Place(offer.provider, offer.region))) is None:
            permitted.append(offer)
        else:
            refused[why.why] += 1
    return permitted, dict(refused)


def find_offers(carriers: Iterable[Carrier]) -> list[Offer]:
    """Every offer of every carrier, in regions with a price and in those that sell the machine without one."""
    return [
        _offer(carrier, region, kind)
        for carrier in carriers
        for region in dict.fromkeys([*(price.region for price in carrier.prices), *carrier.offered_in])
        # A price list may have a region that the provider's own list lacks.
        if carrier.machine.offered is None or not carrier.machine.offered.excludes(region)
        for kind in KINDS
        if _is_had(carrier, kind)
    ]


def _is_had(carrier: Carrier, kind: Kind) -> bool:
    """Whether the provider sells the machine that way. A commitment is a discount on on-demand."""
    if carrier.machine.provider not in SOLD_BY.get(kind, (carrier.machine.provider,)):
        return False
    if carrier.capacity is None:
        return kind != "flex-start"
    return ("on-demand" if kind in COMMITMENTS else kind) in carrier.capacity


def _offer(carrier: Carrier, region: str, kind: Kind) -> Offer:
    machine = carrier.machine
    quote = resolve_price(carrier.prices, region, kind)
    on_demand = resolve_price(carrier.prices, region, "on-demand")
    is_own = on_demand is not None and not on_demand.foreign_region
    seen_on = machine.num_accelerators.seen_on  # dated like the machine's own facts
    no_price = Fact[float | None](
        value=None, source="no price in the catalogue", read_on=seen_on, confidence="documented"
    )
    return Offer(
        provider=machine.provider,
        region=region,
        machine=machine,
        kind=kind,
        price=no_price if quote is None else quote.expected,
        note="" if quote is None else _note(quote),
        quote=quote,
        place=carrier.regions.get(region),
        interruptions=share_taken(carrier.interruptions, machine.name, region) if kind == "spot" else None,
        assumed_interruptions=carrier.interruptions.assumed if kind == "spot" else None,
        on_demand=on_demand.usd if on_demand is not None and is_own else None,
        failures=failures_per_hour(machine),
    )


def _note(quote: PriceQuote) -> str:
    said = [quote.limit] if quote.limit else []
    if quote.low != quote.high and not quote.limit:
        said.append(f"typical; seen from {quote.low:g} to {quote.high:g} USD")
    if quote.foreign_region:
        said.append(f"price of {quote.foreign_region}")
    return "; ".join(said)
