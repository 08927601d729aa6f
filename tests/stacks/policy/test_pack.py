"""The policy pack without the engine: which policies there are, what each says, and what it makes of unknown values."""

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyResource,
    PolicyResourceOptions,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, unknown_checking_proxy

from gangway.components.core.findings import Finding, Severity
from gangway.stacks.base.rule import UNKNOWN
from gangway.stacks.plan.rules.guardrails import PLAN_RULES, RESOURCE_RULES, STACK_RULES
from gangway.stacks.plan.rules.resource_rules import SiteGrid
from gangway.stacks.policy import pack
from gangway.stacks.policy.pack import plain

URN = "urn:pulumi:dev::any::aws:sns/topic:Topic::made"
OPTIONS = PolicyResourceOptions(False, [], None, [], None, [])  # type: ignore[arg-type]  # no timeouts
Validate = Callable[..., list[str]]


class Report:
    """Collects what a policy reports."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, message: str, urn: str | None = None) -> None:
        self.said.append(message)


def get_policy(code: str, found: tuple[Finding, ...] | None = None) -> Policy:
    return next(policy for policy in pack.policies(found) if policy.name == code)


@pytest.fixture
def validate() -> Validate:
    """What a policy reports of one resource: its type and its inputs, as the engine sends them."""

    def run(policy: Policy, type_token: str, inputs: dict[str, Any], config: dict[str, Any] | None = None) -> list[str]:
        report = Report()
        assert isinstance(policy, ResourceValidationPolicy)
        args = ResourceValidationArgs(type_token, unknown_checking_proxy(inputs), URN, "made", OPTIONS, None, config)
        policy.validate(args, report)
        return report.said

    return run


def test_there_is_a_policy_for_each_rule() -> None:
    policies = {policy.name: policy for policy in pack.policies(None)}
    rules = {rule.code: rule for rule in (*PLAN_RULES, *RESOURCE_RULES, *STACK_RULES)}
    assert policies.keys() == rules.keys()
    for code, policy in policies.items():
        mandatory = rules[code].severity is Severity.ERROR
        assert policy.enforcement_level is (EnforcementLevel.MANDATORY if mandatory else EnforcementLevel.ADVISORY)
        assert policy.description == rules[code].holds


def test_limits_can_be_configured_with_the_plans_as_default() -> None:
    schemas = {policy.name: policy.config_schema for policy in pack.policies(None) if policy.config_schema}
    assert schemas.keys() == {"region.carbon-intensity", "tags.missing"}
    properties = schemas["region.carbon-intensity"].properties
    assert properties["max_g_per_kwh"]["default"] == 450
    assert properties["allowed_regions"] == {"type": "array", "items": {"type": "string"}, "default": []}
    assert schemas["tags.missing"].properties["required_tags"]["default"] == ["team", "cost_center"]


def test_a_resource_is_judged_by_its_rule(validate: Validate) -> None:
    tags = get_policy("tags.missing")
    topic = "aws:sns/topic:Topic"
    (message,) = validate(tags, topic, {"tags": {"team": "a"}})
    assert message == (
        "made (aws:sns:Topic): no cost_center tag\n"
        "fix: add the tags; Gangway's components put their `tags` on all their resources"
    )
    assert validate(tags, topic, {"tags": {"team": "a"}}, {"required_tags": ["team"]}) == []
    assert validate(tags, topic, {"tags": {"team": "a", "cost_center": UNKNOWN_STRING_VALUE}}) == []


def test_the_grid_of_a_site_is_judged_by_the_organisations_limit(validate: Validate) -> None:
    grid = SiteGrid("lab", {"grams": 380.0, "source": "stack file, 2026-11-01, stated"})
    region = next(one for one in pack.policies(None, grid) if one.name == "region.carbon-intensity")
    told = validate(region, "pulumi:pulumi:Stack", {}, {"max_g_per_kwh": 100.0})
    assert [line.partition("\n")[0] for line in told] == [
        "lab: 380 gCO2e per kWh (stack file, 2026-11-01, stated) is above 100"
    ]
    assert validate(region, "pulumi:pulumi:Stack", {}) == []
    assert validate(region, "pulumi:pulumi:Stack", {}, {"max_g_per_kwh": 100.0, "allowed_regions": ["lab"]}) == []
    assert validate(region, "openstack:compute/instance:Instance", {}, {"max_g_per_kwh": 100.0}) == [], "said once"


def test_a_setting_that_no_rule_has_is_told_once(validate: Validate) -> None:
    region, config = get_policy("region.carbon-intensity"), {"max": 3.0, "max_g_per_kwh": 100.0}
    told = "max: region.carbon-intensity has no such setting; allowed: max_g_per_kwh, allowed_regions"
    assert validate(region, "pulumi:pulumi:Stack", {}, config) == [told]
    (breach,) = validate(region, "pulumi:providers:aws", {"region": "us-west-2"}, config)
    assert "above 100" in breach


def test_an_unknown_value_hides_no_other(validate: Validate) -> None:
    instance = {"ami": UNKNOWN_STRING_VALUE, "associatePublicIpAddress": True, "userData": UNKNOWN_STRING_VALUE}
    assert len(validate(get_policy("address.public"), "aws:ec2/instance:Instance", instance)) == 1


def test_values_of_the_engine_become_plain_ones() -> None:
    sent = unknown_checking_proxy({"a": UNKNOWN_STRING_VALUE, "b": [{"c": 1.0}, UNKNOWN_STRING_VALUE], "d": None})
    assert plain(sent) == {"a": UNKNOWN, "b": [{"c": 1.0}, UNKNOWN], "d": None}


def test_what_the_plan_has_found_is_said_of_the_stack(validate: Validate) -> None:
    old = Finding.warning("prices.stale", "gangway:region", "prices are old", "refresh them")
    found = (old, Finding.info("placement.zone", "gangway:cluster.zone", "a zone was chosen"))
    said = validate(get_policy("prices.stale", found), "pulumi:pulumi:Stack", {})
    assert said == ["gangway:region: prices are old\nfix: refresh them"]
    assert validate(get_policy("budget.fallback", found), "pulumi:pulumi:Stack", {}) == []
    assert validate(get_policy("prices.stale", found), "aws:sns/topic:Topic", {}) == [], "once, not for each resource"


def test_without_a_stack_file_its_rules_do_not_apply(validate: Validate) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the SDK's own way out, which it does not export
        validate(get_policy("prices.stale", None), "pulumi:pulumi:Stack", {})
    assert vars(raised.value)["reason"] == "this project has no gangway: settings"


def test_a_stack_is_judged_as_a_whole() -> None:
    report, policy = Report(), get_policy("budget.missing")
    assert isinstance(policy, StackValidationPolicy)
    props = unknown_checking_proxy({"id": UNKNOWN_STRING_VALUE})
    group = PolicyResource("aws:autoscaling/group:Group", props, URN, "made", OPTIONS, None, None, [], {})
    policy.validate(StackValidationArgs([group]), report)
    (message,) = report.said
    assert message.startswith("1 resources are or start machines, but no budget counts them\nfix: ")


@pytest.fixture
def engine_config(monkeypatch: pytest.MonkeyPatch, repo: Path) -> Callable[[dict[str, Any]], None]:
    """Hands over aws-g5-dev's settings as the engine does, some of them changed."""

    def hand_over(changes: dict[str, Any]) -> None:
        values = yaml.safe_load((repo / "stacks" / "Pulumi.aws-g5-dev.yaml").read_text("utf-8"))["config"] | changes
        as_text = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        monkeypatch.setenv("PULUMI_CONFIG", json.dumps(as_text))

    return hand_over


def test_the_stack_file_is_planned(engine_config: Callable[[dict[str, Any]], None]) -> None:
    engine_config({"gangway:budget": {"monthly_usd": 700, "emails": ["a@example.com"]}})
    found = pack.findings_of_config()
    assert found is not None
    assert "budget.below-estimate" in [finding.code for finding in found]


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"gangway:budget": {"monthly_usd": 1, "emails": ["a@example.com"]}}, "gangway:budget.monthly_usd", "1.13 USD"),
        ({"gangway:region": "mars-1"}, "gangway:region", "mars-1"),
        ({"gangway:encryption": "none"}, "gangway:encryption", "none"),
    ],
)
def test_what_cannot_be_planned_is_a_breach(
    changes: dict[str, Any], path: str, words: str, engine_config: Callable[[dict[str, Any]], None]
) -> None:
    engine_config(changes)
    found = pack.findings_of_config()
    assert found is not None
    (refused,) = found
    assert (refused.code, refused.severity) == ("plan.refused", Severity.ERROR)
    assert path in refused.path
    assert words in refused.message


def test_the_grid_is_the_stack_files(
    engine_config: Callable[[dict[str, Any]], None], monkeypatch: pytest.MonkeyPatch, repo: Path
) -> None:
    engine_config({})
    assert pack.grid_of_config() is None, "a region of the catalogue"
    values = yaml.safe_load((repo / "stacks" / "Pulumi.hosts-lab.yaml").read_text("utf-8"))["config"]
    as_text = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(as_text))
    grid = pack.grid_of_config()
    assert grid is not None
    assert (grid.name, grid.inputs["grams"]) == ("lab", 380)
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({**as_text, "gangway:site": json.dumps({"pue": "x"})}))
    assert pack.grid_of_config() is None, "plan.refused says why"


def test_a_project_without_a_stack_file_waits_for_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULUMI_CONFIG", raising=False)
    served: list[tuple[str, int]] = []
    monkeypatch.setattr(pack, "PolicyPack", lambda name, policies: served.append((name, len(policies))))
    pack.serve()
    assert served == [("gangway", 18)]


@pytest.mark.slow
def test_the_pack_is_the_engines_to_start(repo: Path) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PULUMI_")}
    command = [sys.executable, str(repo / "stacks" / "policy")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pulumi preview --policy-pack stacks/policy" in done.stderr


def test_its_project_file_goes_with_the_package(repo: Path) -> None:
    folder = repo / "stacks" / "policy"
    project = yaml.safe_load((folder / "PulumiPolicy.yaml").read_text("utf-8"))
    assert project["version"] == importlib.metadata.version("gangway-iac")
    assert project["runtime"] == {"name": "python", "options": {"toolchain": "pip", "virtualenv": "../../.venv"}}
    assert not {file.stem for file in folder.glob("*.py")} & (sys.stdlib_module_names - {"__main__", "__init__"})
