"""A small build context, and a build service whose state the test sets."""

import pytest

from gangway.live.image_build.context import BuildContext

DIGEST = f"sha256:{'0123456789abcdef' * 4}"


@pytest.fixture
def digest() -> str:
    return DIGEST


def context_for(repository: str) -> BuildContext:
    return BuildContext(repository, "content-1", b"archive")
