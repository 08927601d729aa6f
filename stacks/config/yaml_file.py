"""Reads hand-written YAML files. Mistakes are values that YAML reads as another type, invisible text, too much text."""

import errno
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import Loc, leaves, visible
from gangway.stacks.config.explain_errors import describe_setting, explain, spell
from gangway.trainer.core.regular_files import UnfitFileError, read_text_file

Model = TypeVar("Model", bound=BaseModel)

_MAX_BYTES = 1_000_000
_MAX_VALUES = 5000
_MAX_DEPTH = 100
_OTHER_FILE = "name another file"
_TAG = "tag:yaml.org,2002:"
_READ_AS = {
    _TAG + "bool": ("true or false", "true or false, or "),
    _TAG + "timestamp": ("a date", ""),
    _TAG + "int": ("a number", "a plain number, or "),
    _TAG + "float": ("a number", "a plain number, or "),
    _TAG + "null": ("no value", ""),
}
"""What YAML reads a value as, and how to write it as that."""
# YAML readers disagree about other spellings: yes, a bare date, a time without a zone.
_PLAIN_BOOLS = ("true", "false")
_PLAIN_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[-+]\d\d:\d\d)")
# Not 010 (octal), 0x10, 1:30 (base 60) or 1_000.
_PLAIN_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})?(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?")


def read_yaml(
    path: Path,
    root: type[BaseModel] | None = None,
    settings: type[BaseModel] | None = None,
    *,
    kind: str = "stack",
) -> Any:
    """The only document of a YAML file. `root`: its model; None: a stack file, with `settings` below `config`.
    InputError, or a group of them for values that YAML reads as another type than they look like.
    """
    text = _read(path, kind)
    loader = yaml.CSafeLoader(text)
    try:
        _check_depth(text, path)
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        raise _parse_error(error, path, text) from None
    if mistakes := list(_find_misread(node, path, root, settings)):
        raise ExceptionGroup(f"{path} is not valid", mistakes)
    try:
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise _parse_error(error, path, text) from None
    except ValueError as error:  # such as the date 2026-13-01 outside our settings, from Python's datetime
        raise InputError(str(path), f"cannot be read: {error}", fix="fix that value, or put it in quotes") from None


def read_model(
    path: Path, model: type[Model], *, named: str, keys: str, folder: str, lined: Collection[Loc] = ()
) -> Model:
    """Reads a YAML file into a model; below `lined`, texts may have line breaks. InputError, or a group of them."""
    data = read_yaml(path, model, kind=named)
    if not isinstance(data, dict):
        raise InputError(
            str(path), f"not a {named} file", value=data, allowed=f"keys such as {keys}", fix=f"copy one of {folder}"
        )
    if odd := list(odd_texts(data, f"{path}: ", lined)):
        raise ExceptionGroup(f"{path} is not valid", odd)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ExceptionGroup(f"{path} is not valid", explain(error, model, str(path), namespace="")) from None


def _read(path: Path, kind: str) -> str:
    try:
        return read_text_file(path, _MAX_BYTES)
    except UnfitFileError as error:
        is_large = error.errno == errno.EFBIG
        problem = f"too large for a {kind} file" if is_large else f"not a {kind} file: {error.strerror}"
        allowed = f"a regular YAML file of at most {_MAX_BYTES / 1e6:g} MB"
        size = f"{path.stat().st_size:,} bytes" if path.is_file() else None
        raise InputError(str(path), problem, value=size, allowed=allowed, fix=_OTHER_FILE) from None
    except UnicodeDecodeError:
        raise InputError(
            str(path), "not UTF-8 text", allowed="a YAML file in UTF-8", fix=f"save it as UTF-8, or {_OTHER_FILE}"
        ) from None
    except OSError as error:
        fix = f"allow reading it: chmod u+r {path}" if isinstance(error, PermissionError) else "check the path"
        allowed = "a YAML file that this user may read"
        raise InputError(str(path), f"cannot be read: {error.strerror}", allowed=allowed, fix=fix) from None


def _parse_error(error: yaml.YAMLError, path: Path, text: str) -> InputError:
    mark = getattr(error, "problem_mark", None)
    line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    return InputError(
        f"{path}, line {mark.line + 1}" if mark else str(path),
        f"not valid YAML: {getattr(error, 'problem', None) or str(error).splitlines()[0]}",
        value=line.strip() or None,
        allowed="YAML, as in the stack files that come with Gangway",
        fix="indent with spaces instead of tabs" if "\t" in line else "fix the YAML there",
    )


def _check_depth(text: str, path: Path) -> None:
    """Refuses deep nesting: PyYAML builds nodes by recursion in C, which does not check its stack."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise InputError(str(path), "nested too deeply", allowed=f"{_MAX_DEPTH} levels", fix=_OTHER_FILE)


def _find_misread(
    document: yaml.Node | None, path: Path, root: type[BaseModel] | None, settings: type[BaseModel] | None
) -> Iterator[InputError]:
    start: list[tuple[yaml.Node, Loc]] = [] if document is None else [(document, ())]
    queue, visited = deque(start), 0
    while queue:
        node, loc = queue.popleft()
        # An alias counts at each of its uses, as for every reader of the settings.
        if (visited := visited + 1) > _MAX_VALUES:
            raise InputError(str(path), f"more than {_MAX_VALUES} values, counting aliases", fix="shorten the file")
        ours = root is not None or (len(loc) > 1 and loc[0] == "config" and str(loc[1]).startswith("gangway:"))
        if ours and _is_odd(node):
            place = f"{_get_line(path, node)}: {spell(loc if root else loc[1:])}"
            yield _misread_value(node, place, "this", *_expected(node, root, settings, loc))
        if isinstance(node, yaml.MappingNode):
            yield from _duplicate_keys(node, path)
            if ours:
                yield from _misread_keys(node, path, loc if root else loc[1:])
            queue.extend((value, (*loc, _key_text(key))) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            queue.extend((item, (*loc, position)) for position, item in enumerate(node.value))


def _misread_keys(node: yaml.MappingNode, path: Path, loc: Loc) -> Iterator[InputError]:
    before: tuple[yaml.Node, yaml.Node] | None = None
    for key, value in node.value:
        if key.tag not in (_TAG + "str", _TAG + "merge"):
            number = "" if before is None else _cut_number(before[1], key, value)
            if before is not None and number:
                name = _key_text(before[0])
                yield InputError(
                    f"{_get_line(path, key)}: {spell((*loc, name))}",
                    "in YAML, a comma ends the number here",
                    value=f"{_key_text(before[1])},{_key_text(key)}",
                    allowed="a number without commas",
                    fix=f"write {name}: {number}",
                )
            else:
                yield _misread_value(key, _get_line(path, key), "this key")
        before = (key, value)


def _cut_number(value: yaml.Node, key: yaml.Node, after: yaml.Node) -> str:
    """`60000` if `{usd: 60,000}` was read as the number 60 and a key 000 without a value; else empty."""
    groups = f"{_key_text(value)},{_key_text(key)}"
    alone = isinstance(after, yaml.ScalarNode) and after.value == ""
    return groups.replace(",", "") if alone and re.fullmatch(r"[1-9]\d{0,2},\d{3}", groups) else ""


def _key_text(key: yaml.Node) -> str:
    return str(key.value) if isinstance(key, yaml.ScalarNode) else "?"


def _is_odd(node: yaml.Node) -> bool:
    """Whether YAML reads a value as another type than it looks like, or as one that no setting has."""
    match node.tag.removeprefix(_TAG):
        case "str" | "null" | "map" | "seq":
            return False
        case "int" | "float":
            return not (_PLAIN_NUMBER.fullmatch(node.value) or node.value.lower().lstrip("+-") in (".inf", ".nan"))
        case "bool":
            return node.value not in _PLAIN_BOOLS
        case "timestamp":
            return not _PLAIN_TIME.fullmatch(node.value)
        case _:
            return True


def _misread_value(node: yaml.Node, place: str, what: str, allowed: str = "", fix: str = "") -> InputError:
    read_as, plain = _READ_AS.get(node.tag, (f"something tagged {node.tag.replace(_TAG, '!!')}", ""))
    if not isinstance(node, yaml.ScalarNode):
        return InputError(place, f"YAML reads {what} as {read_as}", allowed="no tags", fix="write it without the tag")
    return InputError(
        place,
        f"YAML reads {what} as {read_as}",
        value=node.value,
        allowed=allowed or "text, decimal numbers, true and false, and a time with its zone",
        fix=fix or f'write {plain if what == "this" else ""}"{node.value}" in quotes for text',
    )


def _expected(
    node: yaml.Node, root: type[BaseModel] | None, settings: type[BaseModel] | None, loc: Loc
) -> tuple[str, str]:
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _READ_AS:
        return "", ""
    if root is not None:
        return describe_setting(root, loc, node.value)
    if settings is None:
        return "", ""
    return describe_setting(settings, (str(loc[1]).removeprefix("gangway:"), *loc[2:]), node.value)


def _duplicate_keys(node: yaml.MappingNode, path: Path) -> Iterator[InputError]:
    first: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if key.value in first:
            yield InputError(
                f"{_get_line(path, key)}: {key.value}",
                f"duplicate key, first in line {first[key.value]}; the later one would replace the earlier",
                allowed="each key once",
                fix="remove one of them",
            )
        first.setdefault(key.value, line)


def _get_line(path: Path, node: yaml.Node) -> str:
    return f"{path}, line {node.start_mark.line + 1}"


_MOST, _MOST_KEY = 4096, 16384
_LONG_PATH = 200
_PEM = "-----BEGIN "


def odd_texts(values: Mapping[str, Any], place: str, lined: Collection[Loc] = ()) -> Iterator[InputError]:
    """A mistake for each text that is too long or has an invisible character. PEM keys may have line breaks and are not
    repeated in the message; texts at or below the places `lined` may have line breaks and tabs.
    """
    for loc, text in leaves(values):
        if not isinstance(text, str):
            continue
        where = f"{place}{spell(loc)[:_LONG_PATH]}"
        is_key = _PEM in text
        most = _MOST_KEY if is_key else _MOST
        if len(text) > most:
            allowed = f"up to {most:,} characters"
            yield InputError(
                where, "longer than any setting", value=f"{len(text):,} characters", allowed=allowed, fix="shorten it"
            )
            continue
        has_lines = any(loc[: len(each)] == each for each in lined)
        may = "\n" if is_key else "\n\t" if has_lines else ""
        if odd := next((each for each in text if not each.isprintable() and each not in may), ""):
            yield InputError(
                where,
                f"has an invisible character, {visible(odd) if odd.strip() else ascii(odd)}",
                value=None if is_key else text,
                allowed="letters, digits, signs and plain spaces, in one line",
                fix="retype it: pasted text may contain such characters",
            )
