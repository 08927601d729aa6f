"""Writes `gangway:image.prebuilt` into a stack file: its other lines, comments among them, stay as they are."""

from pathlib import Path
from typing import Any

import yaml

from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import write_whole
from gangway.trainer.core.regular_files import read_text_file

_SECTION, _KEY = "gangway:image", "prebuilt"


def write_prebuilt(path: Path, image: str) -> None:
    """Sets the image in one step. InputError: the file cannot be changed, and nothing was written."""
    text = read_text_file(path)
    changed = set_prebuilt(text, image)
    if changed is None:
        fix = f"write it yourself: gangway:image: {{prebuilt: {image}}}"
        raise InputError(str(path), "--write cannot change this form of YAML; nothing was written", fix=fix)
    write_whole(path, changed.encode())


def set_prebuilt(text: str, image: str) -> str | None:
    """The text with the image; None if the result would not be the same file with only this changed."""
    document = yaml.compose(text, Loader=yaml.SafeLoader)
    config = _value(document, "config")
    if config is None:
        return None
    section = _value(config, _SECTION)
    old = None if section is None else _value(section, _KEY)
    if old is not None:
        changed = text[: old.start_mark.index] + image + text[old.end_mark.index :]
    else:
        changed = _insert(text, config, section, image)
    return changed if _matches(text, changed, image) else None


def _insert(text: str, config: yaml.Node, section: yaml.Node | None, image: str) -> str:
    """With a new line before the first entry of the section, or of `config`."""
    place = config if section is None else section
    first = place.value[0][0].start_mark if place.value else place.start_mark
    indent = " " * first.column
    line = f"{_KEY}: {image}" if section is not None else f"{_SECTION}: {{{_KEY}: {image}}}"
    start = first.index - first.column
    return f"{text[:start]}{indent}{line}\n{text[start:]}"


def _value(node: yaml.Node | None, name: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for key, value in pairs if key.value == name), None)


def _matches(text: str, changed: str, image: str) -> bool:
    wanted: Any = yaml.safe_load(text)
    wanted["config"][_SECTION] = {**(wanted["config"].get(_SECTION) or {}), _KEY: image}
    try:
        return bool(yaml.safe_load(changed) == wanted)
    except yaml.YAMLError:
        return False
