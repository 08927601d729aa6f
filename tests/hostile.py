"""What somebody may write into a text that a person or a program writes: each means more than text to one of those that
read it later. Strings only; tests put them everywhere.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

CANARY = "gangway-was-here"
"""Would be a file in the working directory, had anything run what a text says."""
UNSEEN: Mapping[str, str] = {
    "line break": f"a\ntouch {CANARY}\nb",
    "carriage return": "a\rb",
    "NUL": "a\0b",
    "right to left": "a\u202eb",
    "escape sequence": "a\x1b]0;title\x07\x1b[31mb",
    "C1 control": "a\x9b31mb",
    "line separator": "a\u2028b",
}
"""Each has a character that a terminal does not show."""
SEEN: Mapping[str, str] = {
    "double quote": 'a" b',
    "single quote": "a' b",
    "substitution": f"a$(touch {CANARY})`touch {CANARY}`",
    "substitution without a space": "a$(id)`id`",
    "variable": "${HOME}$HOME",
    "test": "]] || [[ a[$(id)]",
    "option": "--privileged",
    "formula": "=1+1",
    "specifier": "%i%h%%n",
    "template": "{{ 1 }}{% raw %}",
    "YAML": "&a *a: !!python/object [x, {y: # z",
    "HTML": "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "Markdown": "| [a](javascript:1) ![b](c) `d` <!-- e",
    "backslash": "a\\x41\\",
    "end of a here-document": "GANGWAY_END_OF_FILE",
}
"""All of it is seen: it is refused, or shown as it is."""
LONG = "x" * 65_536
HOSTILE: Mapping[str, str] = {**UNSEEN, **SEEN, "64 KB": LONG}

Loc = tuple[int | str, ...]


def text_places(value: Any, loc: Loc = ()) -> Iterator[Loc]:
    """Where plain data have texts; of a list the first item alone."""
    if isinstance(value, str):
        yield loc
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from text_places(item, (*loc, key))
    elif isinstance(value, list):
        for position, item in enumerate(value[:1]):
            yield from text_places(item, (*loc, position))


def changed(values: Any, *places: Loc, text: str) -> Any:
    """A copy of plain data with the text at these places."""
    copy = deepcopy(values)
    for place in places:
        at = copy
        for part in place[:-1]:
            at = at[part]
        at[place[-1]] = text
    return copy


class Attack:
    """Pickled, it touches a file where it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)
