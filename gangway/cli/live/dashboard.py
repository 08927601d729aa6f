"""`gangway dashboard`: a local web page of stacks, queues, jobs, runs and suites."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import stacks_dir

if TYPE_CHECKING:
    from gangway.jobs.sites import Site

_Engines = Annotated[
    list[str] | None,
    typer.Option("--on", metavar="ENGINE", help="An engine to show; by default the local queue and the named ones."),
]


def dashboard(
    runs: Annotated[list[Path] | None, typer.Option(help="Folder of runs; ./runs if omitted.")] = None,
    on: _Engines = None,
    stack: Annotated[list[str] | None, typer.Option(help="A stack's name or file whose job to show.")] = None,
    suite: Annotated[list[Path] | None, typer.Option(help="Folder of a suite outside the folders of runs.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 for any free one.")] = 8808,
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="Allow to cancel jobs and to submit them again.")
    ] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the URL.")] = False,
) -> None:
    """Show stacks, queues, jobs, runs and suites on a local web page, read-only by default.

    Only this machine can open it, with the token in the printed URL. Ctrl-C ends it.
    """
    from gangway.stacks.base.extras import require

    require("starlette", "uvicorn")
    from gangway.live.dashboard.actions import ActionLog
    from gangway.live.dashboard.app import Board
    from gangway.live.dashboard.index import RunIndex
    from gangway.live.dashboard.server import serve
    from gangway.live.dashboard.sources import Queue, Stack
    from gangway.trainer.core.regular_files import home_folder

    queues = {queue.key: queue for queue in map(Queue.of, _find_sites(on))}
    folders = [*(runs or [Path("runs")]), *(suite or []), *(queue.folder for queue in queues.values() if queue.folder)]
    for folder in (*(runs or []), *(suite or [])):
        _check_folder(folder, "--runs" if folder in (runs or []) else "--suite")
    board = Board(
        RunIndex(folders),
        queues,
        [Stack.of(name, stacks_dir()) for name in stack or []],
        [folder.resolve() for folder in suite or []],
        ActionLog(home_folder() / ".gangway" / "dashboard-actions.jsonl") if allow_actions else None,
    )
    serve(board, port, typer.echo, open_browser=not no_browser)


def _find_sites(on: list[str] | None) -> "list[Site]":
    """The engines that are named, else the local queue and all of the engines' file."""
    from gangway.jobs.sites import get_sites
    from gangway.stacks.config.engines_file import named_engines

    return get_sites(",".join(on or ["local", *named_engines()]))


def _check_folder(folder: Path, flag: str) -> None:
    from gangway.components.core.findings import InputError

    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "no such folder"
        raise InputError(flag, problem, value=str(folder), allowed="a folder", fix="correct the path, or leave it out")
