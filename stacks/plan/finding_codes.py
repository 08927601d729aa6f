"""All codes of findings with their meaning, from `finding_codes.yaml`."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

import yaml

from gangway.stacks.plan.rules.guardrails import PLAN_RULES, RESOURCE_RULES, STACK_RULES

TRAINER = "trainer."
"""Prefix of codes about settings that the trainer refuses; a field of its configuration follows."""
COMPARISON_CODES = frozenset({"data.lost", "update.refused"})
"""Codes of comparisons with an earlier plan."""


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
    """The meaning of a code without findings in a plan; empty for an unknown code. `compared`: whether the plan was
    compared with an earlier one.
    """
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
