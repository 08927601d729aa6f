"""Makes text from files safe for a terminal, and quotes values for the query languages of the clouds."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, cast

Loc = tuple[int | str, ...]


def visible(text: str) -> str:
    r"""The text with every character spelled out that cannot be seen, but for line breaks and tabs.

    >>> visible("\x1b[31mred\x9b0m"), visible("a\n\u202eb")
    ('\\x1b[31mred\\x9b0m', 'a\n\\u202eb')
    """
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode("ascii") for each in text
    )


def one_line(text: str) -> str:
    r"""As `visible`, with line breaks and tabs escaped too, so that a cell of a table stays in its row.

    >>> one_line("a\nb")
    'a\\nb'
    """
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def all_visible(value: Any) -> Any:
    """Plain JSON data with its texts visible, including keys."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {all_visible(key): all_visible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [all_visible(item) for item in value]
    return value


class OneLineTexts:
    """Base of a frozen dataclass with untrusted texts: escapes each as `one_line` does, in tuples too."""

    def __post_init__(self) -> None:
        for each in fields(cast("Any", self)):
            object.__setattr__(self, each.name, one_line_texts(getattr(self, each.name)))


def one_line_texts(value: Any) -> Any:
    """Apply `one_line` to a text, or to the texts in a tuple or list; returns anything else as it is."""
    if type(value) is str:  # not a StrEnum
        return one_line(value)
    return type(value)(map(one_line_texts, value)) if type(value) in (tuple, list) else value


def leaves(value: Any, loc: Loc = ()) -> Iterator[tuple[Loc, Any]]:
    """All scalars in plain data with their places; a key has the place of its value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*loc, str(key)), str(key)
            yield from leaves(item, (*loc, str(key)))
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            yield from leaves(item, (*loc, position))
    else:
        yield loc, value


_RE2_SPECIAL = re.compile(r"[^\w\s-]", re.ASCII)


def _quoted(text: str) -> str:
    """Escape backslashes, double quotes and non-ASCII, as Go, Google, Kusto, CloudWatch and JSON all read it.

    >>> _quoted('a"b')
    '"a\\\\"b"'
    """
    return json.dumps(text)


promql_text = _quoted
"""PromQL."""
google_filter_text = _quoted
"""Filters of Cloud Logging, Cloud Monitoring and Compute Engine."""
kql_text = _quoted
"""Kusto's string literal."""
alarm_rule_text = _quoted
"""An alarm's name or ARN in the rule of a CloudWatch composite alarm."""


def promql_any(words: Iterable[str]) -> str:
    """PromQL's pattern (RE2, the whole value) for any of the words."""
    return promql_text("|".join(_RE2_SPECIAL.sub(lambda found: f"\\{found[0]}", word) for word in words))


def insights_text(text: str) -> str:
    """CloudWatch Logs Insights: single quotes."""
    return "'" + _quoted(text)[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"
