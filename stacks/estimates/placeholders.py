"""Values of a stack file that are still those of an example. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from gangway.components.core.findings import Finding
from gangway.stacks.config.stack_config import StackConfig

_KINDS = {
    # RFC 2606 and RFC 6761: no one can own these names.
    "a name reserved for examples": r"(?:[@/.]|^)example\.(?:com|net|org|edu)\b|\.(?:example|invalid)\b",
    # RFC 5737 and RFC 3849.
    "a network reserved for documentation": r"\b(?:192\.0\.2|198\.51\.100|203\.0\.113)\.\d|\b2001:0?db8:",
    # AWS uses these in its documentation.
    "an account number from documentation": r"(?<!\d)(?:123456789012|111122223333|444455556666|0{12})(?!\d)",
    "an id that only counts up or repeats": r"0123456789-?abcdef|012345-6789ab-cdef|\b([0-9a-f])\1{7}-",
    "a name from an example": r"(?<![\w-])(?:my|your)-(?:project|bucket|org|company|account|registry|team)(?![\w-])",
    "a blank to fill in": r"\b(?:change[-_ ]?me|replace[-_ ]?me|todo|fixme|placeholder)\b|<[a-z][a-z0-9 _-]*>",
}
_PATTERNS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KINDS.items())
_NOT_SETTINGS = ("stack", "stack_name", "job", "tags")
"""Sections without addresses and ids; commands and labels may contain anything."""
_NAMED = 3


def example_kind(text: str) -> str:
    """The kind of placeholder in `text`; empty for none.

    >>> example_kind("ml@example.com"), example_kind("ml@acme.io")
    ('a name reserved for examples', '')
    """
    return next((kind for kind, pattern in _PATTERNS if pattern.search(text)), "")


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}[{index}]")


def placeholder_findings(config: StackConfig) -> Iterator[Finding]:
    """One warning for all placeholders; no error, since plans work without an account."""
    written = config.model_dump(mode="json", exclude_unset=True, exclude=set(_NOT_SETTINGS))
    found = [(path, text, kind) for path, text in _texts(written, "") if (kind := example_kind(text))]
    if not found:
        return
    shown = "; ".join(
        f"{path}: {text if len(text) <= 60 else f'{text[:60]}...'} ({kind})" for path, text, kind in found[:_NAMED]
    )
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    yield Finding.warning(
        "config.placeholder",
        f"gangway:{found[0][0]}",
        f"values of an example: {shown}{more}; alarms will reach no one, or `up` will fail",
        "write your own values",
    )
