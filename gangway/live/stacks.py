"""The row of a stack that is up: state, nodes, progress, cost and breaker, read with the caller's permissions."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gangway.components.core.findings import InputError
from gangway.components.core.job import JobSpec
from gangway.finops.audit.running import RunningStack, open_stack
from gangway.jobs.systemd.command_record import command_record
from gangway.jobs.systemd.state import JobState, replaces_nodes
from gangway.live.model import Fact, Reading, Row, RungNodes, iso, unknown
from gangway.live.nodes import HEAD, get_cloud
from gangway.live.progress import Line, cost, idle_devices, last_event, moment, pace, parse_lines, time_left
from gangway.runs.run_folders import STATS
from gangway.runs.run_store import StoreFailedError
from gangway.stacks.base.registry import load_adapter, providers_with_adapter
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import make_plan

_RECENT = timedelta(minutes=30)
"""How far back the log is read, and how old the last line of a running job may be."""
_MOST_BYTES = 256_000_000
_QUEUE = "its jobs are in its queue: gangway status --on ENGINE"


def stack_row(config: StackConfig, now: datetime) -> Row:
    """Without `plan_figures`. Each part that cannot be read is unknown, with the reason. InputError: none can."""
    stack = open_stack(config)
    found = unknown(_QUEUE) if config.job is None else {**unknown("not planned"), **_job_figures(stack, now)}
    nodes, nodes_source = _nodes(stack)
    row = {**found, "nodes": nodes, "nodes_source": nodes_source, "breaker": _breaker(stack)}
    if config.job is None:
        row["state"] = Fact(text="queue", source="the stack file")
    return Row(kind="stack", name=config.stack_name, where=f"{config.provider}, {config.region}", **row)


def _job_figures(stack: RunningStack, now: datetime) -> dict[str, Any]:
    config = stack.config
    try:
        state = JobState.read(stack.store)
    except InputError as error:
        return unknown(one_reason(error))
    lines, source = _lines(stack, now)
    found = {**unknown("the job is a custom command, which counts no images"), "usd": _command_cost(stack, now)}
    if config.trains:
        wanted = Reading(
            value=config.training.kimg * 1000, unit="images", provenance="assumed", source="job.kimg of the stack file"
        )
        found = training_figures(state, lines, wanted, source)
    found["state"] = job_state(state, lines, now, source)
    return found


def training_figures(state: JobState, lines: Sequence[Line], wanted: Reading, source: str) -> dict[str, Any]:
    """Of a run with statistics lines, by the newest of lines, progress and record."""
    images, at, images_source = float(state.images), state.reported_at, "run.json or progress.json"
    if lines and (at is None or moment(lines[-1]) >= at):
        images, at, images_source = lines[-1]["images"], moment(lines[-1]), source
    done = Reading.absent("images", "nothing is recorded yet: neither run.json nor progress.json nor statistics")
    if at is not None or state.record is not None:
        done = Reading(value=images, unit="images", provenance="measured", source=images_source, as_of=iso(at))
    stops = (state.record.interruptions if state.record else None) or ()
    notice = last_event(lines, "interrupt", source)
    if notice.text is None and stops:
        notice = Fact(text=f"{stops[-1].cause}, at {stops[-1].images:,} images", source="run.json", at=stops[-1].at)
    rate = pace(lines, source)
    recorded = state.record.images_per_sec if state.record else None
    if rate.value is None and recorded is not None and recorded.value is not None:
        rate = Reading(**{**recorded.model_dump(), "as_of": iso(state.recorded_at), "note": "mean of the whole run"})
    return {
        "images": done,
        "images_wanted": wanted,
        "images_per_sec": rate,
        "sec_left": time_left(lines, done.value, wanted.value, source),
        "usd": _cost(state, lines, source),
        "idle_devices": idle_devices(lines, source),
        "checkpoint": last_event(lines, "checkpoint", source),
        "notice": notice,
    }


def _cost(state: JobState, lines: Sequence[Line], source: str) -> Reading:
    """The record's cost, plus that of the lines since; all of the lines' without a record."""
    at, total = state.recorded_at, state.record.cost.total_usd if state.record and state.record.cost else None
    if at is None or total is None or total.value is None:
        from_lines = cost(lines, source)
        if from_lines.value is None and total is not None:
            return Reading.absent("USD", total.source)
        return from_lines
    known = Reading(**{**total.model_dump(), "as_of": iso(at)})
    since = cost([line for line in lines if moment(line) > at], source)
    if since.value is None:
        return known
    both = f"{total.source}; since {at:%Y-%m-%d %H:%M} UTC: {since.source}"
    return known.model_copy(update={"value": total.value + since.value, "source": both, "as_of": since.as_of})


def _lines(stack: RunningStack, now: datetime) -> tuple[list[Line], str]:
    """Statistics in the run's folder, and newer ones in the cloud's log; and where they were read."""
    texts, sources = list[str | bytes](), list[str]()
    try:
        content = stack.store.read(STATS, _MOST_BYTES)
        texts += (content or b"").rpartition(b"\n")[0].split(b"\n")
        sources += [STATS] if content else []
    except StoreFailedError as error:
        sources.append(f"{STATS} unreadable ({str(error).splitlines()[0]})")
    lines = parse_lines(texts)
    if stack.outputs.get("log_group"):
        log = f"log {stack.outputs['log_group']}"
        try:
            found = get_cloud(stack.config.provider).read_log(stack.config, stack.outputs, now - _RECENT)
        except InputError as error:
            sources.append(f"{log} unreadable ({error.problem})")
        else:
            last = lines[-1]["time"] if lines else 0.0
            lines += [line for line in parse_lines(each.text for each in found) if line["time"] > last]
            sources.append(log)
    return lines, " and ".join(sources) or f"{stack.store.url}: no {STATS}"


def job_state(state: JobState, lines: Sequence[Line], now: datetime, source: str) -> Fact:
    """Where a job is, by its end, its record or its last sign of life."""
    if state.end is not None:
        return Fact(text=f"ended: {state.end.reason}", source="ended.json", at=state.end.time)
    if state.record is not None and state.record.status == "done":
        return Fact(text="done", source="run.json", at=state.recorded_at)
    last = max(filter(None, (moment(lines[-1]) if lines else None, state.reported_at)), default=None)
    if last is None:
        return Fact(text="waiting", source=f"no record, progress or statistics yet ({source})")
    word = "running" if now - last < _RECENT else "silent"
    return Fact(text=word, source=f"its last sign: {source}", at=last)


def _command_cost(stack: RunningStack, now: datetime) -> Reading:
    if not stack.outputs.get("job"):
        return Reading.absent("USD", "the stack has no output job")
    try:
        job = JobSpec.model_validate(stack.outputs["job"])
        record = command_record(stack.config, job, stack.store, now)
    except InputError as error:
        return Reading.absent("USD", one_reason(error))
    if (usd := record.figures.get("usd")) is None:
        return Reading.absent("USD", record.absent.get("usd", "not recorded"))
    return Reading(
        value=usd.value, unit="USD", provenance="estimated", source=f"starts in {stack.store.url}", note=usd.note
    )


def plan_figures(config: StackConfig) -> dict[str, Reading]:
    """Estimate and budget. Only in the main thread: Pulumi's SDK has one runtime and needs its event loop."""
    monthly, why = config.budget.monthly_usd, "the plan does not know the job's length"
    source, note = "budget.monthly_usd of the stack file", "per month"
    budget = Reading(value=monthly, unit="USD", provenance="assumed", source=source, note=note)
    usd = None
    try:
        usd = make_plan(config).expected.usd
    except* InputError as errors:
        why = f"the stack cannot be planned: {one_reason(errors.exceptions[0])}"
    if usd is None:
        return {"budget_usd": budget, "usd_estimate": Reading.absent("USD", why)}
    estimate = Reading(
        value=usd.mid,
        unit="USD",
        provenance="estimated",
        source="the plan, for the whole job",
        low=usd.low,
        high=usd.high,
        note="interval: the plan's, from the speed and the prices",
    )
    return {"budget_usd": budget, "usd_estimate": estimate}


def _nodes(stack: RunningStack) -> tuple[tuple[RungNodes, ...], str]:
    config, provider = stack.config, stack.config.provider
    try:
        nodes = get_cloud(provider).list_nodes(config, stack.outputs)
    except InputError as error:
        return (), one_reason(error)
    groups = [str(name) for name in stack.outputs.get("group_names") or ()]
    wanted, source = dict[str, int](), f"{provider}'s API"
    if groups and provider in providers_with_adapter("scaling"):
        try:
            scaler = load_adapter(provider, "scaling").open_scaler(config, stack.outputs, groups, is_held=False)
            wanted = {group.name: group.asked for group in scaler.get_groups(groups)}
        except InputError as error:
            source = f"{source}; the groups' targets are unknown: {one_reason(error)}"
    names = dict.fromkeys([*wanted, *(node.rung for node in nodes if node.rung != HEAD)])
    if any(node.rung == HEAD for node in nodes):
        names = {HEAD: None, **names}
    rungs = []
    for name in names:
        states = sorted(node.state for node in nodes if node.rung == name)
        by_state = {state: states.count(state) for state in dict.fromkeys(states)}
        rungs.append(RungNodes(name=name, wanted=wanted.get(name), by_state=by_state))
    return tuple(rungs), source


def _breaker(stack: RunningStack) -> Fact:
    if not replaces_nodes(stack.config.provider):
        return Fact(text=None, source="this provider does not replace nodes, so there is nothing to hold")
    try:
        held = stack.breaker.read_held()
    except InputError as error:
        return Fact(text=None, source=one_reason(error))
    source = "breaker/held.json in the run's folder"
    if held is None:
        return Fact(text="closed", source=source)
    return Fact(text=str(held), source=source, at=held.time.astimezone(UTC))


def one_reason(error: Exception) -> str:
    """A mistake in one line, for a figure that it hides."""
    if not isinstance(error, InputError):
        return " ".join(str(error).split())
    value = f" ({' '.join(str(error.value).split())})" if error.value is not None else ""
    return f"{error.place}: {error.problem}{value}"
