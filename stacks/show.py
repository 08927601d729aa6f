"""The plan and the sandbox as a person reads them: trees and tables on the terminal. Computes nothing."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.tree import Tree

from components.cost import CostEstimate
from components.findings import Finding, Severity
from stacks.plan import Plan
from stacks.recording import PlannedResource

if TYPE_CHECKING:  # boto3 and moto are not needed to print a plan
    from stacks.sandbox import SandboxRow

__all__ = ["sandbox_notes", "sandbox_table", "show_plan", "usd"]

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
    cost = plan.cost
    upfront = f"\n[bold]{usd(cost.upfront)}[/] of that at once, when the stack comes up" if cost.upfront else ""
    fallback = f"\nstandby: {usd(cost.standby_hourly)} an hour more at most, when a lower rung steps in"
    least = "at least " if cost.unknown else ""
    missing = "\n[yellow]without these, whose price is not known: " + escape("; ".join(cost.unknown)) + "[/]"
    console.print(
        Panel(
            f"{least}[bold]{usd(cost.hourly)}[/] an hour, {usd(cost.monthly)} a month of 730 h, "
            f"[bold]{usd(cost.run)}[/] for a run of {cost.run_hours:g} h"
            f"{missing if cost.unknown else ''}{upfront}{fallback if cost.standby_hourly else ''}"
            f"\n{_energy(plan)}"
            f"\n[dim]{escape(plan.energy.source)}; {escape(plan.carbon.source)}[/]",
            title="envelope (estimated)",
            title_align="left",
        )
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
        provenance = ", ".join(filter(None, (component.source, component.as_of, component.confidence)))
        table.add_row(
            f"{escape(component.name)}{standby}\n[dim]{escape(provenance)}[/]",
            f"{component.quantity:g} {component.unit}\nat {usd(component.price, 4)}",
            usd(component.hourly),
        )
    return table


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
