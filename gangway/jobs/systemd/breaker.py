"""A stack's circuit breaker from outside: why launches are held (`gangway.images.node.breaker`), and their release."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from pydantic import Field, ValidationError

from gangway.components.core.findings import InputError
from gangway.images.specs import HELD_OBJECT
from gangway.jobs.systemd.state import JobState
from gangway.runs.run_store import NodeRecord, RunStore, StoreFailedError, bucket_region, object_store, runs_url
from gangway.stacks.base.registry import load_adapter, providers_with_adapter
from gangway.trainer.core.validation import first_mistake

FOLDER = "breaker/"
_MAX_BYTES = 65_536
_FIX = "run it as the account that runs `up`, which can read and write the run bucket"


class HeldRecord(NodeRecord):
    """Written by the node that opened the breaker; `reason`: the last node's."""

    reason: str = Field(max_length=1000)
    given_up: int = Field(ge=1)
    within_minutes: int = Field(ge=1)
    nodes: tuple[str, ...] = Field(max_length=50)

    def __str__(self) -> str:
        """Without control characters: a node chose the reason's text."""
        words = "".join(one if one.isprintable() else " " for one in self.reason)
        return (
            f"since {self.time.astimezone(UTC):%Y-%m-%d %H:%M} UTC launches of {self.stack} are held: "
            f"{self.given_up} nodes gave up within {self.within_minutes} minutes, the last, {self.node}, "
            f"because: {' '.join(words.split())}"
        )


@dataclass(frozen=True)
class Breaker:
    """Of one stack, whose name is also the job's. `region`: of AWS's groups and bucket; `url`: of the run folder."""

    provider: str
    stack: str
    region: str
    group_names: Sequence[str]
    url: str

    def read_held(self) -> HeldRecord | None:
        """Why launches are held; None if they are not. InputError: the bucket or its content cannot be read."""
        try:
            content = self.store.read(HELD_OBJECT, _MAX_BYTES)
        except StoreFailedError as error:
            raise InputError(self.url, str(error), fix=_FIX) from None
        if content is None:
            return None
        try:
            return HeldRecord.model_validate_json(content)
        except ValidationError as error:
            raise InputError(
                f"{self.url}/{HELD_OBJECT}",
                f"not written by this version's nodes: {first_mistake(error)}",
                fix=f"check who else writes there; `gangway breaker reset {self.stack}` lets the groups launch again",
            ) from None

    def reset(self) -> list[str]:
        """Removes the nodes' marks and lets groups launch again; what was done, a line each. InputError: refused."""
        try:
            mine = [name for name in self.store.names() if name.startswith(FOLDER)]
        except StoreFailedError as error:
            raise InputError(self.url, str(error), fix=_FIX) from None
        # Resume first, since the cloud may refuse: `show` reports held launches while the marks exist.
        done = self._resume() if load_adapter(self.provider, "scaling").SUSPENDS_LAUNCHES else []
        self._remove(mine)
        return [*done, f"removed {len(mine)} objects of {self.url}/{FOLDER}"]

    def _resume(self) -> list[str]:
        """Resumes launches, and the alarms that fill a rung unless the job has ended: they would add idle nodes."""
        try:
            held = self.read_held()
        except InputError:  # unreadable, so the time is unknown
            held = None
        run_id, since = (held.run_id, held.time) if held is not None else (None, None)
        try:
            ended, doubt = JobState.read(self.store).why_ended(run_id, since), ""
        except InputError as error:
            ended, doubt = "", str(error).splitlines()[0]
        processes = ["Launch", *(["AlarmNotification"] if not ended else [])]
        load_adapter(self.provider, "scaling").resume(self.region, self.group_names, processes)
        done = [f"resumed {' and '.join(processes)} of {', '.join(self.group_names)}"]
        if doubt:
            done.append(f"unknown whether the job has ended: {doubt}")
        if ended:
            stays = "AlarmNotification stays suspended, since the job has ended"
            done.append(f"{stays} ({ended}); `up --refresh` resumes it")
        return done

    @property
    def store(self) -> RunStore:
        """The run folder."""
        return RunStore(self.url, bucket_region(self.provider, self.region))

    def _remove(self, names: Sequence[str]) -> None:
        from botocore.exceptions import BotoCoreError
        from obstore.exceptions import BaseError

        try:
            if names:
                object_store(self.url, bucket_region(self.provider, self.region)).delete(list(names))
        except (BaseError, BotoCoreError, OSError, ValueError) as error:
            raise InputError(
                f"{self.url}/{FOLDER}", f"cannot be emptied: {str(error).splitlines()[0]}", fix=_FIX
            ) from None


def replaces_nodes(provider: str) -> bool:
    """Whether its groups replace lost nodes."""
    return provider in providers_with_adapter("scaling")


def check_launches(provider: str) -> None:
    """InputError: the provider does not replace nodes."""
    if not replaces_nodes(provider):
        raise InputError(
            "gangway:provider",
            "this provider does not replace nodes, so there is nothing to hold",
            value=provider,
            allowed=", ".join(providers_with_adapter("scaling")),
            fix="repair the machine; on OpenStack the next `up` makes a new one",
        )


def get_breaker(provider: str, stack: str, region: str, outputs: Mapping[str, Any]) -> Breaker:
    """InputError: the stack is not up."""
    if not (outputs.get("run_bucket") or outputs.get("run_bucket_url")):
        raise InputError(
            f"pulumi stack output --stack {stack}", "no run_bucket: the stack is not up", fix="pulumi up, or nothing"
        )
    return Breaker(provider, stack, region, outputs.get("group_names") or [], runs_url(provider, outputs, stack))
