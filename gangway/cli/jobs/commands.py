"""`gangway job submit | list | status | record | logs | cancel | wait`: jobs on an existing engine."""

import shlex
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from gangway.cli.common import EXIT_BAD_INPUT, EXIT_FINDINGS, load_stack, print_json
from gangway.cli.jobs.stack import job as show_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typer._click import Context

    from gangway.components.core.findings import InputError
    from gangway.jobs.base import Engine, JobStatus, Move
    from gangway.jobs.copying import Copied
    from gangway.jobs.job_folders import FolderEngine
    from gangway.jobs.job_record import JobRecord
    from gangway.jobs.moves import MoveResult
    from gangway.jobs.sites import By, Site
    from gangway.stacks.config.job_file import JobFile

_POLL_SEC, _MIN_RETRY_SEC = 0.5, 1.0
_MAX_NAMES = 20
_On = Annotated[
    str | None,
    typer.Option("--on", metavar="ENGINE", help="local:FOLDER, slurm:FOLDER or kubernetes:@NAMESPACE/QUEUE."),
]
_Id = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, as `submit` and `list` print it.")]
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class _Jobs(TyperGroup):
    """`gangway job STACK` is `gangway job show STACK`."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["show", *args]
        return super().parse_args(ctx, args)


jobs = typer.Typer(
    cls=_Jobs,
    name="job",
    no_args_is_help=True,
    help="Show the status of a stack's job; submit, follow and cancel jobs of an engine.",
)
jobs.command("show")(show_stack)


@jobs.command()
def submit(
    job_file: Annotated[Path, typer.Argument(help="A job file, with a preset or a custom command.")],
    on: Annotated[
        str | None,
        typer.Option(
            "--on", metavar="ENGINE,...", help="Engines; with several, the best one that can start the job at once."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="How to choose: cost, carbon or order. By default cost, if all have prices."),
    ] = None,
    burst_after: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="MINUTES", help="If the job waits longer, move it to the next engine with free capacity."
        ),
    ] = None,
) -> None:
    """Submit a job to an engine; with several engines, to the cheapest one with free capacity.

    With --burst-after the command waits, and moves a job that waits too long to an engine that can start it.
    """
    from gangway.components.core.findings import InputError
    from gangway.jobs import spending
    from gangway.jobs.sites import By, choose_engine, get_sites, movable
    from gangway.stacks.config.job_file import read_job_file

    job, sites, decided_by = read_job_file(job_file), get_sites(on), None
    if by is not None:
        if by not in [*By]:
            raise InputError.not_among("--by", "no such criterion", by, By)
        decided_by = By(by)
    if burst_after is not None and len(sites) == 1:
        raise InputError("--burst-after", "needs several engines", fix="name them: --on local:A,local:B")
    for site in sites if burst_after is not None else ():
        movable(site.engine, "--burst-after")  # check before submitting
    placed = choose_engine(sites, job, decided_by, lambda site: spending.check(site, job, _now()))
    for line in placed.lines if len(sites) > 1 else ():
        _print_err(line)
    engine = placed.engine
    warnings = list(engine.findings(job))
    _copy_data(engine, job)
    with exit_on_signals():
        job_id = spending.submit(next(site for site in sites if site.engine is engine), job, _now)
    if burst_after is not None and not placed.now:
        others = [site for site in sites if site.engine is not engine]
        engine, job_id, problem = _burst(engine, job_id, others, burst_after, decided_by)
        if problem is not None:
            typer.echo(job_id)  # it stays in its queue
            raise problem
    for finding in warnings:
        _print_err(f"{finding.severity}: {finding.path}: {finding.message} ({finding.code})")
        if finding.fix:
            _print_err(f"  fix:     {finding.fix}")
    typer.echo(job_id)
    asked = next((site.asked for site in sites if site.engine is engine), "")
    named = f" --on {shlex.quote(asked)}" if on else ""
    _print_err(f"on {engine.kind}, {engine.where}; output: gangway job logs -f {job_id}{named}")


def _copy_data(engine: "Engine", job: "JobFile") -> None:
    from gangway.jobs.job_folders import FolderEngine

    if job.data is None or job.data.source is None or not isinstance(engine, FolderEngine):
        return
    with _progress_bar() as bar:
        copied = engine.bring_data(job, bar, _print_err)
    if copied is None:
        _print_err(f"{job.data.source} was copied earlier")
    else:
        _print_err(_copy_text(copied, "of the data set"))


def _burst(
    engine: "Engine", job_id: str, others: "Sequence[Site]", minutes: float, by: "By | None"
) -> "tuple[Engine, str, InputError | None]":
    """Wait, then move a job that has not started to the best other engine. Returns the error of a failed move, too."""
    from gangway.components.core.findings import InputError
    from gangway.jobs import spending
    from gangway.jobs.base import EngineAwayError, Phase
    from gangway.jobs.moves import move_job
    from gangway.jobs.sites import choose_engine, movable

    until, found = time.monotonic() + 60 * minutes, engine.status(job_id)
    _print_err(f"{job_id}: waiting for at most {minutes:g} minutes")
    while found.phase is Phase.WAITING:
        if time.monotonic() >= until:
            try:
                job = movable(engine, "--burst-after").job(job_id)
                placed = choose_engine(others, job, by, partial(spending.check, job=job, now=_now()))
            except InputError as error:
                _print_err(str(error))
            else:
                for line in placed.lines:
                    _print_err(line)
                if placed.now:
                    source, target = movable(engine, "--burst-after"), movable(placed.engine, "--burst-after")
                    try:
                        moved = move_job(source, job_id, target, lambda _: _pause(), _no_progress, _print_err)
                    except InputError as error:
                        return engine, _requeue(source, job_id), error
                    _print_move(moved)
                    return placed.engine, moved.job_id, None
            until += max(60 * minutes, _MIN_RETRY_SEC)
        _pause()
        with suppress(EngineAwayError):  # try again
            found = engine.status(job_id)
    _print_err(_status_line(found))
    return engine, job_id, None


def _requeue(source: "FolderEngine", job_id: str) -> str:
    """The job's id after a failed move; a new one if the move had already cancelled it. Prints why if that fails."""
    from gangway.components.core.findings import InputError
    from gangway.jobs.base import Phase
    from gangway.jobs.moves import move_job

    try:
        if source.status(job_id).phase is not Phase.CANCELLED:
            return job_id
        return move_job(source, job_id, source, lambda _: _pause(), _no_progress, _print_err).job_id
    except InputError as error:
        _print_err(str(error))
        return job_id


def _now() -> datetime:
    return datetime.now(UTC)


def _print_err(line: str) -> None:
    typer.echo(line, err=True)


def _no_progress(done: int, total: int) -> None:
    """A job that has not started has little to copy."""


@jobs.command()
def move(
    job_id: _Id,
    to: Annotated[str, typer.Option("--to", metavar="ENGINE", help="Engine on which it continues.")],
    on: _On = None,
) -> None:
    """Move a job to another engine: stops, copies and resumes it there.

    Repeat the same command to continue an interrupted move.
    """
    from gangway.jobs import spending
    from gangway.jobs.moves import move_job
    from gangway.jobs.sites import get_engine, get_site, movable

    site, source = get_site(to), movable(get_engine(on), "--on")
    target = movable(site.engine, "--to")
    if site.limits is not None:
        spending.check(site, source.job(job_id), _now())
    with _progress_bar() as bar:
        moved = move_job(source, job_id, target, lambda _: _pause(), bar, _print_err)
    _print_move(moved)
    typer.echo(moved.job_id)
    _print_err(f"on {target.kind}, {target.where}")


def _print_move(moved: "MoveResult") -> None:
    for place in moved.left_at:
        _print_err(f"warning: files of an earlier move are still in a .staged- folder of {place}")
    if not moved.is_as_of_submit:
        _print_err(
            "warning: the job continues with the environment of this shell, because the release that submitted it "
            "saved none; if it needs another, cancel it and submit it again"
        )
    if (copy := moved.copied) is None or moved.move is None:
        _print_err("already moved earlier")
        return
    from gangway.components.core.safe_text import visible

    _print_err(f"{_copy_text(copy, 'of the run')}; {_cost_text(moved.move)}")
    if copy.left_out:
        more = f", and {len(copy.left_out) - _MAX_NAMES} more" if len(copy.left_out) > _MAX_NAMES else ""
        names = ", ".join(visible(name) for name in copy.left_out[:_MAX_NAMES])
        _print_err(f"warning: not copied: {names}{more}")


def _copy_text(copy: "Copied", of_what: str) -> str:
    now = f"{copy.new_bytes / 2**20:,.1f} of it now, in {copy.sec:.1f} s"
    return f"{copy.files} files {of_what}, {copy.bytes / 2**20:,.1f} MiB, {now}"


def _cost_text(move: "Move") -> str:
    """`0.02 USD (why)`; positive amounts never show as 0."""
    usd = "unpriced" if move.usd is None else f"{move.usd:,.2f} USD" if move.usd >= 0.01 else f"{move.usd:.2g} USD"
    return f"{usd} ({move.why_usd})"


@contextmanager
def _progress_bar() -> "Iterator[Callable[[int, int], None]]":
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_interactive:  # otherwise it would print an empty line
        yield _no_progress
        return
    columns = (TextColumn("copying"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("copying", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@jobs.command("list")
def list_jobs(
    on: _On = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """List the jobs of an engine with their status, the oldest first."""
    from gangway.jobs.sites import get_engine

    engine = get_engine(on)
    found = engine.jobs()
    if as_json:
        typer.echo(_as_json(found))
        return
    if not found:
        _print_err(f"no jobs on {engine.kind}, {engine.where}")
        return
    rows = []
    for each in found:
        starts = "" if each.starts is None else str(each.starts)
        rows.append((each.id, str(each.phase), each.user, each.team, starts, " ".join(each.nodes), each.reason))
    _print_table(("job", "state", "user", "team", "starts", "nodes", "why"), rows)


@jobs.command()
def engines(as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False) -> None:
    """List the named engines with their regions and prices per node."""
    from gangway.jobs.sites import find_nodes
    from gangway.stacks.config.engines_file import named_engines

    known = {name: (own, find_nodes(name, own)) for name, own in named_engines().items()}
    if as_json:
        rows = {
            name: {**own.model_dump(mode="json"), "usd_per_node_hour": nodes.usd_per_hour, "source": nodes.source}
            for name, (own, nodes) in known.items()
        }
        print_json(rows)
        return
    if not known:
        _print_err("no named engines; docs/hybrid.md shows how to name them")
        return
    lines = []
    for name, (own, nodes) in known.items():
        price = "unknown" if nodes.usd_per_hour is None else f"${nodes.usd_per_hour:,.2f}"
        lines.append((name, own.engine, own.region or "unknown", price, nodes.source))
    _print_table(("name", "engine", "region", "node-hour", "source"), lines)


@jobs.command()
def status(
    job_id: _Id,
    on: _On = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the status of a job, and its cost if the engine has a price."""
    from gangway.jobs.sites import get_site, usage_cost

    site = get_site(on)
    found = site.engine.status(job_id)
    if as_json:
        typer.echo(_as_json(found))
        return
    typer.echo(_status_line(found))
    if found.stretches is None or found.stretches:
        so_far = usage_cost(site.nodes, found, _now())
        hours = "unknown" if so_far.node_hours is None else f"{so_far.node_hours:,.3g} node-hours"
        usd = f"{so_far.usd:,.2f} USD" if so_far.usd is not None else "cost unknown"
        typer.echo(f"on nodes: {hours}, {usd} ({so_far.source})")
    for each in found.moves:
        cost = f"{each.bytes / 2**20:,.1f} MiB in {each.sec:.1f} s, {_cost_text(each)}"
        typer.echo(f"moved from {each.source}, {each.at:%Y-%m-%d %H:%M} UTC: {cost}")


@jobs.command()
def record(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job; with --stack a stack's name or file.")],
    on: _On = None,
    of_stack: Annotated[
        bool, typer.Option("--stack", help="JOB is a stack: show the record of its job.command.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write it to FILE as JSON.")] = None,
) -> None:
    """Show what a job has used, cost and reported; each figure with its source or why it is missing."""
    from gangway.components.core.findings import InputError
    from gangway.components.core.whole_files import write_whole
    from gangway.jobs.sites import get_site

    if of_stack and on is not None:
        raise InputError("--on", "cannot be combined with --stack", value=on, fix="remove one")
    now = _now()
    found = get_stack_record(job_id, now) if of_stack else _get_record(get_site(on), job_id, now)
    text = found.model_dump_json(indent=2)
    if out is not None:
        write_whole(out, f"{text}\n".encode())
    for problem in found.problems:
        _print_err(f"warning: {problem}")
    if as_json:
        typer.echo(text)
        return
    typer.echo(_status_line(found.job))
    typer.echo(f"on {found.engine}, {found.where}{', so far' if found.so_far else ''}")
    _show_record(found)


@jobs.command()
def logs(
    job_id: _Id,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Follow the output until the job ends.")] = False,
    on: _On = None,
) -> None:
    """Print the output of a job."""
    from gangway.jobs import base
    from gangway.jobs.sites import get_engine

    engine = get_engine(on)
    if follow:
        with exit_on_signals():  # it may restart the job
            for text in base.follow(engine, job_id, _pause):
                typer.echo(text, nl=False)
        return
    for text in base.read_log(engine, job_id):
        typer.echo(text, nl=False)


@jobs.command(hidden=True)
def serve() -> None:
    """Serve this machine's engines over standard input and output; started by SSH for an engine with `via`."""
    import sys

    from gangway.jobs.serve import serve as answer

    answer(sys.stdin, sys.stdout)


@jobs.command()
def cancel(job_id: _Id, on: _On = None) -> None:
    """Cancel a job. A running job gets SIGTERM and its grace time first."""
    from gangway.jobs.sites import get_engine

    engine = get_engine(on)
    engine.cancel(job_id)
    found = engine.status(job_id)
    typer.echo(_status_line(found))
    if not found.phase.is_over:
        named = f" --on {shlex.quote(on)}" if on else ""
        _print_err(f"being cancelled; to wait for its end: gangway job wait {job_id}{named}")


@jobs.command()
def wait(job_id: _Id, on: _On = None) -> None:
    """Wait until a job ends.

    Exit code 0: done. 1: failed, cancelled or out of time. 2: bad input.
    """
    from gangway.jobs.base import Phase, wait_until_over
    from gangway.jobs.sites import get_engine

    printed = [""]

    def print_change(found: "JobStatus") -> None:
        if (line := _status_line(found)) != printed[-1]:
            _print_err(line)
            printed.append(line)
        _pause()

    with exit_on_signals():  # it may restart the job
        found = wait_until_over(get_engine(on), job_id, print_change)
    typer.echo(_status_line(found))
    codes = {Phase.DONE: 0, Phase.BAD_INPUT: EXIT_BAD_INPUT}
    raise typer.Exit(codes.get(found.phase, EXIT_FINDINGS))


def _print_table(columns: "Sequence[str]", rows: "Sequence[tuple[str, ...]]") -> None:
    """Without markup: users may write `[gpu]` or `:x:`."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, emoji=False).print(table)


def _pause() -> None:
    time.sleep(_POLL_SEC)


def _status_line(found: "JobStatus") -> str:
    where = f" on {' '.join(found.nodes)}" if found.nodes and not found.phase.is_over else ""
    start = f", start {found.starts}" if found.known_starts > 1 else ""
    code = f", exit code {found.exit_code}" if found.phase.is_over and found.exit_code else ""
    return f"{found.id}: {found.phase}{where}{start}{code}{f': {found.reason}' if found.reason else ''}"


def _as_json(found: Any) -> str:
    from pydantic import TypeAdapter

    from gangway.jobs.base import JobStatus

    kind = JobStatus if isinstance(found, JobStatus) else list[JobStatus]
    return TypeAdapter(kind).dump_json(found, indent=2).decode()


def _get_record(site: "Site", job_id: str, now: datetime) -> "JobRecord":
    from gangway.jobs.figures import Absent, no_report, read_reported
    from gangway.jobs.job_folders import FolderEngine
    from gangway.jobs.job_record import EngineInfo, StartCounts, get_record

    engine, info = site.engine, EngineInfo(site.engine.kind, site.engine.where, site.nodes)
    status = engine.status(job_id)
    if not isinstance(engine, FolderEngine):
        place = f"{engine.kind}, {engine.where}"
        unread = no_report(f"the run folder is on {place}, not reachable from here")
        return get_record(info, status, Absent(f"{place} does not report which starts failed"), unread, now)
    job = engine.get_stored_job(job_id)
    begun = StartCounts(job.failures, job.job.max_restarts - status.earlier_usage.failures)
    return get_record(info, status, begun, read_reported(job.job, job.folder.by_descriptor), now)


def get_stack_record(stack: str, now: datetime) -> "JobRecord":
    """Get the record of a stack's job.command. InputError: the stack has a preset instead, or is not up."""
    from gangway.components.core.findings import InputError
    from gangway.components.core.job import JobSpec
    from gangway.finops.audit.running import open_stack
    from gangway.jobs.systemd.command_record import command_record

    config = load_stack(stack)
    if config.own_command is None:
        raise InputError(
            "gangway:job", "no command: a preset's run writes its own record",
            allowed="a stack with job.command", fix=f"gangway job {config.stack_name}",
        )  # fmt: skip
    up = open_stack(config)
    return command_record(config, JobSpec.model_validate(up.outputs["job"]), up.store, now)


def _show_record(record: "JobRecord") -> None:
    from rich.console import Console
    from rich.table import Table

    from gangway.components.core.safe_text import visible
    from gangway.render.rendering import number, unit_text

    table = Table()
    table.add_column("figure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("source", no_wrap=True)
    table.add_column("note", overflow="fold")
    for name, figure in (*record.figures.items(), *record.metrics.items()):
        value = f"{number(figure.value, figure.unit)} {unit_text(figure.unit)}".rstrip()
        table.add_row(name, value, str(figure.source), visible(figure.note))
    for name, why in record.absent.items():
        table.add_row(name, "", "absent", visible(why))
    Console(markup=False, highlight=False).print(table)


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise SystemExit on the first signal, with a shell's exit code for it, and ignore later ones."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set handlers
        return
    ours = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]

    def leave(number: int, frame: FrameType | None) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
