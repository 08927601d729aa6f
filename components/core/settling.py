"""Settling: a wait between a resource and the first one that needs its effect.

Clouds apply grants everywhere only after minutes, nothing reports when they are done, and a dependent created too early
fails for good. It waits when the resource is created or replaced, not at each `up`. A dynamic resource works only in
Python programs: components wait only if given a time.
"""

import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider, UpdateResult

SAY_SEC = 30.0
"""Seconds between progress messages."""


class SettlingProvider(ResourceProvider):
    """Waits on create and replace. Holds nothing, and deletes nothing."""

    # References contain no secret, and a secret would hide every difference in a preview.
    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Wait. An interrupted `up` waits again the next time."""
        _wait(props["what"], float(props["seconds"]))
        return CreateResult(sha256("\n".join(props["awaited"]).encode()).hexdigest()[:16], props)

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Changes of the time and the label apply the next time."""
        changed = any(olds.get(key) != news.get(key) for key in ("awaited", "seconds", "what"))
        return DiffResult(changed, [], [], delete_before_replace=False)

    def update(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """Wait for the new references."""
        if olds.get("awaited") != news["awaited"]:
            _wait(news["what"], float(news["seconds"]))
        return UpdateResult(news)


def _wait(what: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (remaining_sec := until - time.monotonic()) > 0:
        print(f"waiting until {what}: {remaining_sec:.0f} s of {seconds:.0f} left", flush=True)
        time.sleep(min(SAY_SEC, remaining_sec))


class Settling(Resource, module="gangway", name="Settling"):
    """The wait as a resource. `what`: a clause, such as "Azure heeds the roles of the head"; `awaited`: ids, and
    anything else that changes when a resource is replaced.
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
