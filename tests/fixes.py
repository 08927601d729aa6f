"""Applies the fix of a finding or of a mistake to a stack file, as somebody would who does what it says.

A fix that changes the file begins with the change: `set KEY: VALUE`, or `remove KEY`; the word is write, add or leave
out where that reads better. KEY is a config path, or one that is relative to the place of the finding. Any other fix
is advice: a command, or something to find out.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import yaml

_KEY = r"(?:gangway:)?[A-Za-z_][\w-]*(?:\.[\w-]+|\[\d+\])*"
_SET = re.compile(rf"(?:set|write|add|put it in quotes:) ({_KEY}): (?!to\b|what\b|\.\.\.)(.+)", re.DOTALL)
_REMOVE = re.compile(rf"(?:remove|leave) (it|this rung|rung \d+|the section|{_KEY}(?: and {_KEY})*)(?: out)?(?=[,;: ]|$)")
_MEANT = re.compile(r"did you mean '([^']+)'\?")
_VALUE = re.compile(r"(?:set|write|keep) (\[.*\]|\{.*\}|'[^']*'|[^\s,;:]+)(?=[,;]|$)")
_END = re.compile(r"[,;] |  #| for | to | where | and | in | of |, or |$")
Path = tuple[str | int, ...]


class Change(NamedTuple):
    """What a fix does to the file. `value`: None removes; `name`: what the key is called instead, empty for no other."""

    path: Path
    value: Any = None
    name: str = ""


def split(path: str) -> Path:
    """`gangway:cluster.capacity[0].kind` as keys and positions."""
    return tuple(int(part) if part.isdecimal() else part for part in re.findall(r"[^.\[\]]+", path.removeprefix("gangway:")))


def value_of(text: str) -> tuple[Any, str]:
    """The YAML value that `text` begins with, and what follows: the longest that ends where a sentence may go on."""
    for end in sorted((match.start() for match in _END.finditer(text)), reverse=text[:1] in "[{\"'"):
        head = text[:end]
        if head.count("{") != head.count("}") or head.count("[") != head.count("]"):
            continue
        try:
            return yaml.safe_load(head), text[end:]
        except yaml.YAMLError:
            continue
    return yaml.safe_load(text), ""


def changes(place: str, fix: str, settings: Mapping[str, Any]) -> list[Change]:
    """What `fix` says to change, of a finding at `place` in a file with `settings`; empty for advice."""
    here = split(place)
    if match := _SET.match(fix):
        value, _ = value_of(match[2])
        return [Change(_target(here, match[1], settings), value)]
    if match := _MEANT.match(fix):
        is_key = _at(settings, here) is None or "unknown key" in place
        return [Change(here, name=match[1])] if is_key else [Change(here, match[1])]
    if match := _REMOVE.match(fix):
        return list(_removed(here, match[1], settings))
    if match := _VALUE.match(fix):
        return [Change(here, value_of(match[1])[0])]
    return []


def _removed(here: Path, what: str, settings: Mapping[str, Any]) -> Iterator[Change]:
    if what in ("it", "the section"):
        yield Change(here)
    elif what.startswith(("rung", "this rung")):
        number = here[2] if what == "this rung" else int(what.split()[1])
        yield Change(("cluster", "capacity", number))
    else:
        yield from (Change(_target(here, key, settings)) for key in what.split(" and "))


def _target(here: Path, key: str, settings: Mapping[str, Any]) -> Path:
    """Where `key` is: a path of its own, the place itself, or one beside or below it."""
    own = split(key)
    if key.startswith("gangway:") or (len(own) > 1 and own[0] in _SECTIONS):
        return own
    if own[0] in here:
        at = len(here) - 1 - here[::-1].index(own[0])
        return (*here[:at], *own)
    below = isinstance(_at(settings, here), dict) or len(here) == 1
    return (*here, *own) if below else (*here[:-1], *own)


_SECTIONS = ("cluster", "storage", "network", "budget", "job", "head", "observe", "image", "engine", "estimate")


def _at(settings: Mapping[str, Any], path: Path) -> Any:
    node: Any = settings
    for part in path:
        if isinstance(node, dict):
            node = node.get(part)
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            return None
    return node


def applied(settings: Mapping[str, Any], wanted: list[Change]) -> dict[str, Any]:
    """A copy of the settings, keys without their namespace, with the changes made."""
    changed: dict[str, Any] = deepcopy(dict(settings))
    for change in wanted:
        node: Any = changed
        for part in change.path[:-1]:
            node = node.setdefault(part, {}) if isinstance(node, dict) else node[part]
        last: Any = change.path[-1]
        if change.name:
            node[change.name] = node.pop(last)
        elif change.value is not None:
            node[last] = change.value
        elif isinstance(node, list) or last in node:
            del node[last]
    return changed
