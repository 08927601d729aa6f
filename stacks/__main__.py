"""The Pulumi program, which `pulumi up --stack aws-demo` runs: loads, builds, exports."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

# The engine makes this folder sys.path[0]. In a checkout that is not installed, `gangway` is found only so.
sys.path.append(str(next(top for top in Path(__file__).resolve().parents if (top / "gangway").is_dir())))

import pulumi
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.settings import get_monitor

from gangway.components.core.findings import InputError, Severity
from gangway.stacks.base.ownership import check_addresses, check_encryption, check_identity, own_state
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.paths import in_checkout, in_project
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.cosign import check_keyless
from gangway.stacks.data_guard import DataGuard, delete_named_first
from gangway.stacks.loading.loader import from_pulumi
from gangway.stacks.program import build, get_program, stack_exports


def _log_findings(config: StackConfig, planned: Any) -> None:
    """Logs the offline plan's findings, except those about money; an error stops the update."""
    findings = get_program(config.provider).findings(config, planned, None)
    for finding in findings:
        log = {Severity.ERROR: pulumi.error, Severity.WARNING: pulumi.warn, Severity.INFO: pulumi.info}
        log[finding.severity](f"{finding.path}: {finding.message} [{finding.code}]. {finding.fix}")
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise pulumi.RunError(f"there are errors, see above; `gangway plan {config.stack_name}` lists all of them")


def _check_environment(config: StackConfig, planned: Any) -> None:
    """RunError: a dynamic provider has no virtual environment here, and would fail after half of the stack."""
    who = get_provider(config.provider).dynamic(config, planned)
    own = in_checkout() and not in_project()  # elsewhere Pulumi.yaml itself names the environment
    if who and own and not Path(__file__).with_name(".venv").exists():
        raise pulumi.RunError(f"{who} stacks/.venv, which `make` links: run `ln -s ../.venv stacks/.venv` here")


def _check_engine() -> None:
    if get_monitor() is None:
        print("stacks is Pulumi's program: run `gangway plan STACK`, or `pulumi up --stack STACK`", file=sys.stderr)
        sys.exit(2)


def _refuse(message: str) -> NoReturn:
    """Ends the program at once. After an exception the SDK would still send all declared resources."""
    pulumi.error(message)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _end_quietly() -> None:
    """The engine interrupts the program after a failed update and reports the reason; a traceback would hide it."""
    if threading.current_thread() is threading.main_thread() and not isinstance(get_monitor(), MockMonitor):
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))


def main() -> None:
    """Builds the selected stack. Mistakes become messages of the engine, without a traceback."""
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
        _log_findings(config, planned)
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
