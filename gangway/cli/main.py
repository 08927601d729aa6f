"""The `gangway` command: `gangway plan aws-demo`, `gangway demo`, `gangway catalog list`."""

import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from gangway.cli.bench import app as bench_app
from gangway.cli.common import EXIT_BAD_INPUT, EXIT_FINDINGS, Gangway, stacks_dir
from gangway.cli.costs.bills import audit, reconcile
from gangway.cli.costs.catalog import app as catalog_app
from gangway.cli.costs.forecast import forecast, simulate, when
from gangway.cli.costs.prices import app as prices_app
from gangway.cli.costs.quote import quote, tco
from gangway.cli.image import dockerfile, signature
from gangway.cli.image_build import app as image_app
from gangway.cli.init import init
from gangway.cli.jobs.commands import jobs as jobs_app
from gangway.cli.jobs.stack import app as breaker_app
from gangway.cli.live.dashboard import dashboard
from gangway.cli.live.permissions import permissions
from gangway.cli.live.preflight import preflight
from gangway.cli.live.stack import down, logs, ssh
from gangway.cli.live.status import status
from gangway.cli.records import reproduce, sign
from gangway.cli.report import report
from gangway.components.core.findings import InputError
from gangway.stacks.base.extras import missing_extra
from gangway.stacks.plan.gc_pause import without_gc
from gangway.trainer.core.console import flush_output, output_failed
from gangway.trainer.core.host import COMMANDS

if TYPE_CHECKING:
    from gangway.stacks.config.stack_config import StackConfig
    from gangway.stacks.plan.plan import Plan

EXIT_INTERRUPTED = 128 + 2
"""What a shell reports after SIGINT."""
EXIT_BROKEN_PIPE = 128 + 13
"""What a shell reports after SIGPIPE: the reader of our output has closed the pipe."""


class PlanFormat(StrEnum):
    """What `gangway plan` prints."""

    TEXT = "text"
    JSON = "json"
    INFRACOST = "infracost"


_START, _LIVE, _PRICES = "Get started", "Running stacks", "Prices and forecasts"
_RUNS, _BILLS = "Runs and jobs", "Bills and leftover resources"
"""Sections of `gangway --help`, in the order in which people need them."""

app = typer.Typer(
    cls=Gangway,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="GPU clusters with their cost and energy, and a trained GAN, from one stack file.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _show_version(is_set: bool) -> None:
    if is_set:
        from importlib.metadata import version

        typer.echo(f"gangway {version('gangway-iac')}")
        raise typer.Exit


@app.callback()
def _gangway(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keeps `gangway` a group of commands."""


@app.command(rich_help_panel=_START)
def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Take a minute only, with a poorly trained GAN.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the run directories.")] = Path("runs/demo"),
) -> None:
    """Show everything offline: plan, apply to an in-process cloud, train, interrupt, resume, report."""
    from gangway.cli.demo import run_demo

    raise typer.Exit(run_demo(out, quick=quick))


_Against = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|live",
        help="Show what changes: from an earlier plan's JSON, or, with live, what `up` would change now.",
    ),
]


@app.command(rich_help_panel=_START)
@without_gc()
def plan(
    stacks: Annotated[
        list[str],
        typer.Argument(
            metavar="STACK_OR_FILE...",
            help="A stack's name, or the path of a stack file; several are compared side by side.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON: --format json.")] = False,
    output: Annotated[PlanFormat | None, typer.Option("--format", help="Output format; text if omitted.")] = None,
    against: _Against = None,
    brief: Annotated[bool, typer.Option("--brief", help="Print only errors, warnings and the total.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Print every resource, every finding, each source.")] = False,
    code: Annotated[
        str | None,
        typer.Option("--explain", metavar="CODE", help="Print one finding in full, or what a code reports."),
    ] = None,
) -> None:
    """Check and price a stack, offline: resources, findings, cost, energy and carbon. Compare several side by side.

    Exit code 0: no errors. 1: a finding of severity error. 2: invalid input. With several stacks, the worst.
    """
    from gangway.report.plans.show import Detail, explain, print_plan
    from gangway.stacks.loading.loader import find_stack_file, from_file
    from gangway.stacks.plan.difference import add_comparison
    from gangway.stacks.plan.plan import make_plan

    if brief and full:
        raise InputError("--brief", "cannot be combined with --full", allowed="one of them", fix="remove one")
    if as_json and output not in (None, PlanFormat.JSON):
        raise InputError(
            "--json", f"cannot be combined with --format {output}", allowed="one of them", fix="remove --json"
        )
    if len(stacks) > 1:
        from gangway.report.plans.side_by_side import print_side_by_side

        is_infracost = output == PlanFormat.INFRACOST
        one_only = {"--against": against, "--full": full, "--explain": code, "--format": is_infracost}
        if flag := next((flag for flag, value in one_only.items() if value), ""):
            fix = f"remove {flag}, or name one stack"
            raise InputError(flag, "works with one stack only", allowed="one stack", fix=fix)
        has_errors = print_side_by_side(stacks, stacks_dir(), as_json=as_json or output == PlanFormat.JSON)
        raise typer.Exit(EXIT_FINDINGS if has_errors else 0)
    path = find_stack_file(stacks[0], stacks_dir())
    config = from_file(path)
    find_previous = _read_previous(config, against)  # before planning, which is slow
    try:
        result = make_plan(config)
    except InputError as mistake:
        raise mistake.within(str(path)) from None
    previous = find_previous(result)
    result, difference = (result, None) if previous is None else add_comparison(result, previous)
    if code is not None:
        from rich.console import Console

        explain(result, code, Console(), compared=difference is not None)
        return
    detail = Detail.BRIEF if brief else Detail.FULL if full else Detail.SUMMARY
    print_plan(result, "json" if as_json else output or "text", previous, difference, detail)
    raise typer.Exit(EXIT_FINDINGS if result.has_errors else 0)


def _read_previous(config: "StackConfig", against: str | None) -> "Callable[[Plan], dict[str, Any] | None]":
    """Reads what a plan is compared with, and returns a function from the new plan to the earlier one."""
    if against == "live":
        from gangway.finops.audit.state import export_resources
        from gangway.stacks.config.paths import project_folder
        from gangway.stacks.plan.live import earlier_plan, read_live

        live = read_live(export_resources(config.stack_name, project_folder()))
        return lambda plan: earlier_plan(plan, live)
    from gangway.stacks.plan.difference import read_plan

    previous = None if against is None else read_plan(Path(against), config.stack)
    return lambda _: previous


_PASS_THROUGH = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


def _get_command(name: str) -> Callable[[typer.Context], None]:
    def command(context: typer.Context) -> NoReturn:
        from gangway.trainer.__main__ import run

        if name == "presets" and len(context.args) == 1 and not context.args[0].startswith("-"):
            _show_preset(context.args[0])
        run([name, *context.args])

    return command


def _show_preset(name: str) -> NoReturn:
    """Print the trainer's description of a preset, then its needs by machine type from the catalogue."""
    from gangway.trainer.__main__ import main

    if code := main(["presets", name]):
        raise typer.Exit(code)
    from gangway.report.plans.side_by_side import MACHINES, on_machine, table
    from gangway.trainer.config.presets import PRESETS

    found = [on_machine(PRESETS[name], machine) for machine in MACHINES]
    if not all(each.problem for each in found):  # a demo for one CPU fits no machine
        typer.echo("\n" + table(PRESETS[name], found), nl=False)
    raise typer.Exit(0)


app.command(rich_help_panel=_START)(init)
command: Callable[..., None]
for command in (preflight, permissions, status, logs, ssh, down, dashboard):
    app.command(rich_help_panel=_LIVE)(command)
for command in (quote, tco, simulate, forecast, when):
    app.command(rich_help_panel=_PRICES)(command)
app.add_typer(catalog_app, name="catalog", rich_help_panel=_PRICES)
app.add_typer(prices_app, name="prices", rich_help_panel=_PRICES)
for trainer_command, sentence in COMMANDS.items():
    app.command(
        trainer_command,
        help=f"{sentence[0].upper()}{sentence[1:]}.",
        context_settings={**_PASS_THROUGH, "help_option_names": []},
        add_help_option=False,
        rich_help_panel="The trainer (extra train)",
    )(_get_command(trainer_command))
app.add_typer(bench_app, name="bench", rich_help_panel=_RUNS)
for command in (dockerfile, signature, report, reproduce, sign):
    app.command(rich_help_panel=_RUNS)(command)
app.add_typer(image_app, name="image", rich_help_panel=_RUNS)
app.add_typer(jobs_app, name="job", rich_help_panel=_RUNS)
app.add_typer(breaker_app, name="breaker", rich_help_panel=_RUNS)
for command in (reconcile, audit):
    app.command(rich_help_panel=_BILLS)(command)


def _run_app() -> int | str | None:
    from gangway.trainer.core.regular_files import check_working_directory, file_problem, home_folder

    os.environ.setdefault("HOME", str(home_folder()))  # otherwise expanding ~ may raise
    try:
        check_working_directory()
        app()
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    except OSError as error:
        # A closed pipe or a full disk is no file problem.
        if (found := file_problem(error)) is None:
            if isinstance(error, BrokenPipeError):
                return EXIT_BROKEN_PIPE
            if not (code := output_failed(error)):
                raise
            return code
        raise InputError(found.place, found.problem, fix=found.fix) from None
    except SystemExit as leaving:
        # Typer and Rich turn a closed pipe into exit code 1, which would mean a finding.
        return EXIT_BROKEN_PIPE if isinstance(leaving.__context__, BrokenPipeError) else leaving.code
    return 0


def _print_error(text: str) -> None:
    with suppress(OSError):  # stderr may be on a full disk, too
        typer.secho("error: ", fg=typer.colors.RED, bold=True, nl=False, err=True)
        typer.echo(text, err=True)


def main() -> NoReturn:
    """Run the command line. An InputError ends with its message and exit code 2, never with a traceback."""
    code: int | str | None = 0
    try:
        code = _run_app()
    except* InputError as mistakes:
        for mistake in mistakes.exceptions:
            _print_error(str(mistake))
        code = EXIT_BAD_INPUT
    except* KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    finally:
        # Without this, Python searches the cloud's SDK for garbage at exit: a third of a plan's time.
        gc.freeze()
    lost = flush_output()
    if not code:
        code = EXIT_BROKEN_PIPE if isinstance(lost, BrokenPipeError) else output_failed(lost)
    sys.exit(code)
