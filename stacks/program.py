"""From a StackConfig to resources, with the provider's program. The Pulumi engine (`stacks/__main__.py`), the offline
plan and the sandbox all call `build`.
"""

from collections.abc import Mapping
from typing import Any

import pulumi

from gangway.stacks.base.extras import missing_extra
from gangway.stacks.base.provider import Program
from gangway.stacks.base.registry import get_provider
from gangway.stacks.base.sdk_imports import import_by_name
from gangway.stacks.config.stack_config import StackConfig


def get_program(provider: str) -> Program[Any]:
    """The provider's `program`, imported on demand, since each imports its cloud's SDK. InputError: its extra is not
    installed.
    """
    import_by_name()
    try:
        return get_provider(provider).program()
    except ModuleNotFoundError as error:
        raise missing_extra(error, provider) or error from None


def build(config: StackConfig, planned: Any = None) -> Mapping[str, pulumi.Input[Any]]:
    """Declares all resources of the stack and returns its exports. `planned`: the provider's plan, if it exists."""
    program = get_program(config.provider)
    return program.build(config, planned or program.plan(config))
