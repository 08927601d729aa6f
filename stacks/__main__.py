"""The Pulumi program: `pulumi up --stack aws-demo` runs this file. Load, build, export; no more."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

# The engine makes this folder sys.path[0]; the packages live one above.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pulumi
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.settings import get_monitor

from components.core.findings import InputError, Severity
from stacks.base.ownership import check_addresses, check_encryption, check_identity, own_state
from stacks.base.registry import get_provider
from stacks.config.paths import in_checkout, in_project
from stacks.config.stack_config import StackConfig
from stacks.cosign import check_keyless
from stacks.data_guard import DataGuard, delete_named_first
from stacks.loading.loader import from_pulumi
from stacks.outputs import stack_exports
from stacks.program import build, get_program


def _say_findings(config: StackConfig, planned: Any) -> None:
    """The offline plan's findings, but for those about money, in the engine's own log; an error stops the update."""
    findings = get_program(config.provider).findings(config, planned, None)
    for finding in findings:
        log = {Severity.ERROR: pulumi.error, Severity.WARNING: pulumi.warn, Severity.INFO: pulumi.info}
        log[finding.severity](f"{finding.path}: {finding.message} [{finding.code}]. {finding.fix}")
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise pulumi.RunError(f"findings of severity error, above; `gangway plan {config.stack_name}` lists them all")


def _check_environment(config: StackConfig, planned: Any) -> None:
    """Pulumi starts a dynamic provider in this folder, and looks for its virtual environment here.

    TPUs have one, and so has the wait for Azure's roles.

    Without it the engine would end with pages about virtual environments, after half of the stack stands.
    """
    who = get_provider(config.provider).dynamic(config, planned)
    own = in_checkout() and not in_project()  # elsewhere Pulumi.yaml itself names the environment
    if who and own and not Path(__file__).with_name(".venv").exists():
        raise pulumi.RunError(f"{who} stacks/.venv, which `make` links: run `ln -s ../.venv stacks/.venv` here")


def _check_engine() -> None:
    """`python -m stacks` is nobody's way to a stack: only the engine knows which one, and what it is set to."""
    if get_monitor() is None:
        print("stacks is Pulumi's program: run `gangway plan STACK`, or `pulumi up --stack STACK`", file=sys.stderr)
        sys.exit(2)


def _refuse(message: str) -> NoReturn:
    """Ends the program at once. After an exception the SDK would still send all resources that have been declared."""
    pulumi.error(message)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _end_quietly() -> None:
    """The engine interrupts its program once an update has failed, and says why itself: a traceback would hide that."""
    if threading.current_thread() is threading.main_thread() and not isinstance(get_monitor(), MockMonitor):
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))


def main() -> None:
    """Builds the selected stack. A user's mistake becomes one message of the engine, without a traceback."""
    _check_engine()
    _end_quietly()
    refused: list[str] = []
    try:
        config, state = from_pulumi(), own_state()
        check_identity(config, state)
        check_encryption(config, state)
        check_addresses(config, state)
        planned = get_program(config.provider).plan(config)
        _check_environment(config, planned)
        check_keyless(config)
        _say_findings(config, planned)
        guard = DataGuard(get_provider(config.provider).retention, config.allow_replace, state)
        guard.warn()
        pulumi.runtime.register_stack_transformation(delete_named_first)
        pulumi.runtime.register_stack_transformation(guard.watch)
        exports = build(config, planned)
        guard.check_removed()
        for name, value in stack_exports(config, exports).items():
            pulumi.export(name, value)
    except* InputError as mistakes:
        refused = [str(mistake) for mistake in mistakes.exceptions]
    if refused:
        _refuse("\n".join(refused))


main()
