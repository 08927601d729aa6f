"""`gangway job STACK`: the status of a stack's job or a run. `gangway breaker`: show and allow stopped launches."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import EXIT_FINDINGS, load_stack

if TYPE_CHECKING:
    from gangway.jobs.systemd.state import Breaker


app = typer.Typer(help="The circuit breaker that stops launches when too many nodes fail.", no_args_is_help=True)

_Stack = Annotated[str, typer.Argument(help="A stack's name, or the path of a stack file.")]


def job(
    stack_or_run: Annotated[
        str, typer.Argument(help="A stack's name, the path of a stack file, or a run's folder on this machine.")
    ],
    scale: Annotated[
        bool,
        typer.Option("--scale", help="Set the node groups to the size that job.autoscale needs. [AWS, Azure, GCP]"),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --scale: show the size, but change nothing.")
    ] = False,
    images: Annotated[
        int | None,
        typer.Option("--images", min=0, help="With --scale: images done, instead of the nodes' figure."),
    ] = None,
) -> None:
    """Show the status of a stack's job: record, end, controller, stopped launches; or of a run's folder, by node."""
    from gangway.components.core.findings import InputError
    from gangway.jobs.systemd.state import JobState, folder_lines
    from gangway.runs.run_store import RunStore
    from gangway.trainer.launch.failures import lines_of_nodes

    if not scale and (dry_run or images is not None):
        raise InputError("--dry-run" if dry_run else "--images", "has no effect without --scale", fix="add --scale")
    folder = Path(stack_or_run)
    if folder.is_dir():
        if scale:
            problem = "a run's folder has no node groups"
            raise InputError("--scale", problem, value=stack_or_run, fix="name the stack")
        state = JobState.read(RunStore(folder.resolve().as_uri()))
        lines = [*state.lines(), *folder_lines(folder, over=state.is_over), *lines_of_nodes(folder)]
    else:
        lines = _stack_lines(stack_or_run, scale=scale, dry_run=dry_run, images=images)
    for line in lines:
        typer.echo(line)


def _stack_lines(stack: str, *, scale: bool, dry_run: bool, images: int | None) -> list[str]:
    from datetime import UTC, datetime

    from gangway.finops.audit.running import open_stack
    from gangway.jobs.systemd.autoscale_now import autoscale_line, check_scaled, get_scaler, group_names, why_unknown
    from gangway.jobs.systemd.autoscale_now import scale as ask_for_nodes
    from gangway.jobs.systemd.state import JobState, replaces_nodes, stack_lines

    config = load_stack(stack)
    if scale:
        check_scaled(config)
    up = open_stack(config)
    outputs, state = up.outputs, JobState.read(up.store)
    lines = [*state.lines(config.stack_name if config.own_command else "")]
    lines += stack_lines(outputs.get("job"), state.decisions, over=state.is_over)
    held = up.breaker.read_held() if replaces_nodes(config.provider) else None
    now = datetime.now(UTC)
    done, unknown = (images, "") if images is not None else (state.images, why_unknown(config, state.reported_at, now))
    if scale and state.is_over:
        lines.append("autoscale: the job is over; nothing was changed")
    elif scale and unknown:
        lines.append(f"autoscale: {unknown}; nothing was changed; --images sets the number")
    elif scale:
        names = group_names(config, outputs)
        scaler = get_scaler(config, outputs, names, is_held=held is not None)
        lines += ask_for_nodes(config, scaler, names, done, now, dry_run=dry_run)
    elif config.work.autoscale is not None and not state.is_over:
        lines.append(autoscale_line(config, done, now, unknown))
    if replaces_nodes(config.provider):
        lines.append("launches are not stopped" if held is None else str(held))
    return lines


@app.command()
def show(stack_or_file: _Stack) -> None:
    """Show whether launches of a stack are stopped, since when, and why.

    Exit code 0: not stopped. 1: stopped.
    """
    held = _load_breaker(stack_or_file)[0].read_held()
    typer.echo("launches are not stopped" if held is None else str(held))
    raise typer.Exit(0 if held is None else EXIT_FINDINGS)


@app.command()
def reset(stack_or_file: _Stack) -> None:
    """Allow launches of a stack again, after you have fixed the cause."""
    from gangway.stacks.base.registry import load_adapter

    breaker, stack_name = _load_breaker(stack_or_file)
    for line in breaker.reset():
        typer.echo(line)
    why = load_adapter(breaker.provider, "scaling").AFTER_RESET
    if why and breaker.group_names:
        typer.echo(f"then `pulumi up --refresh --stack {stack_name}`: {why}")


def _load_breaker(stack_or_file: str) -> "tuple[Breaker, str]":
    from gangway.finops.audit.running import open_stack
    from gangway.jobs.systemd.state import check_launches

    config = load_stack(stack_or_file)
    check_launches(config.provider)
    return open_stack(config).breaker, config.stack_name
