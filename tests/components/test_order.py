"""Values that wait: they stay what they are, and carry the order of creation into whatever takes them."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from components.order import after


class Thing(pulumi.CustomResource):
    """A resource of no provider."""

    def __init__(self, name: str, word: pulumi.Input[str]) -> None:
        super().__init__("test:index:Thing", name, {"word": word})


@pytest.fixture
def made(declare: Callable[..., Any]) -> dict[str, Any]:
    """A thing that waits for another and for an output of a second one, and a thing that waits for nothing."""

    def program() -> None:
        first, second = Thing("first", "a"), Thing("second", "b")
        waiting: pulumi.Output[str] = after("kept", first, second.id)
        Thing("waiting", waiting)
        plain: pulumi.Output[str] = after("plain")
        Thing("plain", plain)

    return {resource.name: resource for resource in declare(program).resources}


def test_the_value_is_not_changed(made: dict[str, Any]) -> None:
    assert [made[name].inputs["word"] for name in ("waiting", "plain")] == ["kept", "plain"]


def test_whatever_takes_it_comes_after_the_others_and_so_goes_before_them(made: dict[str, Any]) -> None:
    assert made["plain"].dependencies == frozenset()
    assert made["waiting"].dependencies == {made["first"].urn, made["second"].urn}
