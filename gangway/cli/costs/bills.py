"""`gangway reconcile` and `gangway audit`: compare bills with runs; find cloud resources that no state has."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from gangway.cli.common import EXIT_FINDINGS, choose, load_stack, print_json
from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from gangway.finops.audit.classify_orphans import Audit, Judged, Listing
    from gangway.finops.audit.state import State


_RATE = re.compile(r"([A-Z]{3})=([0-9]+(?:\.[0-9]+)?)")


def reconcile(
    bill: Annotated[
        list[Path],
        typer.Option(
            help="An export's folder or files: FOCUS, AWS CUR 2.0, Google Cloud, Azure actual cost. Repeatable."
        ),
    ],
    runs: Annotated[list[Path] | None, typer.Option(help="A run's directory, or a folder of them. Repeatable.")] = None,
    jobs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROVIDER:STACK=FILE", help="Output of `gangway job list --json` for a cluster. Repeatable."
        ),
    ] = None,
    plan: Annotated[
        list[Path] | None, typer.Option(help="Output of `gangway plan STACK --json`, for the estimate. Repeatable.")
    ] = None,
    cost: Annotated[
        str, typer.Option(help="effective: with shares of prepaid capacity; billed: as invoiced.")
    ] = "effective",
    usd_per: Annotated[
        list[str] | None, typer.Option(help="US dollars for another currency, such as EUR=1.08. Repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare run records with the bill: estimated, recorded, billed, unexplained and untagged cost.

    With --jobs, the cost of a cluster with a queue by team and user.
    Exit code 0: every run of a cloud is in the bill. 1: one is not.
    2: invalid files or options.
    """
    from rich.console import Console

    from gangway.finops.bill.queue_jobs import read_queue_jobs
    from gangway.finops.bill.reader import Bills
    from gangway.finops.bill.reconcile import Cost, progress, show
    from gangway.finops.bill.reconcile import reconcile as join
    from gangway.runs.run_folders import find_runs, half_runs

    if not runs and not jobs:
        raise InputError("--runs", "missing", allowed="--runs, --jobs or both", fix="add --runs runs/")
    kinds: tuple[Cost, ...] = get_args(Cost)
    cost_kind = choose("--cost", "no such cost", cost, kinds)
    rates, queue_jobs = _parse_rates(usd_per or []), read_queue_jobs(jobs or [])
    plans = _read_plans(plan or [])
    found, bills = find_runs(runs) if runs else [], Bills(bill)
    with progress(Console(stderr=True)) as progress_rows:
        result = join(bills, found, plans, cost_kind, rates, progress_rows, queue_jobs)
    if as_json:
        print_json(result.to_json())
    else:
        show(result, Console())
    for path in half_runs(runs or []):
        typer.echo(f"warning: {path}: no run.json; its cost counts as unexplained", err=True)
    raise typer.Exit(EXIT_FINDINGS if result.missing else 0)


def _parse_rates(words: Sequence[str]) -> dict[str, float]:
    rates: dict[str, float] = {}
    for word in words:
        match = _RATE.fullmatch(word)
        if match is None or not float(match[2]):
            allowed = "CURRENCY=USD, the US dollars for one unit"
            raise InputError("--usd-per", "not a rate", value=word, allowed=allowed, fix="write --usd-per EUR=1.08")
        currency = match[1]
        if currency == "USD" or currency in rates:
            problem = "USD needs no rate" if currency == "USD" else f"two rates for {currency}"
            allowed = "one rate for each currency other than USD"
            raise InputError("--usd-per", problem, value=word, allowed=allowed, fix="remove it")
        rates[currency] = float(match[2])
    return rates


def _read_plans(paths: Sequence[Path]) -> dict[str, dict[str, Any]]:
    from gangway.runs.run_folders import read_json

    plans: dict[str, dict[str, Any]] = {}
    for path in paths:
        data = read_json(path, follow_link=True)
        stack = data.get("stack")
        if not isinstance(stack, str) or not isinstance(data.get("cost"), dict) or "run" not in data["cost"]:
            raise InputError(
                f"--plan {path}",
                "not a plan: no stack, or no cost of a run",
                value=", ".join(list(data)[:8]),
                allowed="output of `gangway plan STACK --json`",
                fix="gangway plan STACK --json > plan.json",
            )
        if stack in plans:
            raise InputError(
                f"--plan {path}",
                "two plans of one stack",
                value=stack,
                allowed="one plan per stack",
                fix="pass the plan that the runs started with",
            )
        plans[stack] = data
    return plans


def audit(
    stack_or_file: Annotated[str, typer.Argument(help="A stack's name, or the path of a stack file.")],
    state: Annotated[
        Path | None, typer.Option(help="Output of `pulumi stack export`; read with Pulumi's CLI if omitted.")
    ] = None,
    no_state: Annotated[
        bool,
        typer.Option(
            "--no-state", help="The stack was removed or its state is lost: report every resource with its tag."
        ),
    ] = False,
    regions: Annotated[
        str | None, typer.Option(help="AWS regions: a list, or all; the stack's and us-east-1 if omitted.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """List a stack's resources in the cloud that are not in its state, with their cost per hour.

    Exit code 0: none found. 1: some found.
    2: the cloud or the state could not be read.
    """
    from rich.console import Console

    from gangway.finops.audit.classify_orphans import audit_json, show_audit
    from gangway.stacks.base.registry import load_adapter, providers_with_adapter

    if state is not None and no_state:
        raise InputError("--no-state", "cannot be combined with --state", fix="remove one")
    config = load_stack(stack_or_file)
    if config.provider not in providers_with_adapter("audit"):
        raise InputError(
            "gangway:provider",
            "this provider has no audit",
            value=config.provider,
            allowed=", ".join(providers_with_adapter("audit")),
            fix="list resources by tag with the provider's own tool",
        )
    cloud = load_adapter(config.provider, "audit")
    if regions is not None and not cloud.BY_REGION:
        typer.echo(f"warning: --regions is ignored: {config.provider} lists all regions at once", err=True)
    with Console(stderr=True).status("") as status:
        status.update("reading the state")
        known = _read_state(config.stack_name, state, no_state)
        status.update(f"listing resources on {config.provider} with the tag of {config.stack}")
        listing = cloud.list_resources(config, regions)
    outcome = run_audit(config.stack, config.provider, known, listing)
    if as_json:
        print_json(audit_json(outcome))
    else:
        show_audit(outcome, Console())
    raise typer.Exit(EXIT_FINDINGS if outcome.orphans else 0)


def run_audit(stack: str, provider: str, state: "State", listing: "Listing") -> "Audit":
    """Classify the provider's resources with the stack's tag, and price orphaned and retained ones; pure."""
    from gangway.finops.audit.classify_orphans import Audit, Row, classify_orphans, price
    from gangway.stacks.base.registry import load_adapter

    cloud = load_adapter(provider, "audit")
    known = {key for resource in state.resources for key in cloud.state_keys(resource)}
    judged = classify_orphans(listing.resources, known)

    def get_row(each: "Judged") -> Row:
        return Row(each, tuple(price(each.resource, provider, cloud.price_region(each.resource.region))))

    rows = {verdict: [get_row(each) for each in judged if each.verdict == verdict] for verdict in ("orphan", "kept")}
    for each in rows.values():
        each.sort(key=lambda row: (-(row.hourly_usd or 0.0), row.judged.resource.id))
    return Audit(
        stack=stack,
        provider=provider,
        asked=listing.asked,
        state=state.source,
        judged=tuple(judged),
        orphans=tuple(rows["orphan"]),
        kept=tuple(rows["kept"]),
        notes=listing.notes,
    )


def _read_state(stack: str, path: Path | None, removed: bool) -> "State":
    from gangway.finops.audit.state import State, export_state, read_state
    from gangway.stacks.config.paths import project_folder

    if removed:
        return State((), "--no-state: the stack was removed")
    if path is not None:
        return read_state(path)
    return export_state(stack, project_folder())
