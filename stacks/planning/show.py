"""The plan, the sandbox and the difference of two plans as a person reads them, or as JSON. Computes nothing."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.tree import Tree

from components.core.findings import Finding, Severity
from components.estimate.cost import CostEstimate
from stacks.planning.common_findings import span
from stacks.planning.difference import Change, Delta, Difference, compare
from stacks.planning.infracost import infracost
from stacks.planning.plan import Plan
from stacks.planning.recording import PlannedResource
from stacks.planning.run_costs import RungCost

if TYPE_CHECKING:
    from stacks.sandbox.rows import SandboxRow

_RESULT_COLOURS = {
    "accepted": "green",
    "read back equal": "green",
    "validated only": "yellow",
    "different": "red",
    "refused": "bold red",
}
_COLOURS = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def usd(amount: float | None, digits: int = 2) -> str:
    """An amount for people: `$1,234.56`, or `unknown`."""
    return "unknown" if amount is None else f"${amount:,.{digits}f}"


def show_plan(plan: Plan, console: Console) -> None:
    """Prints tree, findings, cost, energy and carbon."""
    console.print(resource_tree(plan.config.stack, plan.resources))
    console.print(findings_table(plan.findings))
    console.print(cost_table(plan.cost))
    console.print(ladder_table(plan.rungs))
    cost = plan.cost
    upfront = f"\n[bold]{usd(cost.upfront)}[/] of that at once, when the stack comes up" if cost.upfront else ""
    fallback = f"\nstandby: {usd(cost.standby_hourly)} an hour more at most, when a lower rung steps in"
    least = "at least " if cost.unknown else ""
    missing = "\n[yellow]without these, whose price is not known: " + escape("; ".join(cost.unknown)) + "[/]"
    console.print(
        Panel(
            f"{least}[bold]{usd(cost.hourly)}[/] an hour, {usd(cost.monthly)} a month of 730 h, "
            f"[bold]{usd(cost.run)}[/] for a run of {_hours(plan)}"
            f"{missing if cost.unknown else ''}{upfront}{fallback if cost.standby_hourly else ''}"
            f"\nwhen the job is done: {usd(plan.idle_hourly)} an hour until the stack is destroyed"
            f"\n{_energy(plan)}"
            f"\n{_embodied(plan)}"
            f"\n[dim]{escape(plan.energy.source)}; {escape(plan.carbon.source)}[/]",
            title="envelope (estimated)",
            title_align="left",
        )
    )


def _hours(plan: Plan) -> str:
    """How long a run takes; on spot that is more than undisturbed."""
    hours, undisturbed = plan.cost.run_hours, plan.config.job.max_hours
    return (
        f"{hours:g} h" if hours == undisturbed else f"{hours:.4g} h (expected on spot: {undisturbed:g} h undisturbed)"
    )


def _energy(plan: Plan) -> str:
    """Energy and emissions of a run; or that nobody can tell."""
    energy, carbon = plan.energy, plan.carbon
    if energy.kwh is None or carbon.gco2e is None:
        return (
            f"[bold]unknown[/] kWh and [bold]unknown[/] kg CO2e a run: PUE {energy.pue:g}, "
            f"grid at {carbon.intensity_g_per_kwh:g} g/kWh"
        )
    return (
        f"[bold]{energy.kwh:.1f} kWh[/] a run ({energy.kwh_low:.1f} to {energy.kwh_high:.1f}; "
        f"{energy.it_kwh:.1f} kWh of machines x PUE {energy.pue:g})"
        f"\n[bold]{carbon.gco2e / 1000:.2f} kg CO2e[/] a run at {carbon.intensity_g_per_kwh:g} g/kWh"
    )


def _embodied(plan: Plan) -> str:
    """The cards' share, and all of it for 1,000 images."""
    embodied, sci = plan.embodied, plan.sci_g_per_kimg
    if embodied.gco2e is None:
        return "[bold]unknown[/] kg CO2e more for a run's share of making the cards"
    whole = "" if sci is None else f"; in all {sci:.3g} g CO2e for 1,000 images (SCI)"
    return f"[bold]{embodied.gco2e / 1000:.2f} kg CO2e[/] more for a run's share of making the cards{whole}"


def resource_tree(stack: str, resources: Iterable[PlannedResource]) -> Tree:
    """Components with their children, as the engine would show them."""
    tree = Tree(f"[bold]{escape(stack)}[/]")
    branches: dict[str, Tree] = {}
    # A component registers before its children; sorting by depth of the parent chain keeps that order.
    for resource in sorted(resources, key=lambda r: (r.custom, r.urn)):
        # A component's whole token is what its source declares; of a provider's resource, the SDK's name is shorter.
        kind = short_type(resource.type) if resource.custom else f"[bold]{escape(resource.type)}[/]"
        label = f"{kind} [dim]{escape(resource.name)}[/]"
        branches[resource.urn] = branches.get(resource.parent, tree).add(label)
    return tree


def findings_table(findings: Iterable[Finding]) -> Table:
    """What the plan has to say, gravest first."""
    order = list(_COLOURS)
    table = Table(title="findings", title_justify="left", expand=True)
    for column in ("severity", "what"):
        table.add_column(column, overflow="fold")
    for finding in sorted(findings, key=lambda f: order.index(f.severity)):
        colour = _COLOURS[finding.severity]
        fix = f"\n[green]{escape(finding.fix)}[/]" if finding.fix else ""
        where = f"[dim]{escape(finding.path)}  {escape(finding.code)}[/]"
        table.add_row(f"[{colour}]{finding.severity}[/]", f"{escape(finding.message)}\n{where}{fix}")
    return table


def cost_table(cost: CostEstimate) -> Table:
    """The bill, line by line, with each price's source. Equal small lines are added up."""
    table = Table(title="cost (list and spot prices)", title_justify="left", expand=True)
    for column in ("what", "price", "an hour"):
        table.add_column(column, overflow="fold", justify="left" if column == "what" else "right")
    for component in cost.components:
        standby = " [dim](standby)[/]" if component.standby else ""
        hourly = f"{usd(component.once)}\nonce a run" if component.once else usd(component.hourly)
        provenance = ", ".join(filter(None, (component.source, component.as_of, component.confidence)))
        table.add_row(
            f"{escape(component.name)}{standby}\n[dim]{escape(provenance)}[/]",
            f"{component.quantity:g} {component.unit}\nat {usd(component.price, 4)}",
            hourly,
        )
    return table


def ladder_table(rungs: Iterable[RungCost]) -> Table:
    """What a run costs on each rung, and what interruptions make of it."""
    table = Table(title="a run on each rung of the ladder", title_justify="left", expand=True)
    for column in ("capacity", "an hour", "a month", "hours", "a run"):
        table.add_column(column, overflow="fold", justify="left" if column == "capacity" else "right")
    for rung in rungs:
        hours = "no end" if rung.run_hours is None else f"{rung.run_hours:.1f}"
        taken = f"\n[dim]{escape(_taken(rung))}[/]" if rung.taken else ""
        table.add_row(
            f"{rung.position}: {rung.kind}{taken}",
            *(usd(rung.hourly), usd(rung.monthly), hours, usd(rung.run)),
        )
    return table


def _taken(rung: RungCost) -> str:
    """How often a spot rung's nodes are taken and what that costs, with its source."""
    spot, fact = rung.spot, rung.taken
    assert fact is not None, "asked of spot only"
    source = f"{fact.source}, {fact.as_of}, {fact.confidence}"
    if spot is None:
        return f"without interruptions, whose rate is not known: {source}"
    return (
        f"one interruption in {spot.mtbf_hours:,.0f} h, goodput {spot.goodput:.1%}, a checkpoint every "
        f"{span(spot.interval_sec)} (best {span(spot.best_interval_sec)}): {source}"
    )


def short_type(token: str) -> str:
    """`ec2.LaunchTemplate` for the token `aws:ec2/launchTemplate:LaunchTemplate`: what the SDK calls it."""
    package, module, name = token.split(":")
    # A package of one module calls it `index`, which says nothing.
    return f"{package if module == 'index' else module.partition('/')[0]}.{name}"


def sandbox_table(rows: Iterable["SandboxRow"]) -> Table:
    """What became of the declared resources in the simulated cloud, a line for each type; `sandbox_notes` says why."""
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
    """A sentence for each resource of which the sandbox could not read everything back as declared."""
    return [f"{short_type(row.type)} {row.name}: {row.status}; {row.note}" for row in rows if row.note]


def show_difference(difference: Difference, console: Console) -> None:
    """Prints resources, figures and findings that changed."""
    console.print(_resources(difference))
    console.print(_figures(difference.figures))
    for sign, colour, findings in (("+", "yellow", difference.findings_new), ("-", "green", difference.findings_gone)):
        for finding in findings:
            console.print(f"[{colour}]{sign} finding {escape(finding)}[/]", highlight=False)


def _resources(difference: Difference) -> Tree:
    counts = (len(difference.added), len(difference.removed), len(difference.changed))
    tree = Tree("[bold]against the earlier plan[/]: {} added, {} removed, {} changed".format(*counts))
    for sign, colour, changes in (
        ("+", "green", difference.added),
        ("-", "red", difference.removed),
        ("~", "yellow", difference.changed),
    ):
        for change in changes:
            tree.add(f"[{colour}]{sign} {_label(change)}[/]")
    return tree


def _label(change: Change) -> str:
    kind = change.type if change.type.startswith("gangway:") else short_type(change.type)
    inputs = f" [dim]{escape(', '.join(change.inputs))}[/]" if change.inputs else ""
    return f"{escape(kind)} {escape(change.name)}{inputs}"


def _figures(figures: Iterable[Delta]) -> Table:
    table = Table(title="figures", title_justify="left")
    for column in ("what", "before", "now", "change"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for figure in figures:
        table.add_row(
            f"{figure.what}, {figure.unit}",
            _number(figure.before),
            _number(figure.now),
            _number(figure.change, "+"),
        )
    return table


def _number(value: float | None, sign: str = "") -> str:
    return "unknown" if value is None else f"{value:{sign},.2f}"


def print_plan(plan: Plan, output: str, previous: Mapping[str, Any] | None) -> None:
    """Prints `plan`. `output`: text, json or infracost; `previous`: an earlier plan, as `read_plan` gives it; None for
    no comparison.
    """
    if output == "text":
        show_plan(plan, Console())
        if previous is not None:
            show_difference(compare(previous, _plain(plan)), Console())
        return
    data = plan.to_json()
    if output == "infracost":
        data = infracost(_plain(plan), previous)
    elif previous is not None:
        data["difference"] = compare(previous, _plain(plan)).to_json()
    print(json.dumps(data, indent=2))


def _plain(plan: Plan) -> dict[str, Any]:
    """As the file of an earlier plan holds it: tuples are lists there, and would not be equal to them."""
    plain: dict[str, Any] = json.loads(json.dumps(plan.to_json()))
    return plain
