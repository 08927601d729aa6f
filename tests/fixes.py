"""Makes the change that a fix of a stack file describes, as somebody does who takes it at its word.

A fix that changes the file begins with the change: `set KEY: VALUE` or `remove KEY`; write, add and leave KEY out mean
the same. KEY is a config path, or one beside or below the place of the finding. Any other fix is advice: a command, or
something to find out first.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import yaml

_KEY = r"(?:gangway:)?[A-Za-z_][\w-]*(?:\.[\w-]+|\[\d+\])*"
_SET = re.compile(rf"(?:(?:set|write|add) |put it in quotes: |and )({_KEY}): (?!to\b|what\b|\.\.\.)(.+)", re.DOTALL)
_REMOVE = re.compile(
    rf"(?:remove|leave) (it|this rung|rung \d+|the section|{_KEY}(?: and {_KEY})*)(?: out)?(?=[,;: ]|$)"
)
_MEANT = re.compile(r"did you mean '([^']+)'\?")
_VALUE = re.compile(r"(?:set|write) (\[.*\]|\{.*\}|'[^']*'|[^\s,;:]+)(?=[,;]|$)")
_END = re.compile(r"[,;] |  #| (?:for|to|where|if|so|and|in|of|or|when|\() ?|$")
_SECTIONS = ("budget", "cluster", "engine", "estimate", "head", "image", "job", "network", "observe", "site", "storage")
Path = tuple[str | int, ...]
NULL = object()
"""What `set KEY: null` writes: null, where None removes the key."""


class Change(NamedTuple):
    """What a fix does to the file. `value`: None removes; `name`: what the key is called from now on, if anything."""

    path: Path
    value: Any = None
    name: str = ""


def split(path: str) -> Path:
    """`gangway:cluster.capacity[0].kind` as keys and positions."""
    parts = re.findall(r"[^.\[\]]+", path.removeprefix("gangway:"))
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def at(settings: Mapping[str, Any], path: Path) -> Any:
    """What is at `path`; None where nothing is."""
    node: Any = settings
    for part in path:
        if isinstance(node, dict):
            node = node.get(part)
        else:
            node = node[part] if isinstance(node, list) and isinstance(part, int) and part < len(node) else None
    return node


def changes(place: str, fix: str, settings: Mapping[str, Any], *, is_key: bool = False) -> list[Change]:
    """What `fix` changes, of a finding at `place` in a file with `settings`; empty for advice. `is_key`: whether the
    key there is the mistake, and not its value.
    """
    here = split(place)
    if match := _SET.match(fix):
        value, rest = _value(match[2])
        value = NULL if value is None else value
        return [Change(_target(here, match[1], settings), value), *changes(place, rest.removeprefix(" "), settings)]
    if fix.startswith("and "):
        return []
    if match := _MEANT.match(fix):
        return [Change(here, name=match[1]) if is_key else Change(here, match[1])]
    if match := _REMOVE.match(fix):
        return list(_removed(here, match[1], settings))
    if match := _VALUE.match(fix):
        return [Change(here, _value(match[1])[0])]
    return []


def _value(text: str) -> tuple[Any, str]:
    """The YAML value that `text` begins with, as far as a sentence may go on behind it, and the rest."""
    for match in _END.finditer(text):
        head = text[: match.start()]
        if all(head.count(first) == head.count(last) for first, last in ("{}", "[]")) and head.count("'") % 2 == 0:
            return yaml.safe_load(head), text[match.start() :]
    return yaml.safe_load(text), ""


def _removed(here: Path, what: str, settings: Mapping[str, Any]) -> Iterator[Change]:
    if what in ("it", "the section"):
        yield Change(here)
    elif what.startswith(("rung", "this rung")):
        yield Change(("cluster", "capacity", here[2] if what == "this rung" else int(what.split()[1])))
    elif isinstance(listed := at(settings, here), list) and what in listed:
        yield Change((*here, listed.index(what)))
    else:
        yield from (Change(_target(here, key, settings)) for key in what.split(" and "))


def _target(here: Path, key: str, settings: Mapping[str, Any]) -> Path:
    """Where `key` is: a path of its own, one that the place has in it, or one beside or below it."""
    own = split(key)
    if key.startswith("gangway:") or (len(own) > 1 and own[0] in _SECTIONS):
        return own
    if own[0] in here:
        return (*here[: len(here) - 1 - here[::-1].index(own[0])], *own)
    below = len(here) == 1 or isinstance(at(settings, here), dict)
    return (*here, *own) if below else (*here[:-1], *own)


def applied(settings: Mapping[str, Any], wanted: Sequence[Change]) -> dict[str, Any]:
    """A copy of the settings, whose keys have no namespace, with the changes made."""
    changed: dict[str, Any] = deepcopy(dict(settings))
    for change in wanted:
        node: Any = changed
        for part in change.path[:-1]:
            node = node.setdefault(part, {}) if isinstance(node, dict) else node[part]
        last: Any = change.path[-1]
        if change.name:
            node[change.name] = node.pop(last)
        elif change.value is not None:
            node[last] = None if change.value is NULL else change.value
        elif isinstance(node, list) or last in node:
            del node[last]
    return changed


def edited(settings: Mapping[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with `edits`: config path -> value, None removes; a position behind a list's end appends."""
    changed: dict[str, Any] = deepcopy(dict(settings))
    for path, value in edits.items():
        *parents, last = split(path)
        node: Any = changed
        for part in parents:
            node = node.setdefault(part, {}) if isinstance(node, dict) else node[part]
        if isinstance(node, list) and last == len(node):
            node.append(value)
        elif value is None:
            del node[last]
        else:
            node[last] = value
    return changed
