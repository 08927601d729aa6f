"""The trainer's commands, handed on as they are: `gangway train ...` is `python -m trainer train ...`."""

from collections.abc import Callable
from typing import NoReturn

import typer

from trainer.core.program import COMMANDS

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
_AS_THEY_ARE = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


def add_trainer(app: typer.Typer) -> None:
    """Adds a command for each; their flags, their help and their exit codes are the trainer's own."""
    for name in COMMANDS:
        app.command(
            name,
            help=_SENTENCES[name],
            context_settings={**_AS_THEY_ARE, "help_option_names": []},
            add_help_option=False,
            rich_help_panel="The trainer (extra train)",
        )(_handing_on(name))


def _handing_on(name: str) -> Callable[[typer.Context], None]:
    def command(context: typer.Context) -> NoReturn:
        from trainer.__main__ import run

        if name == "presets" and len(context.args) == 1 and not context.args[0].startswith("-"):
            _preset(context.args[0])
        run([name, *context.args])

    return command


def _preset(name: str) -> NoReturn:
    """One preset, as the trainer tells it, and what it takes on machines, of which only the catalogue knows."""
    from trainer.__main__ import main

    if code := main(["presets", name]):
        raise typer.Exit(code)
    from gangway.report.plans.preset_machines import MACHINES, on_machine, table
    from trainer.config.presets import PRESETS

    found = [on_machine(PRESETS[name], machine) for machine in MACHINES]
    if not all(each.problem for each in found):  # of a demo for one processor there is nothing to tell
        typer.echo("\n" + table(PRESETS[name], found), nl=False)
    raise typer.Exit(0)
