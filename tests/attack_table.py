"""The known ways in, tried: tests that are marked `attack("who", "what")` make one table at the end (`make attack`).

A pytest plugin; `conftest.py` registers it.
"""

from collections import Counter
from typing import Any

import pytest

ATTACK = "attack"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A report goes from a worker to the one that prints with its properties alone."""
    for item in items:
        for mark in item.iter_markers(ATTACK):
            who, what = mark.args
            item.user_properties.append((ATTACK, (who, what)))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The table: refused where every way of a row was, else what went through."""
    if config.option.markexpr == ATTACK:
        for line in table(terminalreporter.stats):
            terminalreporter.write_line(line)


def table(stats: dict[str, list[Any]]) -> list[str]:
    """Its lines, by pytest's reports of each outcome."""
    tried: dict[tuple[str, str], Counter[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in stats.get(outcome, []):
            for name, value in getattr(report, "user_properties", []):
                if name == ATTACK:
                    tried.setdefault(tuple(value), Counter())[outcome] += 1
    lines = ["", "| as | tried | ways | came of it |", "| --- | --- | ---: | --- |"]
    for (who, what), outcomes in sorted(tried.items()):
        ways = sum(outcomes.values())
        bad = outcomes["failed"] + outcomes["error"]
        said = f"**{bad} went through**" if bad else "refused" if outcomes["passed"] else "not tried here"
        if outcomes["skipped"] and outcomes["passed"]:
            said += f", {outcomes['skipped']} not tried here"
        lines.append(f"| {who} | {what} | {ways} | {said} |")
    return lines
