"""Settling: a wait between what a cloud says it has made and the first resource that needs it to be heeded. Grants are
heeded everywhere only after minutes, nothing can be asked whether they are, and what uses them too early fails for
good. It waits when the thing is made or made anew, not at each `up`. A dynamic resource, so for programs in Python:
components wait only where told for how long.
"""

import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, UpdateResult

from components.core.dynamic import DynamicProvider

__all__ = ["Settling", "SettlingProvider"]

SAY_SEC = 30.0
"""How often it says what it waits for."""


class SettlingProvider(DynamicProvider):
    """Waits when something is made, or made anew. Holds nothing, and deletes nothing."""

    # There is no secret in a reference, and a secret one would hide every difference in a preview.
    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Waits. An `up` that is interrupted meanwhile waits anew the next time."""
        _wait(props["what"], float(props["seconds"]))
        return CreateResult(sha256("\n".join(props["awaited"]).encode()).hexdigest()[:16], props)

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """How long to wait, and what to call it, is for the next time."""
        changed = any(olds.get(key) != news.get(key) for key in ("awaited", "seconds", "what"))
        return DiffResult(changed, [], [], delete_before_replace=False)

    def update(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """Waits for what is new among them."""
        if olds.get("awaited") != news["awaited"]:
            _wait(news["what"], float(news["seconds"]))
        return UpdateResult(news)


def _wait(what: str, seconds: float) -> None:
    """Says what it waits for, on standard output, which Pulumi shows."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        print(f"waiting until {what}: {left:.0f} s of {seconds:.0f} left", flush=True)
        time.sleep(min(SAY_SEC, left))


class Settling(Resource, module="gangway", name="Settling"):
    """The wait, as Pulumi's engine sees it.

    Args:
        name: logical name.
        what: what is waited for: a clause, such as "Azure heeds the roles of the head".
        awaited: ids, and whatever else tells one that was made anew from the one before.
        seconds: how long.
        opts: of the resource.
    """

    def __init__(
        self,
        name: str,
        what: str,
        awaited: Sequence[pulumi.Input[str]],
        seconds: float,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__(SettlingProvider(), name, {"what": what, "awaited": list(awaited), "seconds": seconds}, opts)
