"""Quotes values for the query languages of the clouds, one function each; no query quotes a value by itself.

Names of stacks, groups, logs and ARNs contain nothing special to any of them; quoting still holds for any text.
"""

import json
import re
from collections.abc import Iterable

_RE2_SPECIAL = re.compile(r"[^\w\s-]", re.ASCII)


def promql_text(text: str) -> str:
    """PromQL: Go's escapes between double quotes.

    >>> promql_text('a"b')
    '"a\\\\"b"'
    """
    return _quoted(text)


def promql_any(words: Iterable[str]) -> str:
    """PromQL's pattern (RE2, the whole value) for any of the words."""
    return promql_text("|".join(_RE2_SPECIAL.sub(lambda found: f"\\{found[0]}", word) for word in words))


def google_filter_text(text: str) -> str:
    """Filters of Cloud Logging, Cloud Monitoring and Compute Engine: double quotes and backslashes."""
    return _quoted(text)


def kql_text(text: str) -> str:
    """Kusto's string literal."""
    return _quoted(text)


def alarm_rule_text(text: str) -> str:
    """An alarm's name or ARN in the rule of a CloudWatch composite alarm."""
    return _quoted(text)


def insights_text(text: str) -> str:
    """CloudWatch Logs Insights: single quotes."""
    return "'" + _inside(text).replace('\\"', '"').replace("'", "\\'") + "'"


def _quoted(text: str) -> str:
    return f'"{_inside(text)}"'


def _inside(text: str) -> str:
    """Escape backslashes, double quotes and non-ASCII, as Go, Kusto and JSON all read it."""
    return json.dumps(text)[1:-1]
