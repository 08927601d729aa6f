"""`gangway logs`, `ssh` and `down`: the log of a stack's nodes, a shell on one of them, and the end of a stack."""

import os
import shlex
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from gangway.cli.common import EXIT_FINDINGS, load_stack
from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from gangway.live.logs import Read
    from gangway.stacks.config.stack_config import StackConfig

_POLL_SEC = 3.0
_PROGRAMS = {
    "aws": "the AWS CLI and its Session Manager plug-in",
    "az": "the Azure CLI with its extensions bastion and ssh",
    "gcloud": "the Google Cloud CLI",
    "ssh": "OpenSSH",
}
_Stack = Annotated[str, typer.Argument(help="A stack's name, or the path of a stack file.")]


def logs(
    name: Annotated[str, typer.Argument(metavar="STACK|JOB|RUN", help="A stack, a run's folder, or with --on a job.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Continue with new lines until Ctrl-C.")] = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How far back: 30s, 10m, 2h, 1d, or a time with its zone; 10m if omitted."),
    ] = None,
    on: Annotated[str | None, typer.Option("--on", metavar="ENGINE", help="The name is a job of this engine.")] = None,
) -> None:
    """Print the log of all nodes of a stack in order of time, each line with its node; or of a job or run."""
    from rich.console import Console

    from gangway.live import logs as live

    if on is not None:
        if since is not None:
            raise InputError("--since", "a job's log has no times", value=since, fix="remove --since or --on")
        from gangway.cli.jobs.commands import logs as job_logs

        job_logs(name, follow=follow, on=on)
        return
    start = live.parse_since(since or "10m", datetime.now(UTC))
    read, note = _get_reader(name)
    if note:
        _warn(note)
    printer = live.Printer(Console(markup=False, highlight=False, emoji=False))
    pause = _pause if follow else None
    count = 0
    for line in live.follow(read, start, pause, _warn):
        printer.show(line)
        count += 1
    if not count:
        _warn(f"no lines since {start:%Y-%m-%d %H:%M:%S} UTC; --since 1d goes further back")


def _get_reader(name: str) -> "tuple[Read, str]":
    from gangway.finops.audit.running import open_stack
    from gangway.live import logs as live
    from gangway.runs.run_store import RunStore

    folder = Path(name)
    if folder.is_dir() and live.is_run(folder):
        return live.run_reader(RunStore(folder.resolve().as_uri())), ""
    return live.stack_reader(open_stack(load_stack(name)))


def _pause() -> None:
    time.sleep(_POLL_SEC)


def _warn(text: str) -> None:
    typer.echo(f"warning: {text}", err=True)


def ssh(
    stack: _Stack,
    node: Annotated[
        str | None, typer.Argument(help="Its number, name or id; without one, the nodes are listed.")
    ] = None,
    only_print: Annotated[bool, typer.Option("--print", help="Print the command instead of running it.")] = False,
) -> None:
    """Open a shell on a node through the cloud's own tunnel, with your permissions."""
    from gangway.finops.audit.running import open_stack
    from gangway.live.nodes import find_node, get_cloud, sorted_nodes

    config = load_stack(stack)
    _check_has_machines(config)
    up, cloud = open_stack(config), get_cloud(config.provider)
    nodes = sorted_nodes(cloud.list_nodes(config, up.outputs), up.outputs)
    if node is None:
        for number, each in enumerate(nodes, 1):
            typer.echo(f"{number}  {each.name}  {each.id}  {each.rung}  {each.state}")
        if not nodes:
            typer.echo("the stack has no nodes now", err=True)
        return
    argv = cloud.shell_argv(config, up.outputs, find_node(nodes, node))
    if only_print:
        typer.echo(shlex.join(argv))
        return
    if shutil.which(argv[0]) is None:
        raise InputError(
            argv[0], "not on PATH", fix=f"install {_PROGRAMS[argv[0]]}; the command is: {shlex.join(argv)}"
        )
    _replace_process(argv)


def _check_has_machines(config: "StackConfig") -> None:
    if config.engine.kind == "kubernetes":
        raise InputError(
            "gangway:engine.kind", "the cluster's nodes belong to Kubernetes", value="kubernetes",
            allowed="a shell in a pod", fix="kubectl get pods, then kubectl exec -it POD -- bash",
        )  # fmt: skip


def _replace_process(argv: list[str]) -> NoReturn:
    os.execvp(argv[0], argv)


def down(
    stack: _Stack,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only explain what would be destroyed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the stack's name.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also while a job runs there.")] = False,
) -> None:
    """Explain what `pulumi destroy` deletes, what remains and its cost; then destroy the stack and audit the rest.

    Exit code 0: destroyed, and nothing is left over. 1: something is left, or `pulumi destroy` failed. 2: refused.
    """
    from rich.console import Console

    from gangway.live.teardown import check_cli, destroy, explain

    config = load_stack(stack)
    if not dry_run:
        check_cli()
    console = Console(markup=False, highlight=False, emoji=False)
    with Console(stderr=True).status("reading the stack"):
        found = explain(config, datetime.now(UTC))
    for line in found.lines():
        console.print(line, soft_wrap=True)
    if dry_run:
        return
    if found.running and not force:
        raise InputError(
            f"stack {config.stack_name}", f"a job may be running there: {found.running}",
            fix="wait for its end, or add --force; its nodes then save a last checkpoint first",
        )  # fmt: skip
    if not yes:
        _ask(config.stack_name)
    code = destroy(config.stack_name, lambda line: typer.echo(line, err=True))
    left = _audit(config)
    raise typer.Exit(EXIT_FINDINGS if code or left else 0)


def _ask(name: str) -> None:
    import sys

    if not sys.stdin.isatty():
        raise InputError("--yes", "missing, and there is no terminal to ask on", fix="add --yes")
    if (answer := typer.prompt(f"type {name} to destroy it", default="", show_default=False)) != name:
        raise InputError(
            "confirmation", "nothing was destroyed", value=answer, allowed=name, fix="type the stack's name"
        )


def _audit(config: "StackConfig") -> bool:
    """Prints what is left; whether anything may be."""
    from rich.console import Console

    from gangway.cli.costs.bills import run_audit
    from gangway.finops.audit.classify_orphans import show_audit
    from gangway.finops.audit.state import export_state
    from gangway.stacks.base.registry import load_adapter, providers_with_adapter
    from gangway.stacks.config.paths import project_folder

    if config.provider not in providers_with_adapter("audit"):
        typer.echo(f"{config.provider} has no audit: list what is left with the provider's own tool", err=True)
        return False
    try:
        known = export_state(config.stack_name, project_folder())
        listing = load_adapter(config.provider, "audit").list_resources(config, None)
    except InputError as error:
        typer.echo(f"what is left is unknown: {error}", err=True)
        return True
    outcome = run_audit(config.stack, config.provider, known, listing)
    show_audit(outcome, Console())
    return bool(outcome.orphans)
