"""All codes of findings, and what each one reports. Texts in `finding_codes.yaml`, next to this file."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

import yaml

from stacks.plan.rules.guardrails import PLAN_RULES, RESOURCE_RULES, STACK_RULES

TRAINER = "trainer."
"""Begins the codes of what the trainer refuses; a field of its configuration follows."""
COMPARISON_CODES = frozenset({"data.lost", "update.refused"})
"""Codes that only a comparison with an earlier plan has."""


@cache
def finding_codes() -> Mapping[str, str]:
    """Code -> a sentence, of rules and of other findings of a plan."""
    rules = {rule.code: f"Rule: {rule.holds}." for rule in (*PLAN_RULES, *RESOURCE_RULES, *STACK_RULES)}
    return MappingProxyType({**_texts("plan"), **rules})


@cache
def job_codes() -> Mapping[str, str]:
    """The same of job files, which a plan does not check."""
    return MappingProxyType(_texts("jobs"))


def meaning(code: str, *, compared: bool) -> str:
    """What the code reports and that a plan without it has nothing to report; empty for an unknown code. `compared`:
    whether the plan was compared with an earlier one.
    """
    if code in job_codes() and code not in finding_codes():
        return f"{job_codes()[code]}\nNot checked here: `gangway job submit` checks job files."
    said = finding_codes().get(code, "")
    if not said and code.startswith(TRAINER):
        from trainer.config.train_config import TrainConfig

        field = code.removeprefix(TRAINER).replace("-", "_")
        said = f"The trainer refuses job.settings.{field} here." if field in TrainConfig.model_fields else ""
    if said and code in COMPARISON_CODES and not compared:
        return f"{said}\nNot checked: add --against with an earlier plan's JSON."
    return said and f"{said}\nNothing found: this plan has no finding with this code."


def _texts(section: str) -> dict[str, str]:
    text = resources.files("stacks.plan").joinpath("finding_codes.yaml").read_text("utf-8")
    found: dict[str, str] = yaml.load(text, Loader=yaml.CSafeLoader)[section]
    return found
