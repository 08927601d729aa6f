"""Values as texts of the languages in which clouds are asked: one function for each, and no query puts a value between
quotes by itself. Names of stacks and groups have a grammar in which nothing is special to any of them; the log groups,
logs and ARNs that are made of them neither. What is quoted here stays one text whatever it holds.
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
    """PromQL's pattern (RE2, the whole value) of any of the words."""
    return promql_text("|".join(_RE2_SPECIAL.sub(lambda found: f"\\{found[0]}", word) for word in words))


def google_filter_text(text: str) -> str:
    """Filters of Cloud Logging, Cloud Monitoring and Compute Engine's lists: double quotes and backslashes."""
    return _quoted(text)


def kql_text(text: str) -> str:
    """Kusto's string literal."""
    return _quoted(text)


def alarm_rule_text(text: str) -> str:
    """An alarm's name or ARN in the rule of a composite alarm of CloudWatch."""
    return _quoted(text)


def insights_text(text: str) -> str:
    """CloudWatch Logs Insights: single quotes."""
    return "'" + _inside(text).replace('\\"', '"').replace("'", "\\'") + "'"


def _quoted(text: str) -> str:
    return f'"{_inside(text)}"'


def _inside(text: str) -> str:
    """Backslashes, double quotes and what is no printable ASCII, escaped as Go, Kusto and JSON read it alike."""
    return json.dumps(text)[1:-1]
