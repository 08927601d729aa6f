"""Every shipped stack's plan, held against the rules of others; and the data that say how."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.plan.rules.outside_rules import Check, as_markdown, breaches, outside_rules
from gangway.stacks.recording import PlannedResource


@pytest.fixture(scope="module")
def shipped(repo: Path) -> dict[str, tuple[PlannedResource, ...]]:
    files = sorted((repo / "stacks").glob("Pulumi.*.yaml"))
    assert len(files) > 10
    return {file.name: make_plan(from_file(file)).resources for file in files}


@pytest.mark.slow
def test_every_shipped_stack_holds_what_the_table_says(shipped: dict[str, tuple[PlannedResource, ...]]) -> None:
    assert [f"{name}: {each}" for name, resources in shipped.items() for each in breaches(resources)] == []


@pytest.mark.slow
def test_no_rule_is_about_nothing_and_no_exception_is_of_no_use(
    shipped: dict[str, tuple[PlannedResource, ...]],
) -> None:
    declared = [resource for resources in shipped.values() for resource in resources]
    for rule in outside_rules():
        asked = [resource for resource in declared if rule.asks(resource)]
        assert asked, rule.rules
        for exempt in rule.exempt:
            alone = rule.model_copy(update={"exempt": (exempt,)})
            assert any(alone.is_exempt(each) and not rule.is_held(each) for each in asked), (rule.rules, exempt)


def test_a_rule_stands_once_for_a_kind() -> None:
    counted = Counter((rule.resource, each) for rule in outside_rules() for each in rule.rules)
    assert [key for key, times in counted.items() if times > 1] == []


def test_the_page_is_the_data(repo: Path) -> None:
    """Made by `python -m gangway.stacks.plan.rules.outside_rules > docs/reference/security-rules.md`."""
    assert (repo / "docs/reference/security-rules.md").read_text("utf-8") == as_markdown()


INPUTS: dict[str, Any] = {
    "a": {"b": "required"},
    "disks": [{"ebs": {"encrypted": "true"}}, {"ebs": {"encrypted": "false"}}],
    "days": 30.0,
    "later": "${x.y}",
    "none": [],
}


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        ({"at": "a.b", "is": "required"}, True),
        ({"at": "a.b", "is": "optional"}, False),
        ({"at": "a.c", "is": True}, False),
        ({"at": "a.c", "in": [None, False]}, True),
        ({"at": "disks[].ebs.encrypted", "is": True}, False),
        ({"at": "disks[].ebs.encrypted", "in": ["true", "false"]}, True),
        ({"at": "later", "is": "anything"}, True),
        ({"at": "later.below", "is": "anything"}, True),
        ({"at": "days", "most": 30}, True),
        ({"at": "days", "least": 31}, False),
        ({"at": "missing", "least": 1}, False),
        ({"at": "none", "absent": True}, True),
        ({"at": "none", "present": True}, False),
        ({"at": "a", "has": '"b": "req'}, True),
        ({"at": "a", "lacks": "req"}, False),
        ({"at": "", "lacks": "required"}, False),
    ],
)
def test_a_check_says_what_holds(check: dict[str, Any], holds: bool) -> None:
    assert Check.model_validate(check).holds(INPUTS) is holds
