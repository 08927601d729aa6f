"""`gangway breaker`: show why a stack's launches are stopped, and allow them again.

$ gangway breaker show aws-p5-spot
$ gangway breaker reset aws-p5-spot
"""

from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import load_stack

if TYPE_CHECKING:
    from gangway.jobs.systemd.breaker import Breaker

EXIT_HELD = 1

app = typer.Typer(help="The circuit breaker that stops launches when too many nodes fail.")

_Stack = Annotated[str, typer.Argument(help="A stack's name, or the path of a stack file.")]


@app.callback(invoke_without_command=True, no_args_is_help=True)
def _breaker() -> None:
    """Keeps `breaker` a group of commands."""


@app.command()
def show(stack_or_file: _Stack) -> None:
    """Show whether launches of a stack are stopped, since when, and why.

    Exit code 0: not stopped. 1: stopped.
    """
    held = _load_breaker(stack_or_file)[0].read_held()
    typer.echo("launches are not stopped" if held is None else str(held))
    raise typer.Exit(0 if held is None else EXIT_HELD)


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
    """The stack's breaker, and its name in Pulumi."""
    from gangway.finops.audit.state import stack_outputs
    from gangway.jobs.systemd.breaker import check_launches, get_breaker
    from gangway.stacks.config.paths import project_folder

    config = load_stack(stack_or_file)
    check_launches(config.provider)
    outputs = stack_outputs(config.stack_name, project_folder())
    return get_breaker(config.provider, config.stack, config.region, outputs), config.stack_name
