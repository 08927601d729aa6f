"""Finds the scaler of a stack: its provider's calls, with this shell's login."""

from collections.abc import Mapping, Sequence
from typing import Any

from components.core.findings import InputError
from gangway.jobs.systemd.scaling.base import Scaler
from stacks.base.registry import load_adapter
from stacks.config.stack_config import StackConfig


def group_names(config: StackConfig, outputs: Mapping[str, Any]) -> list[str]:
    """The ladder's groups, in order. InputError: the stack is not up."""
    names = outputs.get("group_names")
    if not names:
        raise InputError(
            f"pulumi stack output --stack {config.stack_name}", "no group_names: the stack is not up", fix="pulumi up"
        )
    return [str(name) for name in names]


def get_scaler(config: StackConfig, outputs: Mapping[str, Any], names: Sequence[str], *, is_held: bool) -> Scaler:
    """`outputs`: of the stack; `is_held`: whether the run's bucket says that launches are held. InputError: not logged
    in.
    """
    scaler: Scaler = load_adapter(config.provider, "scaling").open_scaler(config, outputs, names, is_held=is_held)
    return scaler
