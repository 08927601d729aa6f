"""`gangway reconcile`: compare the bill of runs with their estimates and records. Reads files only.

$ gangway reconcile --bill focus.csv.gz --runs runs/
$ gangway reconcile --bill exports/2026-10/ --runs runs/ --plan plan.json --usd-per EUR=1.08 --json
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangway.cli.common import print_json
from gangway.components.core.findings import InputError

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
    cost_kind, rates, queue_jobs = _parse_cost(cost), _parse_rates(usd_per or []), read_queue_jobs(jobs or [])
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
    raise typer.Exit(EXIT_MISSING if result.missing else 0)


def _parse_cost(word: str) -> "Cost":
    from typing import get_args

    from gangway.finops.bill.reconcile import Cost

    for cost in get_args(Cost):
        if cost == word:
            return cost  # type: ignore[no-any-return]  # get_args returns Any
    raise InputError.not_among("--cost", "no such cost", word, get_args(Cost))


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
    """Plans by stack. InputError: not a plan, or two plans of one stack."""
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
