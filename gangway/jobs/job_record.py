"""The record of a job, pure: what its engine recorded, the cost at its price, what the job reported, and figures
derived from these. Each name in FIGURES is present with its source or absent with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Self

from pydantic import AwareDatetime, model_validator

from gangway.components.catalog.machine_facts import load_power
from gangway.jobs.base import JobStatus
from gangway.jobs.figures import REPORTED, Absent, Figure, Maybe, Reported, Source, measured, product, ratio, worst
from gangway.jobs.run_intervals import used_sec
from gangway.jobs.sites import Nodes, envelope, usage_cost
from gangway.trainer.records.quantity import Frozen

_JOULES_PER_KWH = 3_600_000
_MEASURED = (
    *("wall_sec", "waiting_sec", "on_nodes_sec", "node_hours", "starts", "failures", "interruptions"),
    *("moves", "moves_sec"),
)
_COST = ("moves_usd", "usd_per_node_hour", "usd")
_DERIVED = ("usd_per_1000_images", "usd_per_1000_tokens", "joules_per_image", "joules_per_token")
FIGURES = (*_MEASURED, *_COST, *REPORTED, *_DERIVED)
"""Of every record, in table order."""


class JobRecord(Frozen):
    """The whole record.

    Attributes:
        so_far: the job is not over: figures are up to `at`, when this was made.
        absent: the rest of FIGURES, and why.
    """

    schema_version: Literal[1] = 1
    at: AwareDatetime
    engine: str
    where: str
    so_far: bool
    job: JobStatus
    figures: dict[str, Figure]
    metrics: dict[str, Figure]
    absent: dict[str, str]
    problems: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if sorted([*self.figures, *self.absent]) != sorted(FIGURES):
            raise ValueError("each figure has to be present or absent")
        return self


@dataclass(frozen=True)
class StartCounts:
    """What an engine counted, and the job's limit of restarts after failures."""

    failures: int
    restart_limit: int


@dataclass(frozen=True)
class EngineInfo:
    """An engine's kind and which one, for display, and its nodes."""

    kind: str
    where: str
    nodes: Nodes | None


def get_record(
    engine: EngineInfo, status: JobStatus, counts: StartCounts | Absent, reported: Reported, now: datetime
) -> JobRecord:
    """`counts` is absent if the engine does not count."""
    used = _engine_figures(engine.nodes, status, counts, now)
    found = {**used, **_cost(engine.nodes, status, used["node_hours"]), **reported.figures}
    found |= _energy(engine.nodes, status, found)
    found |= _derived(status, found, reported.figures["joules"])
    return JobRecord(
        at=now,
        engine=engine.kind,
        where=engine.where,
        so_far=not status.phase.is_over,
        job=status,
        figures={name: each for name in FIGURES if isinstance(each := found[name], Figure)},
        metrics=dict(reported.metrics),
        absent={name: each.why for name in FIGURES if isinstance(each := found[name], Absent)},
        problems=(reported.problem,) if reported.problem else (),
    )


def _engine_figures(
    nodes: Nodes | None, status: JobStatus, counts: StartCounts | Absent, now: datetime
) -> dict[str, Maybe]:
    hours, stretches = usage_cost(nodes, status, now), status.stretches
    on_nodes: Maybe = Absent(hours.source)
    if stretches is not None:
        on_nodes = measured(used_sec(stretches, now), "s", _limit_note(status, "time on nodes"))
    wall = _wall(status, now)
    return {
        "wall_sec": wall,
        "waiting_sec": _waiting(wall, on_nodes),
        "on_nodes_sec": on_nodes,
        "node_hours": Absent(hours.source)
        if hours.node_hours is None
        else measured(hours.node_hours, "h", _limit_note(status, "time on nodes x nodes")),
        "starts": measured(status.known_starts, "", _limit_note(status, "number of starts")),
        **_failures(status, counts),
        "moves": measured(len(status.moves), "", "from one engine to another"),
        "moves_sec": measured(sum(each.sec for each in status.moves), "s", "from stop to arrival"),
    }


def _limit_note(status: JobStatus, note: str) -> str:
    """For a figure without earlier engines' share."""
    return f"{note}; on this engine only, to which it was moved" if status.moves else note


def _wall(status: JobStatus, now: datetime) -> Maybe:
    if status.submitted_at is None:
        return Absent("its engine does not know when it was submitted")
    if status.phase.is_over and status.ended_at is None:
        return Absent("its engine does not know when it ended")
    until = status.ended_at or now
    return measured((until - status.submitted_at).total_seconds(), "s", _limit_note(status, "from submit to end"))


def _waiting(wall: Maybe, on_nodes: Maybe) -> Maybe:
    if isinstance(wall, Figure) and isinstance(on_nodes, Figure):
        # Clocks in a cluster may differ a little.
        return measured(max(0.0, wall.value - on_nodes.value), "s", "of wall_sec, not on nodes")
    return wall if isinstance(wall, Absent) else on_nodes


def _failures(status: JobStatus, counts: StartCounts | Absent) -> dict[str, Maybe]:
    """An interruption is a restart that follows no failure; the last failure is followed by none."""
    if isinstance(counts, Absent):
        return {"failures": counts, "interruptions": counts}
    again = max(0, status.known_starts - 1 - min(counts.failures, counts.restart_limit))
    return {
        "failures": measured(counts.failures, "", _limit_note(status, "failed starts")),
        "interruptions": measured(again, "", _limit_note(status, "restarts after no failure")),
    }


def _cost(nodes: Nodes | None, status: JobStatus, node_hours: Maybe) -> dict[str, Maybe]:
    price = _price(nodes)
    return {
        "moves_usd": _moves_usd(status),
        "usd_per_node_hour": price,
        "usd": product(
            {"node_hours": node_hours, "usd_per_node_hour": price}, "USD", _limit_note(status, "node_hours x price")
        ),
    }


def _price(nodes: Nodes | None) -> Maybe:
    if nodes is None:
        return Absent("the price of a node is unknown: the engine is not in engines.yaml")
    if nodes.usd_per_hour is None:
        return Absent(nodes.source)
    source = Source.DECLARED if nodes.is_declared else Source.LIST_PRICE
    return Figure(value=nodes.usd_per_hour, unit="USD/h", source=source, note=nodes.source)


def _moves_usd(status: JobStatus) -> Maybe:
    if not status.moves:
        return measured(0, "USD", "the job was not moved")
    usd = [each.usd for each in status.moves if each.usd is not None]
    if len(usd) < len(status.moves):
        return Absent(next(each.why_usd for each in status.moves if each.usd is None))
    return Figure(
        value=sum(usd), unit="USD", source=Source.LIST_PRICE, note="; ".join(each.why_usd for each in status.moves)
    )


def _energy(nodes: Nodes | None, status: JobStatus, found: Mapping[str, Maybe]) -> dict[str, Maybe]:
    joules, gco2e = _estimate(nodes, status, found["node_hours"])
    reported = found["joules"]
    # After a move the joules include other regions' grids.
    if (
        isinstance(reported, Figure)
        and not status.moves
        and (of_joules := _grid_emissions(nodes, reported)) is not None
    ):
        gco2e = of_joules
    return {"joules": _prefer_reported(reported, joules), "gco2e": _prefer_reported(found["gco2e"], gco2e)}


def _prefer_reported(reported: Maybe, estimate: Maybe) -> Maybe:
    if isinstance(reported, Figure) or isinstance(estimate, Figure):
        return reported if isinstance(reported, Figure) else estimate
    return Absent(f"{reported.why}; {estimate.why}")


def _estimate(nodes: Nodes | None, status: JobStatus, node_hours: Maybe) -> tuple[Maybe, Maybe]:
    if isinstance(node_hours, Absent):
        why = Absent(f"no estimate either: {node_hours.why}")
        return why, why
    found = None if nodes is None else envelope(nodes, node_hours.value, 1)
    if found is None:
        why = Absent("no estimate either: engines.yaml does not give its machine_type")
        return why, why
    energy, carbon = found
    if energy.it_kwh is None or carbon.gco2e is None:
        why = Absent(f"no estimate either: {energy.source if energy.it_kwh is None else carbon.source}")
        return why, why
    band = _limit_note(status, f"{energy.source}; may be {load_power().error_band.value:.0%} off")
    grid = f"{carbon.intensity_g_per_kwh:g} g/kWh, {carbon.source}, {carbon.as_of}"
    return (
        Figure(value=energy.it_kwh * _JOULES_PER_KWH, unit="J", source=Source.ESTIMATED, note=f"{band}; without PUE"),
        Figure(value=carbon.gco2e, unit="gCO2e", source=Source.ESTIMATED, note=f"{band}; PUE {energy.pue:g}; {grid}"),
    )


def _grid_emissions(nodes: Nodes | None, joules: Figure) -> Figure | None:
    if nodes is None or (found := envelope(nodes, 0, 1)) is None:
        return None
    energy, carbon = found
    if carbon.intensity_g_per_kwh is None:
        return None
    return Figure(
        value=joules.value / _JOULES_PER_KWH * energy.pue * carbon.intensity_g_per_kwh,
        unit="gCO2e",
        source=worst(joules.source, Source.ESTIMATED),
        note=f"from the joules that the job reported; PUE {energy.pue:g}; {carbon.intensity_g_per_kwh:g} g/kWh, "
        f"{carbon.source}, {carbon.as_of}",
    )


def _derived(status: JobStatus, found: Mapping[str, Maybe], reported: Maybe) -> dict[str, Maybe]:
    """Only from figures over the same time. `reported`: joules reported by the job."""
    if not status.phase.is_over:
        return dict.fromkeys(_DERIVED, Absent("the job is not over: its report may be older than its usage"))
    images, tokens = ("images", found["images"]), ("tokens", found["tokens"])
    joules = ("joules", reported if status.moves else found["joules"])
    derived = {
        "usd_per_1000_images": ratio(("usd", found["usd"]), images, "USD", 1000),
        "usd_per_1000_tokens": ratio(("usd", found["usd"]), tokens, "USD", 1000),
        "joules_per_image": ratio(joules, images, "J/image"),
        "joules_per_token": ratio(joules, tokens, "J/token"),
    }
    if status.moves:
        of_here = [name for name in _DERIVED if name.startswith("usd") or isinstance(reported, Absent)]
        derived |= dict.fromkeys(of_here, Absent("its usage on earlier engines is not known here"))
    return derived
