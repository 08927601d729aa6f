"""An engine with the cost and power of its nodes, and what a job would cost there. Chooses an engine for a job: the
best of those that would start it immediately, else of those that accept it; best by order, dollars or emissions.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import inf
from pathlib import Path

from gangway.components.catalog.loader import Catalog
from gangway.components.catalog.schema import MachineType, Region
from gangway.components.core.findings import InputError
from gangway.components.estimate.energy import CarbonEstimate, EnergyEstimate, estimate_carbon, estimate_energy
from gangway.components.estimate.regions import DataAt, Place, carried, read_place
from gangway.jobs.base import Engine, JobStatus, Room, refusals
from gangway.jobs.job_folders import FolderEngine
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.engines_file import KINDS, NamedEngine, named_engines
from gangway.stacks.config.job_file import JobFile
from gangway.stacks.config.sections import LimitsConfig
from gangway.stacks.loading.loader import from_file
from gangway.trainer.core.regular_files import check_reachable

NO_PRICE = "the price of a node is unknown"


class By(StrEnum):
    """How to choose among the engines that accept a job."""

    ORDER = "order"
    COST = "cost"
    CARBON = "carbon"


@dataclass(frozen=True)
class Nodes:
    """The nodes of an engine.

    Attributes:
        source: of that price, with its date.
        machine: None if no catalogue has it.
        grid: of that region, if the caller has it; it may be in no catalogue.
    """

    usd_per_hour: float | None
    source: str
    machine: MachineType | None = None
    region: Place | None = None
    is_declared: bool = False
    grid: Region | None = None


@dataclass(frozen=True)
class Site:
    """An engine as the user named it; `nodes` and `limits` are None if not declared."""

    engine: Engine
    asked: str = ""
    nodes: Nodes | None = None
    limits: LimitsConfig | None = None


@dataclass(frozen=True)
class Charge:
    """Of all hours on all nodes of a job at a site; None if unknown. `why`: the prices used."""

    usd: float | None
    gco2e: float | None
    why: str

    def by(self, by: By) -> float | None:
        """The amount that decides."""
        return self.usd if by is By.COST else self.gco2e


def find_nodes(name: str, engine: NamedEngine) -> Nodes:
    """The nodes declared in the engines' file. InputError: the catalogue has no such region or machine type."""
    place = None if engine.region is None else read_place(engine.region, f"engines.{name}.region")
    own = engine.usd_per_node_hour
    if engine.machine_type is None or place is None:
        source = NO_PRICE if own is None else f"engines.{name}.usd_per_node_hour"
        return Nodes(own, source, region=place, is_declared=own is not None)
    catalog = get_provider(place.provider).catalog_here()
    machine = catalog.machine(engine.machine_type, f"engines.{name}.machine_type")
    if machine.provider != place.provider:
        raise InputError(
            f"engines.{name}.machine_type", f"not a machine type of {place.provider}", value=machine.name,
            fix="use a machine type of the region's provider: gangway catalog list",
        )  # fmt: skip
    if own is not None:
        return Nodes(own, f"engines.{name}.usd_per_node_hour", machine, place, is_declared=True)
    return _list_price(catalog, engine, machine, place)


def _list_price(catalog: Catalog, engine: NamedEngine, machine: MachineType, place: Place) -> Nodes:
    quote = catalog.price(machine.name, place.region, "on-demand" if engine.capacity == "on-demand" else "spot")
    if quote is None or not quote.is_bounded:
        return Nodes(None, f"no price list has {machine.name} in {place.name}", machine, place)
    fact = quote.expected
    which = "" if quote.high == quote.usd else " at its highest"
    return Nodes(
        quote.high, f"{engine.capacity}{which}, {quote.source}, {fact.dated}, {fact.confidence}", machine, place
    )


def charge(site: Site, job: JobFile) -> Charge:
    """The most a job can cost: all hours on all nodes, and the transfer of its data."""
    nodes, hours, num = site.nodes, job.max_hours, job.nodes.max
    if nodes is None:
        return Charge(None, None, NO_PRICE)
    usd = None if nodes.usd_per_hour is None else nodes.usd_per_hour * hours * num
    why = [nodes.source if usd is None else f"{num} x {hours:g} h at {nodes.usd_per_hour:g} USD: {nodes.source}"]
    if job.data is not None:
        carried, data_note = _data_cost(job, site.engine)
        usd = None if usd is None or carried is None else usd + carried
        why.append(data_note)
    found = envelope(nodes, hours, num)
    return Charge(usd, None if found is None else found[1].gco2e, "; ".join(why))


@dataclass(frozen=True)
class Spent:
    """What a job has used so far; None if unknown. `source`: of the price, or why there is none."""

    node_hours: float | None
    usd: float | None
    source: str


def usage_cost(nodes: Nodes | None, status: JobStatus, now: datetime) -> Spent:
    """On this engine, without the engines it came from."""
    if status.stretches is None:
        return Spent(None, None, "its engine no longer knows when it was on nodes")
    hours = sum((each.until(now) - each.start).total_seconds() / 3600 * each.nodes for each in status.stretches)
    if nodes is None or nodes.usd_per_hour is None:
        return Spent(hours, None, NO_PRICE if nodes is None else nodes.source)
    return Spent(hours, hours * nodes.usd_per_hour, nodes.source)


def _data_cost(job: JobFile, engine: Engine) -> tuple[float | None, str]:
    assert job.data is not None, "asked of a job with data"
    if isinstance(engine, FolderEngine) and engine.has_data(job):
        return 0.0, f"{job.data.source} has already been copied"
    target = engine.region
    if target is None:
        return None, "its region is not declared, so the transfer of its data has no price"
    data = DataAt(read_place(job.data.region, "data.region"), job.data.gib)
    way = carried(data, target)
    return way.usd, f"{way.in_words(data)}: {way.price.source}, {way.price.dated}, {way.price.confidence}"


def envelope(nodes: Nodes, hours: float, num: int) -> tuple[EnergyEstimate, CarbonEstimate] | None:
    """Energy and its emissions, as in a plan; None if no catalogue has the machines."""
    place = nodes.region
    if nodes.machine is None or (place is None and nodes.grid is None):
        return None
    region = nodes.grid
    if region is None:
        assert place is not None, "one of the two is there"
        region = get_provider(place.provider).catalog_here().region(place.region, place.provider)
    energy = estimate_energy(nodes.machine, num, hours, region)
    return energy, estimate_carbon(energy, region)


@dataclass(frozen=True)
class Placement:
    """`now`: whether the job starts there immediately; `lines`: one per engine considered."""

    engine: Engine
    now: bool
    lines: tuple[str, ...]


@dataclass(frozen=True)
class _Candidate:
    site: Site
    room: Room
    charge: Charge

    @property
    def label(self) -> str:
        return engine_label(self.site.engine)


def engine_label(engine: Engine) -> str:
    """For display."""
    return f"{engine.kind}, {engine.where}"


_WAITS = {By.ORDER: "as the first in the list", By.COST: "at the lowest cost", By.CARBON: "with the least CO2e"}


def choose_engine(
    sites: Sequence[Site],
    job: JobFile,
    by: By | None = None,
    check_limits: Callable[[Site], None] = lambda site: None,
) -> Placement:
    """`by` None: dollars if known for all that accept the job, else order. `check_limits`: InputError if the job is
    too expensive there. InputError: no engine accepts it.
    """
    lines, found, fixes = list[str](), list[_Candidate](), dict[str, None]()
    for site in sites:
        engine = site.engine
        try:
            if errors := refusals(engine, job):
                lines.append(f"{engine_label(engine)}: cannot run it: {errors[0].path}: {errors[0].message}")
                fixes[errors[0].fix] = None
                continue
            check_limits(site)
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


# Finds the engine that the command line names: `local`, `local:FOLDER`, `slurm:FOLDER@PARTITION`,
# `kubernetes:CONTEXT@NAMESPACE/QUEUE`, each optionally followed by its region, `#aws:eu-central-1`; or a name from the
# engines' file.

VARIABLE = "GANGWAY_ENGINE"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_DEFAULT_FOLDER = Path("~/.gangway/jobs")


def get_sites(asked: str | None) -> list[Site]:
    """The engines in a comma-separated list, each once. Raises as `get_site`."""
    text = asked if asked is not None else os.environ.get(VARIABLE) or "local"
    if "" in (words := text.split(",")):
        raise InputError("--on", "a name is empty", value=text, allowed="names separated by commas", fix="leave it out")
    sites = dict[tuple[str, str], Site]()
    for site in (get_site(word) for word in words):
        same = sites.setdefault((site.engine.kind, site.engine.where), site)
        if same.engine.region != site.engine.region:
            raise InputError(
                "--on", "the same engine in two regions", value=text, allowed="one region per engine",
                fix="name it once",
            )  # fmt: skip
    return list(sites.values())


def movable(engine: Engine, option: str) -> FolderEngine:
    """InputError: its run folders cannot be reached from here."""
    if not isinstance(engine, FolderEngine):
        resubmit = "submit the job file there again: it starts from the beginning"
        raise InputError(
            option, "its run folders cannot be reached from here, so jobs cannot move with their results",
            value=f"{engine.kind}:{engine.where}", allowed="local and slurm engines whose folder is on this machine",
            fix=resubmit if option == "--to" else f"copy what you need from the run folder yourself; or {resubmit}",
        )  # fmt: skip
    return engine


def get_engine(asked: str | None) -> Engine:
    """`asked` None: GANGWAY_ENGINE, else this machine. InputError: no such engine."""
    return get_site(asked).engine


def get_site(asked: str | None) -> Site:
    """Like `get_engine`, with its nodes if the engines' file has them."""
    text, option = asked or os.environ.get(VARIABLE) or "local", "--on" if asked else VARIABLE
    named, is_said, place_name = text.partition("#")
    kind = named.partition(":")[0]
    if kind in KINDS:
        return Site(_engine(named, option, read_place(place_name, option) if is_said else None), text)
    known = named_engines()
    if named not in known:
        raise InputError.not_among(option, "no engine", text, (*KINDS, *known))
    if is_said:
        raise InputError(
            option, "the engines' file defines the region of a named engine", value=text,
            allowed=named, fix=f"write region: {place_name} in the file",
        )  # fmt: skip
    own = known[named]
    region = None if own.region is None else read_place(own.region, f"engines.{named}.region")
    engine: Engine
    if own.via is not None:
        from gangway.jobs.remote import RemoteEngine

        engine = RemoteEngine(own.via, own.engine, own.program, region)
    else:
        engine = _engine(own.engine, f"engines.{named}.engine", region)
    return Site(engine, named, find_nodes(named, own), _find_limits(named, own))


def _find_limits(name: str, own: NamedEngine) -> LimitsConfig | None:
    """The limits in the engines' file, or of the stack file that it names. InputError: that has none."""
    if own.stack is None:
        return own.limits
    limits = from_file(Path(own.stack).expanduser()).budget.limits
    if limits is None:
        raise InputError(
            f"engines.{name}.stack", "has no limits", value=own.stack, allowed="a stack file with budget.limits",
            fix="add limits to its gangway:budget, or write limits here",
        )  # fmt: skip
    return limits


def _engine(text: str, option: str, region: Place | None) -> Engine:
    kind, _, place = text.partition(":")
    if kind == "slurm":
        from gangway.jobs.slurm.engine import SlurmEngine

        folder, _, partition = place.partition("@")
        if not folder:
            raise InputError(
                option, "the folder shared by Slurm's nodes is missing", value=text,
                allowed="slurm:FOLDER or slurm:FOLDER@PARTITION", fix="slurm:/shared/jobs",
            )  # fmt: skip
        return SlurmEngine(_folder(Path(folder)), partition, region=region)
    if kind == "kubernetes":
        return _kubernetes(text, place, option, region)
    from gangway.jobs.local.engine import LocalQueue

    queue = _folder(Path(place) if place else _DEFAULT_FOLDER)
    return LocalQueue(queue, region=region, is_named=bool(place))


def _folder(folder: Path) -> Path:
    found = folder.expanduser().resolve()
    check_reachable(found)
    return found


def _kubernetes(text: str, place: str, option: str, region: Place | None) -> Engine:
    from gangway.jobs.kubernetes.engine import KubernetesEngine

    # A context's name may contain @ and /.
    context, _, rest = place.rpartition("@")
    namespace, _, queue = rest.partition("/")
    if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(queue):
        raise InputError(
            option, "the namespace or its queue is missing", value=text,
            allowed="kubernetes:CONTEXT@NAMESPACE/QUEUE; leave CONTEXT empty for the current one",
            fix="kubernetes:@team-a/gpu",
        )  # fmt: skip
    return KubernetesEngine(context, namespace, queue, region=region)
