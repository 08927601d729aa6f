"""The `gangway` command: `gangway plan aws-demo`, `gangway demo`, `gangway catalog list`.

Reads arguments, calls the modules that do the work, turns a user's mistake into one message and exit code 2. Heavy
imports stand inside the commands: `gangway --help` has to answer at once.
"""

import gc
import os
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from components.core.findings import InputError
from gangway.cli.audit import audit
from gangway.cli.bench import app as bench_app
from gangway.cli.breaker import app as breaker_app
from gangway.cli.catalog import app as catalog_app
from gangway.cli.common import EXIT_BAD_INPUT, EXIT_FINDINGS, stacks_dir
from gangway.cli.dockerfile import dockerfile
from gangway.cli.flags import Gangway
from gangway.cli.forecast import forecast
from gangway.cli.init import init
from gangway.cli.jobs import jobs as jobs_app
from gangway.cli.prices import app as prices_app
from gangway.cli.quote import quote
from gangway.cli.reconcile import reconcile
from gangway.cli.report import report
from gangway.cli.reproduce import reproduce
from gangway.cli.sign import sign
from gangway.cli.signature import signature
from gangway.cli.simulate import simulate
from gangway.cli.tco import tco
from gangway.cli.trainer import add_trainer
from gangway.cli.when import when
from stacks.base.extras import missing_extra
from stacks.plan.gc_pause import without_gc
from trainer.core.console import flush_output, output_failed

EXIT_INTERRUPTED = 128 + 2
"""As a shell reports a program ended by SIGINT."""
EXIT_BROKEN_PIPE = 128 + 13
"""As a shell reports a program ended by SIGPIPE: whoever read our output has seen enough."""


class PlanFormat(StrEnum):
    """What `gangway plan` prints."""

    TEXT = "text"
    JSON = "json"
    INFRACOST = "infracost"


_BEGIN, _PRICES, _RUNS, _AFTER = "Begin", "What it would cost", "Runs and their figures", "The bill, and what is left"
"""The parts of `gangway --help`, in the order in which people come to need them."""

app = typer.Typer(
    cls=Gangway,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="GPU clusters with their cost and energy, and a trained GAN, from one stack file.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
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


@app.command(rich_help_panel=_BEGIN)
def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Take a minute only, with a poorly trained GAN.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the run directories.")] = Path("runs/demo"),
) -> None:
    """Show everything offline: plan, apply to an in-process cloud, train, interrupt, resume, report."""
    from gangway.cli.demo import run_demo

    raise typer.Exit(run_demo(out, quick=quick))


@app.command(rich_help_panel=_BEGIN)
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
    against: Annotated[Path | None, typer.Option(help="JSON of an earlier plan: show what has changed.")] = None,
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
    from stacks.loading.loader import find_stack_file, from_file
    from stacks.plan.difference import add_comparison, read_plan
    from stacks.plan.plan import make_plan

    if brief and full:
        raise InputError("--brief", "not beside --full", allowed="one of them", fix="leave one out")
    if as_json and output not in (None, PlanFormat.JSON):
        raise InputError("--json", f"not beside --format {output}", allowed="one of them", fix="leave --json out")
    if len(stacks) > 1:
        _check_several({"--against": against, "--full": full, "--explain": code, "--format": output == "infracost"})
        from gangway.report.plans.side_by_side import print_side_by_side

        has_errors = print_side_by_side(stacks, stacks_dir(), as_json=as_json or output == PlanFormat.JSON)
        raise typer.Exit(EXIT_FINDINGS if has_errors else 0)
    path = find_stack_file(stacks[0], stacks_dir())
    config = from_file(path)
    # Before the plan, which takes a while: a wrong file is reported at once.
    previous = None if against is None else read_plan(against, config.stack)
    try:
        made = make_plan(config)
    except InputError as mistake:
        raise mistake.within(str(path)) from None
    made, difference = (made, None) if previous is None else add_comparison(made, previous)
    if code is not None:
        from rich.console import Console

        explain(made, code, Console(), compared=difference is not None)
        return
    detail = Detail.BRIEF if brief else Detail.FULL if full else Detail.SUMMARY
    print_plan(made, "json" if as_json else output or "text", previous, difference, detail)
    raise typer.Exit(EXIT_FINDINGS if made.has_errors else 0)


def _check_several(flags: dict[str, object]) -> None:
    """InputError: a flag that is about one stack, beside several."""
    for flag, value in flags.items():
        if value:
            raise InputError(
                flag, "for one stack only", allowed="one stack", fix=f"leave {flag} out, or name one stack"
            )


app.command(rich_help_panel=_BEGIN)(init)
app.command(rich_help_panel=_PRICES)(quote)
app.command(rich_help_panel=_PRICES)(tco)
app.command(rich_help_panel=_PRICES)(simulate)
app.command(rich_help_panel=_PRICES)(forecast)
app.command(rich_help_panel=_PRICES)(when)
app.add_typer(catalog_app, name="catalog", rich_help_panel=_PRICES)
app.add_typer(prices_app, name="prices", rich_help_panel=_PRICES)
add_trainer(app)
app.add_typer(bench_app, name="bench", rich_help_panel=_RUNS)
app.command(rich_help_panel=_RUNS)(dockerfile)
app.command(rich_help_panel=_RUNS)(signature)
app.command(rich_help_panel=_RUNS)(report)
app.command(rich_help_panel=_RUNS)(reproduce)
app.command(rich_help_panel=_RUNS)(sign)
app.add_typer(jobs_app, name="job", rich_help_panel=_RUNS)
app.add_typer(breaker_app, name="breaker", rich_help_panel=_RUNS)
app.command(rich_help_panel=_AFTER)(reconcile)
app.command(rich_help_panel=_AFTER)(audit)


def _run_app() -> int | str | None:
    """The exit code, as SystemExit has it."""
    from trainer.core.file_errors import check_working_directory, file_problem, home_folder

    os.environ.setdefault("HOME", str(home_folder()))  # else every look for a file below ~ may raise
    try:
        check_working_directory()
        app()
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    except OSError as error:
        # Neither a pipe's reader that has left nor a full disk is one of these.
        if (found := file_problem(error)) is None:
            if isinstance(error, BrokenPipeError):
                return EXIT_BROKEN_PIPE
            if not (code := output_failed(error)):
                raise
            return code
        raise InputError(found.place, found.problem, fix=found.fix) from None
    except SystemExit as leaving:
        # Typer and Rich both turn a closed pipe into a quiet exit with code 1, which is that of a finding.
        return EXIT_BROKEN_PIPE if isinstance(leaving.__context__, BrokenPipeError) else leaving.code
    return 0


def _print_error(text: str) -> None:
    with suppress(OSError):  # stderr may be on a full disk, too
        typer.secho("error: ", fg=typer.colors.RED, bold=True, nl=False, err=True)
        typer.echo(text, err=True)


def main() -> NoReturn:
    """Runs the command line. A user's mistake ends with its message and exit code 2, never with a traceback."""
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
        # The process ends here: without this, Python looks through a cloud's whole SDK for garbage first, which takes
        # a third of a plan's time.
        gc.freeze()
    lost = flush_output()
    if not code:
        code = EXIT_BROKEN_PIPE if isinstance(lost, BrokenPipeError) else output_failed(lost)
    sys.exit(code)
