"""`gangway report`: runs as one page, as figures, as records, or as rows of FOCUS.

    $ gangway report runs/demo/latest --format html
    $ gangway report runs/ --format csv --out runs.csv
    $ gangway report runs/ --format focus --billing-account 123456789012 --out focus.parquet

Reads finished or running runs; computes nothing anew. Heavy imports stand inside the command: `gangway --help` imports
this module.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.findings import InputError

if TYPE_CHECKING:
    from stacks.runs import Run

__all__ = ["ReportFormat", "report"]

EXIT_NOTHING = 1
_OF_A_PAGE = ("plan.json", "stats.jsonl", "samples.png")


class ReportFormat(StrEnum):
    """What `gangway report` writes."""

    HTML = "html"
    JSON = "json"
    CSV = "csv"
    FOCUS = "focus"


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders of them.")],
    output: Annotated[
        ReportFormat,
        typer.Option("--format", help="html: one run's page; json: records; csv: figures; focus: FOCUS 1.4 rows."),
    ] = ReportFormat.JSON,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; standard output without. Of html a folder [RUN/report]. focus: .parquet too."
        ),
    ] = None,
    billing_account: Annotated[
        str | None, typer.Option(help="focus: who pays, as the cloud's invoice has it [the stack's name].")
    ] = None,
    usd_per_hour: Annotated[
        float | None, typer.Option(help="focus: price of a node for an hour where the record has none; assumed.")
    ] = None,
) -> None:
    """Write runs for people or for other programs.

    Exit code 0: written. 1: no run has what the format needs. 2: a mistake in options or files.
    """
    from stacks.runs import find_runs, not_sealed

    found = find_runs(runs, "RUNS")
    for sentence in not_sealed(found):
        typer.echo(sentence, err=True)
    if output is not ReportFormat.FOCUS:
        _refuse(output, {"--billing-account": billing_account, "--usd-per-hour": usd_per_hour})
    if output is ReportFormat.HTML:
        _page(found, out)
    elif output is ReportFormat.FOCUS:
        _focus(found, out, billing_account, usd_per_hour)
    else:
        from stacks.report_files import figures_csv, records_json

        records = [run.record for run in found]
        _deliver((records_json if output is ReportFormat.JSON else figures_csv)(records), out)


def _refuse(output: ReportFormat, options: dict[str, object]) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(name, f"has no meaning with --format {output}", value=value, fix=f"leave {name} out")


def _deliver(text: str, out: Path | None) -> None:
    from stacks.report_files import write_whole

    if out is None:
        typer.echo(text, nl=False)
    else:
        write_whole(out, text.encode())
        typer.echo(f"wrote {out}", err=True)


def _focus(runs: "Sequence[Run]", out: Path | None, billing_account: str | None, usd_per_hour: float | None) -> None:
    from stacks.bill.focus_rows import focus_rows, priced, without_rows
    from stacks.report_files import focus_csv, focus_parquet, write_whole

    if usd_per_hour is not None and not 0 <= usd_per_hour < float("inf"):
        raise InputError("--usd-per-hour", "no price", value=usd_per_hour, allowed="0 or more", fix="write 12.5")
    if billing_account is not None and not billing_account.strip():
        fix = "write the account as the invoice has it, or leave it out"
        raise InputError("--billing-account", "is empty", value=billing_account, allowed="who pays", fix=fix)
    rows = []
    for run in runs:
        record = run.record if usd_per_hour is None else priced(run.record, usd_per_hour)
        why = without_rows(record)
        if why:
            typer.echo(f"{record.id}: no row: {why}", err=True)
            continue
        if billing_account is None:
            typer.echo(f"{record.id}: no --billing-account: the stack's name stands in BillingAccountId", err=True)
        rows += focus_rows(record, billing_account or record.stack or "none")
    if not rows:
        raise typer.Exit(EXIT_NOTHING)
    if out is not None and out.suffix == ".parquet":
        write_whole(out, focus_parquet(rows, out))
        typer.echo(f"wrote {out}", err=True)
    else:
        _deliver(focus_csv(rows), out)


def _page(runs: "Sequence[Run]", out: Path | None) -> None:
    """One run's page, from what lies beside its record. What a sandbox made of the plan is kept nowhere: left out."""
    from stacks.local_run import StatsTail
    from stacks.report import write_report

    if len(runs) != 1:
        raise InputError("RUNS", "a page is of one run", value=len(runs), allowed="1", fix="name one run's directory")
    run = runs[0]
    missing = [name for name in _OF_A_PAGE if not (run.path / name).is_file()]
    if missing or run.plan is None:
        raise InputError(
            str(run.path),
            f"lacks {', '.join(missing)}",
            allowed="a directory that `gangway demo` wrote, or one with these files",
            fix="put what `gangway plan STACK --json` prints there as plan.json"
            if "plan.json" in missing
            else "name a whole run directory",
        )
    reals = run.path / "reals.png"
    try:
        page = write_report(
            out or run.path / "report",
            plan=run.plan,
            sandbox=(),
            record=run.record,
            stats=StatsTail(run.path / "stats.jsonl").new_lines(),
            samples_png=run.path / "samples.png",
            reals_png=reals if reals.is_file() else None,
        )
    except KeyError as missing_key:
        # Plans have no version of their own; an older one lacks what pages show today.
        raise InputError(
            str(run.path / "plan.json"),
            f"lacks {missing_key}: another version of Gangway wrote it",
            fix=f"write it anew: gangway plan {run.record.stack} --json > plan.json",
        ) from None
    typer.echo(f"wrote {page}", err=True)
