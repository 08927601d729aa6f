"""What running machines keep when `up` runs with another version of Gangway: their user data and their job.

A machine's user data contains scripts, so every version makes another text, and another text replaces machines. The
stack's state therefore keeps the text (`gangway.components.core.pinned.kept`) until something else decides: a setting
of the stack file, a resource that the text names, or `cluster.software_refresh`.
"""

import hashlib
import json
from typing import Any

import pulumi

from gangway.components.core.job import JobSpec
from gangway.components.core.lookup import kept
from gangway.stacks.config.stack_config import StackConfig

REACH_NO_MACHINE = frozenset({"allow_replace", "budget", "observe", "regions", "tags"})
"""Sections that are in no machine's user data, and in no job, apart from `_REACH_MACHINES`."""
_REACH_MACHINES = ("budget.limits.job_usd", "budget.limits.usd_per_node_hour", "observe.hardware")

_NAMES = frozenset({"stack", "stack_name", "identity"})
"""Of the stack: each resource has them, and a change is refused."""
SETTINGS = "settings"
"""The part of what decides that a plan without the cloud knows."""


def settings_digest(config: StackConfig) -> str:
    """Of all that the stack file sets and machines may know; without defaults, which belong to a version."""
    written = config.model_dump(mode="json", exclude_unset=True, exclude=set(_NAMES))
    sections = {name: written.pop(name, None) for name in REACH_NO_MACHINE}
    written |= {place: _value(sections, place) for place in _REACH_MACHINES}
    # Under the engine, settings that the file leaves out have Pulumi.yaml's defaults.
    decided = {name: value for name, value in written.items() if value not in ({}, [], "", None)}
    decided |= {"provider": config.provider, "encryption": config.encryption}
    return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()


def _value(settings: Any, place: str) -> Any:
    for name in place.split("."):
        settings = (settings or {}).get(name)
    return settings


def keep_text(config: StackConfig, what: str, made: pulumi.Input[str], names: Any = None) -> pulumi.Output[str]:
    """`made` as of the version that first made it. `names`: values of resources in it, besides the job."""
    settings = settings_digest(config)
    decided_by = pulumi.Output.from_input(names).apply(lambda known: {SETTINGS: settings, "names": _plain(known)})
    text = kept(f"{config.stack}-{what}", made, decided_by)
    pulumi.Output.all(made, text).apply(lambda both: _report(config, what, *both))
    return text


def keep_job(config: StackConfig, made: pulumi.Input[JobSpec]) -> pulumi.Output[JobSpec]:
    """The job as of the version that first made it, with its image: nodes of one job must not run two versions."""
    text = pulumi.Output.from_input(made).apply(lambda job: job.model_dump_json())
    return keep_text(config, "job", text).apply(JobSpec.model_validate_json)


def _plain(names: Any) -> str:
    return json.dumps(names, default=_leave_out)


def _leave_out(value: object) -> None:
    assert isinstance(value, JobSpec), "names are texts, besides the job, which `keep_job` keeps"


def _report(config: StackConfig, what: str, made: str, text: str) -> None:
    if made == text:
        return
    following = config.cluster.software_refresh + 1
    pulumi.log.info(
        f"{config.stack}-{what} stays as an earlier version of Gangway made it, so that nothing restarts; "
        f"cluster.software_refresh: {following} brings the installed version"
    )
