"""`gangway job`: what a job is at, out of what its nodes have put into the run bucket, or of a run's own folder.

    $ gangway job aws-p5-spot
    $ gangway job runs/two-nodes
    $ gangway job aws-p5-spot --scale

Heavy imports stand inside: `gangway --help` imports this module.
"""

from pathlib import Path
from typing import Annotated

import typer


def job(
    stack_or_run: Annotated[
        str, typer.Argument(help="A stack's name, the path of a stack file, or a run's folder on this machine.")
    ],
    scale: Annotated[
        bool,
        typer.Option("--scale", help="Ask the stack's groups for the nodes that job.autoscale wants. [AWS]"),
    ] = False,
) -> None:
    """Say what a job is at: its record, its end, its controller and how that is switched off, launches that are held;
    of a run's folder, each node.
    """
    from datetime import UTC, datetime

    from components.core.findings import InputError
    from stacks.bench.run_store import RunStore, bucket_region
    from stacks.cli.common import stacks_dir
    from stacks.config.loader import find_stack_file, from_file
    from stacks.engines.autoscale_now import autoscale_line, check_scaled
    from stacks.engines.autoscale_now import scale as ask_for_nodes
    from stacks.engines.breaker import LAUNCHED_BY, breaker_of
    from stacks.engines.job_controller import lines_of_folder, lines_of_stack
    from stacks.engines.job_state import JobState
    from stacks.finops.audit.state import stack_outputs
    from stacks.paths import project_folder
    from trainer.launch.nodes_said import lines_of_nodes

    folder = Path(stack_or_run)
    if folder.is_dir():
        if scale:
            raise InputError("--scale", "a run's folder has no groups", value=stack_or_run, fix="name the stack")
        state = JobState.read(RunStore(folder.resolve().as_uri()))
        lines = [*state.lines(), *lines_of_folder(folder, over=state.is_over), *lines_of_nodes(folder)]
    else:
        config = from_file(find_stack_file(stack_or_run, stacks_dir()))
        if scale:
            check_scaled(config)
        outputs = stack_outputs(config.stack, project_folder())
        breaker = breaker_of(config.provider, config.stack, config.region, outputs)
        cloud = (config.openstack.cloud or "") if config.openstack else ""
        region = bucket_region(config.provider, config.region)
        state = JobState.read(RunStore(breaker.url, region, cloud))
        lines = [*state.lines(), *lines_of_stack(outputs.get("job"), state.decisions, over=state.is_over)]
        now = datetime.now(UTC)
        if scale and state.is_over:
            lines.append("autoscale: the job is over; nothing was changed")
        elif scale:
            lines += ask_for_nodes(config, outputs, state.images, now)
        elif config.job.autoscale is not None and not state.is_over:
            lines.append(autoscale_line(config, state.images, now))
        if config.provider in LAUNCHED_BY:
            held = breaker.held()
            lines.append("launches are not held" if held is None else str(held))
    for line in lines:
        typer.echo(line)
