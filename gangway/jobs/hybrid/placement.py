"""Chooses an engine for a job: the best of those that would start it immediately, else of those that accept it; best by
order, dollars or emissions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from gangway.components.core.findings import InputError
from gangway.jobs.base import Engine, Room, refusals
from gangway.jobs.sites import By, Charge, Site, charge
from gangway.stacks.config.job_file import JobFile


@dataclass(frozen=True)
class Placement:
    """The engine, whether the job starts there immediately, and a line per engine considered."""

    engine: Engine
    now: bool
    lines: tuple[str, ...]


@dataclass(frozen=True)
class _Candidate:
    """An engine that accepts the job."""

    site: Site
    room: Room
    charge: Charge

    @property
    def label(self) -> str:
        return engine_label(self.site.engine)


def engine_label(engine: Engine) -> str:
    """For display."""
    return f"{engine.kind}, {engine.where}"


def place(sites: Sequence[Site], job: JobFile, by: By | None = None) -> Placement:
    """`by` None: dollars if known for all that accept the job, else order. InputError: no engine accepts it."""
    lines, found, fixes = list[str](), list[_Candidate](), dict[str, None]()
    for site in sites:
        engine = site.engine
        try:
            if errors := refusals(engine, job):
                lines.append(f"{engine_label(engine)}: cannot run it: {errors[0].path}: {errors[0].message}")
                fixes[errors[0].fix] = None
                continue
            each = _Candidate(site, engine.room(job), charge(site, job))
        except InputError as error:
            if len(sites) == 1:
                raise
            lines.append(f"{engine_label(engine)}: unavailable: {error.problem}")
            fixes[error.fix] = None
            continue
        found.append(each)
        if each.room.now and (by is By.ORDER or (by is None and each.charge.usd is None)):
            break  # later ones cannot be better
    if not found:
        raise InputError(
            "--on",
            f"no engine accepts this job: {'; '.join(lines)}",
            fix="; or ".join(filter(None, fixes)) or "use another engine",
        )
    chosen_by = by or (By.COST if all(each.charge.usd is not None for each in found) else By.ORDER)
    best = _best(found, chosen_by)
    lines += [_line(each, is_best=each is best, by=chosen_by) for each in found]
    if not best.room.now:
        lines.append(f"{best.label}: the job waits there, {_WAITS[chosen_by]}")
    return Placement(best.site.engine, best.room.now, tuple(lines))


_WAITS = {By.ORDER: "as the first in the list", By.COST: "at the lowest cost", By.CARBON: "with the least CO2e"}


def _best(found: Sequence[_Candidate], by: By) -> _Candidate:
    """Of those with capacity now, if any. Unknown amounts come last; of equals the first named wins."""

    def rank(each: _Candidate) -> tuple[bool, float]:
        amount = 0.0 if by is By.ORDER else each.charge.by(by)
        return not each.room.now, inf if amount is None else amount

    return min(found, key=rank)


def _line(each: _Candidate, *, is_best: bool, by: By) -> str:
    if is_best and each.room.now:
        word = "starts immediately"
    elif each.room.now:
        word = "also free"
    else:
        word = "busy"
    return f"{each.label}: {word}: {each.room.reason}{_cost_text(each.charge, by)}"


def _cost_text(charged: Charge, by: By) -> str:
    """What decides; empty if the order does."""
    if by is By.ORDER:
        return ""
    usd = "unpriced" if charged.usd is None else f"{charged.usd:,.2f} USD at most"
    grams = "" if charged.gco2e is None else f", {charged.gco2e / 1000:,.3g} kg CO2e"
    return f"; {usd}{grams} ({charged.why})"
