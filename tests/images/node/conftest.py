"""What a machine's Python starts from: the APIs in small, and what Google publishes of the real ones."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.images.node.gcp.api import GoogleApi
from tests import google_methods


@pytest.fixture
def google(gce: Any) -> GoogleApi:
    """The APIs as a machine of the stand-in sees them."""
    return GoogleApi(gce.url, gce.url)


@pytest.fixture(scope="session")
def published() -> Callable[[Any], set[str]]:
    """The ids of the methods that a call may be; see tests/google_methods.py."""
    return google_methods.published
