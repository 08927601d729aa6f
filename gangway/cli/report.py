"""`gangway report`: report finished or running runs as a page, tables, figures, records, or rows of FOCUS."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import (
    EXIT_FINDINGS,
    OVERWRITE,
    TRUSTED_KEY,
    check_figures_folder,
    check_new_file,
    check_page_folder,
)
from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from gangway.runs.run_folders import Run
    from gangway.sim.forecast.ledger import Standing


_PAGE_FILES = ("stats.jsonl", "samples.png")


class ReportFormat(StrEnum):
    """What `gangway report` writes."""

    HTML = "html"
    MD = "md"
    JSON = "json"
    CSV = "csv"
    FOCUS = "focus"
    FOCUS_1_2 = "focus-1.2"


_FOCUS_FORMATS = (ReportFormat.FOCUS, ReportFormat.FOCUS_1_2)
_PAGES = (ReportFormat.HTML, ReportFormat.MD)
_TABLES = (*_PAGES, ReportFormat.JSON)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders of them such as a suite's.")],
    output: Annotated[
        ReportFormat,
        typer.Option(
            "--format",
            help="html: a page; md: a table; json: all data; csv: a line per run; focus, focus-1.2: FOCUS 1.4, 1.2.",
        ),
    ] = ReportFormat.HTML,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; standard output if omitted. html: a folder (default: RUNS/report). focus: or .parquet."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=OVERWRITE)] = False,
    group_by: Annotated[
        str | None,
        typer.Option(help="html, md, json: columns that define a row, by commas: stack, arm, workers, precision ..."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="html, md: folder for all figures as PDF and SVG, for papers.")
    ] = None,
    ledger: Annotated[
        list[Path] | None,
        typer.Option(help="Ledger of `gangway forecast`, to show how good its forecasts were. Repeatable."),
    ] = None,
    billing_account: Annotated[
        str | None, typer.Option(help="focus: billing account of the cloud's invoice; the stack's name if omitted.")
    ] = None,
    usd_per_hour: Annotated[float | None, typer.Option(help="focus: price of a node, if the record has none.")] = None,
    key: Annotated[Path | None, typer.Option(help=TRUSTED_KEY)] = None,
) -> None:
    """Report runs as a page, a table, or data for other programs.

    Exit code 0: written. 1: no run has the required data.
    2: invalid options, or a forged record.
    """
    from gangway.runs.run_folders import find_readable_runs, half_runs
    from gangway.runs.signatures import read_public_key

    found, broken = find_readable_runs(runs, "RUNS", None if key is None else read_public_key(key, "--key"))
    half = [*broken, *half_runs(runs)]
    _check_flags(output, group_by, figures, ledger, billing_account, usd_per_hour)
    forecasts = _read_forecasts(ledger)
    _check_out(output, out, runs, overwrite, figures)
    needs_tables = found[1:] or half or group_by or figures or forecasts
    # Warnings come last, where people look, also before an error that ends the command.
    with _warnings_last(found, half, has_key=key is not None):
        if output is ReportFormat.HTML and found[0].plan is not None and not needs_tables:
            _write_page(found[0], out)
        elif output in _PAGES:
            folder = out or (_default_folder(runs) if output is ReportFormat.HTML else None)
            _write_tables(found, half, output, folder, group_by, figures, forecasts)
        elif output is ReportFormat.JSON:
            _write_json(found, half, out, group_by, forecasts)
        elif output is ReportFormat.CSV:
            _write_csv(found, out, forecasts)
        else:
            _write_focus(found, out, billing_account, usd_per_hour, output)


def _read_forecasts(ledgers: Sequence[Path] | None) -> "list[Standing]":
    if not ledgers:
        return []
    from gangway.report.comparison.ledgers import read_ledgers

    return read_ledgers(ledgers)


@contextmanager
def _warnings_last(runs: "Sequence[Run]", half: "Sequence[Path]", *, has_key: bool) -> Iterator[None]:
    """Print signatures first and warnings last: failed or unfinished runs, missing or unsealed records."""
    from gangway.report.comparison.groups import get_members
    from gangway.runs.run_folders import not_covered, not_sealed
    from gangway.runs.signatures import signature_lines

    for line in signature_lines([(run.record.id, run.signature) for run in runs], with_unsigned=has_key):
        typer.echo(line, err=True)
    try:
        yield
    finally:
        warnings: list[str] = []
        with suppress(InputError):  # formats that need an unreadable file report it
            missing = get_members(runs, half).missing
            warnings += [f"{one.item}: {one.status}: {one.reason or 'no reason recorded'}" for one in missing]
        warnings += [
            f"{one.record.id}: {one.record.status}: at {one.record.images / 1000:g} of "
            f"{one.record.config.total_images / 1000:g} kimg"
            for one in runs
            if one.record.status != "done"
        ]
        for warning in (*warnings, *not_sealed(run.record for run in runs), *not_covered(runs)):
            typer.echo(f"warning: {warning}", err=True)


def _check_flags(
    output: ReportFormat,
    group_by: str | None,
    figures: Path | None,
    ledgers: Sequence[Path] | None,
    billing_account: str | None,
    usd_per_hour: float | None,
) -> None:
    flags: tuple[tuple[str, object, Collection[ReportFormat]], ...] = (
        ("--billing-account", billing_account, _FOCUS_FORMATS),
        ("--usd-per-hour", usd_per_hour, _FOCUS_FORMATS),
        ("--group-by", group_by, _TABLES),
        ("--figures", figures, _PAGES),
        ("--ledger", ledgers[0] if ledgers else None, (*_TABLES, ReportFormat.CSV)),
    )
    for name, value, formats in flags:
        if value is not None and output not in formats:
            shown = str(value) if isinstance(value, Path) else value
            raise InputError(name, f"has no effect with --format {output}", value=shown, fix=f"remove {name}")


def _check_out(
    output: ReportFormat, out: Path | None, runs: Sequence[Path], overwrite: bool, figures: Path | None
) -> None:
    if figures is not None:
        check_figures_folder(figures)
    if output is ReportFormat.HTML:
        check_page_folder(out or _default_folder(runs))
    elif out is not None:
        check_new_file(out, overwrite=overwrite)


def _write_csv(runs: "Sequence[Run]", out: Path | None, forecasts: "Sequence[Standing]") -> None:
    from gangway.report.comparison.exports import figures_csv
    from gangway.report.comparison.groups import get_members

    _write_text(figures_csv(get_members(runs).members, forecasts), out)


def _write_text(text: str, out: Path | None) -> None:
    from gangway.components.core.whole_files import write_whole

    if out is None:
        typer.echo(text, nl=False)
    else:
        write_whole(out, text.encode())
        typer.echo(f"wrote {out}", err=True)


def _default_folder(places: Sequence[Path]) -> Path:
    return places[0] / "report" if len(places) == 1 and places[0].is_dir() else Path("report")


def _write_tables(
    runs: "Sequence[Run]",
    half: Sequence[Path],
    output: ReportFormat,
    out: Path | None,
    group_by: str | None,
    figures: Path | None,
    forecasts: "Sequence[Standing]",
) -> None:
    from gangway.report.comparison.write import comparison_report

    comparison = comparison_report(runs, group_by, half, forecasts)
    if figures is not None:
        files = comparison.write_figures(figures)
        typer.echo(f"wrote {len(files)} files in {figures}", err=True)
    if output is ReportFormat.MD:
        _write_text(comparison.markdown(), out)
    else:
        assert out is not None, "a page always has a folder"
        typer.echo(f"wrote {comparison.write_page(out)}", err=True)


def _write_json(
    runs: "Sequence[Run]",
    half: Sequence[Path],
    out: Path | None,
    group_by: str | None,
    forecasts: "Sequence[Standing]",
) -> None:
    """Write all data; if the runs do not fit into one table, without it, but with the reason."""
    from gangway.report.comparison.exports import report_json
    from gangway.report.comparison.groups import get_members, parse_keys
    from gangway.report.comparison.tables import as_json, get_report

    keys, source = parse_keys(group_by), get_members(runs, half)
    table, no_table = None, ""
    try:
        table = as_json(get_report(source, keys))
    except InputError as mistake:
        no_table = str(mistake)
        typer.echo(f"no table: {no_table}", err=True)
    signatures = {run.record.id: run.signature.to_json() for run in runs}
    _write_text(report_json([run.record for run in runs], table, no_table, signatures, forecasts), out)


def _write_focus(
    runs: "Sequence[Run]",
    out: Path | None,
    billing_account: str | None,
    usd_per_hour: float | None,
    output: ReportFormat,
) -> None:
    from gangway.components.core.whole_files import write_whole
    from gangway.finops.bill.focus import Version, focus_rows, missing_rows_reason, priced
    from gangway.report.comparison.exports import focus_csv, focus_parquet

    if usd_per_hour is not None and not 0 <= usd_per_hour < float("inf"):
        fix = "write --usd-per-hour 12.5"
        raise InputError("--usd-per-hour", "out of range", value=usd_per_hour, allowed="0 or more", fix=fix)
    if billing_account is not None and not billing_account.strip():
        fix, allowed = "write the account's id from the invoice, or remove the flag", "the paying account"
        raise InputError("--billing-account", "is empty", value=billing_account, allowed=allowed, fix=fix)
    rows, version = [], Version.V1_2 if output is ReportFormat.FOCUS_1_2 else Version.V1_4
    for run in runs:
        record = run.record if usd_per_hour is None else priced(run.record, usd_per_hour)
        why = missing_rows_reason(record)
        if why:
            typer.echo(f"{record.id}: no row: {why}", err=True)
            continue
        if billing_account is None:
            typer.echo(f"{record.id}: no --billing-account: BillingAccountId is the stack's name", err=True)
        rows += focus_rows(record, billing_account or record.stack or "none", version)
    if not rows:
        raise typer.Exit(EXIT_FINDINGS)
    if out is not None and out.suffix == ".parquet":
        write_whole(out, focus_parquet(rows, out, version))
        typer.echo(f"wrote {out}", err=True)
    else:
        _write_text(focus_csv(rows, version), out)


def _write_page(run: "Run", out: Path | None) -> None:
    """Write the page of one run and its plan, as `gangway demo` does, without the sandbox: it is not recorded."""
    from gangway.report.page import write_report
    from gangway.runs.run_folders import NEEDED, not_covered, read_stats

    assert run.plan is not None, "runs without a plan get a page of tables"
    missing = [name for name in _PAGE_FILES if not (run.path / name).is_file()]
    samples, reals = ((run.path / name) for name in ("samples.png", "reals.png"))
    stats = read_stats(run.path / "stats.jsonl", NEEDED)
    try:
        page = write_report(
            out or run.path / "report",
            plan=run.plan,
            sandbox=(),
            record=run.record,
            stats=stats,
            samples_png=samples if samples.is_file() else None,
            reals_png=reals if reals.is_file() else None,
            missing=missing,
            signed="; ".join([run.signature.sentence, *(text.partition(": ")[2] for text in not_covered([run]))]),
        )
    except KeyError as missing_key:
        # Plans have no version number; an older one lacks fields.
        raise InputError(
            str(run.path / "plan.json"),
            f"lacks {missing_key}: written by another version of Gangway",
            fix=f"write it again: gangway plan {run.record.stack} --json > plan.json",
        ) from None
    typer.echo(f"wrote {page}", err=True)
    for name in missing:
        typer.echo(f"warning: {run.record.id}: no {name}; the page lacks its content", err=True)
