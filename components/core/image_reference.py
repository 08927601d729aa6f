"""The names of container images, by the grammar that registries and engines share (github.com/distribution/reference).
No name of it holds a space, a quote, a line break or anything else that a shell, a unit file or YAML reads as more.
"""

import re
from string import ascii_letters, digits

_COMPONENT = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_COMPONENT}(?:\.{_COMPONENT})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?"
_FOLDER = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
REPOSITORY = rf"{_FOLDER}(?:/{_FOLDER})*"
"""What stands behind the registry's host."""
NAME = rf"(?:{_DOMAIN}/)?{REPOSITORY}"
DIGEST = r"sha256:[0-9a-f]{64}"
TAG = r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}"
BY_DIGEST = rf"{NAME}@{DIGEST}"
"""One build, for ever."""
ONE_VERSION = rf"{NAME}(?::{TAG}(?:@{DIGEST})?|@{DIGEST})"
"""A tag, a digest, or both."""
LETTERS = frozenset(ascii_letters + digits + "._-/:@[]")
"""All that a reference may hold."""
_MAX_NAME = 255


def is_reference(text: str, pattern: str) -> bool:
    """Whether the whole text is a reference of this form (BY_DIGEST, ONE_VERSION), with a name that engines take."""
    name = text.partition("@")[0]
    return re.fullmatch(pattern, text) is not None and len(name) <= _MAX_NAME
