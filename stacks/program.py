"""From a StackConfig to resources, by the provider's program: the one function that the Pulumi engine
(`stacks/__main__.py`), the offline plan and the sandbox all call.
"""

from collections.abc import Mapping
from typing import Any

import pulumi

from stacks.base.extras import missing_extra
from stacks.base.provider import Program
from stacks.base.registry import get_provider
from stacks.base.sdk_imports import import_by_name
from stacks.config.stack_config import StackConfig


def get_program(provider: str) -> Program[Any]:
    """The provider's `program`, imported only when a stack asks for it: each pulls in its cloud's SDK. InputError: its
    extra is not installed.
    """
    import_by_name()
    try:
        return get_provider(provider).program()
    except ModuleNotFoundError as error:
        raise missing_extra(error, provider) or error from None


def build(config: StackConfig, planned: Any = None) -> Mapping[str, pulumi.Input[Any]]:
    """Declares every resource of the stack and returns its exports. `planned`: what the provider's `plan` says of it,
    from who has asked already.
    """
    program = get_program(config.provider)
    return program.build(config, planned or program.plan(config))
