"""The scaler of a stack: its provider's calls, with the login that this shell has."""

from collections.abc import Mapping, Sequence
from typing import Any

from components.core.findings import InputError
from gangway.jobs.systemd.scaling.base import Scaler
from stacks.base.registry import load_adapter
from stacks.config.stack_config import StackConfig


def group_names(config: StackConfig, outputs: Mapping[str, Any]) -> list[str]:
    """Of the ladder's groups, in its order. InputError: the stack is not up."""
    names = outputs.get("group_names")
    if not names:
        raise InputError(
            f"pulumi stack output --stack {config.stack_name}", "no group_names: the stack is not up", fix="pulumi up"
        )
    return [str(name) for name in names]


def get_scaler(config: StackConfig, outputs: Mapping[str, Any], names: Sequence[str], *, is_held: bool) -> Scaler:
    """`outputs`: of the stack's program; `is_held`: whether nodes hold launches by the run's bucket. InputError: nobody
    is logged in.
    """
    scaler: Scaler = load_adapter(config.provider, "scaling").open_scaler(config, outputs, names, is_held=is_held)
    return scaler
