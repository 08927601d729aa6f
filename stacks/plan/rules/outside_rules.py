"""Checks planned resources against Checkov's and Trivy's rules: which ones our stacks keep, and why not the rest.

python -m gangway.stacks.plan.rules.outside_rules > docs/reference/security-rules.md
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gangway.components.estimate.cost import Declared
from gangway.stacks.base.rule import is_unknown, kind

_FILE = Path(__file__).with_suffix(".yaml")
_HEAD = """\
# Checkov's and Trivy's rules

How stacks answer the rules of Checkov 3.3.30 and Trivy (November 2026) for the kinds of resources that they declare.
`held` means that every shipped stack complies: `tests/stacks/plan/rules/test_outside_rules.py` checks their plans.
The rules are written for Terraform; we apply them to Pulumi's inputs and have run neither program on a stack.
Severities are Trivy's; Checkov has none. The page is generated from `stacks/plan/rules/outside_rules.yaml`.
"""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Check(_Strict):
    """A requirement on an input. `at`: its path, `[]` for each item, empty for all inputs; and one of `is_`, `in`: its
    value; `absent`, `present`; `most`, `least`: of a number; `has`, `lacks`: patterns in its JSON.
    """

    at: str
    is_: Any = Field(default=None, alias="is")
    among: tuple[Any, ...] = Field(default=(), alias="in")
    absent: bool = False
    present: bool = False
    most: float | None = None
    least: float | None = None
    has: str = ""
    lacks: str = ""

    def holds(self, inputs: Mapping[str, Any]) -> bool:
        """Whether the input meets the requirement, or is only known to the cloud."""
        return all(self._holds(value) for value in _values(inputs, self.at))

    def _holds(self, value: Any) -> bool:
        if self.absent:
            return value in (None, [], {})
        if self.present:
            return value not in (None, [], {}, "")
        if self.lacks or self.has:
            text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
            return bool(re.search(self.has, text)) if self.has else not re.search(self.lacks, text)
        if is_unknown(value):
            return True
        if self.most is not None or self.least is not None:
            return isinstance(value, int | float) and (self.least or value) <= value <= (self.most or value)
        return value in (self.among or (self.is_, "true" if self.is_ is True else self.is_))


class Exempt(_Strict):
    """Exempt resources, by a pattern of their names, and why."""

    name: str
    why: str


class OutsideRule(_Strict):
    """Equivalent rules about one kind of resource. `why`: why they are not held, or held by something else."""

    rules: tuple[str, ...] = Field(min_length=1)
    severity: Literal["critical", "high", "medium", "low", ""] = ""
    resource: str
    about: str
    holds: tuple[Check, ...] = ()
    exempt: tuple[Exempt, ...] = Field(default=(), alias="except")
    why: str = ""
    note: str = ""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.holds and not self.why:
            raise ValueError(f"{self.rules[0]}: neither held nor explained")
        return self

    @property
    def answer(self) -> str:
        """For the table."""
        if self.why:
            return self.why
        exempt = "".join(f"; except `{each.name}`: {each.why}" for each in self.exempt)
        return f"held{exempt}".replace("|", "\\|") + (f"; {self.note}" if self.note else "")

    def asks(self, declared: Declared) -> bool:
        """Whether the rule is about this resource."""
        return kind(declared.type) == self.resource

    def is_exempt(self, resource: Declared) -> bool:
        """Whether the resource is exempt."""
        return any(re.search(each.name, resource.name) for each in self.exempt)

    def is_held(self, resource: Declared) -> bool:
        """Whether the resource meets all requirements."""
        return all(check.holds(resource.inputs) for check in self.holds)


@cache
def outside_rules() -> tuple[OutsideRule, ...]:
    """All rules."""
    return tuple(OutsideRule.model_validate(entry) for entry in yaml.safe_load(_FILE.read_text("utf-8")))


def breaches(resources: Sequence[Declared]) -> Iterator[str]:
    """A sentence for each resource that breaks a rule."""
    for rule in outside_rules():
        for resource in resources:
            if rule.asks(resource) and not rule.is_exempt(resource) and not rule.is_held(resource):
                yield f"{', '.join(rule.rules)}: {resource.name} ({rule.resource}): {rule.about}"


def _values(inputs: Any, path: str) -> Iterator[Any]:
    if not path:
        yield inputs
        return
    part, _, rest = path.partition(".")
    name, each = part.removesuffix("[]"), part.endswith("[]")
    value = inputs.get(name) if isinstance(inputs, Mapping) else inputs if is_unknown(inputs) else None
    several = value if each and isinstance(value, list) else [value]
    for item in several:
        yield from _values(item, rest)


def as_markdown() -> str:
    """The page: resources sorted by kind, the most severe rules first."""
    order = ("critical", "high", "medium", "low", "")
    rows = sorted(outside_rules(), key=lambda rule: (rule.resource, order.index(rule.severity), rule.rules))
    lines = ["| resource | rules | severity | asks for | answer |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| `{rule.resource}` | {', '.join(rule.rules)} | {rule.severity or '-'} | {rule.about} | {rule.answer} |"
        for rule in rows
    ]
    return _HEAD + "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
