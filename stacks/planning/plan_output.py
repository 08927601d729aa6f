"""A plan on standard output: tables, its JSON, or Infracost's; and what changed since an earlier one. No arithmetic."""

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from stacks.planning.difference import compare
from stacks.planning.infracost import infracost
from stacks.planning.plan import Plan
from stacks.planning.show import show_plan
from stacks.planning.show_difference import show_difference

__all__ = ["print_plan"]


def print_plan(plan: Plan, output: str, previous: Mapping[str, Any] | None) -> None:
    """Prints `plan`.

    Args:
        plan: to be printed.
        output: text, json or infracost.
        previous: an earlier plan, as `read_plan` gives it; None for no comparison.
    """
    if output == "text":
        show_plan(plan, Console())
        if previous is not None:
            show_difference(compare(previous, _plain(plan)), Console())
        return
    data = plan.to_json()
    if output == "infracost":
        data = infracost(_plain(plan), previous)
    elif previous is not None:
        data["difference"] = compare(previous, _plain(plan)).to_json()
    print(json.dumps(data, indent=2))


def _plain(plan: Plan) -> dict[str, Any]:
    """As the file of an earlier plan holds it: tuples are lists there, and would not be equal to them."""
    plain: dict[str, Any] = json.loads(json.dumps(plan.to_json()))
    return plain
