"""The Pulumi program: `pulumi up --stack aws-demo` runs this file. Load, build, export; no more."""

import sys
from pathlib import Path

# The engine makes this folder sys.path[0]; the packages live one above.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pulumi

from components.findings import InputError, Severity
from stacks.config import StackConfig
from stacks.loader import from_pulumi
from stacks.program import build, provider_module


def _say_findings(config: StackConfig) -> None:
    """The offline plan's findings, but for those about money, in the engine's own log; an error stops the update."""
    provider = provider_module(config.provider)
    findings = provider.findings(config, provider.plan(config), None)
    for finding in findings:
        log = {Severity.ERROR: pulumi.error, Severity.WARNING: pulumi.warn, Severity.INFO: pulumi.info}
        log[finding.severity](f"{finding.path}: {finding.message} [{finding.code}]. {finding.fix}")
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise pulumi.RunError("findings of severity error, above; `gangway plan` lists them all")


def main() -> None:
    """Builds the selected stack. A user's mistake becomes one message of the engine, without a traceback."""
    try:
        config = from_pulumi()
        _say_findings(config)
        for name, value in build(config).items():
            pulumi.export(name, value)
    except* InputError as mistakes:
        raise pulumi.RunError("\n".join(str(mistake) for mistake in mistakes.exceptions)) from None


main()
