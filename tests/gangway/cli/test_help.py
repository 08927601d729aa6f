"""What `-h` says: nothing of a help text is taken for markup, and no line is broken at 80 columns."""

from collections.abc import Iterator

import pytest
from rich.text import Text
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from gangway.cli.main import app

WIDTH = 80 - 2
OWN = ("report", "bench run", "bench resume", "bench scaling", "audit", "reconcile", "reproduce")
FIRST = ("demo", "plan", "init", "quote", "tco")


def commands_of(group: TyperGroup, name: str = "") -> Iterator[tuple[str, TyperCommand]]:
    for word, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands_of(command, f"{name}{word} ")
        else:
            assert isinstance(command, TyperCommand)
            yield f"{name}{word}", command


WHOLE = get_command(app)
assert isinstance(WHOLE, TyperGroup)
COMMANDS = dict(commands_of(WHOLE))


@pytest.mark.parametrize("name", COMMANDS)
def test_brackets_are_no_markup(name: str) -> None:
    """`[the default]` in a help text would be swallowed in silence."""
    command = COMMANDS[name]
    texts = [command.help or "", *(getattr(option, "help", None) or "" for option in command.params)]
    assert [text for text in texts if Text.from_markup(text).plain != text] == []


@pytest.mark.parametrize("name", OWN)
def test_lines_below_the_first_paragraph_fit(name: str) -> None:
    """Typer fills the first paragraph; the lines of the others stay as they are, and would be broken."""
    _, _, rest = (COMMANDS[name].help or "").partition("\n\n")
    assert [line for line in rest.splitlines() if len(line) > WIDTH] == []


def test_what_one_begins_with_comes_first() -> None:
    assert tuple(COMMANDS)[: len(FIRST)] == FIRST
