"""`gangway reconcile`: what runs were billed, beside what was estimated and recorded.

    $ gangway reconcile --bill focus.csv.gz --runs runs/
    $ gangway reconcile --bill exports/2026-10/ --runs runs/ --plan plan.json --usd-per EUR=1.08 --json

Reads files; asks no cloud. Heavy imports stand inside the command: `gangway --help` imports this module.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from components.core.findings import InputError

if TYPE_CHECKING:
    from gangway.finops.bill.reconcile import Cost

EXIT_MISSING = 1
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
    from gangway.finops.bill.reconcile import progress, show
    from gangway.finops.bill.reconcile import reconcile as join
    from gangway.runs.run_folders import find_runs, half_runs

    if not runs and not jobs:
        raise InputError("--runs", "missing", allowed="--runs, --jobs or both", fix="add --runs runs/")
    chosen, rates, of_queues = _cost(cost), _rates(usd_per or []), read_queue_jobs(jobs or [])
    plans = _plans(plan or [])
    found, bills = find_runs(runs) if runs else [], Bills(bill)
    with progress(Console(stderr=True)) as progress_rows:
        result = join(bills, found, plans, chosen, rates, progress_rows, of_queues)
    if as_json:
        import json

        typer.echo(json.dumps(result.to_json(), indent=2))
    else:
        show(result, Console())
    for path in half_runs(runs or []):
        typer.echo(f"warning: {path}: has no run.json: what it cost counts as unexplained", err=True)
    raise typer.Exit(EXIT_MISSING if result.missing else 0)


def _cost(word: str) -> "Cost":
    from typing import get_args

    from gangway.finops.bill.reconcile import Cost

    for cost in get_args(Cost):
        if cost == word:
            return cost  # type: ignore[no-any-return]  # get_args forgets what it is given
    allowed = get_args(Cost)
    raise InputError.not_among("--cost", "no such cost", word, allowed)


def _rates(words: Sequence[str]) -> dict[str, float]:
    rates: dict[str, float] = {}
    for word in words:
        match = _RATE.fullmatch(word)
        if match is None or not float(match[2]):
            raise InputError(
                "--usd-per", "no rate", value=word, allowed="a currency and US dollars for one of it", fix="EUR=1.08"
            )
        currency = match[1]
        if currency == "USD" or currency in rates:
            problem = "a dollar is a dollar" if currency == "USD" else "a second rate of one currency"
            allowed = "one rate for each currency other than USD"
            raise InputError("--usd-per", problem, value=word, allowed=allowed, fix="leave it out")
        rates[currency] = float(match[2])
    return rates


def _plans(paths: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Plans by their stack. InputError: a file that is no plan, or a second plan of one stack."""
    from gangway.runs.run_folders import read_json

    plans: dict[str, dict[str, Any]] = {}
    for path in paths:
        data = read_json(path, follow_link=True)
        stack = data.get("stack")
        if not isinstance(stack, str) or not isinstance(data.get("cost"), dict) or "run" not in data["cost"]:
            raise InputError(
                f"--plan {path}",
                "is no plan: it has no stack, or no cost of a run",
                value=", ".join(list(data)[:8]),
                allowed="what `gangway plan STACK --json` printed",
                fix="gangway plan STACK --json > plan.json",
            )
        if stack in plans:
            raise InputError(
                f"--plan {path}",
                "a second plan of one stack",
                value=stack,
                allowed="one plan a stack",
                fix="give the one that the runs began with",
            )
        plans[stack] = data
    return plans
