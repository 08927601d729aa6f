"""Values that wait: they stay what they are, and carry the order of creation into whatever takes them."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from gangway.components.core.outputs import after


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


def test_a_value_that_a_preview_knows_stays_known() -> None:
    """An id is unknown until `up`; waiting for it would show every plan as full of unknowns."""

    class Cloud(pulumi.runtime.Mocks):
        def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
            return None, args.inputs

        def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
            return {}, None

    known: list[bool] = []
    pulumi.runtime.set_mocks(Cloud(), preview=True)

    async def note(value: pulumi.Output[str]) -> None:
        known.append(await value.is_known())

    @pulumi.runtime.test  # type: ignore[untyped-decorator]  # the SDK's decorator has no types
    def program() -> pulumi.Output[None]:
        return pulumi.Output.from_input(note(after("value", Thing("first", "a"))))

    program()
    assert known == [True]
