"""All our rules, among them those about a whole stack; and all codes of findings with their meaning."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from types import MappingProxyType

import yaml

from gangway.components.core.capacity import Spot
from gangway.components.core.findings import Finding, Severity
from gangway.components.core.retention import Retention
from gangway.components.estimate.cost import Declared
from gangway.stacks.base.registry import all_providers, get_provider
from gangway.stacks.base.rule import Limits, ResourceRule, Rule, StackRule, get_path, is_unknown, items, kind
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_costs import Pace
from gangway.stacks.plan.rules.resource_rules import (
    CLEAN_REGION,
    ENCRYPTED,
    IMDS_V2,
    NO_PUBLIC_ADDRESS,
    REQUIRED_TAGS,
    SHIELDED,
    find_grid,
)
from gangway.stacks.recording import PlannedResource

SAVES = 10  # checkpoints that are advised for a run without any

PLAN_REFUSED = Rule(
    code="plan.refused",
    severity=Severity.ERROR,
    holds="The stack file can be planned: its budget lasts for one hour at least",
    path="gangway:budget.monthly_usd",
    fix="",
)
SPOT_SAVES = Rule(
    code="checkpoint.missing",
    severity=Severity.WARNING,
    holds="A run on spot capacity saves a checkpoint before its end",
    path="gangway:job.checkpoint_kimg",
    fix="",
)
PROTECTION_ORDER = Rule(
    code="data.protection-order",
    severity=Severity.ERROR,
    holds="What protects or decrypts retained data is not deleted before it",
    path="gangway:encryption",
    fix="have the data depend on it, set deleted_with for a setting of the data, or retain_on_delete for both",
)
_OTHER_FINDINGS = (
    ("budget.below-estimate", Severity.WARNING, "The budget lasts for a month of the stack", "budget.monthly_usd"),
    ("budget.fallback", Severity.WARNING, "The budget lasts for a month on any rung", "budget.monthly_usd"),
    ("budget.unknown-price", Severity.WARNING, "The budget is compared with known prices", "budget.monthly_usd"),
    ("capacity.spot-infeasible", Severity.ERROR, "A run on spot capacity is expected to end", "cluster.capacity"),
    ("checkpoint.interval", Severity.WARNING, "A run on spot is saved neither too seldom nor too often", "job"),
    ("regions.refused", Severity.ERROR, "The stack and its data are where gangway:regions allows", "regions"),
    ("prices.stale", Severity.WARNING, "The estimate is made of prices younger than 180 days", "region"),
)
PLAN_RULES: tuple[Rule, ...] = (
    PLAN_REFUSED,
    SPOT_SAVES,
    PROTECTION_ORDER,
    # The fix depends on the stack, and is in each finding.
    *(Rule(code, severity, holds, f"gangway:{path}", "") for code, severity, holds, path in _OTHER_FINDINGS),
)
# Findings that replace the rule's own, since they give more reasons.
_EXPLAINED_BY = {
    SHIELDED.code: {"machine.trusted-launch-off"},
    SPOT_SAVES.code: {"checkpoint.interval", "capacity.spot-infeasible"},
}


def protection_breaches(facts: Retention, resources: Sequence[PlannedResource]) -> Iterator[str]:
    """The resources that could be deleted while the data still needs them.

    A resource outlives the data if it is retained, or if the data depends on it and the cloud refuses to delete the
    data: Pulumi deletes in reverse order of dependencies and stops at the first failure.
    """
    graph = _Graph(resources)
    for data in resources:
        if kind(data.type) not in facts.data or facts.is_scratch(data.inputs):
            continue
        if not facts.refuses and not data.is_retained:
            yield f"{data.name} ({kind(data.type)}) is deleted with what is in it"
            continue
        holders = {urn for urn in graph.dependencies(data.urn) if kind(graph.by_urn[urn].type) in facts.holders}
        guarded = {data.urn, *holders}
        protections = [one for one in resources if kind(one.type) in facts.protections and guarded & one.dependencies]
        needs = graph.dependencies(data.urn).union(*(graph.dependencies(one.urn) for one in protections))
        keys = {urn for urn in needs if kind(graph.by_urn[urn].type) in facts.keys}
        before = {urn for urn in needs if kind(graph.by_urn[urn].type) in facts.surroundings}
        grants = {
            one.urn for one in resources if kind(one.type) in facts.key_grants and not keys.isdisjoint(one.dependencies)
        }
        for one in protections:
            if not one.is_retained and one.deleted_with not in guarded:
                yield f"{one.name} ({kind(one.type)}) is deleted before {data.name}, which it protects"
        for urn in sorted(keys | grants | before | holders):
            if not graph.outlives(urn, data):
                one = graph.by_urn[urn]
                yield f"{one.name} ({kind(one.type)}) can be deleted while {data.name} needs it"


class _Graph:
    def __init__(self, resources: Sequence[PlannedResource]) -> None:
        self.by_urn = {one.urn: one for one in resources}
        self._dependencies: dict[str, frozenset[str]] = {}

    def dependencies(self, urn: str) -> frozenset[str]:
        if urn not in self._dependencies:
            direct = frozenset(other for other in self.by_urn[urn].dependencies if other in self.by_urn)
            self._dependencies[urn] = direct.union(*(self.dependencies(other) for other in direct))
        return self._dependencies[urn]

    def outlives(self, urn: str, data: PlannedResource) -> bool:
        if self.by_urn[urn].is_retained:
            return True
        # Deleting retained data always succeeds, so it does not stop the deletions that follow.
        return not data.is_retained and urn in self.dependencies(data.urn)


def unsaved_spot(config: StackConfig, job: Pace) -> Iterable[Finding]:
    """A run on spot without a checkpoint before its end: any interruption loses all of it."""
    on_spot = [at for at, rung in enumerate(config.cluster.capacity) if isinstance(rung, Spot)]
    if on_spot and (job.shortest_sec >= config.work.max_hours * 3600 or job.checkpoint_kimg >= config.training.kimg):
        advised = float(f"{config.training.kimg / SAVES:.2g}")
        yield Finding(
            SPOT_SAVES.severity,
            SPOT_SAVES.code,
            SPOT_SAVES.path,
            f"with a checkpoint every {job.checkpoint_kimg:g} kimg, a run of {config.training.kimg:g} kimg in "
            f"{config.work.max_hours:g} h has none before its end: an interruption on capacity[{on_spot[0]}] (spot) "
            "loses all of it",
            f"set checkpoint_kimg: {advised:g}",
        )


def _missing_budget(resources: Sequence[Declared]) -> Iterable[str]:
    kinds = [kind(resource.type) for resource in resources]
    providers = all_providers()
    machines = sum(one in provider.machine_types for one in kinds for provider in providers)
    if machines and not any(one in provider.budget_types for one in kinds for provider in providers):
        yield f"{machines} resources are or start machines, but no budget counts them"


def _missing_block_end(resources: Sequence[Declared]) -> Iterable[str]:
    """EC2 ends a block's nodes at its end without notice, unless they are stopped before."""
    blocks = [resource.name for resource in resources if _is_in_block(resource)]
    schedules = [resource.inputs for resource in resources if kind(resource.type) == "aws:autoscaling:Schedule"]
    # The group of a schedule is only known once the group exists, so schedules are counted.
    ends = sum(is_unknown(inputs.get("maxSize")) or inputs.get("maxSize") == 0 for inputs in schedules)
    if len(blocks) > ends:
        yield (
            f"{', '.join(sorted(blocks))}: {len(blocks)} launch templates for capacity blocks, but {ends} scheduled "
            "actions that stop nodes before the block ends"
        )


def _is_in_block(resource: Declared) -> bool:
    markets = items(get_path(resource.inputs, "instanceMarketOptions"))
    is_template = kind(resource.type) == "aws:ec2:LaunchTemplate"
    return is_template and any(one.get("marketType") == "capacity-block" for one in markets)


BUDGET_PRESENT = StackRule(
    code="budget.missing",
    severity=Severity.ERROR,
    holds="A stack with machines has a budget",
    path="gangway:budget",
    fix="add a budget: the components aws.Budget, gcp.Budget and azure.Budget send alerts and can stop nodes",
    check=_missing_budget,
)
BLOCK_ENDS = StackRule(
    code="capacity.block-end",
    severity=Severity.WARNING,
    holds="Nodes from a capacity block are stopped before it ends",
    path="gangway:cluster.capacity",
    fix="write ends_at as EC2 shows it for the block, for which Gangway creates a scheduled action",
    check=_missing_block_end,
)


RESOURCE_RULES: tuple[ResourceRule, ...] = (
    REQUIRED_TAGS,
    NO_PUBLIC_ADDRESS,
    ENCRYPTED,
    IMDS_V2,
    SHIELDED,
    CLEAN_REGION,
)
STACK_RULES: tuple[StackRule, ...] = (BUDGET_PRESENT, BLOCK_ENDS)


def findings_of_resources(resources: Sequence[Declared], limits: Limits) -> Iterator[Finding]:
    """A finding for each rule that `resources` break."""
    for rule in RESOURCE_RULES:
        # Several machines may have the same breach, such as their region's.
        breaches = dict.fromkeys(breach for resource in resources for breach in rule.check(resource, limits))
        if breaches:
            yield rule.finding(list(breaches))
    for whole in STACK_RULES:
        if breaches := dict.fromkeys(whole.check(resources)):
            yield whole.finding(list(breaches))


def with_guardrails(
    found: Iterable[Finding],
    config: StackConfig,
    resources: Sequence[PlannedResource],
    job: Pace | None,
) -> tuple[Finding, ...]:
    """`found` and the rules' breaches that it does not contain. `job`: None for a custom command."""
    before = tuple(found)
    codes = {finding.code for finding in before}
    grid = find_grid(config)
    judged = (*resources, *(() if grid is None else (grid,)))
    rules = (_with_ranking(finding, config) for finding in findings_of_resources(judged, Limits()))
    breaches = list(protection_breaches(get_provider(config.provider).retention, resources))
    order = [PROTECTION_ORDER.finding(breaches)] if breaches else []
    more = (*rules, *order, *(() if job is None else unsaved_spot(config, job)))
    return (*before, *(new for new in more if not {new.code, *_EXPLAINED_BY.get(new.code, ())} & codes))


def _with_ranking(finding: Finding, config: StackConfig) -> Finding:
    provider, cluster = get_provider(config.provider), config.cluster
    if finding.code != CLEAN_REGION.code or provider.settings.reads_site:
        return finding
    accelerator = cluster.accelerator or provider.catalog_here().machines[cluster.machine_type or ""].accelerator
    words = [f"gangway quote --accelerator {accelerator} --hours {config.work.max_hours:g}"]
    words += [f"--{name} {','.join(named)}" for name, named in config.regions if named]
    command = " ".join(words)
    return replace(finding, fix=f"{finding.fix}; `{command}` ranks regions with price and emissions")


TRAINER = "trainer."  # prefix of codes about settings that the trainer refuses; a field of its configuration follows
COMPARISON_CODES = frozenset({"data.lost", "update.refused"})  # codes of comparisons with an earlier plan


@cache
def finding_codes() -> Mapping[str, str]:
    """Code -> meaning, for rules and other findings of a plan."""
    rules = {rule.code: f"Rule: {rule.holds}." for rule in (*PLAN_RULES, *RESOURCE_RULES, *STACK_RULES)}
    return MappingProxyType({**_texts("plan"), **rules})


@cache
def job_codes() -> Mapping[str, str]:
    """The same for job files, which a plan does not check."""
    return MappingProxyType(_texts("jobs"))


def meaning(code: str, *, compared: bool) -> str:
    """What a code without findings in a plan means; empty for an unknown one. `compared`: with an earlier plan."""
    if code in job_codes() and code not in finding_codes():
        return f"{job_codes()[code]}\nNot checked here: `gangway job submit` checks job files."
    text = finding_codes().get(code, "")
    if not text and code.startswith(TRAINER):
        from gangway.trainer.config.train_config import TrainConfig

        field = code.removeprefix(TRAINER).replace("-", "_")
        text = f"The trainer refuses job.settings.{field} here." if field in TrainConfig.model_fields else ""
    if text and code in COMPARISON_CODES and not compared:
        return f"{text}\nNot checked: add --against with an earlier plan's JSON."
    return text and f"{text}\nNothing found: this plan has no finding with this code."


def _texts(section: str) -> dict[str, str]:
    text = resources.files("gangway.stacks.plan").joinpath("finding_codes.yaml").read_text("utf-8")
    found: dict[str, str] = yaml.load(text, Loader=yaml.CSafeLoader)[section]
    return found
