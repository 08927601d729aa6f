"""Quotes for a job on an offer: dollars, hours, risk, kWh, gCO2e, or why it is infeasible; and their ranking."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from gangway.components.catalog.machine_facts import load_reliability
from gangway.components.catalog.prices import KINDS
from gangway.components.catalog.schema import Fact
from gangway.components.estimate.energy import Footprint, RunHours, estimate_footprint
from gangway.components.estimate.offers import Offer
from gangway.components.estimate.regions import Carried, DataAt, Place, carried
from gangway.components.estimate.spot import (
    RESTART_SEC,
    SAVE_SEC,
    SpotEstimate,
    best_interval_sec,
    estimate_spot,
    mtbf_sec,
    rate_per_hour,
)

TERM_HOURS = {"reserved-1y": 8760, "reserved-3y": 26280}
"""Length of commitments, paid whether used or not."""
FLEX_START_HOURS = 168
"""Google's maximum life of such nodes (see `gangway.components.core.capacity.FlexStart`)."""
BLOCK_DAYS = (*range(1, 15), *range(21, 183, 7))
"""Lengths of AWS's capacity blocks: EC2 user guide, "Capacity Blocks for ML"; recalled."""
MOST_OF_A_MONTH = 0.9
# Sums of floats that differ only by rounding are equal, and the next criterion decides.
DIGITS = 9


@dataclass(frozen=True)
class Job:
    """A job to quote.

    Attributes:
        deadline_hours: from now, not below `hours`; None for no deadline.
        start_hours: from the request for nodes to the first step, paid like the rest.
        kimg: thousands of images, above 0; None if unknown, which omits figures per image.
        interruptions: share of spot nodes interrupted per month, for offers without a published one.
        times_taken: factor on that rate, whether published, given or assumed.
        data: read once, and its place; None to ignore it.
    """

    num_nodes: int
    hours: float
    deadline_hours: float | None = None
    interruptions: float | None = None
    times_taken: float = 1.0
    data: DataAt | None = None
    start_hours: float = RESTART_SEC / 3600
    kimg: float | None = None


Rate = Fact[float] | Fact[float | None]
"""A share of nodes per month, None if unknown: published, stated by the job, or assumed."""


@dataclass(frozen=True)
class Quoted:
    """A job on an offer.

    Attributes:
        usd: expected for all nodes and the data transfer; None if unknown or never done.
        hours: paid, expected: start, training, checkpoints, interruptions.
        wall_hours: expected until the job is done; longer than `hours` on spot, which is not always available.
        risk_hours: the part expected to be lost to repeated work and restarts.
        in_time: probability to meet the deadline once the nodes are there, 0 to 1; None without a deadline or if
            unknown.
        footprint: energy and emissions; None if the region's PUE is unpublished or the job is never done.
        problem: why the job is infeasible or late; empty if it is neither.
        missing: unknown figure that prevents any ranking; empty if none.
        unpriced: why the dollars are unknown or another region's, which prevents ranking by them; likewise.
        usd_high: at the highest price seen; None if unknown or another region's.
    """

    offer: Offer
    usd: float | None
    hours: float
    wall_hours: float
    risk_hours: float
    spot: SpotEstimate | None
    rate: Rate | None
    in_time: float | None
    footprint: Footprint | None
    problem: str
    missing: str
    details: str
    carried: Carried | None = None
    unpriced: str = ""
    usd_high: float | None = None

    @property
    def own_usd(self) -> float | None:
        """The dollars if they use this region's own price: the basis of comparisons."""
        return None if self.unpriced else self.usd

    @property
    def kwh(self) -> float | None:
        """Expected, of the building; None also if the accelerators' draw is unpublished."""
        return None if self.footprint is None else self.footprint.energy.kwh

    @property
    def gco2e(self) -> float | None:
        """Expected, location-based; None if `kwh` is."""
        return None if self.footprint is None else self.footprint.carbon.gco2e


def quote(offer: Offer, job: Job) -> Quoted:
    """Quote the job on `offer`."""
    rate = _rate(offer, job)
    share = None if rate is None else rate.value
    if share is not None and job.times_taken != 1:
        share = -math.expm1(job.times_taken * math.log1p(-share))  # at a multiple of its rate
    spot = _estimate_stops(offer, job, share)
    hours = job.start_hours + (job.hours if spot is None else spot.hours)
    wall_hours = hours / spot_availability(offer)
    usd, details = _expected_usd(offer, job, hours, spot, rate)
    missing = ""
    if offer.kind == "spot" and share is None:
        assert offer.interruptions is not None, "spot offers carry the fact, even where it is null"
        missing = f"rate of interruptions not known ({offer.interruptions.source}); give --interruptions"
    way = None if job.data is None else carried(job.data, Place(offer.provider, offer.region))
    high = _high_usd(offer, usd)
    if way is not None:
        usd, high = (None if each is None or way.usd is None else each + way.usd for each in (usd, high))
    return Quoted(
        offer=offer,
        usd=usd,
        hours=hours,
        wall_hours=wall_hours,
        risk_hours=0.0 if spot is None else spot.lost_hours,
        spot=spot,
        rate=rate,
        in_time=_chance_by_deadline(offer, job, spot),
        footprint=_footprint(offer, job, hours),
        problem=_problem(offer, job, hours, wall_hours, spot),
        missing=missing,
        details=details,
        carried=way,
        unpriced=_unpriced(offer, way),
        usd_high=high,
    )


def _high_usd(offer: Offer, usd: float | None) -> float | None:
    quoted = offer.quote
    if usd is None or quoted is None or not quoted.is_bounded or not quoted.usd or quoted.high is None:
        return None
    return usd * quoted.high / quoted.usd


def _estimate_stops(offer: Offer, job: Job, share: float | None) -> SpotEstimate | None:
    """The effect of interruptions and failures; None if there are none, or they are unknown."""
    failures = 0.0 if offer.failures is None else offer.failures.value
    if (share is None) if offer.kind == "spot" else failures == 0:
        return None
    taken = share or 0.0
    # The best interval, at most the whole job. Without interruptions it is infinite: nothing is saved.
    best = best_interval_sec(SAVE_SEC, mtbf_sec(job.num_nodes, taken, failures), RESTART_SEC)
    return estimate_spot(
        job.num_nodes,
        offer.price.value or 0.0,  # hours and risk need no price: an unpriced offer can still be too slow
        job.hours,
        taken,
        failures_per_hour=failures,
        interval_sec=None if math.isinf(best) else min(best, job.hours * 3600),
    )


def _rate(offer: Offer, job: Job) -> Rate | None:
    if offer.interruptions is not None and offer.interruptions.value is None and job.interruptions is not None:
        return Fact[float](value=job.interruptions, source="as given: nobody publishes it", confidence="stated")
    return offer.rate


def _expected_usd(
    offer: Offer, job: Job, hours: float, spot: SpotEstimate | None, rate: Rate | None
) -> tuple[float | None, str]:
    """Expected dollars, and what they include. Terms and whole days count training without the first start."""
    training = hours - job.start_hours
    price = offer.price.value
    if price is None or math.isinf(hours):
        return None, ""
    an_hour, failing = price * job.num_nodes, _failure_note(offer, spot)
    if offer.kind == "spot":
        return (None if spot is None else an_hour * hours), _interruption_note(offer, spot, rate)
    if offer.kind in TERM_HOURS:
        term = TERM_HOURS[offer.kind]
        terms = math.ceil(training / term)
        used = training / (terms * term)
        text = f"{terms * term:,} h are paid, {used:.0%} of them used"
        if offer.on_demand:
            text += f"; pays above {price / offer.on_demand:.0%} use of the term"
        return an_hour * terms * term, f"{text}{failing}"
    if offer.kind == "capacity-block":
        days = _block_days(training)
        return (None, "") if days is None else (an_hour * days * 24, f"{days} whole days are paid at once{failing}")
    if offer.kind == "flex-start":
        return an_hour * hours, f"waits for all nodes, nobody knows how long{failing}"
    return an_hour * hours, f"not taken back{failing}"


def _failure_note(offer: Offer, spot: SpotEstimate | None) -> str:
    if offer.failures is None or spot is None:
        return ""
    every = f"one in {1 / offer.failures.value:,.0f} node-hours, {offer.failures.confidence}"
    return f"; {_often(spot.interruptions)} failures expected ({every})"


def _often(times: float) -> str:
    return "fewer than 0.01" if times < 0.01 else f"{times:.2g}"


def _interruption_note(offer: Offer, spot: SpotEstimate | None, rate: Rate | None) -> str:
    if spot is None or not spot.feasible or rate is None or rate.value is None:
        return ""
    how = "as given" if rate.confidence == "stated" else rate.confidence
    if spot.interruptions == 0:
        return f"never taken back ({how})"
    failures = "" if offer.failures is None else "; failures"
    return (
        f"{_often(spot.interruptions)} interruptions expected ({share_in_words(rate.value)}, {how}{failures}), "
        f"goodput {spot.goodput:.1%} with a checkpoint each {spot.interval_sec / 60:.0f} min; nodes can be had "
        f"{spot_availability(offer):.0%} of the time"
    )


def share_in_words(share: float) -> str:
    """The share per month, or per day if nearly all nodes are interrupted within a month.

    >>> share_in_words(0.4), share_in_words(0.958)
    ('40% of nodes a month', '10% of nodes a day')
    """
    if share <= MOST_OF_A_MONTH:
        return f"{share:.0%} of nodes a month"
    return f"{-math.expm1(-24 * rate_per_hour(share)):.0%} of nodes a day"


def _chance_by_deadline(offer: Offer, job: Job, spot: SpotEstimate | None) -> float | None:
    """The probability to meet the deadline; None if the wait or the interruption rate is unknown."""
    if job.deadline_hours is None or offer.kind == "flex-start" or (offer.kind == "spot" and spot is None):
        return None
    available = job.deadline_hours * spot_availability(offer)
    return chance_in_time(job.hours, available - job.start_hours, spot)


def spot_availability(offer: Offer) -> float:
    """Share of the time with available nodes; a deadline is compared with that share of its hours."""
    return load_reliability().spot.there.value if offer.kind == "spot" else 1.0


def _block_days(hours: float) -> int | None:
    return next((days for days in BLOCK_DAYS if days * 24 >= hours), None)


def _footprint(offer: Offer, job: Job, hours: float) -> Footprint | None:
    """Maxima: rated power until the deadline, or else for the expected hours."""
    if offer.place is None or math.isinf(hours):
        return None
    run = RunHours(hours, hours, hours, max(hours, job.deadline_hours or 0.0))
    kimg = None if job.kimg is None else (job.kimg, job.kimg, job.kimg)
    return estimate_footprint(offer.machine, job.num_nodes, run, offer.place, kimg)


def _problem(offer: Offer, job: Job, hours: float, wall_hours: float, spot: SpotEstimate | None) -> str:
    training = hours - job.start_hours
    if spot is not None and not spot.feasible:
        return f"never done: an interruption each {spot.mtbf_hours:.2g} h takes more than is done in between"
    if spot is not None and job.deadline_hours is not None and wall_hours > job.deadline_hours:
        there = spot_availability(offer)
        gaps = f" on nodes that can be had {there:.0%} of the time" if there < 1 else ""
        return (
            f"too late: {wall_hours:.4g} h expected with interruptions{gaps}, the deadline is {job.deadline_hours:g} h"
        )
    if offer.kind == "flex-start" and training > FLEX_START_HOURS:
        return f"nodes are deleted after {FLEX_START_HOURS} h, the job takes {training:.4g} h"
    if offer.kind == "capacity-block" and _block_days(training) is None:
        return f"the longest block has {BLOCK_DAYS[-1]} days, the job takes {training / 24:.0f}"
    return ""


def _unpriced(offer: Offer, way: Carried | None) -> str:
    if offer.price.value is None:
        return "no price in the catalogue"
    if offer.quote is not None and offer.quote.foreign_region:
        return f"no price of its own in the catalogue: that of {offer.quote.foreign_region} stands in"
    if way is not None and way.usd is None:
        return "no price of its data's way there"
    return ""


def chance_in_time(hours: float, deadline_hours: float, spot: SpotEstimate | None) -> float:
    """The probability that the job meets the deadline: that no more interruptions happen than the slack allows.

    Each costs the mean: half an interval and a restart. Interruptions also happen in the lost time, so their number is
    a generalised Poisson (Consul and Jain, Technometrics 15(4), 1973): with w interruptions in a job's own time and t
    in the time each costs, j of them have probability w (w + jt)^(j-1) e^-(w + jt) / j!. `spot`: None for capacity that
    is not interrupted.
    """
    if spot is None or spot.interruptions == 0:
        return 1.0 if hours <= deadline_hours else 0.0
    if not spot.feasible:
        return 0.0
    work, lost_each = spot.hours - spot.lost_hours, spot.lost_hours / spot.interruptions
    if deadline_hours < work:
        return 0.0
    own, more = work / spot.mtbf_hours, lost_each / spot.mtbf_hours
    # Beyond fifty standard deviations the terms are zero.
    enough = spot.interruptions + 50 * (math.sqrt(own / (1 - more) ** 3) + 1)
    most = math.floor(min((deadline_hours - work) / lost_each, enough))
    logs = (
        math.log(own) + (count - 1) * math.log(own + count * more) - (own + count * more) - math.lgamma(count + 1)
        for count in range(most + 1)
    )
    return min(sum(map(math.exp, logs)), 1.0)


Sort = Literal["cost", "carbon", "risk"]
SORTS: tuple[Sort, ...] = get_args(Sort)
BEST: Mapping[Sort, str] = {
    "cost": "cheapest of those ranked",
    "carbon": "emits least of those ranked",
    "risk": "least at risk of those ranked",
}
"""Labels of the first place. Unranked offers may be better."""


@dataclass(frozen=True)
class Ranking:
    """Offers by outcome. `ranked`: best first, with reasons; `infeasible`: not done, or late; `unknown`: incomplete."""

    ranked: tuple[tuple[Quoted, str], ...]
    infeasible: tuple[Quoted, ...]
    unknown: tuple[Quoted, ...]


def rank(quoted: Iterable[Quoted], sort: Sort) -> Ranking:
    """Sort out infeasible and unknown offers, rank the rest and explain each place."""
    able, infeasible, unknown = list[Quoted](), list[Quoted](), list[Quoted]()
    for each in quoted:
        # Emissions need no price.
        lacks = each.missing or ("" if sort == "carbon" else each.unpriced)
        if each.problem:
            infeasible.append(each)
        elif lacks or (sort == "carbon" and each.gco2e is None):
            unknown.append(replace(each, missing=lacks))
        else:
            able.append(each)
    able.sort(key=lambda q: (*_criteria(q, sort), KINDS.index(q.offer.kind), q.offer.label))
    reasons = (_reason(place, each, able, sort) for place, each in enumerate(able))
    return Ranking(tuple(zip(able, reasons, strict=True)), tuple(infeasible), tuple(unknown))


def _criteria(quoted: Quoted, sort: Sort) -> tuple[float, ...]:
    usd = math.inf if quoted.own_usd is None else round(quoted.own_usd, DIGITS)
    carbon = math.inf if quoted.gco2e is None else round(quoted.gco2e, DIGITS)
    risk = quoted.risk_hours
    return {"cost": (usd, risk, carbon), "carbon": (carbon, usd, risk), "risk": (risk, usd, carbon)}[sort]


def _reason(place: int, quoted: Quoted, able: Sequence[Quoted], sort: Sort) -> str:
    best = able[0]
    dollars = _difference_note(quoted.own_usd, best.own_usd, "dollars")
    emissions = _difference_note(quoted.gco2e, best.gco2e, "emissions")
    if place == 0:
        parts = [BEST[sort] if len(able) > 1 else "the only one ranked", _saving_note(quoted)]
    elif sort == "carbon":
        parts = [emissions, dollars]
    elif sort == "risk" and quoted.risk_hours > best.risk_hours:
        hours = quoted.risk_hours
        parts = [f"{f'{hours * 60:.0f} min' if hours < 1 else f'{hours:.1f} h'} expected to be lost", dollars]
    else:
        parts = [dollars, emissions]
    return "; ".join(part for part in (*parts, quoted.details) if part)


def _saving_note(quoted: Quoted) -> str:
    offer = quoted.offer
    if offer.kind != "spot" or not offer.on_demand or not offer.price.value or quoted.spot is None:
        return ""
    saving = 1 - offer.price.value / offer.on_demand * quoted.spot.goodput**-1
    return f"{saving:.0%} below on demand at the same place" if saving > 0 else "no saving over on demand there"


def _difference_note(value: float | None, best: float | None, unit: str) -> str:
    """`12 % more dollars` than the best; empty if either is unknown or they are equal."""
    if value is None or best is None or best == 0:
        return ""
    ratio = value / best
    if abs(ratio - 1) < 0.005:
        return f"the same {unit}"
    if ratio >= 2:
        return f"{ratio:.1f} times the {unit}"
    return f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'fewer'} {unit}"
