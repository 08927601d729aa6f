"""Patterns of container image names, by the grammar of registries and engines (github.com/distribution/reference).

A name contains no spaces, quotes, line breaks or other characters special to shells, unit files or YAML.
"""

import re
from string import ascii_letters, digits

_COMPONENT = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_COMPONENT}(?:\.{_COMPONENT})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?"
_FOLDER = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
REPOSITORY = rf"{_FOLDER}(?:/{_FOLDER})*"
"""The part after the registry's host."""
NAME = rf"(?:{_DOMAIN}/)?{REPOSITORY}"
DIGEST = r"sha256:[0-9a-f]{64}"
TAG = r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}"
BY_DIGEST = rf"{NAME}@{DIGEST}"
"""An immutable reference."""
ONE_VERSION = rf"{NAME}(?::{TAG}(?:@{DIGEST})?|@{DIGEST})"
"""A tag, a digest, or both."""
LETTERS = frozenset(ascii_letters + digits + "._-/:@[]")
"""All characters of a reference."""
_MAX_NAME = 255


def is_reference(text: str, pattern: str) -> bool:
    """Whether the whole text is a reference of this form (BY_DIGEST, ONE_VERSION) with a name that engines accept."""
    name = text.partition("@")[0]
    return re.fullmatch(pattern, text) is not None and len(name) <= _MAX_NAME
