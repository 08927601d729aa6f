"""ImageRegistry: tags that cannot be moved, scans on push."""

from collections.abc import Callable
from typing import Any

from components.aws.registry import ImageRegistry


def test_the_repository_is_immutable_scanned_and_goes_with_the_stack(make: Callable[..., Any]) -> None:
    inputs = make(ImageRegistry).one("Repository").inputs
    assert inputs["imageTagMutability"] == "IMMUTABLE"
    assert inputs["imageScanningConfiguration"] == {"scanOnPush": True}
    assert inputs["forceDelete"] is True
