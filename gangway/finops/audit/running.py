"""A stack that is up, with what its outputs lead to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gangway.components.core.findings import InputError
from gangway.finops.audit import state
from gangway.jobs.systemd.state import Breaker, get_breaker
from gangway.runs.run_store import RunStore, bucket_region
from gangway.stacks.config.paths import project_folder
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.openstack.settings import storage_cloud


class Outputs(dict[str, Any]):
    """A stack's outputs, of which an interrupted `up` leaves only some."""

    def __missing__(self, name: str) -> Any:
        raise InputError(f"pulumi stack output {name}", "missing: the stack is only half up", fix="pulumi up")


@dataclass(frozen=True)
class RunningStack:
    """A stack with its outputs, its breaker and the folder of its run."""

    config: StackConfig
    outputs: Mapping[str, Any]
    breaker: Breaker
    store: RunStore


def open_stack(config: StackConfig) -> RunningStack:
    """InputError: its state cannot be read, or the stack is not up, or only half."""
    outputs = Outputs(state.stack_outputs(config.stack_name, project_folder()))
    if not (outputs.get("run_bucket") or outputs.get("run_bucket_url")):
        resources = len(state.export_state(config.stack_name, project_folder()).resources)
        problem = f"half up: {resources} resources, and no outputs yet" if resources else "not up: it has no resources"
        raise InputError(f"stack {config.stack_name}", problem, fix=f"pulumi up --stack {config.stack_name}")
    breaker = get_breaker(config.provider, config.stack, config.region, outputs)
    region = bucket_region(config.provider, config.region)
    return RunningStack(config, outputs, breaker, RunStore(breaker.url, region, storage_cloud(config)))
