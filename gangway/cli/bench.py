"""`gangway bench`: run, resume and report a suite, and the scaling of one preset over workers."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import choose, stacks_dir
from gangway.components.core.findings import InputError, nearest_hint
from gangway.stacks.base.extras import require

if TYPE_CHECKING:
    from rich.console import Console

    from gangway.bench.local import Placement
    from gangway.bench.scaling import Mode, Sample, Study, Target
    from gangway.trainer.config.train_config import TrainConfig


_POOR_FIT = 0.1
_BUSY = 0.5
"""Load average of a machine that does something else."""
_MODES: "Mapping[str, Sequence[Mode]]" = {"weak": ["weak"], "strong": ["strong"], "both": ["weak", "strong"]}
_DEFAULT_MACHINES = "p5.48xlarge, p4d.24xlarge, g5.48xlarge"


def scaling(
    preset: Annotated[str, typer.Option(help="Preset to train.")] = "dcgan-digits",
    processes: Annotated[str, typer.Option(help="Numbers of processes, each with a GPU or a thread.")] = "1,2",
    mode: Annotated[str, typer.Option(help="weak: a batch per process; strong: one batch for all; both.")] = "both",
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each, in turn.")] = 3,
    steps: Annotated[int, typer.Option(min=14, help="Steps per measurement.")] = 42,
    device: Annotated[str, typer.Option(help="auto: GPUs if there is one per process; cpu; cuda.")] = "auto",
    machines: Annotated[
        str | None,
        typer.Option(help=f"Machine types, TPU generations or slices to project to; for GPUs {_DEFAULT_MACHINES}."),
    ] = None,
    images_per_sec: Annotated[
        float | None,
        typer.Option(min=1e-6, help="Throughput of one accelerator to project from; a measured GPU's if omitted."),
    ] = None,
    overlap: Annotated[
        float, typer.Option(min=0, max=1, help="Share of a step that overlaps with sending gradients; assumed.")
    ] = 0.0,
    serial_share: Annotated[
        float, typer.Option(min=0, max=1, help="strong: share of a step that more workers do not shorten; assumed.")
    ] = 0.0,
    data: Annotated[
        Path | None, typer.Option(help="Folder of shards, prepared if missing; in the new folder if omitted.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the study's folder.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the study as JSON.")] = False,
) -> None:
    """Measure 1 to N processes on this machine, and project the speed to machines of the catalogue.

    Exit code 0: done. 2: invalid options, or the trainer failed.
    """
    import json
    from datetime import UTC, datetime

    from rich.console import Console

    from gangway.bench.local import hardware, placement
    from gangway.bench.scaling import draw_scaling, study
    from gangway.components.core.whole_files import write_whole

    config = _preset(preset)
    counts = _counts(processes, config.batch_size)
    modes = _MODES[choose("--mode", "no such mode", mode, list(_MODES))]
    place = placement(device, counts[-1], hardware(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    targets = _targets(machines, place.device == "cuda" or images_per_sec is not None)
    typer.echo(f"on {place.device}: {place.reason}", err=True)
    load = os.getloadavg()[0]
    folder = out / f"scaling-{preset}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    _make(folder)
    measured = _measure(preset, counts, modes, rounds, steps, folder, data or folder / "data", place)
    result = study(measured, config.batch_size, images_per_sec, (overlap, serial_share), targets, place)
    facts = {"preset": preset, "rounds": rounds, "steps": steps, "load_average_before": load, **result.to_json()}
    write_whole(folder / "scaling.json", (json.dumps(facts, indent=2) + "\n").encode())
    for kind in ("png", "svg"):
        write_whole(folder / f"scaling.{kind}", draw_scaling(result, kind))
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        _show(result, load, Console())
        typer.echo(f"wrote {folder}/scaling.json, .png and .svg", err=True)


def _preset(name: str) -> "TrainConfig":
    from gangway.trainer.config.presets import PRESETS

    if name not in PRESETS:
        raise InputError("--preset", "no such preset", value=name, fix=nearest_hint(name, PRESETS))
    require("torch")
    return PRESETS[name]


def _make(folder: Path) -> None:
    from gangway.bench.processes import writable_out
    from gangway.trainer.core.regular_files import check_reachable

    check_reachable(folder)
    with writable_out(folder.parent):
        folder.mkdir(parents=True, exist_ok=True)


def _counts(text: str, batch_size: int) -> list[int]:
    counts = text.split(",")
    if not all(word.strip().isdecimal() and 0 < int(word) <= batch_size for word in counts):
        allowed = f"whole numbers from 1 to {batch_size}, the batch, by commas"
        raise InputError("--processes", "not numbers of processes", value=text, allowed=allowed, fix="write 1,2")
    return sorted({1, *map(int, counts)})


def _targets(machines: str | None, has_rate: bool) -> "list[Target]":
    from gangway.bench.scaling import NO_RATE, find_target

    chosen = _DEFAULT_MACHINES if machines is None and has_rate else machines or ""
    targets = [find_target(name.strip()) for name in chosen.split(",") if name.strip()]
    if targets and not has_rate:
        fix = "add --images-per-sec, of one accelerator, or leave --machines out"
        raise InputError("--machines", f"nothing to project from: {NO_RATE}", value=machines, fix=fix)
    return targets


def _measure(
    preset: str,
    counts: Sequence[int],
    modes: "Sequence[Mode]",
    rounds: int,
    steps: int,
    folder: Path,
    data_dir: Path,
    place: "Placement",
) -> list[dict[tuple["Mode", int], "Sample"]]:
    """Every number of processes in every round; one process is the same in both modes and measured once a round."""
    from rich.console import Console

    from gangway.bench.results import Screen
    from gangway.bench.scaling import measure, short
    from gangway.trainer.config.presets import PRESETS

    taken = []
    with Screen(Console(stderr=True)) as screen:
        for number in range(rounds):
            samples: dict[tuple[Mode, int], Sample] = {}
            for workers in counts:
                for mode in modes:
                    if workers == 1 and mode != modes[0]:
                        samples[mode, 1] = samples[modes[0], 1]
                        continue
                    name = f"round{number + 1}-{mode}-{workers}"
                    words = f"round {number + 1} of {rounds}, {mode}, {workers} process(es)"
                    config = short(PRESETS[preset], workers, mode, steps, place.backend)
                    doing = partial(screen.show, "scaling", words)
                    samples[mode, workers] = measure(config, workers, folder / name, data_dir, doing, place)
            taken.append(samples)
    return taken


def _show(result: "Study", load: float, console: "Console") -> None:
    from rich.table import Table

    table = Table(title=f"Measured on this machine: {result.device}", title_justify="left")
    for column in ("mode", "n", "ms/step", "fitted", "all-reduce", "efficiency", "of rounds"):
        table.add_column(column, justify="left" if column == "mode" else "right")
    for one in result.measured:
        times = (one.step_sec.median, one.model_sec, one.all_reduce_sec)
        shown = ("-" if value is None else f"{value * 1e3:.2f}" for value in times)
        found = one.efficiency
        rounds = f"{found.low:.1%} to {found.high:.1%}"
        table.add_row(one.mode, str(one.workers), *shown, f"{found.median:.1%}", rounds)
    console.print(table)
    if result.untimed:
        words = f"all-reduces were not timed ({result.untimed}): what they take is in the fitted serial share"
        console.print(words, soft_wrap=True)
    if result.fit is not None:
        words = f"serial share {result.fit.serial_share:.1%}, worst residual {result.fit.worst_residual:.1%}"
        console.print(f"strong scaling, fitted: {words}")
    _show_projections(result, console)
    # What takes from the worth of these figures comes last, where it is seen.
    if result.fit is not None and result.fit.worst_residual > _POOR_FIT:
        words = "the fit does not describe this machine: processes wait for more than it knows of"
        console.print(f"[yellow]warning:[/] {words}", soft_wrap=True)
    if load > _BUSY:
        words = f"this machine was busy (load {load:.1f} before the first round): a lower end of what it can do"
        console.print(f"[yellow]warning:[/] {words}", soft_wrap=True)


def _show_projections(result: "Study", console: "Console") -> None:
    from rich.table import Table

    step = result.step
    if step is None:
        console.print(f"nothing projected: {result.step_source}; --images-per-sec names a rate", soft_wrap=True)
        return
    if not result.projections:
        return
    projected = Table(title="Projected by the model, not measured: efficiency", title_justify="left")
    for column in ("machine type", "mode", "8", "16", "64", "512 accelerators"):
        projected.add_column(column, justify="left" if column in ("machine type", "mode") else "right")
    for line in result.projections:
        # Beyond the images of a batch, or the chips of a slice, there is nothing to tell.
        by_count = {workers: f"{value:.1%}" for workers, _, value in line.points}
        projected.add_row(line.machine_type, line.mode, *(by_count.get(n, "-") for n in (8, 16, 64, 512)))
    console.print(projected)
    for name, note in {line.machine_type: line.note for line in result.projections if line.note}.items():
        console.print(f"{name}: {note}", soft_wrap=True)
    assumed = f"overlap {step.overlap:g} and serial share {step.serial_share:g}, assumed"
    words = f"{result.step_source}; {step.gradient_bytes / 1e6:.2f} MB of gradients a step; {assumed}"
    console.print(f"projected from: {words}", soft_wrap=True)


app = typer.Typer(help="Suites of training runs, on any environment.", no_args_is_help=True)

InstallCli = Annotated[
    bool, typer.Option("--install-cli", help="Install Pulumi's CLI with Pulumi's installer if it is not on PATH.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON, and progress on standard error.")]


@app.command()
def run(
    suite: Annotated[str, typer.Argument(help="A suite's name, such as local-smoke, or the path of a suite file.")],
    local: Annotated[bool, typer.Option("--local", help="Run everything on this machine, with torchrun.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the suite's folder.")] = Path("runs"),
    data: Annotated[
        Path | None, typer.Option(help="Folder of shards for runs on this machine, prepared if missing.")
    ] = None,
    install_cli: InstallCli = False,
    backend_url: Annotated[
        str, typer.Option(help="Pulumi's state backend, such as file://~/.gangway-bench; your login if omitted.")
    ] = "",
    as_json: AsJson = False,
    treatment: Annotated[
        str, typer.Option(help="Experiment: the arm to compare with the control; the first if omitted.")
    ] = "",
    small: Annotated[bool, typer.Option("--small", help="Experiment: the small form, which takes minutes.")] = False,
) -> None:
    """Bring each stack up, wait for its record, copy it, destroy the stack; print a table.

    Without an account: `gangway bench run local-smoke --local`.
    An experiment, always local: `gangway bench run resource-aware --small`.
    Ctrl-C stops and destroys; a second one exits at once, for `bench resume`.

    Exit code 0: every run has a record. 1: some have none.
    2: nothing was begun. 130: stopped.
    """
    from gangway.bench.experiment.suite import is_experiment
    from gangway.bench.session import Options, run_suite
    from gangway.bench.suite import find_suite

    options = Options(local=local, data=data, install_cli=install_cli, backend_url=backend_url, as_json=as_json)
    path = find_suite(suite, stacks_dir())
    if is_experiment(path):
        from gangway.bench.experiment.session import run_experiment_suite

        raise typer.Exit(run_experiment_suite(path, out, options, treatment, small=small))
    for name, given in (("--treatment", treatment), ("--small", small)):
        if given:
            raise InputError(name, "of no effect: this suite is no experiment", fix="leave it out")
    raise typer.Exit(run_suite(path, out, stacks_dir(), options))


@app.command()
def resume(
    run_dir: Annotated[Path, typer.Argument(help="Folder of an earlier `gangway bench run`.")],
    clean_only: Annotated[bool, typer.Option("--clean-only", help="Only destroy stacks that are still up.")] = False,
    install_cli: InstallCli = False,
    as_json: AsJson = False,
) -> None:
    """Finish a suite that was stopped or crashed, or destroy its stacks."""
    from gangway.bench.session import Options, resume_suite

    raise typer.Exit(resume_suite(run_dir, Options(install_cli=install_cli, as_json=as_json), clean_only=clean_only))


app.command()(scaling)
