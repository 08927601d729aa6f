"""The record of a command on a stack's machines, from what its nodes put into the run folder: the same figures as for a
queue's job. Each start is recorded by its node (images/templates/job/own-node.sh).

.starts/KEY.NODE.PROCESS.BEGAN     LAST ROUND CAPACITY [CODE [failed]]

Times are seconds since 1970; ROUND and CAPACITY are - if there is none or it is unknown. The job can write to the
folder, so invalid files are reported and not counted.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from gangway.components.core.findings import InputError
from gangway.components.core.job import JobSpec
from gangway.components.core.safe_text import visible
from gangway.images.specs import job_key
from gangway.jobs.base import JobStatus, Phase, RunInterval
from gangway.jobs.figures import FIGURES_FILE, MOST_BYTES, parse_report
from gangway.jobs.job_record import EngineInfo, JobRecord, StartCounts, get_record
from gangway.jobs.sites import Nodes
from gangway.runs.run_store import EndedRecord, RunStore, StoreFailedError, read_end
from gangway.stacks.base.registry import get_provider
from gangway.stacks.base.shared import get_machine, get_price
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import cloud_context
from gangway.stacks.program import get_program
from gangway.stacks.providers.hosts.settings import HostsConfig
from gangway.trainer.records.cost_carbon import price

_ENDS: Mapping[int, Phase] = {2: Phase.BAD_INPUT, 5: Phase.FAILED, 6: Phase.OVER_HOURS}
_FIX = "run it as the account that runs `up`, which may read the run bucket"
STARTS = ".starts/"
_START_NAME = re.compile(r"([A-Za-z0-9.-]{1,255})\.\d{1,10}\.(\d{1,11})", re.ASCII)
_LINE = re.compile(r"(\d{1,11}) (-|\d{1,9}(?:\.\d{1,11})?) ([a-z-]{1,40})(?: (\d{1,3}))?( failed)?\s*", re.ASCII)
_MOST_BYTES, _MOST_STARTS = 400, 10_000


@dataclass(frozen=True)
class Start:
    """One start of a command on one node.

    Attributes:
        round: in which it met other nodes; empty if it meets none.
        capacity: of its node; empty if unknown.
        code: exit code as in `gangway.jobs.base`, or 5 or 6; None if its node was lost first.
        failed: it counts as a failure.
    """

    node: str
    began: datetime
    last: datetime
    round: str
    capacity: str
    code: int | None
    failed: bool


def read_starts(store: RunStore, key: str) -> tuple[list[Start], list[str]]:
    """Starts of the job with that key, earliest first, and problems with others. StoreFailedError."""
    prefix, found, problems = f"{STARTS}{key}.", [], []
    names = [name for name in store.names() if name.startswith(prefix)]
    for name in names[:_MOST_STARTS]:
        content = store.read(name, _MOST_BYTES) or b""
        named = _START_NAME.fullmatch(name.removeprefix(prefix))
        match = _LINE.fullmatch(content.decode("ascii", "replace"))
        if named is None or match is None or int(match[1]) < int(named[2]):
            problems.append(visible(f"{name}: not a start"))
            continue
        found.append(_start(named[1], int(named[2]), match))
    if len(names) > _MOST_STARTS:
        problems.append(f"{len(names)} starts, of which {_MOST_STARTS} are counted")
    return sorted(found, key=lambda start: (start.began, start.node)), problems


def _start(node: str, began: int, match: re.Match[str]) -> Start:
    last, of_round, capacity, code, failed = match.groups()
    return Start(
        node=node,
        began=datetime.fromtimestamp(began, UTC),
        last=datetime.fromtimestamp(int(last), UTC),
        round="" if of_round == "-" else of_round.partition(".")[0],
        capacity="" if capacity == "-" else capacity,
        code=None if code is None else int(code),
        failed=failed is not None,
    )


def count_starts(starts: Iterable[Start]) -> int:
    """How often the job was started; a round of several nodes counts once."""
    return len(_times(starts))


def count_failures(starts: Iterable[Start]) -> int:
    """How often it failed, likewise."""
    return len(_times(start for start in starts if start.failed))


def _times(starts: Iterable[Start]) -> set[tuple[object, ...]]:
    return {(start.round,) if start.round else (start.node, start.began) for start in starts}


def get_run_intervals(starts: Sequence[Start]) -> tuple[RunInterval, ...]:
    """When it was on nodes, and on how many at once."""
    changes: dict[datetime, int] = {}
    for start in starts:
        changes[start.began] = changes.get(start.began, 0) + 1
        changes[start.last] = changes.get(start.last, 0) - 1
    found, nodes = [], 0
    moments = sorted(changes)
    for moment, until in pairwise(moments):
        nodes += changes[moment]
        if nodes:
            found.append(RunInterval(moment, until, nodes))
    return tuple(found)


def command_record(config: StackConfig, job: JobSpec, store: RunStore, now: datetime) -> JobRecord:
    """For the command that a stack runs. InputError: its run folder cannot be read, or holds nothing of it yet."""
    try:
        starts, problems = read_starts(store, job_key(job))
        end = read_end(store)
        reported = parse_report(lambda: store.read(FIGURES_FILE, MOST_BYTES), FIGURES_FILE)
    except StoreFailedError as error:
        raise InputError(store.url, str(error), fix=_FIX) from None
    if not starts:
        when = (
            "when the job has ended"
            if config.storage or config.find_section(HostsConfig)
            else "whenever the command stops"
        )
        raise InputError(
            store.url,
            f"no start of this command is recorded yet{f': {problems[0]}' if problems else ''}",
            allowed=f"what its nodes write there {when}",
            fix=f"wait for it, and see its end with `gangway job {config.stack_name}`",
        )
    ran = EngineInfo("systemd", f"{config.provider}, stack {config.stack}", _nodes(config, starts))
    begun = StartCounts(count_failures(starts), job.max_restarts)
    record = get_record(ran, get_status(config, job, starts, end), begun, reported, now)
    return record.model_copy(update={"problems": (*record.problems, *problems)})


def get_status(config: StackConfig, job: JobSpec, starts: Sequence[Start], end: EndedRecord | None) -> JobStatus:
    """As far as its nodes have reported. An `end` before the last start belongs to an earlier attempt."""
    last = max(starts, key=lambda start: (start.last, start.began))
    phase, reason = Phase.RUNNING, ""
    if end is not None and end.code in _ENDS and all(start.began <= end.time for start in starts):
        phase, reason = _ENDS[end.code], end.reason
    elif _is_done(job, starts):
        phase = Phase.DONE
    return JobStatus(
        id=config.stack,
        name=config.stack,
        user="",
        team=config.tags["team"],
        phase=phase,
        nodes=tuple(sorted({start.node for start in starts})),
        starts=count_starts(starts),
        exit_code=0 if phase is Phase.DONE else last.code if phase.is_over else None,
        reason=reason,
        started_at=starts[0].began,
        ended_at=last.last if phase.is_over else None,
        stretches=get_run_intervals(starts),
    )


def _is_done(job: JobSpec, starts: Sequence[Start]) -> bool:
    """Nodes that meet agree, so one of them counts for all; others have to be done each."""
    newest = {start.node: start for start in starts}
    if job.command_meets:
        of_round = max(int(start.round or 0) for start in starts)
        return any(start.code == 0 for start in starts if int(start.round or 0) == of_round)
    if job.num_nodes_max == 1:
        return starts[-1].code == 0
    return sum(start.code == 0 for start in newest.values()) >= job.num_nodes_max


def _nodes(config: StackConfig, starts: Sequence[Start]) -> Nodes:
    """The mean price of a node hour, by capacity and hours of each node."""
    planned = get_program(config.provider).plan(config)
    provider = get_provider(config.provider)
    prices = (
        [get_price(config, get_machine(config))]  # declared for a site in the stack file
        if provider.catalog is None
        else provider.catalog().get_prices(planned.machine.name)
    )
    context = cloud_context(config, planned.machine, planned.region, prices, "")
    weighed, sources, total = 0.0, dict[str, None](), 0.0
    for start in starts:
        kind, quantity = price(start.capacity, context)
        hours = (start.last - start.began).total_seconds() / 3600
        if quantity.value is None:
            why = f"{kind or 'a node of unknown capacity'}: {quantity.source}"
            return Nodes(None, why, planned.machine, grid=planned.region)
        weighed, total = weighed + hours * quantity.value, total + hours
        sources[f"{kind or start.capacity}: {quantity.source}"] = None
    if not total:
        return Nodes(None, "no start has run for a second yet", planned.machine, grid=planned.region)
    is_declared = provider.settings.reads_site
    return Nodes(weighed / total, "; ".join(sources), planned.machine, is_declared=is_declared, grid=planned.region)
