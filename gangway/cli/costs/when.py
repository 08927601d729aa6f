"""`gangway when`: choose the hours of a forecast to train in, and when to pause. Reads a file and controls no job.

$ gangway when forecast.csv --hours 10h --restart-sec 600 --deadline 24h --times 4
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import OVERWRITE, check_plot, print_json
from gangway.cli.costs.quote import get_hours
from gangway.cli.flags import check_range
from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from gangway.finops.forecasts.hours import ForecastSeries

EXIT_TOO_LATE = 1
_MAX_TIMES = 1e9


def when(
    file: Annotated[
        Path, typer.Argument(help="Forecast of a price or a grid intensity, from `gangway forecast --out`.")
    ],
    hours: Annotated[str, typer.Option(help="Remaining training time without interruptions: 10, 10h or 2d.")],
    deadline: Annotated[
        str | None, typer.Option(help="Deadline from the first step, such as 24h; the forecast's end if omitted.")
    ] = None,
    restart_sec: Annotated[float, typer.Option(help="Seconds from a start to the first training step.")] = 600.0,
    running: Annotated[
        bool, typer.Option("--running", help="The job is running now, so continuing costs no start.")
    ] = False,
    pauses: Annotated[int | None, typer.Option(min=0, help="Most pauses; 0: no pause, only the best start.")] = None,
    times: Annotated[float, typer.Option(help="Factor: nodes for a price, kW for an intensity.")] = 1.0,
    column: Annotated[str | None, typer.Option(help="Column of the value, if there are several.")] = None,
    plot: Annotated[Path | None, typer.Option(help="File for a plot of the hours: .png or .svg.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=OVERWRITE)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Choose the cheapest or cleanest hours to train in, with pauses, and show the savings.

    Exit code 0: done. 1: the training does not fit before the deadline. 2: invalid options.
    """
    from gangway.finops.forecasts.hours import Answer, Work, answer_json, answer_lines, plan_hours, read_forecast

    _check_number("--restart-sec", restart_sec, 0, 86_400)
    _check_number("--times", times, 1e-9, _MAX_TIMES)
    restart_hours = restart_sec / 3600
    work = Work(get_hours(hours, "--hours"), restart_hours, running, pauses)
    if plot is not None:
        check_plot(plot, overwrite=overwrite)
    forecast, deadline_hours = _cut_to_deadline(read_forecast(file, column), deadline)
    work = replace(work, deadline_hours=deadline_hours)
    schedule = plan_hours(forecast.ahead(times), work)
    if schedule is None:
        start = "" if work.is_running or not restart_hours else " and a start"
        typer.echo(f"{work.hours:g} h of training{start} do not fit in {deadline_hours:g} h", err=True)
        raise typer.Exit(EXIT_TOO_LATE)
    answer = Answer(forecast, work, times, schedule)
    if plot is not None:
        from gangway.components.core.whole_files import write_whole
        from gangway.finops.forecasts.plot import draw_hours

        write_whole(plot, draw_hours(answer, "svg" if plot.suffix == ".svg" else "png"))
    if as_json:
        print_json(answer_json(answer))
        return
    for line in answer_lines(answer):
        typer.echo(line)
    if plot is not None:
        typer.echo(f"wrote {plot}")


def _check_number(flag: str, value: float, low: float, high: float) -> None:
    nearest = min(max(value, low), high) if math.isfinite(value) else low
    check_range(
        flag, value, is_valid=low <= value <= high, allowed=f"{low:g} to {high:g}", example=f"{nearest:g}"
    )  # fmt: skip


def _cut_to_deadline(forecast: "ForecastSeries", deadline: str | None) -> "tuple[ForecastSeries, float]":
    """The steps until the deadline, including the one that contains it, and its hours."""
    step_hours = forecast.middle.step.total_seconds() / 3600
    all_hours = len(forecast.middle.values) * step_hours
    if deadline is None:
        return forecast, all_hours
    deadline_hours = get_hours(deadline, "--deadline")
    if deadline_hours > all_hours:
        raise InputError(
            "--deadline", "after the end of the forecast", value=deadline, allowed=f"up to {all_hours:g}h",
            fix=f"write --deadline {all_hours:g}h, or forecast further ahead",
        )  # fmt: skip
    return forecast.until(math.ceil(deadline_hours / step_hours - 1e-9)), deadline_hours
