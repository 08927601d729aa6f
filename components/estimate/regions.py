"""Limits on the places of a stack, a job and their data, by region and jurisdiction. Pure.

A name is `PROVIDER:REGION`, such as `gcp:europe-west4`; a trailing `-`, `:` or `*` makes it a prefix. Plans, quotes,
submits and moves all use these checks. An unknown property of a place counts against it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from gangway.components.catalog.geography import Route, load_jurisdictions, load_routes, load_transfer, transfer_price
from gangway.components.catalog.loader import PROVIDERS, Provider, load_provider
from gangway.components.catalog.schema import Confidence, Fact
from gangway.components.core.findings import InputError, listed, nearest_hint

SITES: Final = ("hosts", "openstack")
"""Providers whose owners name the regions; no catalogue has them."""
_NAME: Final = re.compile(r"(?P<provider>[a-z]+):(?P<region>[A-Za-z0-9._-]*\*?)")
_PLACE: Final = re.compile(r"(?P<provider>[a-z]+):(?P<region>[A-Za-z0-9._-]+)(/(?P<country>[A-Z]{2}))?")
_ENDS: Final = ("-", ":", "*")


@dataclass(frozen=True)
class Place:
    """A region. `country`: as its owner states it; the catalogue's wins for catalogue regions."""

    provider: str
    region: str
    country: str = ""

    @property
    def name(self) -> str:
        """The name used in limits."""
        return f"{self.provider}:{self.region}"

    @property
    def jurisdiction(self) -> str | None:
        """The country; None if unknown."""
        known = load_jurisdictions().regions(self.provider).get(self.region)
        return known.value if known is not None else self.country or None


@dataclass(frozen=True)
class RegionLimits:
    """Only `allow` (any if empty), none of `deny`, only in `residency`'s countries or groups (anywhere if empty)."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    residency: tuple[str, ...] = ()

    @property
    def asked(self) -> bool:
        """Whether there is any limit."""
        return bool(self.allow or self.deny or self.residency)


class Why(StrEnum):
    """The limit that refuses a place."""

    UNKNOWN = "unknown place"
    DENIED = "deny"
    NOT_ALLOWED = "allow"
    RESIDENCY = "residency"


@dataclass(frozen=True)
class Refusal:
    """Why a place is outside the limits. `said`: a sentence about the place, without a full stop."""

    why: Why
    said: str


def refusal(limits: RegionLimits, place: Place | None) -> Refusal | None:
    """The reason for refusing a place; None if it is within the limits. `place` None: unknown."""
    if not limits.asked:
        return None
    if place is None:
        return Refusal(Why.UNKNOWN, "nobody has said in which region it stands")
    if denied := [entry for entry in limits.deny if _fits(entry, place)]:
        return Refusal(Why.DENIED, f"{place.name} is denied by {denied[0]}")
    if limits.allow and not any(_fits(entry, place) for entry in limits.allow):
        return Refusal(Why.NOT_ALLOWED, f"{place.name} is none of {', '.join(limits.allow)}")
    if not limits.residency:
        return None
    country, asked = place.jurisdiction, " or ".join(limits.residency)
    if country is None:
        return Refusal(Why.RESIDENCY, f"nobody knows whether {place.name} is in {asked}")
    if not any(country in load_jurisdictions().members(word) for word in limits.residency):
        return Refusal(Why.RESIDENCY, f"{place.name} is in {country}, not in {asked}")
    return None


def _fits(entry: str, place: Place) -> bool:
    if entry.endswith(_ENDS):
        return place.name.startswith(entry.rstrip("*"))
    return place.name == entry


def check_name(entry: str, place: str) -> str:
    """Check an entry of `allow` or `deny` at `place`. InputError: no such region or prefix, so it has no effect."""
    match = _NAME.fullmatch(entry)
    if match is None or (not match["region"] and not entry.endswith(_ENDS)):
        raise InputError(
            place, "no name of a region", value=entry, allowed="PROVIDER:REGION, or how several begin, such as aws:eu-",
            fix=f"write {entry}: for all of {entry}" if entry in (*PROVIDERS, *SITES) else "write aws:eu-central-1",
        )  # fmt: skip
    provider = match["provider"]
    if provider not in (*PROVIDERS, *SITES):
        raise InputError.not_among(place, "no such provider", provider, (*PROVIDERS, *SITES))
    known = [f"{provider}:{region}" for region in sorted(load_jurisdictions().regions(provider))]
    if known and not any(_fits(entry, Place(provider, name.partition(":")[2])) for name in known):
        begun = any(name.startswith(entry) for name in known)
        hint = f"write {entry}* for all that begin so" if begun else nearest_hint(entry, known)
        raise InputError(
            place, "no region that the catalogue knows is called so, or begins so", value=entry,
            allowed=listed(known, entry), fix=hint,
        )  # fmt: skip
    return entry


def check_jurisdiction(word: str, place: str) -> str:
    """Check an entry of `residency`. InputError: unknown country or group."""
    words = load_jurisdictions().words
    if word not in words:
        meant = {"UK": "GB", "USA": "US"}.get(word.upper(), word.upper())
        fix = f"write {meant}" if meant in words else nearest_hint(word, words)
        raise InputError(place, "no such country or group", value=word, allowed=listed(words, word), fix=fix)
    return word


def read_place(text: str, option: str) -> Place:
    """Parse `aws:eu-central-1`, or outside the catalogue with a country, `hosts:lab/DE`. InputError: neither."""
    match = _PLACE.fullmatch(text)
    if match is None or match["provider"] not in (*PROVIDERS, *SITES):
        raise InputError(
            option, "no region", value=text, allowed="PROVIDER:REGION, or hosts:NAME/COUNTRY for machines of your own",
            fix="write aws:eu-central-1, or hosts:lab/DE",
        )  # fmt: skip
    provider, region, country = match["provider"], match["region"], match["country"] or ""
    known = load_jurisdictions().regions(provider)
    if known and region not in known:
        raise InputError.not_among(option, f"no region of {provider} that the catalogue knows", region, sorted(known))
    if known and country not in ("", known[region].value):
        raise InputError(
            option, "another country than the catalogue's", value=text, allowed=known[region].value,
            fix=f"write {provider}:{region}",
        )  # fmt: skip
    return Place(provider, region, "" if known else country)


# Prices of data transfer (by pair between a provider's regions, elsewhere by the internet price; None if unknown), and
# cost and duration of reading a job's data from another place.

_MBIT_PER_GIB = 8 * 2**30 / 1e6


@dataclass(frozen=True)
class DataAt:
    """The place of the data, and the amount that a job reads once."""

    place: Place
    gib: float


@dataclass(frozen=True)
class Carried:
    """A transfer to one place. `price`: US dollars a GiB; `stream_hours`: by one stream; None within a region."""

    usd: float | None
    price: Fact[float | None]
    stream_hours: float | None
    route: Route | None

    def in_words(self, data: DataAt) -> str:
        """Such as `40 GiB from aws:us-east-1 at 0.02 USD, 1.2 h by one stream (88 ms, 95 Mbit/s, 2022-02-14)`."""
        cost = "which nobody has priced" if self.price.value is None else f"at {self.price.value:g} USD"
        text = f"{data.gib:g} GiB from {data.place.name} {cost}"
        if self.route is None:
            return text
        rtt, stream = self.route.rtt_ms, self.route.stream_mbps
        if stream is None or self.stream_hours is None:
            return f"{text}, {rtt.value:g} ms there and back ({rtt.dated})"
        one = f"{rtt.value:g} ms, {stream.value:g} Mbit/s, {stream.dated}"
        return f"{text}, {self.stream_hours:.2g} h by one stream ({one})"


def carried(data: DataAt, target: Place) -> Carried:
    """The transfer to that region."""
    price = traffic_price(data.place, target)
    route = None if data.place.name == target.name else load_routes().route(data.place.name, target.name)
    stream = None if route is None else route.stream_mbps
    hours = None if stream is None else data.gib * _MBIT_PER_GIB / stream.value / 3600
    return Carried(None if price.value is None else price.value * data.gib, price, hours, route)


_EGRESS: Final = "egress-internet"
_PRICED: Final[Mapping[str, Provider]] = MappingProxyType({provider: provider for provider in PROVIDERS})


def traffic_price(source: Place, target: Place) -> Fact[float | None]:
    """US dollars a GiB, at the first tier; ingress is free at all these providers."""
    day = load_transfer(source.provider).as_of
    if source.name == target.name:
        return _fact(0.0, "within one region; between zones it may cost", day, "assumed")
    if source.provider not in _PRICED:
        return _fact(None, f"nobody here knows what a line out of {source.name} costs", day, "recalled")
    if source.provider == target.provider:
        return transfer_price(source.provider, source.region, target.region)
    return _internet(_PRICED[source.provider], source.region)


def _internet(provider: Provider, region: str) -> Fact[float | None]:
    """The region's price, or another region's, marked as assumed."""
    price = load_provider(provider).service_price(provider, region, _EGRESS)
    if price.region == region:
        return price.usd
    instead = f"{price.usd.source}; price of {price.region}, none of {region} in the catalogue"
    return price.usd.model_copy(update={"source": instead, "confidence": "assumed"})


def _fact(value: float | None, source: str, day: date, confidence: Confidence) -> Fact[float | None]:
    return Fact[float | None](value=value, source=source, as_of=day, confidence=confidence)
