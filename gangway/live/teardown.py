"""`gangway down`: what the end of a stack destroys, what remains and its cost; then `pulumi destroy`."""

import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import FrameType

from gangway.components.core.findings import InputError
from gangway.components.core.retention import Retention
from gangway.components.estimate.cost import HOURS_PER_MONTH, from_service, get_key
from gangway.finops.audit.running import open_stack
from gangway.finops.audit.state import export_state
from gangway.live.nodes import HEAD
from gangway.live.stacks import one_reason, stack_row
from gangway.runs.run_store import RunStore, StoreFailedError
from gangway.stacks.base.registry import get_provider
from gangway.stacks.base.rule import kind
from gangway.stacks.config.paths import project_folder
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.stacks.recording import PlannedResource

_MOST_LISTED = 12
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MOST_FILES = 200_000
_UP = ("running", "pending", "active", "build", "ready", "creating", "starting", "staging", "provisioning", "declared")
"""States of machines that run, start, or (your own) may run, in the providers' words."""


@dataclass(frozen=True)
class Remains:
    """A resource that outlives the stack. `usd_per_month`: None if unknown, and `source` says why."""

    name: str
    reason: str
    usd_per_month: float | None
    source: str


@dataclass(frozen=True)
class Explanation:
    """What `down` would do.

    Attributes:
        machines: the types that are machines or make them, which are listed first.
        destroyed: number of resources by type.
        lost: what holds data and is deleted, with the reason for its class.
        remains: None if the stack cannot be planned, and `unknown` says why.
        existing: what the stack uses and did not create: config path -> id.
        runs: what is in the run's folder.
        running: why a job may be running there; empty if none is.
        blocked: why `destroy` will stop before the end; empty if it will not.
    """

    stack: str
    machines: frozenset[str]
    destroyed: Mapping[str, int]
    lost: Sequence[str]
    remains: Sequence[Remains] | None
    unknown: str
    existing: Mapping[str, str]
    runs: str
    running: str
    blocked: str

    def lines(self) -> Iterator[str]:
        """For display."""
        total = sum(self.destroyed.values())
        yield f"destroys {total} resources of {self.stack}:"
        listed = sorted(
            self.destroyed.items(), key=lambda item: (kind(item[0]) not in self.machines, -item[1], item[0])
        )
        yield from (f"  {count} {type_}" for type_, count in listed[:_MOST_LISTED])
        if others := listed[_MOST_LISTED:]:
            yield f"  and {sum(count for _, count in others)} of {len(others)} other types"
        yield from (f"  with its data: {text}" for text in self.lost)
        yield f"runs: {self.runs}"
        yield from self._remaining()
        if self.existing:
            yield "stays as it is, since the stack did not create it:"
            yield from (f"  {id_} ({path})" for path, id_ in self.existing.items())
        yield f"job: {self.running or 'none is running'}"
        if self.blocked:
            yield f"`pulumi destroy` will stop: {self.blocked}"

    def _remaining(self) -> Iterator[str]:
        if self.remains is None:
            yield f"remains: unknown: {self.unknown}"
            return
        if not self.remains:
            yield "remains: nothing"
            return
        known = sum(each.usd_per_month or 0.0 for each in self.remains)
        unpriced = sum(each.usd_per_month is None for each in self.remains)
        more = f", and {unpriced} without a known price" if unpriced else ""
        yield f"remains, for {known:,.2f} USD per month{more}:"
        for each in self.remains:
            usd = "price unknown" if each.usd_per_month is None else f"{each.usd_per_month:,.2f} USD per month"
            yield f"  {each.name}: {each.reason}; {usd} ({each.source})"


@dataclass(frozen=True)
class _Content:
    """Of the run bucket. `files` and `gib`: None if unknown, and `text` says why."""

    files: int | None
    gib: float | None
    text: str


def explain(config: StackConfig, now: datetime) -> Explanation:
    """InputError: the stack's state cannot be read, or it has no resources."""
    state = export_state(config.stack_name, project_folder())
    if not state.resources:
        problem, fix = "has no resources: there is nothing to destroy", f"pulumi stack rm {config.stack_name}"
        raise InputError(f"stack {config.stack_name}", problem, fix=fix)
    content, running = _content(config), _running(config, now)
    plan, unknown = None, ""
    try:
        plan = make_plan(config)
    except* InputError as errors:
        unknown = f"the stack cannot be planned: {one_reason(errors.exceptions[0])}"
    existing = {get_key(each.type, each.name) for each in state.resources}
    own = [each for each in plan.resources if get_key(each.type, each.name) in existing] if plan else []
    parts = _Parts(get_provider(config.provider).retention, own, content)
    remaining = {get_key(each.type, each.name) for each, _ in parts.remaining}
    keys = [(each.type, get_key(each.type, each.name), each.is_retained) for each in state.resources]
    return Explanation(
        stack=config.stack_name,
        machines=get_provider(config.provider).nodes.machines,
        destroyed=Counter(type_ for type_, key, is_retained in keys if not is_retained and key not in remaining),
        lost=[f"{each.name}: {why}" for each, why in parts.lost],
        remains=None if plan is None else [_priced(plan, each, why, content) for each, why in parts.remaining],
        unknown=unknown,
        existing=get_provider(config.provider).existing(config),
        runs=content.text,
        running=running,
        blocked=parts.blocked,
    )


class _Parts:
    """A stack's resources by what `destroy` does with them. `remaining`: with the reason."""

    def __init__(self, facts: Retention, resources: Sequence[PlannedResource], content: _Content) -> None:
        self.lost: list[tuple[PlannedResource, str]] = []
        self.remaining: list[tuple[PlannedResource, str]] = []
        self.blocked = ""
        by_urn = {each.urn: each for each in resources}
        for each in resources:
            type_, is_scratch = kind(each.type), facts.is_scratch(each.inputs)
            if each.is_retained:
                reasons = next((types[type_] for types in facts.classes if type_ in types), "it is retained")
                self.remaining.append((each, reasons))
            elif type_ in facts.copies:
                self.lost.append((each, "deleted with all its files"))
            elif type_ in facts.data and is_scratch:
                self.lost.append((each, "keep_runs: false lets `destroy` delete it with its content"))
            elif type_ in facts.data and facts.refuses and content.files != 0:
                self._block(facts, each, by_urn, content)

    def _block(
        self, facts: Retention, data: PlannedResource, by_urn: Mapping[str, PlannedResource], content: _Content
    ) -> None:
        unless = "if it is not empty, which is unknown" if content.files is None else "it is not empty"
        self.remaining.append((data, f"{facts.data[kind(data.type)]}; {unless}"))
        self.blocked = (
            f"{data.name} is not deleted ({unless}). Copy the runs and set keep_runs: false, then `pulumi up` and this "
            "command again; or leave it: `pulumi destroy --continue-on-error` deletes all but it and its key"
        )
        for urn in sorted(data.dependencies):
            if urn in by_urn and kind(by_urn[urn].type) in facts.keys:
                self.remaining.append((by_urn[urn], facts.keys[kind(by_urn[urn].type)]))


def _priced(plan: Plan, resource: PlannedResource, reason: str, content: _Content) -> Remains:
    provider, config = get_provider(plan.config.provider), plan.config
    if kind(resource.type) in provider.retention.data and provider.bucket_service is not None:
        if content.gib is None:
            return Remains(resource.name, reason, None, content.text)
        service = provider.bucket_service(plan.resources)
        price = provider.catalog_here().service_price(config.provider, config.region, service)
        line = from_service(resource.name, price, content.gib, config.region)
        usd = None if line.hourly is None else line.hourly * HOURS_PER_MONTH
        return Remains(resource.name, reason, usd, f"{content.gib:,.3g} GiB now, {line.source}, {line.dated}")
    key = get_key(resource.type, resource.name)
    lines = [line for line in plan.cost.components if key in line.of and not line.standby]
    known = [line.hourly for line in lines if line.hourly is not None]
    if not lines or len(known) < len(lines):
        return Remains(resource.name, reason, None, "free, or billed by use" if not lines else lines[0].source)
    return Remains(resource.name, reason, sum(known) * HOURS_PER_MONTH, lines[0].source)


def _content(config: StackConfig) -> _Content:
    try:
        store = open_stack(config).store
        folder = RunStore(store.url.removesuffix(f"/{config.stack}/{config.stack}"), store.region, store.cloud)
        sizes = (folder if get_provider(config.provider).bucket_service else store).sizes(_MOST_FILES)
    except (InputError, StoreFailedError) as error:
        return _Content(None, None, f"unknown: {one_reason(error)}")
    gib = sum(sizes) / 2**30
    least = "at least " if len(sizes) == _MOST_FILES else ""
    text = f"{least}{len(sizes):,} files, {gib:,.3g} GiB in {store.url} and beside it; older versions are not counted"
    return _Content(len(sizes), gib, text)


def _running(config: StackConfig, now: datetime) -> str:
    try:
        row = stack_row(config, now)
    except InputError as error:
        return f"its status cannot be read: {one_reason(error)}"
    if row.state.text is None or row.state.text.partition(":")[0] in ("done", "ended"):
        return "" if row.state.text else f"its state is unknown: {row.state.source}"
    if row.state.text == "running":
        return f"last sign of life {row.state.at:%Y-%m-%d %H:%M} UTC ({row.state.source})"
    if not row.nodes and get_provider(config.provider).adapters.get("scaling"):
        return f"its nodes cannot be listed: {row.nodes_source}"
    up = sum(count for rung in row.nodes if rung.name != HEAD for state, count in rung.by_state.items() if state in _UP)
    job = "they may run jobs of its queue" if config.job is None else f"the job is {row.state.text}"
    return f"{up} nodes are up, and {job}" if up else ""


def destroy(stack: str, say: Callable[[str], None]) -> int:
    """Runs `pulumi destroy` with its output passed through; its exit code. The first Ctrl-C is passed on, and Pulumi
    stops in order; a second one stops it at once. InputError: there is no CLI.
    """
    argv = ["pulumi", "destroy", "--yes", "--stack", stack, "--cwd", str(project_folder())]
    signals = list[int]()
    # In a separate session: a terminal's Ctrl-C would reach Pulumi twice, and the second one stops it at once.
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True) as process:

        def pass_on(number: int, frame: FrameType | None) -> None:
            signals.append(number)
            process.send_signal(signal.SIGINT)
            say("passed on to pulumi, which finishes what it has begun; again: it stops at once")

        before = {number: signal.signal(number, pass_on) for number in _SIGNALS}
        try:
            code = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    if code:
        why = "interrupted" if signals else f"failed with exit code {code}"
        say(f"pulumi destroy was {why}: run the same command again to continue; if the stack is locked: pulumi cancel")
    return code


def check_cli() -> None:
    """InputError: Pulumi's CLI, which destroys stacks, is missing."""
    if shutil.which("pulumi") is None:
        raise InputError(
            "pulumi",
            "the CLI, which destroys stacks, is not on PATH",
            fix="install it: https://www.pulumi.com/docs/install/",
        )
