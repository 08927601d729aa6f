"""`gangway forecast`, `when`, `simulate`: forecast a series, choose hours to train in, compare scheduling policies."""

import math
import shlex
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import EXIT_FINDINGS, OVERWRITE, check_new_file, check_plot, check_range, print_json
from gangway.cli.costs.quote import get_hours
from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import visible

if TYPE_CHECKING:
    from gangway.finops.forecasts.hours import ForecastSeries
    from gangway.finops.forecasts.tables import Answer, Published
    from gangway.sim.forecast.series import Series
    from gangway.sim.schedule.scenario import Scenario


_GAUGES_START = b"# HELP gangway_forecast_"


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
    from gangway.stacks.base.extras import require

    meant = level / 100 if 50 <= level <= 99 else 0.9
    check_range(
        "--level", level, is_valid=0.5 <= level <= 0.99, allowed="0.5 to 0.99", example=f"{meant:g}"
    )  # fmt: skip
    if file is not None and file.is_dir():
        _check_no_series_flags(simulate, column, of, horizon, season, ledger, gauges, out, plot)
        _print_run(file, level, as_json=as_json)
        return
    require("sklearn", *(["prometheus_client"] if gauges else []))
    from gangway.finops.forecasts.tables import Answer
    from gangway.sim.forecast.forecaster import backtest, choose_setting
    from gangway.sim.forecast.forecaster import forecast as look_ahead

    _check_files(gauges, out, plot, overwrite=overwrite)
    series = _load_history(file, simulate, column)
    series = series if of is None else replace(series, of=visible(of))
    steps = _steps("--horizon", horizon or "24h", series.step)
    whole = None if season is None else _steps("--season", season, series.step)
    try:
        setting = choose_setting(series, steps, whole, level)
    except InputError as mistake:
        raise mistake.within(str(file) if file else f"--simulate {simulate}") from None
    model, baseline = look_ahead(series, setting)
    answer = Answer(series, setting, model, baseline, backtest(series, setting))
    if ledger is not None:
        answer = replace(answer, published=_publish(answer, ledger))
    _print_answer(answer, _write(answer, gauges, out, plot), as_json=as_json)


def _check_no_series_flags(*values: str | Path | None) -> None:
    flags = ("--simulate", "--column", "--of", "--horizon", "--season", "--ledger", "--gauges", "--out", "--plot")
    for flag, value in zip(flags, values, strict=True):
        if value is not None:
            problem = "cannot be combined with a run's folder"
            raise InputError(flag, problem, value=str(value), allowed="--level, --json", fix=f"remove {flag}")


def _print_run(folder: Path, level: float, *, as_json: bool) -> None:
    from gangway.finops.forecasts.run import forecast_run
    from gangway.sim.forecast.series import said_length

    progress = forecast_run(folder, level)
    ahead = progress.ahead
    if as_json:
        counts = {"images": progress.images, "total": progress.total, "level": level}
        print_json({**counts, "ahead": ahead and asdict(ahead)})
        return
    typer.echo(f"{progress.images:,} of {progress.total:,} images")
    if ahead is None:
        typer.echo("the run is complete")
        return

    def duration(seconds: float) -> str:
        return said_length(
            timedelta(minutes=round(seconds / 60)) if seconds >= 600 else timedelta(seconds=round(seconds))
        )

    interval = f"{level:.0%}: {duration(ahead.low_sec)} to {duration(ahead.high_sec)}"
    typer.echo(f"{duration(ahead.middle_sec)} remaining ({interval})")
    typer.echo(f"at its mean pace so far: {duration(ahead.naive_sec)}; without interruptions")


def _load_history(file: Path | None, simulate: str | None, column: str | None) -> "Series":
    from gangway.sim.forecast.public_formats import read_history
    from gangway.sim.forecast.synthetic import SIMULATED
    from gangway.sim.forecast.synthetic import simulate as generate

    if (file is None) == (simulate is None):
        problem = "missing" if file is None else "cannot be combined with --simulate"
        raise InputError(
            "FILE", problem, value=None if file is None else str(file), allowed="a file, or --simulate NAME",
            fix="name a file" if file is None else "remove one",
        )  # fmt: skip
    if file is not None:
        return read_history(file, column)
    assert simulate is not None, "either a file or --simulate"
    if simulate not in SIMULATED:
        raise InputError.not_among("--simulate", "unknown synthetic series", simulate, SIMULATED)
    return generate(simulate, 24 * 56)


def _steps(flag: str, text: str, step: timedelta) -> int:
    from gangway.sim.forecast.forecaster import MOST_STEPS
    from gangway.sim.forecast.series import said_length

    number = timedelta(hours=get_hours(text, flag)) / step
    if number != round(number) or not 1 <= number <= MOST_STEPS:
        nearest = min(max(round(number), 1), MOST_STEPS) * step.total_seconds() / 3600
        raise InputError(
            flag,
            "not a whole number of steps of the history" if number != round(number) else "too many steps",
            value=text,
            allowed=f"1 to {MOST_STEPS:,} times {said_length(step)}",
            fix=f"write {flag} {nearest:.10g}h",
        )
    return round(number)


def _check_files(gauges: Path | None, out: Path | None, plot: Path | None, *, overwrite: bool) -> None:
    """Check output files before the slow part. Gauges may overwrite those of an earlier call."""
    from gangway.trainer.core.regular_files import open_file

    if gauges is not None:
        if gauges.suffix != ".prom":
            raise InputError(
                "--gauges", "textfile collectors read only .prom files", value=str(gauges), allowed="NAME.prom",
                fix=f"--gauges {shlex.quote(str(gauges.with_suffix('.prom')))}",
            )  # fmt: skip
        is_ours = False
        if gauges.is_file():
            with open_file(gauges) as file:
                is_ours = file.read(len(_GAUGES_START)) == _GAUGES_START
        check_new_file(gauges, overwrite=overwrite or is_ours, flag="--gauges")
    if plot is not None:
        check_plot(plot, overwrite=overwrite)
    if out is not None:
        check_new_file(out, overwrite=overwrite)


def _write(answer: "Answer", gauges: Path | None, out: Path | None, plot: Path | None) -> list[Path]:
    from gangway.components.core.whole_files import write_whole
    from gangway.finops.forecasts.tables import to_csv

    written = []
    if gauges is not None:
        from gangway.sim.forecast.forecaster import exposition

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
    from gangway.finops.forecasts.tables import Published
    from gangway.sim.forecast.ledger import find_standing, open_ledger

    with open_ledger(path) as ledger:
        others, settled = ledger.others(answer.series), ledger.settle(answer.series)
        added = ledger.add(answer.series, answer.setting, answer.model, answer.baseline, datetime.now(UTC))
        standing = find_standing(ledger, answer.series.name, answer.setting.level, answer.series.of)
        return Published(added, others, settled, standing)


def _print_answer(answer: "Answer", written: list[Path], *, as_json: bool) -> None:
    from gangway.finops.forecasts.tables import show, to_json

    if as_json:
        print_json({**to_json(answer), "files": [str(path) for path in written]})
        return
    from rich.console import Console

    show(answer, Console())
    for path in written:
        typer.echo(f"wrote {shlex.quote(str(path))}")


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
    _check_number("--times", times, 1e-9, 1e9)
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
        raise typer.Exit(EXIT_FINDINGS)
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


_LIKE = "philly-like"


def simulate(
    trace: Annotated[Path | None, typer.Argument(help="A scenario in YAML, or jobs in CSV with --gpus.")] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="fifo, backfill, shortest, goodput or learned; all if omitted. Repeatable.")
    ] = None,
    generate: Annotated[str | None, typer.Option(help="Generate jobs instead of reading a file: philly-like.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Number of generated jobs; 200 if omitted.")
    ] = None,
    load: Annotated[
        float | None, typer.Option(min=0.01, max=10, help="Generated work over the GPUs' capacity; 1 if omitted.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, max=4096, help="GPUs of the cluster, unless the file says so.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of generated jobs and node losses.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Number of seeds; use at least six for a claim.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="File for a plot of the GPUs over time: .png or .svg.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=OVERWRITE)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Simulate many jobs on one cluster and compare policies: time, dollars, energy and carbon.

    Exit code 0: done. 2: invalid options or file.
    """
    from gangway.components.estimate.statistics import FEWEST_PAIRS
    from gangway.sim.comparison import answer_json, compare, show
    from gangway.sim.schedule.policies import POLICIES, policy_named
    from gangway.sim.schedule.simulator import EndlessError
    from gangway.stacks.base.extras import require

    chosen = [policy_named(name) for name in dict.fromkeys(policy or POLICIES)]
    if plot is not None:
        check_plot(plot, overwrite=overwrite)
    scenario = _load_scenario(trace, generate, jobs, gpus, load)
    if repeats >= FEWEST_PAIRS and (len(chosen) > 1 or scenario.controlled is not None):
        require("scipy")
    seeds = range(seed, seed + repeats)
    try:
        arms = list(compare(scenario, chosen, seeds))
    except EndlessError as endless:
        fix = "add nodes, or a shorter interval_sec, start_sec or save_sec"
        raise InputError(str(trace or "--generate"), str(endless), allowed="jobs that end", fix=fix) from None
    if plot is not None:
        from gangway.components.core.whole_files import write_whole
        from gangway.sim.plot import draw_use

        write_whole(plot, draw_use(arms, "svg" if plot.suffix == ".svg" else "png"))
    if as_json:
        print_json(answer_json(scenario, arms, seeds))
        return
    from rich.console import Console

    show(scenario, arms, seeds, Console())
    if plot is not None:
        typer.echo(f"wrote {plot}")


def _load_scenario(
    trace: Path | None, generate: str | None, jobs: int | None, gpus: int | None, load: float | None
) -> "Scenario":
    from gangway.sim.reading import generated, read_scenario

    if (trace is None) == (generate is None):
        raise InputError(
            "TRACE", "cannot be combined with --generate" if trace else "missing",
            allowed="a file, or --generate philly-like", fix="remove one" if trace else "add --generate philly-like",
        )  # fmt: skip
    if generate is not None:
        if generate != _LIKE:
            raise InputError.not_among("--generate", "unknown statistics", generate, [_LIKE])
        return generated(jobs or 200, gpus or 64, load or 1.0)
    for option, value in (("--jobs", jobs), ("--load", load)):
        if value is not None:
            problem = "cannot be combined with a file"
            raise InputError(option, problem, value=value, allowed="with --generate", fix=f"remove {option}")
    assert trace is not None, "either a file or --generate"
    return read_scenario(trace, gpus)
