"""`gangway forecast`: what comes next of a history, with intervals, and how good such forecasts have been.

    $ gangway forecast grid.csv --horizon 24h --ledger grid-forecasts.jsonl --gauges /var/lib/node_exporter/grid.prom
    $ gangway forecast --simulate spot-price --plot spot.png

Heavy imports stand inside the command: `gangway --help` imports this module.
"""

import shlex
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.core.findings import InputError
from components.core.visible import visible
from gangway.cli.common import OVERWRITE, check_new_file
from gangway.cli.quote import get_hours

if TYPE_CHECKING:
    from gangway.finops.forecasts.tables import Answer, Published
    from gangway.sim.forecast.series import Series

_SIMULATED_HOURS = 24 * 56
_HORIZON = "24h"
_GAUGES_BEGIN = b"# HELP gangway_forecast_"


def forecast(
    file: Annotated[
        Path | None,
        typer.Argument(help="CSV or JSON with a value at equal time steps; or a run's folder."),
    ] = None,
    simulate: Annotated[
        str | None, typer.Option(help="Synthetic data instead of a file: grid, spot-price, interruptions or demand.")
    ] = None,
    column: Annotated[str | None, typer.Option(help="Column of the value, if there are several.")] = None,
    of: Annotated[
        str | None, typer.Option(help="Subject of the series, such as a zone; the file's name if omitted.")
    ] = None,
    horizon: Annotated[str | None, typer.Option(help="How far ahead, such as 2d; 24h if omitted.")] = None,
    season: Annotated[str | None, typer.Option(help="Period of the series: 24h or 7d; chosen if omitted.")] = None,
    level: Annotated[float, typer.Option(help="Share of true values that intervals should cover.")] = 0.9,
    ledger: Annotated[
        Path | None, typer.Option(help="File to which to append the forecast and in which to judge earlier ones.")
    ] = None,
    gauges: Annotated[Path | None, typer.Option(help="File for Prometheus gauges (.prom), overwritten.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the forecast, as CSV.")] = None,
    plot: Annotated[Path | None, typer.Option(help="File for the plot, .png or .svg.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=OVERWRITE)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Forecast a series (demand, spot price, interruptions, grid intensity) and compare it with a baseline.

    For a run's folder: the remaining time.
    """
    from stacks.base.extras import require

    _check_level(level)
    if file is not None and file.is_dir():
        _check_alone(simulate, column, of, horizon, season, ledger, gauges, out, plot)
        _tell_run(file, level, as_json=as_json)
        return
    require("sklearn", *(["prometheus_client"] if gauges else []), *(["matplotlib"] if plot else []))
    from gangway.finops.forecasts.tables import Answer
    from gangway.sim.forecast.forecaster import backtest, choose_setting
    from gangway.sim.forecast.forecaster import forecast as look_ahead

    _check_files(gauges, out, plot, overwrite=overwrite)
    series = _history(file, simulate, column)
    series = series if of is None else replace(series, of=visible(of))
    steps = _steps("--horizon", horizon or _HORIZON, series.step)
    whole = None if season is None else _steps("--season", season, series.step)
    try:
        setting = choose_setting(series, steps, whole, level)
    except InputError as mistake:
        raise mistake.within(str(file) if file else f"--simulate {simulate}") from None
    model, baseline = look_ahead(series, setting)
    answer = Answer(series, setting, model, baseline, backtest(series, setting))
    if ledger is not None:
        answer = replace(answer, published=_publish(answer, ledger))
    _tell(answer, _write(answer, gauges, out, plot), as_json=as_json)


def _check_alone(*of_a_series: str | Path | None) -> None:
    flags = ("--simulate", "--column", "--of", "--horizon", "--season", "--ledger", "--gauges", "--out", "--plot")
    for flag, value in zip(flags, of_a_series, strict=True):
        if value is not None:
            raise InputError(
                flag, "of a series, not of a run", value=str(value), allowed="--level, --json", fix="leave it out"
            )


def _tell_run(folder: Path, level: float, *, as_json: bool) -> None:
    from gangway.finops.forecasts.run import run_ahead
    from gangway.sim.forecast.series import said_length

    found = run_ahead(folder, level)
    if as_json:
        import json

        ahead = found.ahead and asdict(found.ahead)
        typer.echo(json.dumps({"images": found.images, "total": found.total, "level": level, "ahead": ahead}, indent=2))
        return
    typer.echo(f"{found.images:,} of {found.total:,} images")
    if found.ahead is None:
        typer.echo("nothing is left to do")
        return

    def said(seconds: float) -> str:
        return said_length(
            timedelta(minutes=round(seconds / 60)) if seconds >= 600 else timedelta(seconds=round(seconds))
        )

    ahead = found.ahead
    typer.echo(f"{said(ahead.middle_sec)} more ({level:.0%}: {said(ahead.low_sec)} to {said(ahead.high_sec)})")
    typer.echo(f"at its mean pace so far: {said(ahead.naive_sec)}; interruptions are not counted")


def _history(file: Path | None, simulate: str | None, column: str | None) -> "Series":
    from gangway.sim.forecast.public_formats import read_history
    from gangway.sim.forecast.synthetic import SIMULATED
    from gangway.sim.forecast.synthetic import simulate as make_up

    if (file is None) == (simulate is None):
        problem = "no history" if file is None else "not beside --simulate"
        raise InputError(
            "FILE", problem, value=None if file is None else str(file), allowed="a file, or --simulate NAME",
            fix="name a file with its history" if file is None else "leave one of the two out",
        )  # fmt: skip
    if file is not None:
        return read_history(file, column)
    assert simulate is not None, "one of the two"
    if simulate not in SIMULATED:
        raise InputError.not_among("--simulate", "nothing of that name is simulated", simulate, SIMULATED)
    return make_up(simulate, _SIMULATED_HOURS)


def _steps(flag: str, text: str, step: timedelta) -> int:
    """A length of time in steps. InputError: it is none, not whole, or too many."""
    from gangway.sim.forecast.forecaster import MOST_STEPS
    from gangway.sim.forecast.series import said_length

    number = timedelta(hours=get_hours(text, flag)) / step
    if number != round(number) or not 1 <= number <= MOST_STEPS:
        nearest = min(max(round(number), 1), MOST_STEPS) * step.total_seconds() / 3600
        raise InputError(
            flag,
            "not a whole number of the history's steps" if number != round(number) else "too many steps",
            value=text,
            allowed=f"1 to {MOST_STEPS:,} times {said_length(step)}",
            fix=f"write {flag} {nearest:.10g}h",
        )
    return round(number)


def _check_level(level: float) -> None:
    if not 0.5 <= level <= 0.99:
        meant = level / 100 if 50 <= level <= 99 else 0.9
        raise InputError("--level", "out of range", value=level, allowed="0.5 to 0.99", fix=f"write --level {meant:g}")


def _check_files(gauges: Path | None, out: Path | None, plot: Path | None, *, overwrite: bool) -> None:
    """Before anything is computed. Gauges are written over those of an earlier call, and over nothing else."""
    from trainer.core.regular_files import open_file

    if gauges is not None:
        if gauges.suffix != ".prom":
            raise InputError(
                "--gauges", "no name that a textfile collector reads", value=str(gauges), allowed="NAME.prom",
                fix=f"--gauges {shlex.quote(str(gauges.with_suffix('.prom')))}",
            )  # fmt: skip
        ours = False
        if gauges.is_file():
            with open_file(gauges) as file:
                ours = file.read(len(_GAUGES_BEGIN)) == _GAUGES_BEGIN
        check_new_file(gauges, overwrite=overwrite or ours, flag="--gauges")
    if plot is not None:
        from gangway.finops.forecasts.plot import check_plot

        check_plot(plot)
        check_new_file(plot, overwrite=overwrite, flag="--plot")
    if out is not None:
        check_new_file(out, overwrite=overwrite)


def _write(answer: "Answer", gauges: Path | None, out: Path | None, plot: Path | None) -> list[Path]:
    from components.core.whole_files import write_whole
    from gangway.finops.forecasts.tables import to_csv

    written = []
    if gauges is not None:
        from gangway.sim.forecast.gauges import exposition

        text = exposition(
            answer.series, answer.setting, answer.model, answer.baseline, answer.tested, datetime.now(UTC)
        )
        written.append(write_whole(gauges, text.encode()))
    if out is not None:
        written.append(write_whole(out, to_csv(answer).encode()))
    if plot is not None:
        from gangway.finops.forecasts.plot import write_plot

        written.append(write_plot(answer, plot))
    return written


def _publish(answer: "Answer", path: Path) -> "Published":
    from gangway.finops.forecasts.tables import get_figures
    from gangway.sim.forecast.ledger import open_ledger

    with open_ledger(path) as ledger:
        others, settled = ledger.others(answer.series), ledger.settle(answer.series)
        added = ledger.add(answer.series, answer.setting, answer.model, answer.baseline, datetime.now(UTC))
        return get_figures(ledger, answer, settled, others, added=added)


def _tell(answer: "Answer", written: list[Path], *, as_json: bool) -> None:
    from gangway.finops.forecasts.tables import show, to_json

    if as_json:
        import json

        typer.echo(json.dumps({**to_json(answer), "files": [str(path) for path in written]}, indent=2))
        return
    from rich.console import Console

    show(answer, Console())
    for path in written:
        typer.echo(f"wrote {shlex.quote(str(path))}")
