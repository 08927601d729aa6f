"""Declares Azure's components. What Microsoft's management models say of them, tests/conftest.py asks."""

from typing import Any

import pytest


@pytest.fixture
def tags() -> dict[str, str]:
    return {"team": "ml", "gangway-stack": "demo"}


SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def place(tags: dict[str, str]) -> dict[str, Any]:
    """Where everything is, and what it carries: the arguments that all components share."""
    return {
        "subscription_id": SUBSCRIPTION,
        "resource_group_name": "gangway-demo",
        "location": "eastus",
        "zone": "1",
        "stack": "demo",
        "tags": tags,
    }
