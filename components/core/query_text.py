"""Quotes values for the query languages of the clouds, one function each; no query quotes a value by itself."""

import json
import re
from collections.abc import Iterable

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
