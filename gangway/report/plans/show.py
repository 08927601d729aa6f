"""Prints plans, sandbox results and plan differences as text or JSON. Computes nothing."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from gangway.components.core.findings import Finding, InputError, Severity
from gangway.components.estimate.cost import (
    HOURS_PER_MONTH,
    Bound,
    CostComponent,
    CostEstimate,
    bound,
    foreign_note,
    foreign_regions,
    marked_usd,
)
from gangway.components.estimate.energy import CarbonEstimate
from gangway.report.plans.infracost import infracost
from gangway.stacks.estimates.common_findings import span
from gangway.stacks.estimates.run_costs import RungCost, assumptions, most_bound
from gangway.stacks.estimates.throughput import about
from gangway.stacks.plan.difference import Change, Difference, Effect
from gangway.stacks.plan.plan import Plan
from gangway.stacks.plan.rules.guardrails import finding_codes, job_codes, meaning
from gangway.stacks.plan.team_access import TeamAccess
from gangway.stacks.recording import PlannedResource

if TYPE_CHECKING:
    from gangway.sandbox.rows import SandboxRow

_RESULT_COLOURS = {
    "accepted": "green",
    "read back equal": "green",
    "validated only": "yellow",
    "different": "red",
    "refused": "bold red",
}
_COLOURS = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_CLAUSE_END = re.compile(
    r"; |: | \(|, (?=(?:and|so|which|where|since|each|until|what|with|for|a|or|in|also|as|not|[0-9])\b)"
)
_FEWEST_SPACES = 3
"""In a clause that can stand alone."""
_SMALL = 0.005
"""Share of the stack's hourly cost below which a line is small."""
_FEW = 3
"""Small lines that are listed individually."""
_NEVER = "the job never starts: no machine comes"
_NO_NODE = "no machine comes"


def usd(amount: float | None, digits: int = 2) -> str:
    """Format as `$1,234.56`, or `unknown`."""
    return "unknown" if amount is None else f"${amount:,.{digits}f}"


class Detail(StrEnum):
    """How much of a plan to show: problems and the sum; a short form of everything; or everything."""

    BRIEF = "brief"
    SUMMARY = "summary"
    FULL = "full"


def show_plan(plan: Plan, console: Console, detail: Detail = Detail.SUMMARY) -> None:
    """Print the plan; the gravest findings and the sum come last, at the terminal's end."""
    if full := detail is Detail.FULL:
        console.print(resource_tree(plan.config.stack, plan.resources))
    else:
        console.print(_heading(plan), highlight=False)
    if detail is not Detail.BRIEF:
        console.print(cost_table(plan.cost, sources=full))
        console.print(ladder_table(plan.rungs, sources=full, standing=plan.config.job is None))
        if plan.ladder_if_trained is not None and len(plan.rungs) > 1:
            console.print(_ladder(plan, sources=full), highlight=False)
        console.print(_envelope(plan, sources=full))
        if full and plan.team_access:
            console.print(team_table(plan.team_access))
    findings = [f for f in plan.findings if detail is not Detail.BRIEF or f.severity is not Severity.INFO]
    if detail is Detail.SUMMARY:
        for note in notes_in_short(findings, console.width):
            console.print(note, highlight=False, soft_wrap=True)
        findings = [finding for finding in findings if finding.severity is not Severity.INFO]
    if findings:
        console.print(findings_table(findings))
    if detail is Detail.BRIEF:
        console.print(_expected(plan, sources=False), highlight=False)
    console.print(_tally(plan, detail), highlight=False)


def explain(plan: Plan, code: str, console: Console, *, compared: bool = False) -> None:
    """Prints the plan's findings with this code, or what the code reports. InputError: no finding has such a code."""
    found = [finding for finding in plan.findings if finding.code == code]
    if found:
        console.print(findings_table(found))
    elif text := meaning(code, compared=compared):
        console.print(f"{code}: {text}", markup=False, highlight=False, soft_wrap=True)
    else:
        codes = dict.fromkeys((*(finding.code for finding in plan.findings), *finding_codes(), *job_codes()))
        raise InputError.not_among("--explain", "no finding has this code", code, codes)


def _heading(plan: Plan) -> str:
    config, kinds = plan.config, Counter[str]()
    components = {resource.urn: resource.type for resource in plan.resources if not resource.custom}
    for resource in plan.resources:
        if resource.custom and resource.parent in components:
            kinds[components[resource.parent].rpartition(":")[2]] += 1
    made = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    nodes = config.cluster.nodes
    num = f"{nodes.min}" if nodes.min == nodes.max else f"{nodes.min} to {nodes.max}"
    machine = config.cluster.machine_type or config.cluster.accelerator or ""
    number = sum(resource.custom for resource in plan.resources)
    return (
        f"[bold]{escape(config.stack)}[/]: {num} x {escape(machine)} on {config.provider}, {escape(config.region)}\n"
        f"[dim]{number} resources: {escape(made)}[/]"
    )


def _envelope(plan: Plan, *, sources: bool) -> Panel:
    cost = plan.cost
    upfront = f"\n[bold]{usd(cost.upfront)}[/] of that at once, when the stack comes up" if cost.upfront else ""
    standby = [line for line in cost.components if line.standby and line.quantity]
    more = marked(cost.standby_hourly, bound(standby, at_most=True), standby)
    fallback = f"\nstandby: {more} an hour more, when a lower rung steps in"
    missing = "\n[yellow]without these, whose price is not known: " + escape("; ".join(cost.unknown)) + "[/]"
    origin = (
        f"\n[dim]{escape(plan.energy.source)}; {escape(plan.carbon.source)}{escape(_other_intensities(plan.carbon))}"
    )
    origin += f"; made: {escape(plan.embodied.source)} ({plan.embodied.confidence})[/]"
    if plan.config.job is None:
        hours, idle = _queue_cost(plan), ""
    else:
        hours = (
            f"[bold]{_known(cost, cost.hourly)}[/] an hour, {_known(cost, cost.monthly)} a month of 730 h"
            f"\na run: [bold]{_maximum_text(plan)}[/]"
        )
        idle = f"\nwhen the job is done: {_known(cost, plan.idle_hourly)} an hour until the stack is destroyed"
    return Panel(
        f"{hours}"
        f"{missing if cost.unknown else ''}{upfront}{fallback if cost.standby_hourly else ''}"
        f"\n{_expected(plan, sources=sources)}"
        f"{_memory(plan, sources=sources)}"
        f"{idle}"
        f"{_star(cost)}"
        f"\n{_energy(plan)}"
        f"\n{_embodied(plan)}"
        f"{origin if sources else ''}",
        title="envelope (estimated)",
        title_align="left",
    )


def _queue_cost(plan: Plan) -> str:
    if plan.rung is None:
        return f"[bold]{_known(plan.cost, plan.cost.hourly)}[/] an hour; {_NO_NODE}"
    nodes, lines = plan.config.cluster.nodes, []
    for num in sorted({nodes.min, nodes.max}, reverse=True):
        hourly = plan.hourly_with(num)
        month = "unknown" if hourly is None else _known(plan.cost, hourly * HOURS_PER_MONTH)
        hour = "unknown" if hourly is None else _known(plan.cost, hourly)
        up = "no node" if num == 0 else f"{num} node{'s' if num > 1 else ''}"
        always = ", as always" if num and num == nodes.min else ""
        lines.append(f"with {up} up{always}: [bold]{hour}[/] an hour, {month} a month of 730 h")
    return "\n".join(lines)


def _expected(plan: Plan, *, sources: bool) -> str:
    if plan.rung is None:
        return f"expected: [bold]{_NO_NODE if plan.config.job is None else _NEVER}[/]"
    run, speed, rate = plan.expected, plan.expected.throughput, plan.expected.throughput.images_per_second
    if rate is None or run.hours is None or run.usd is None or run.share is None:
        return f"expected: [bold]unknown[/]; {escape(speed.source)}"
    known = rate.low == rate.high
    took = f"[bold]{span(run.hours.mid * 3600)}[/]"
    paid = f"[bold]{_known(plan.cost, run.usd.mid)}[/]"
    fast = f"{rate.mid:,.0f} images/s" if known else f"about {about(rate.mid)} images/s"
    if not known:
        ends = span(run.hours.low * 3600), span(run.hours.high * 3600)
        took += f" ({ends[0]} to {ends[1]})" if ends[0] != ends[1] else ""
        fast += f" ({about(rate.low)} to {about(rate.high)})"
    if run.usd.high > run.usd.low:
        paid += f" ({usd(run.usd.low)} to {usd(run.usd.high)})"
    share = "all images" if run.share.low == 1 else f"{run.share.mid:.0%} of the images"
    if run.share.low != run.share.mid:
        share += f" ({run.share.low:.0%} to {run.share.high:.0%})"
    source = f"\n[dim]{escape(speed.source)}[/]" if sources else ""
    return f"expected: {took}, {paid}, {share}; {fast}, {speed.provenance}{source}"


def _memory(plan: Plan, *, sources: bool) -> str:
    memory = plan.expected.memory
    if memory is None or not (sources or memory.is_noteworthy):
        return ""
    source = f"\n[dim]{escape(memory.source)}[/]" if sources else ""
    return f"\nmemory: [bold]{memory.in_words()}[/] of each accelerator at a step's peak{source}"


def _known(cost: CostEstimate, amount: float | None) -> str:
    return marked(amount, cost.bound, cost.in_use)


def marked(amount: float | None, bound: Bound, lines: Sequence[CostComponent]) -> str:
    """A sum of these lines, marked as a bound, or starred for `_star`."""
    unknown = any(line.hourly is None for line in lines)
    if amount is None or (unknown and not amount):
        return "unknown"
    return marked_usd(amount, bound, is_foreign=bool(foreign_regions(lines)), is_partial=unknown)


def _star(cost: CostEstimate) -> str:
    foreign = foreign_regions(cost.components)
    notes = [foreign_note(foreign)] if foreign else []
    if any(line.hourly is None for line in cost.components):
        notes.append("without the prices that nobody knows")
    starred = foreign or (notes and not most_bound(cost))
    return f"\n[yellow]* {'; '.join(notes)}: no bound[/]" if starred else ""


def _tally(plan: Plan, detail: Detail) -> str:
    counts = Counter(finding.severity for finding in plan.findings)
    numbers = ", ".join(
        f"[{colour}]{counts[severity]} {name}{'s' if counts[severity] != 1 else ''}[/]"
        if counts[severity]
        else f"no {name}s"
        for (severity, colour), name in zip(_COLOURS.items(), ("error", "warning", "note"), strict=True)
    )
    cost = plan.cost
    expected, run = "", plan.expected
    if run.hours is not None and run.usd is not None:
        expected = f"{span(run.hours.mid * 3600)}, {_known(cost, run.usd.mid)} expected; "
    money = f"{_known(cost, cost.hourly)} an hour; a run: {expected}{_maximum_text(plan)}"
    if plan.config.job is None and plan.rung is not None:
        money = f"{_known(cost, cost.hourly)} an hour with all nodes up, {_known(cost, plan.idle_hourly)} without work"
    more = "" if detail is Detail.FULL else "\n[dim]--full: everything, with sources; --explain CODE: one finding[/]"
    return f"{numbers}\n[bold]{money}[/]{_star(cost)}{more}"


def _maximum_text(plan: Plan) -> str:
    if plan.rung is None:
        return _NEVER
    on = f" ({plan.top_rung.kind})" if len(plan.rungs) > 1 else ""
    hours = f"{plan.cost.run_hours:,.5g} h"
    if most_bound(plan.cost) is Bound.AT_MOST:
        return f"{hours}, {usd(plan.most_usd)} at most{on}"
    return f"{hours} at most, {marked(plan.most_usd, Bound.NONE, plan.cost.components)}{on}"


def _energy(plan: Plan) -> str:
    energy, carbon = plan.energy, plan.carbon
    whole = "" if plan.config.job is not None else " a month with all nodes"
    intensity = carbon.intensity_g_per_kwh
    grid = "an unknown grid" if intensity is None else f"{intensity:.0f} g/kWh"
    kwh, emissions = _range("kWh", energy, "kwh"), _range("kg CO2e", carbon, "gco2e", 1000)
    return f"energy{whole}: {kwh}; PUE {energy.pue:g}\nemissions: {emissions}; {grid}"


def _range(unit: str, estimate: object, name: str, per: float = 1) -> str:
    """`12 kWh expected (8 to 20), 31 at most`; without an expected run `unknown, 31 kWh at most`. `per`: in a unit."""
    figures: list[float | None] = [getattr(estimate, f"{name}{end}") for end in ("", "_low", "_high", "_most")]
    mid, low, high, most = (figure if figure is None else figure / per for figure in figures)
    if most is None:
        return f"[bold]unknown[/] {unit}"
    if mid is None or low is None or high is None:
        return f"[bold]unknown[/], {_digits(most)} {unit} at most"
    band = "" if low == mid == high else f" ({_digits(low)} to {_digits(high)})"
    return f"[bold]{_digits(mid)} {unit}[/] expected{band}, {_digits(most)} at most"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _other_intensities(carbon: CarbonEstimate) -> str:
    others = {"marginal": carbon.marginal_g_per_kwh, "market-based": carbon.market_g_per_kwh}
    known = [f"{name} {value:.0f} g/kWh" for name, value in others.items() if value is not None]
    return f"; {carbon.grid}, beside it and not counted: {', '.join(known)}" if known else ""


def _embodied(plan: Plan) -> str:
    made, sci = plan.embodied, plan.sci
    share = f"making the machines: {_range('kg CO2e', made, 'gco2e', 1000)}"
    if sci.g_per_kimg is None:
        return share
    return f"{share}\nSCI (1,000 images): {_range('g CO2e', sci, 'g_per_kimg')}"


def resource_tree(stack: str, resources: Iterable[PlannedResource]) -> Tree:
    """Components with their children, as the engine shows them."""
    tree = Tree(f"[bold]{escape(stack)}[/]")
    branches: dict[str, Tree] = {}
    # Components register before their children; sorting by depth keeps that order.
    for resource in sorted(resources, key=lambda r: (r.custom, r.urn)):
        # Components keep the whole token that their source declares; provider resources have a shorter SDK name.
        kind = short_type(resource.type) if resource.custom else f"[bold]{escape(resource.type)}[/]"
        label = f"{kind} [dim]{escape(resource.name)}[/]"
        branches[resource.urn] = branches.get(resource.parent, tree).add(label)
    return tree


def team_table(rows: Iterable[TeamAccess]) -> Table:
    """The permissions of teams; equal resources share a row."""
    table = Table(title="teams", title_justify="left", expand=True)
    for column in ("principal", "where", "may", "resources"):
        table.add_column(column, overflow="fold")
    merged = dict[tuple[str, str, str], list[str]]()
    for row in rows:
        key = (row.principal, row.where, ", ".join(row.permissions) or "nothing")
        merged.setdefault(key, []).append(row.resource)
    for key, resources in merged.items():
        table.add_row(*map(escape, (*key, ", ".join(resources))))
    return table


def notes_in_short(findings: Iterable[Finding], width: int) -> Iterator[Text]:
    """Codes of findings without a needed fix, cut at a clause's end."""
    notes = [finding for finding in findings if finding.severity is Severity.INFO]
    for code, count in Counter(note.code for note in notes).items():
        first = next(note.message for note in notes if note.code == code)
        head = f"{code} ({count})" if count > 1 else code
        words = f"{head}: {first_clause(first)}"
        lines = wrap(words, width, initial_indent="note ", subsequent_indent=" " * 5, break_on_hyphens=False)
        text = Text("\n".join(lines))
        text.highlight_regex("^note", _COLOURS[Severity.INFO])
        text.highlight_regex(re.escape(head), "dim")
        yield text


def findings_table(findings: Iterable[Finding]) -> Table:
    """The findings, gravest last."""
    gravest_last = list(_COLOURS)[::-1]
    table = Table(box=None, show_header=False, pad_edge=False, expand=True)
    table.add_column("severity", no_wrap=True)
    table.add_column("what", overflow="fold", ratio=1)
    ordered = sorted(findings, key=lambda f: gravest_last.index(f.severity))
    for finding in ordered:
        colour = _COLOURS[finding.severity]
        fix = f"\n[green]{escape(finding.fix)}[/]" if finding.fix else ""
        location = f"[dim]{escape(finding.path)}  {escape(finding.code)}[/]"
        table.add_row(f"[{colour}]{finding.severity}[/]", f"{escape(finding.message)}\n{location}{fix}")
    return table


def first_clause(message: str) -> str:
    """A sentence up to where it could end.

    >>> first_clause("us-east-2a chosen: the first that has it; nodes and file system share one zone")
    'us-east-2a chosen: the first that has it'
    >>> first_clause("a3-megagpu-8g: 8 gVNICs for the GPUs (GPUDirect-TCPXO), each in a network of its own")
    'a3-megagpu-8g: 8 gVNICs for the GPUs'
    """
    for end in _CLAUSE_END.finditer(message):
        before = message[: end.start()]
        if before.count(" ") >= _FEWEST_SPACES and before.count("(") == before.count(")"):
            return before
    return message


def cost_table(cost: CostEstimate, *, sources: bool = True) -> Table:
    """The bill by line; with `sources` each price's source, date and confidence, else small items in one line."""
    end = "\n" if sources else " "
    table = Table(title="cost (list and spot prices)", title_justify="left", expand=True)
    for column in ("what", "price", "an hour"):
        table.add_column(column, overflow="fold", justify="left" if column == "what" else "right")
    small = [] if sources else _small(cost)
    for component in cost.components:
        if component in small:
            continue
        standby = " [dim](standby)[/]" if component.standby and component.quantity else ""
        hourly = f"{usd(component.once)}\nonce a run" if component.once else usd(component.hourly)
        provenance = ", ".join(filter(None, (component.source, component.dated, component.confidence)))
        region_note = f"\n[dim]price of {escape(component.priced_in)}[/]" if component.priced_in and not sources else ""
        price = f"{component.quantity:g} {component.unit}{end}at {usd(component.price, 4)}{region_note}"
        source = f"\n[dim]{escape(provenance)}[/]" if sources else ""
        table.add_row(f"{escape(component.name)}{standby}{source}", price, hourly)
    if small:
        table.add_row(f"{len(small)} smaller lines", "--full", usd(sum(one.hourly or 0.0 for one in small)))
    return table


def _small(cost: CostEstimate) -> list[CostComponent]:
    threshold = cost.hourly * _SMALL
    small = [
        one for one in cost.components if one.hourly and one.hourly < threshold and not one.standby and not one.once
    ]
    return small if len(small) > _FEW else []


def ladder_table(rungs: Iterable[RungCost], *, sources: bool = True, standing: bool = False) -> Table:
    """A run's cost on each rung, interruptions included. `standing`: a month of a queue cluster."""
    rungs = list(rungs)
    forecast = all(rung.spot_if_trained is not None for rung in rungs)
    title = "a run expected" if forecast else "a month with all nodes" if standing else "a run of all of max_hours"
    table = Table(title=f"{title} on each rung of the ladder", title_justify="left", expand=True)
    columns = ("capacity", "an hour", "a month", *(() if standing else ("hours", "a run")))
    for column in columns:
        table.add_column(column, overflow="fold", justify="left" if column == "capacity" else "right")
    for rung in rungs:
        if not rung.in_reach:
            none = ("-", "-", "never", "-")
            said = f"{rung.position}: {rung.kind}\n[dim]no machine comes at its price cap[/]"
            table.add_row(said, *none[: len(columns) - 1])
            continue
        hours = "no end" if rung.run_hours is None else span(rung.run_hours * 3600)
        # Spot interruptions are news; failures are in the hours, and only detailed with sources.
        said = _interruptions_text(rung, source=sources) if sources or rung.taken else ""
        stops = f"\n[dim]{escape(said)}[/]" if said else ""
        star = "*" if rung.foreign_regions else ""
        sums = (rung.hourly, rung.monthly, rung.run)
        hourly, month, run = (usd(each) if each is None else f"{usd(each)}{star}" for each in sums)
        figures = (hourly, month, hours, run)
        table.add_row(f"{rung.position}: {rung.kind}{stops}", *figures[: len(columns) - 1])
    return table


def _ladder(plan: Plan, *, sources: bool) -> str:
    found = plan.ladder
    names = ", then ".join(f"{rung.kind} {share:.0%}" for rung, share in zip(plan.rungs, found.shares, strict=True))
    star = "*" if any(rung.foreign_regions for rung in plan.rungs) else ""
    if plan.rung is None:
        return f"on the whole ladder ({names}): {_NEVER}"
    if found.hours is None:
        expected = "a run: not known how often spot is taken there"
    else:
        expected = f"[bold]{usd(found.usd)}{star}, {span(found.hours * 3600)}[/] expected a run"
    details = f"\n[dim]{escape(assumptions(plan.rungs))}[/]" if sources else ""
    band = f"{usd(found.usd_low)} to {usd(found.usd_high)}{star}"
    return f"on the whole ladder ({names}): {expected}; {band}{details}"


def _interruptions_text(rung: RungCost, *, source: bool) -> str:
    """A rung's interruptions or failures and their cost; empty without a run forecast."""
    if rung.spot_if_trained is None:
        return ""
    spot, interruptions = rung.spot, rung.taken
    facts = [fact for fact in (interruptions, rung.failures) if fact is not None]
    by_whom = ": " + "; ".join(f"{fact.source}, {fact.dated}, {fact.confidence}" for fact in facts) if source else ""
    event = "failure" if interruptions is None else "interruption"
    lost = f"one {event} in {spot.mtbf_hours:,.0f} h, goodput {spot.goodput:.1%}"
    if interruptions is not None and interruptions.value is None:
        lost = f"rate not known: failures alone{f', one in {spot.mtbf_hours:,.0f} h' if source else ''}"
    every = f", a checkpoint every {span(spot.interval_sec)} (best {span(spot.best_interval_sec)})"
    return f"{lost}{every if source and interruptions is not None else ''}{by_whom}"


def short_type(token: str) -> str:
    """The SDK's name: `ec2.LaunchTemplate` for `aws:ec2/launchTemplate:LaunchTemplate`."""
    package, module, name = token.split(":")
    # One-module packages name it `index`, which is no information.
    return f"{package if module == 'index' else module.partition('/')[0]}.{name}"


def sandbox_table(rows: Iterable["SandboxRow"]) -> Table:
    """Results in the simulated cloud, a line per type; `sandbox_notes` has the reasons."""
    by_type: dict[str, Counter[str]] = {}
    for row in rows:
        by_type.setdefault(short_type(row.type), Counter())[str(row.status)] += 1
    happened = sorted({status for counts in by_type.values() for status in counts}, key=list(_RESULT_COLOURS).index)
    table = Table(title="sandbox: SIMULATED by moto, nothing was billed", title_justify="left", expand=True)
    table.add_column("resource type", overflow="fold")
    for status in ("declared", *happened):
        table.add_column(status, justify="right", style=_RESULT_COLOURS.get(status))
    for name, counts in sorted(by_type.items()):
        table.add_row(escape(name), str(counts.total()), *(str(counts[status] or "") for status in happened))
    return table


def sandbox_notes(rows: Iterable["SandboxRow"]) -> list[str]:
    """A sentence for each resource that was not fully read back as declared."""
    return [f"{short_type(row.type)} {row.name}: {row.status}; {row.note}" for row in rows if row.note]


def show_difference(difference: Difference, console: Console) -> None:
    """Print changed resources, figures and findings."""
    console.print(_resources(difference))
    table = Table(title="figures", title_justify="left")
    for column in ("what", "before", "now", "change"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for figure in difference.figures:
        table.add_row(figure.label, _number(figure.before), _number(figure.now), _number(figure.change, "+"))
    console.print(table)
    for sign, colour, findings in (("+", "yellow", difference.findings_new), ("-", "green", difference.findings_gone)):
        for finding in findings:
            console.print(f"[{colour}]{sign} finding {escape(finding)}[/]", highlight=False)


def _resources(difference: Difference) -> Tree:
    changed = len(difference.changed) + len(difference.tags_only)
    counts = (len(difference.added), len(difference.removed), changed)
    tree = Tree("[bold]against the earlier plan[/]: {} added, {} removed, {} changed".format(*counts))
    for sign, colour, changes in (
        ("+", "green", difference.added),
        ("-", "red", difference.removed),
        ("~", "yellow", sorted(difference.changed, key=lambda one: -(one.effect or 0))),
    ):
        for change in changes:
            grave = "bold red" if change.effect is Effect.DATA_LOST else colour
            tree.add(f"[{grave}]{sign} {_label(change)}[/]")
    if count := len(difference.tags_only):
        tree.add(f"[dim]{count} resource{'s' if count > 1 else ''}: tags only[/]")
    return tree


def _label(change: Change) -> str:
    """A changed resource with its inputs by effect: `restarts nodes: userData`. If replaced, only the causes."""
    kind = change.type if change.type.startswith("gangway:") else short_type(change.type)
    groups: dict[tuple[Effect, str], list[str]] = {}
    least = Effect.REPLACED if any(one.reason for one in change.properties) else Effect.IN_PLACE
    for one in (one for one in change.properties if one.effect >= least):
        groups.setdefault((one.effect, one.reason), []).append(one.path)
    parts = [
        f"{effect}: {', '.join(paths)}{f' ({reason})' if reason else ''}"
        for (effect, reason), paths in sorted(groups.items(), reverse=True)
    ]
    if not parts and change.effect:
        parts = [str(change.effect)]
    effects = f" [dim]{escape('; '.join(parts))}[/]" if parts else ""
    return f"{escape(kind)} {escape(change.name)}{effects}"


def _number(value: float | None, sign: str = "") -> str:
    return "unknown" if value is None else f"{value:{sign},.2f}"


def print_plan(
    plan: Plan,
    output: str,
    previous: Mapping[str, Any] | None,
    difference: Difference | None,
    detail: Detail = Detail.SUMMARY,
) -> None:
    """Print `plan`. `output`: text, json or infracost; `previous`: an earlier plan from `read_plan`."""
    if output == "text":
        show_plan(plan, Console(), detail)
        if difference is not None:
            show_difference(difference, Console())
        return
    data = infracost(plan.plain(), previous) if output == "infracost" else plan.to_json()
    if output == "json" and difference is not None:
        data["difference"] = difference.to_json()
    print(json.dumps(data, indent=2))
