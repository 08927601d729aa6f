"""`gangway preflight`: check a stack file against the cloud before `up`."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import EXIT_FINDINGS, print_json, stacks_dir
from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from gangway.live.preflight.check import Answer, Check
    from gangway.stacks.plan.plan import Plan

_COLOURS = {"error": "red", "warning": "yellow", "unknown": "magenta", "ok": "green"}


def preflight(
    stack_or_file: Annotated[
        str, typer.Argument(metavar="STACK_OR_FILE", help="A stack's name, or the path of a stack file.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Check a stack in its cloud before `up`, read-only: quotas, machine types, images, permissions, buckets.

    Uses your credentials and changes nothing. A check without an answer is unknown, with the reason.
    Exit code 0: no errors. 1: an error, with which `up` would fail. 2: invalid input, no credentials, or no answer
    to any check.
    """
    from rich.console import Console

    from gangway.live.preflight.check import State, counts, run_checks
    from gangway.stacks.base.registry import load_adapter, providers_with_adapter
    from gangway.stacks.loading.loader import find_stack_file, from_file
    from gangway.stacks.plan.plan import make_plan

    path = find_stack_file(stack_or_file, stacks_dir())
    config = from_file(path)
    if config.provider not in providers_with_adapter("preflight"):
        raise InputError(
            "gangway:provider",
            "this provider has no checks",
            value=config.provider,
            allowed=", ".join(providers_with_adapter("preflight")),
            fix=f"gangway plan {stack_or_file}",
        )
    with Console(stderr=True).status("planning the stack") as status:
        try:
            plan = make_plan(config)
        except InputError as mistake:
            raise mistake.within(str(path)) from None
        status.update(f"logging in to {config.provider}")
        checks = [*_plan_errors(plan, stack_or_file), *load_adapter(config.provider, "preflight").get_checks(plan)]
        status.update(f"{len(checks)} checks")
        answers = run_checks(checks, lambda done: status.update(f"{done} of {len(checks)} checks"))
    found = counts(answers)
    if as_json:
        rows = [answer.to_json() for answer in answers]
        print_json({"stack": config.stack, "provider": config.provider, "counts": found, "checks": rows})
    else:
        _show(config.stack, config.provider, answers)
    if answers and found[State.UNKNOWN] == len(answers):
        raise InputError(
            config.provider,
            "answered no check",
            value=answers[0].result.answer,
            fix=answers[0].result.fix or "run it again",
        )
    raise typer.Exit(EXIT_FINDINGS if found[State.ERROR] else 0)


def _plan_errors(plan: "Plan", stack_or_file: str) -> "Iterator[Check]":
    from gangway.components.core.findings import Severity
    from gangway.live.preflight.check import Check, Result

    for finding in plan.findings:
        if finding.severity is Severity.ERROR:
            run = partial(Result.error, finding.message, finding.fix or f"gangway plan {stack_or_file}")
            yield Check(finding.code, "gangway plan, offline", run, finding.path)


def _show(stack: str, provider: str, answers: Sequence["Answer"]) -> None:
    from rich.console import Console
    from rich.text import Text

    from gangway.live.preflight.check import counts, in_order

    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(f"{stack} on {provider}, checked with your credentials\n"))
    for answer in in_order(answers):
        row, state = answer.to_json(), answer.result.state.value
        console.print(Text.assemble((f"{state:<8}", _COLOURS[state]), " ", (row["subject"], "bold")))
        where = f"  {row['path']}" if row["path"] else ""
        console.print(Text(f"         {row['answer']}  [{row['source']}]{where}"))
        if row["fix"]:
            console.print(Text(f"         fix: {row['fix']}"))
    numbers = {state: number for state, number in counts(answers).items() if number}
    plural = {state: "s" if number > 1 and state in ("error", "warning") else "" for state, number in numbers.items()}
    console.print(Text("\n" + ", ".join(f"{number} {state}{plural[state]}" for state, number in numbers.items())))
