"""An image that stays: which resource keeps it. That it does is shown under the real engine."""

from typing import Any

import pulumi

from gangway.components.core.lookup import STASH, pinned
from gangway.stacks.recording import PlaceholderCloud, record


def declared(refresh: int) -> Any:
    def program() -> dict[str, Any]:
        return {"images": pinned("demo-images", {"nodes": pulumi.Output.from_input("ami-1")}, refresh)}

    return record(program, PlaceholderCloud(), "demo")


def test_another_number_is_another_resource_which_takes_what_is_newest_then() -> None:
    names = []
    for refresh in (0, 1):
        made = declared(refresh)
        (stash,) = made.resources
        assert (stash.type, stash.inputs) == (STASH, {"input": {"nodes": "ami-1"}})
        assert made.result == {"images": {"nodes": "ami-1"}}
        names.append(stash.name)
    assert names == ["demo-images-0", "demo-images-1"]
