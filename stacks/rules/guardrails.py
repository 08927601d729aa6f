"""All rules, and the findings that a plan makes of them. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from components.cost import Declared
from components.findings import Finding
from stacks.planning.ladder_costs import Pace
from stacks.rules.addresses import NO_PUBLIC_ADDRESS
from stacks.rules.machines import ENCRYPTED, IMDS_V2, SHIELDED
from stacks.rules.planned import SPOT_SAVES, unsaved_spot
from stacks.rules.regions import CLEAN_REGION, grid_of
from stacks.rules.rule import Limits, ResourceRule, StackRule
from stacks.rules.tags import REQUIRED_TAGS
from stacks.rules.whole import BLOCK_ENDS, BUDGET_PRESENT
from stacks.settings.config import StackConfig

__all__ = ["RESOURCE_RULES", "STACK_RULES", "findings_of_resources", "with_guardrails"]

RESOURCE_RULES: tuple[ResourceRule, ...] = (
    REQUIRED_TAGS,
    NO_PUBLIC_ADDRESS,
    ENCRYPTED,
    IMDS_V2,
    SHIELDED,
    CLEAN_REGION,
)
STACK_RULES: tuple[StackRule, ...] = (BUDGET_PRESENT, BLOCK_ENDS)
# What other findings say with more of a reason stands for the rule's own.
_SAID_AS = {
    SHIELDED.code: {"machine.trusted-launch-off"},
    SPOT_SAVES.code: {"checkpoint.interval", "capacity.spot-infeasible"},
}


def findings_of_resources(resources: Sequence[Declared], limits: Limits) -> Iterator[Finding]:
    """A finding for each rule that `resources` break."""
    for rule in RESOURCE_RULES:
        # Several machines may break a rule in the same words: their region is.
        breaches = dict.fromkeys(breach for resource in resources for breach in rule.check(resource, limits))
        if breaches:
            yield rule.finding(list(breaches))
    for whole in STACK_RULES:
        if breaches := dict.fromkeys(whole.check(resources)):
            yield whole.finding(list(breaches))


def with_guardrails(
    said: Iterable[Finding],
    config: StackConfig,
    resources: Sequence[Declared],
    job: Pace,
) -> tuple[Finding, ...]:
    """`said` and what the rules have to add to it; nothing is said twice.

    Args:
        said: what the plan has found already.
        config: the stack.
        resources: what its program declares.
        job: how far its checkpoints are apart.
    """
    before = tuple(said)
    codes = {finding.code for finding in before}
    grid = grid_of(config)
    judged = (*resources, *(() if grid is None else (grid,)))
    found = (*findings_of_resources(judged, Limits()), *unsaved_spot(config, job))
    return (*before, *(new for new in found if not {new.code, *_SAID_AS.get(new.code, ())} & codes))
