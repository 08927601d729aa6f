"""What `pulumi up` ends with: a stack's outputs, a line or a few each, and the command to run next."""

from collections.abc import Mapping
from typing import Any

import pulumi

from components.kubernetes.queues import QUEUE
from stacks.config.engine_settings import KubernetesConfig, SystemdConfig
from stacks.config.stack_config import StackConfig

HIDDEN = frozenset({"job", "kubeconfig"})
"""Outputs of many lines. They are no secrets, but the engine prints `[secret]` for them and `pulumi stack output NAME
--show-secrets` all of it; it has no other way to keep an output out of the summary."""


def stack_exports(config: StackConfig, exports: Mapping[str, Any]) -> dict[str, pulumi.Input[Any]]:
    """What the program exports: `exports` of the provider without those that the stack does not have, the long ones
    hidden, and `next_command`.
    """
    had = {name: value for name, value in exports.items() if value is not None}
    shown = {name: pulumi.Output.secret(value) if name in HIDDEN else value for name, value in had.items()}
    return {**shown, "next_command": next_command(config, had.get("submit_on"))}


def next_command(config: StackConfig, submit_on: str | None = None) -> str:
    """What to run after `up`: the status of the stack's job, or the first job for its queue. `submit_on`: the value of
    `--on` for a Slurm head; None where the stack does not know it.
    """
    if isinstance(config.engine, SystemdConfig):
        return f"gangway job {config.stack_name}"
    if isinstance(config.engine, KubernetesConfig):
        submit_on = f"kubernetes:@{config.engine.queues[0]}/{QUEUE}"
    return f"gangway job submit FILE --on {submit_on or 'slurm:SHARED_FOLDER'}"
