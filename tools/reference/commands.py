"""The page about the commands of `gangway` and `python -m gangway.trainer`."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from gangway.cli.main import app
from gangway.trainer.__main__ import _parser
from gangway.trainer.core.host import COMMANDS, MODULE
from tools.reference.markdown import code, page, section, table, text

_ABOUT = f"""
Every command of `gangway` and of `{MODULE}`, with its options. The trainer's commands
{", ".join(map(code, COMMANDS))} are also commands of `gangway`, with the same options.
"""
_CONFIGURATION = "configuration"
_FLAGS = "It also takes a flag for each field of the configuration: see [training.md](training.md)."


def commands() -> str:
    """docs/reference/commands.md."""
    return page("Commands", _ABOUT, *_gangway(typer.main.get_command(app), "gangway"), *_trainer(_parser(), MODULE))


def _gangway(command: Any, name: str) -> Iterator[str]:
    """A section for one of Typer's commands, then for the commands below it."""
    context = typer.Context(command, info_name=name)
    records = [record for param in command.params if (record := param.get_help_record(context))]
    rows = [(code(option.replace(" <list[str]>", "")), text(what)) for option, what in records]
    yield section(code(name), _prose(command.help or ""), _options(rows))
    for below, inner in getattr(command, "commands", {}).items():
        if below not in COMMANDS:
            yield from _gangway(inner, f"{name} {below}")


def _trainer(parser: argparse.ArgumentParser, name: str, about: str = "") -> Iterator[str]:
    """The same for argparse. `about`: the description of a parser without its own."""
    rows: list[tuple[str, str]] = []
    below: list[tuple[str, argparse.ArgumentParser, str]] = []
    has_fields = False
    for group in parser._action_groups:
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                below = [(each.dest, action.choices[each.dest], each.help or "") for each in action._choices_actions]
            elif group.title == _CONFIGURATION:
                has_fields = True
            elif not isinstance(action, argparse._HelpAction):
                rows.append((code(_spelling(action)), text((action.help or "").replace("%%", "%"))))
    parts = (_prose(parser.description or about), _options(rows), _FLAGS * has_fields, text(parser.epilog or ""))
    yield section(code(name), *parts)
    for word, inner, sentence in below:
        yield from _trainer(inner, f"{name} {word}", f"{sentence[:1].upper()}{sentence[1:]}.")


def _options(rows: Sequence[tuple[str, str]]) -> str:
    return table(("option", "description"), rows) if rows else ""


def _prose(words: str) -> str:
    """Paragraphs; what the command prints in columns stays in columns."""
    first, *columns = words.split("\n\n  ")
    return "\n\n".join([text(first), *(f"```text\n  {lines.rstrip()}\n```" for lines in columns)])


def _spelling(action: argparse.Action) -> str:
    """The flag and the name of its value, or an argument's name."""
    value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    return f"{', '.join(action.option_strings)} {value}".strip()
