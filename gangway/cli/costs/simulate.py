"""`gangway simulate`: compare scheduling policies for many jobs on one cluster. No cloud is contacted.

$ gangway simulate gangway/suites/scheduling/spot-256.yaml --policy fifo --policy goodput --repeats 5
$ gangway simulate --generate philly-like --jobs 200 --gpus 64 --seed 1
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import OVERWRITE, check_plot, print_json
from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from gangway.sim.schedule.scenario import Scenario

_LIKE = "philly-like"


def simulate(
    trace: Annotated[Path | None, typer.Argument(help="A scenario in YAML, or jobs in CSV with --gpus.")] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="fifo, backfill, shortest, goodput or learned; all if omitted. Repeatable.")
    ] = None,
    generate: Annotated[str | None, typer.Option(help="Generate jobs instead of reading a file: philly-like.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Number of generated jobs; 200 if omitted.")
    ] = None,
    load: Annotated[
        float | None, typer.Option(min=0.01, max=10, help="Generated work over the GPUs' capacity; 1 if omitted.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, max=4096, help="GPUs of the cluster, unless the file says so.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of generated jobs and node losses.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Number of seeds; use at least six for a claim.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="File for a plot of the GPUs over time: .png or .svg.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=OVERWRITE)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Simulate many jobs on one cluster and compare policies: time, dollars, energy and carbon.

    Exit code 0: done. 2: invalid options or file.
    """
    from gangway.components.estimate.statistics import FEWEST_PAIRS
    from gangway.sim.comparison import answer_json, compare, show
    from gangway.sim.schedule.policies import POLICIES, policy_named
    from gangway.sim.schedule.simulator import EndlessError
    from gangway.stacks.base.extras import require

    chosen = [policy_named(name) for name in dict.fromkeys(policy or POLICIES)]
    if plot is not None:
        check_plot(plot, overwrite=overwrite)
    scenario = _load_scenario(trace, generate, jobs, gpus, load)
    if repeats >= FEWEST_PAIRS and (len(chosen) > 1 or scenario.controlled is not None):
        require("scipy")
    seeds = range(seed, seed + repeats)
    try:
        arms = list(compare(scenario, chosen, seeds))
    except EndlessError as endless:
        fix = "add nodes, or a shorter interval_sec, start_sec or save_sec"
        raise InputError(str(trace or "--generate"), str(endless), allowed="jobs that end", fix=fix) from None
    if plot is not None:
        from gangway.components.core.whole_files import write_whole
        from gangway.sim.plot import draw_use

        write_whole(plot, draw_use(arms, "svg" if plot.suffix == ".svg" else "png"))
    if as_json:
        print_json(answer_json(scenario, arms, seeds))
        return
    from rich.console import Console

    show(scenario, arms, seeds, Console())
    if plot is not None:
        typer.echo(f"wrote {plot}")


def _load_scenario(
    trace: Path | None, generate: str | None, jobs: int | None, gpus: int | None, load: float | None
) -> "Scenario":
    from gangway.sim.reading import generated, read_scenario

    if (trace is None) == (generate is None):
        raise InputError(
            "TRACE", "cannot be combined with --generate" if trace else "missing",
            allowed="a file, or --generate philly-like", fix="remove one" if trace else "add --generate philly-like",
        )  # fmt: skip
    if generate is not None:
        if generate != _LIKE:
            raise InputError.not_among("--generate", "unknown statistics", generate, [_LIKE])
        return generated(jobs or 200, gpus or 64, load or 1.0)
    for option, value in (("--jobs", jobs), ("--load", load)):
        if value is not None:
            problem = "cannot be combined with a file"
            raise InputError(option, problem, value=value, allowed="with --generate", fix=f"remove {option}")
    assert trace is not None, "either a file or --generate"
    return read_scenario(trace, gpus)
