"""Makes a policy from each rule, with the rule's severity as enforcement level, and converts the engine's resources."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

from pulumi.runtime.config import get_config_env
from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyConfigSchema,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError

from gangway.components.core.findings import Finding, InputError, Severity
from gangway.components.estimate.cost import Declared
from gangway.stacks.base.rule import UNKNOWN, Limits, ResourceRule, Rule, StackRule
from gangway.stacks.plan.rules.guardrails import PLAN_REFUSED, PLAN_RULES, RESOURCE_RULES, STACK_RULES
from gangway.stacks.plan.rules.resource_rules import SiteGrid, find_grid

LEVELS = {Severity.ERROR: EnforcementLevel.MANDATORY, Severity.WARNING: EnforcementLevel.ADVISORY}
STACK = "pulumi:pulumi:Stack"
"""The first resource that the engine registers."""


@dataclass(frozen=True)
class EngineResource:
    """A resource that the engine is about to create; see `gangway.components.estimate.cost.Declared`. Its id is not
    known."""

    type: str
    name: str
    inputs: Mapping[str, Any]
    id: str = UNKNOWN


def plain(value: Any) -> Any:
    """Converts the SDK's guarded mappings to plain data."""
    if isinstance(value, Mapping):
        return {key: _item(value, key) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_item(value, position) for position in range(len(value))]
    return value


def _item(values: Any, key: Any) -> Any:
    try:
        return plain(values[key])
    except UnknownValueError:
        return UNKNOWN


_SCHEMAS: dict[str, dict[str, Any]] = {
    "required_tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "max_g_per_kwh": {"type": "number", "exclusiveMinimum": 0},
    "allowed_regions": {"type": "array", "items": {"type": "string"}},
}


def serve() -> None:
    """Serves the engine until it is done."""
    # The engine reads the pack's port from the first line of standard output.
    with redirect_stdout(sys.stderr):
        found, grid = findings_of_config(), grid_of_config()
    PolicyPack("gangway", policies(found, grid))


def findings_of_config() -> tuple[Finding, ...] | None:
    """The findings of an offline plan of the selected stack; None without a Gangway stack file."""
    if "gangway:cluster" not in get_config_env():
        return None
    # A plan imports the providers' SDKs, which other projects do not need.
    from gangway.stacks.loading.loader import from_pulumi
    from gangway.stacks.plan.plan import make_plan

    refused: list[Finding] = []
    try:
        return make_plan(from_pulumi()).findings
    except* InputError as mistakes:
        for one in mistakes.exceptions:
            if isinstance(one, InputError):
                message = f"{one.problem}: {one.value!r}; allowed: {one.allowed}"
                refused.append(Finding(PLAN_REFUSED.severity, PLAN_REFUSED.code, one.place, message, one.fix))
    return tuple(refused)


def grid_of_config() -> SiteGrid | None:
    """The grid of the selected stack's site; None without one, or for an invalid file, which `plan.refused` reports."""
    if "gangway:site" not in get_config_env():
        return None
    from gangway.stacks.loading.loader import from_pulumi

    grid: SiteGrid | None = None
    try:
        grid = find_grid(from_pulumi())
    except* InputError:
        grid = None
    return grid


def policies(found: Sequence[Finding] | None, grid: SiteGrid | None = None) -> list[Policy]:
    """All policies. `found`: the plan's findings, if there is a stack file; `grid`: of the stack's site, if any."""
    return [
        *(_plan_policy(rule, found) for rule in PLAN_RULES),
        *(_resource_policy(rule, grid) for rule in RESOURCE_RULES),
        *(_stack_policy(rule) for rule in STACK_RULES),
    ]


def _plan_policy(rule: Rule, found: Sequence[Finding] | None) -> Policy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        if args.resource_type != STACK:
            return
        if found is None:
            args.not_applicable("this project has no gangway: settings")
        for finding in found or ():
            if finding.code == rule.code:
                report(_sentence(f"{finding.path}: {finding.message}", finding.fix), None)

    return ResourceValidationPolicy(rule.code, rule.holds, validate, LEVELS[rule.severity])


def _resource_policy(rule: ResourceRule, grid: SiteGrid | None) -> Policy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        given = args.get_config()
        if args.resource_type == STACK:
            # The engine validates known settings against the schema and passes on unknown ones.
            for name in sorted(given.keys() - {*rule.limits}):
                report(f"{name}: {rule.code} has no such setting; allowed: {', '.join(rule.limits) or 'none'}", None)
        limits = Limits.model_validate({name: given[name] for name in rule.limits if name in given})
        judged: list[Declared] = [EngineResource(args.resource_type, args.name, plain(args.props))]
        if grid is not None and args.resource_type == STACK:
            judged.append(grid)
        for breach in (breach for resource in judged for breach in rule.check(resource, limits)):
            report(_sentence(breach, rule.fix), None)

    schema = PolicyConfigSchema({name: _property(name) for name in rule.limits}) if rule.limits else None
    return ResourceValidationPolicy(rule.code, rule.holds, validate, LEVELS[rule.severity], schema)


def _stack_policy(rule: StackRule) -> Policy:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        resources = [EngineResource(one.resource_type, one.name, plain(one.props)) for one in args.resources]
        for breach in rule.check(resources):
            report(_sentence(breach, rule.fix), None)

    return StackValidationPolicy(rule.code, rule.holds, validate, LEVELS[rule.severity])


def _property(name: str) -> dict[str, Any]:
    default = Limits.model_fields[name].default
    return {**_SCHEMAS[name], "default": list(default) if isinstance(default, tuple) else default}


def _sentence(breach: str, fix: str) -> str:
    return f"{breach}\nfix: {fix}" if fix else breach
