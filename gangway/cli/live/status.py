"""`gangway status`: stacks, queues and runs, with progress, cost and time left."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import EXIT_FINDINGS, load_stack
from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from gangway.live.model import Overview
    from gangway.live.overview import Progress, Target

_RUNS = Path("runs")


def status(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STACK|JOB|RUN]...", help="Stacks by name or file, jobs by id, run folders; everything if omitted."
        ),
    ] = None,
    on: Annotated[str | None, typer.Option("--on", metavar="ENGINE", help="Names are jobs of this engine.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, each figure with its source.")] = False,
    sources: Annotated[bool, typer.Option("--sources", help="Also print where each figure comes from.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C; once without a terminal.")] = False,
    every: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="With --watch: between refreshes.")] = 5.0,
) -> None:
    """Show stacks, jobs and runs: nodes, progress, rate, time left, cost, last checkpoint and interruption.

    Exit code 0: everything was read. 1: a row could not be read. 2: invalid input, such as an unknown name.
    """
    from rich.console import Console

    from gangway.live.overview import collect
    from gangway.live.table import render

    if as_json and watch:
        raise InputError("--watch", "cannot be combined with --json", fix="remove one")
    targets, notes = _get_targets(names or [], on)
    console = Console(markup=False, highlight=False, emoji=False)
    if watch and console.is_terminal:
        _watch(names or [], on, every, sources=sources)
        return
    with _progress_bar() as on_progress:
        overview = collect(targets, datetime.now(UTC), on_progress, notes)
    if as_json:
        typer.echo(overview.model_dump_json(indent=2))
    else:
        console.print(render(overview, sources=sources))
    raise typer.Exit(_exit_code(overview))


def _exit_code(overview: "Overview") -> int:
    return EXIT_FINDINGS if any(row.problem for row in overview.rows) else 0


def _watch(names: list[str], on: str | None, every: float, *, sources: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from gangway.live.overview import collect
    from gangway.live.table import render

    console = Console(markup=False, highlight=False, emoji=False)
    with Live(console=console, screen=False, auto_refresh=False, vertical_overflow="visible") as live:
        try:
            while True:
                # Again each time: stacks and jobs come and go.
                targets, notes = _get_targets(names, on)
                overview = collect(targets, datetime.now(UTC), lambda done, total: None, notes)
                live.update(render(overview, sources=sources), refresh=True)
                time.sleep(every)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _get_targets(names: list[str], on: str | None) -> "tuple[list[Target], list[str]]":
    from gangway.jobs.sites import get_site
    from gangway.live.overview import engine_target, everything, job_target

    if on is not None:
        site = get_site(on)
        if not names:
            return [engine_target(on)], []
        for name in names:
            site.engine.status(name)  # unknown names are invalid input, not rows
        return [job_target(site, name) for name in names], []
    if not names:
        return everything(load_stack, _RUNS)
    return [_get_target(name) for name in dict.fromkeys(names)], []


def _get_target(name: str) -> "Target":
    from gangway.jobs.sites import get_site
    from gangway.live.logs import is_run
    from gangway.live.overview import job_target, run_target, stack_target

    folder = Path(name)
    if folder.is_dir() and is_run(folder):
        return run_target(folder.resolve())
    try:
        config = load_stack(name)
    except InputError as error:
        try:
            site = get_site(None)
            site.engine.status(name)
        except InputError:
            raise error from None
        return job_target(site, name)
    return stack_target(config.stack_name, lambda: config)


@contextmanager
def _progress_bar() -> "Iterator[Progress]":
    """On stderr, if that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    with console.status("reading") as spinner:
        yield lambda done, total: spinner.update(f"reading: {done} of {total}")
