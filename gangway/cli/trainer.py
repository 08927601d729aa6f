"""Passes the trainer's commands through: `gangway train ...` is `python -m gangway.trainer train ...`."""

from collections.abc import Callable
from typing import NoReturn

import typer

from gangway.trainer.core.host import COMMANDS

_SENTENCES = {
    "train": "Train a GAN on this machine, or resume a run.",
    "evaluate": "Evaluate a run's newest checkpoint and update its run.json.",
    "record": "Rebuild run.json from stats.jsonl.",
    "data": "Prepare data sets, or measure how fast they are read.",
    "sample": "Make a grid or a film of generated images.",
    "export": "Write a run's generator as ONNX, torch.export or safetensors.",
    "presets": "List the presets with their sources and departures from them.",
    "control": "Replay a recorded run with other policies, or switch a controller off.",
    "memory": "Show the memory that a step needs on a worker's device.",
}
_PASS_THROUGH = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


def add_trainer(app: typer.Typer) -> None:
    """Add the trainer's commands; flags, help and exit codes are the trainer's."""
    for name in COMMANDS:
        app.command(
            name,
            help=_SENTENCES[name],
            context_settings={**_PASS_THROUGH, "help_option_names": []},
            add_help_option=False,
            rich_help_panel="The trainer (extra train)",
        )(_get_command(name))


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
    from gangway.report.plans.preset_machines import MACHINES, on_machine, table
    from gangway.trainer.config.presets import PRESETS

    found = [on_machine(PRESETS[name], machine) for machine in MACHINES]
    if not all(each.problem for each in found):  # a demo for one CPU fits no machine
        typer.echo("\n" + table(PRESETS[name], found), nl=False)
    raise typer.Exit(0)
