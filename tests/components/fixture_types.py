"""Types that many tests use."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Make = Callable[..., Any]
"""Declares a component, or a part of one, with changes."""
Mistakes = Callable[..., list[str]]
"""Compares what is declared with a published schema; empty if there is no mistake."""


@dataclass(frozen=True)
class Resource:
    """A resource as pricing sees it."""

    type: str
    name: str
    inputs: dict[str, Any]
    id: str = ""
