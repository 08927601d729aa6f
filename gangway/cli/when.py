"""`gangway when`: in which hours of a forecast to train, and when to pause.

    $ gangway when forecast.csv --hours 10h --restart-sec 600 --deadline 24h --times 4

Reads a file, asks nobody, stops nothing. Heavy imports stand inside the command: `gangway --help` imports this module.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.core.findings import InputError
from gangway.cli.common import OVERWRITE, check_new_file
from gangway.cli.quote import get_hours

if TYPE_CHECKING:
    from gangway.finops.forecasts.hours import Known

EXIT_TOO_LATE = 1
_MOST_TIMES = 1e9


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
    from gangway.finops.forecasts.hours import Asked, answer_json, answer_lines, read_known
    from gangway.sim.schedule.pauses import Work, plan_hours

    restart_hours = _number("--restart-sec", restart_sec, 0, 86_400) / 3600
    work = Work(get_hours(hours, "--hours"), restart_hours, running, pauses)
    _number("--times", times, 1e-9, _MOST_TIMES)
    if plot is not None:
        _check_plot(plot, overwrite=overwrite)
    known, deadline_hours = _within(read_known(file, column), deadline)
    work = replace(work, deadline_hours=deadline_hours)
    found = plan_hours(known.ahead(times), work)
    if found is None:
        start = "" if work.is_running or not restart_hours else " and a start"
        typer.echo(f"does not fit: {work.hours:g} h{start}, in {deadline_hours:g} h", err=True)
        raise typer.Exit(EXIT_TOO_LATE)
    asked = Asked(known, work, times, found)
    if plot is not None:
        from components.core.whole_files import write_whole
        from gangway.finops.forecasts.hours_plot import draw_hours

        write_whole(plot, draw_hours(asked, "svg" if plot.suffix == ".svg" else "png"))
    if as_json:
        import json

        typer.echo(json.dumps(answer_json(asked), indent=2))
        return
    for line in answer_lines(asked):
        typer.echo(line)
    if plot is not None:
        typer.echo(f"wrote {plot}")


def _number(flag: str, value: float, least: float, most: float) -> float:
    if not least <= value <= most:  # nor is NaN
        meant = min(max(value, least), most) if math.isfinite(value) else least
        raise InputError(flag, "out of range", value=value, allowed=f"{least:g} to {most:g}", fix=f"{flag} {meant:g}")
    return value


def _within(known: "Known", deadline: str | None) -> "tuple[Known, float]":
    """The steps until the deadline, which may lie within the last one, and its hours. InputError: it lies beyond."""
    step_hours = known.middle.step.total_seconds() / 3600
    all_hours = len(known.middle.values) * step_hours
    if deadline is None:
        return known, all_hours
    asked = get_hours(deadline, "--deadline")
    if asked > all_hours:
        raise InputError(
            "--deadline", "not within the forecast", value=deadline, allowed=f"up to {all_hours:g}h",
            fix=f"--deadline {all_hours:g}h, or forecast further ahead",
        )  # fmt: skip
    return known.until(math.ceil(asked / step_hours - 1e-9)), asked


def _check_plot(plot: Path, *, overwrite: bool) -> None:
    """Before anything is computed."""
    from stacks.base.extras import require

    require("matplotlib")
    from gangway.finops.forecasts.plot import check_plot

    check_plot(plot)
    check_new_file(plot, overwrite=overwrite, flag="--plot")
