"""`gangway bench run SUITE` and `gangway bench resume RUN_DIR`: the arguments, and nothing else; and `bench scaling`.

Heavy imports stand inside the commands: `gangway --help` has to answer at once.
"""

from pathlib import Path
from typing import Annotated

import typer

from stacks.bench.scaling_command import scaling

__all__ = ["app"]

app = typer.Typer(help="Suites of training runs: the papers' tables, on any environment.", no_args_is_help=True)

app.command()(scaling)

InstallCli = Annotated[
    bool, typer.Option("--install-cli", help="Install Pulumi's CLI where it is not on PATH, by Pulumi's own installer.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON, and progress on standard error.")]


@app.callback()
def _bench() -> None:
    """Keeps `bench` a group of commands."""


@app.command()
def run(
    suite: Annotated[str, typer.Argument(help="A suite's name, or the path of a suite file.")],
    local: Annotated[bool, typer.Option("--local", help="Every run on this machine, with torchrun; no cloud.")] = False,
    out: Annotated[Path, typer.Option(help="Where the suite's folder goes.")] = Path("runs"),
    data: Annotated[
        Path | None, typer.Option(help="Shards for runs on this machine, prepared there when missing.")
    ] = None,
    install_cli: InstallCli = False,
    backend_url: Annotated[
        str, typer.Option(help="Pulumi's state backend, such as file://~/.gangway-bench; your login when left out.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Bring each stack up, wait for its record, copy it, destroy the stack; then a table.

    Ctrl-C once stops and destroys; twice leaves at once, for `gangway bench resume` to clean up. Exit code 0: every
    run has its record. 1: some have not. 2: nothing was begun. 130: stopped.
    """
    from stacks.bench.session import Options, run_suite
    from stacks.bench.suite import find_suite
    from stacks.cli import stacks_dir

    options = Options(local=local, data=data, install_cli=install_cli, backend_url=backend_url, as_json=as_json)
    raise typer.Exit(run_suite(find_suite(suite, stacks_dir()), out, stacks_dir(), options))


@app.command()
def resume(
    run_dir: Annotated[Path, typer.Argument(help="The folder that `gangway bench run` made.")],
    clean_only: Annotated[bool, typer.Option("--clean-only", help="Destroy what stands, and begin nothing.")] = False,
    install_cli: InstallCli = False,
    as_json: AsJson = False,
) -> None:
    """Finish a suite that was stopped or has crashed, or destroy what it has left standing."""
    from stacks.bench.session import Options, resume_suite

    raise typer.Exit(resume_suite(run_dir, Options(install_cli=install_cli, as_json=as_json), clean_only=clean_only))
