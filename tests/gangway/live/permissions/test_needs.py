"""Every type has permissions, on every provider; commands and settings decide which are needed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gangway.components.catalog.permissions import load_permissions
from gangway.components.core.findings import InputError
from gangway.live.permissions.needs import DEFAULT, Command, collect, make_needs
from gangway.stacks.base.registry import all_providers, get_provider, providers_with_adapter
from gangway.stacks.base.rule import kind
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan

STACKS = sorted((Path(__file__).resolve().parents[4] / "stacks").glob("Pulumi.*.yaml"))
PROVIDERS = providers_with_adapter("permissions")
NAMES = [path.name.split(".")[1] for path in STACKS if from_file(path).provider in PROVIDERS]
PACKAGES = {"aws": "aws", "gcp": "gcp", "azure": "azure-native"}
# What no cloud's permissions are about: charts, files of the state, commands on hosts, a pause of the program.
OWN = ("gangway:", "kubernetes:", "pulumi:index:Stash", "pulumi-python:dynamic:Settling", "command:remote:")

Shipped = Callable[[str], Plan]


@pytest.mark.parametrize("name", NAMES)
def test_every_type_of_the_shipped_stacks_has_permissions(shipped_plan: Shipped, name: str) -> None:
    plan = shipped_plan(name)
    table = load_permissions(plan.config.provider)
    kinds = {kind(one.type) for one in plan.resources if not kind(one.type).startswith(OWN)}
    own_provider = {f"pulumi:providers:{name}" for name in ("kubernetes", "command")}
    assert sorted(kinds - own_provider - table.types.keys()) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_type_that_the_provider_declares_has_permissions(provider: str) -> None:
    facts, table = get_provider(provider), load_permissions(provider)
    declared = {each for classes in facts.retention.classes for each in classes}
    declared |= {*facts.machine_types, *facts.nodes.machines, *facts.nodes.templates, *facts.budget_types}
    assert sorted(each for each in declared - table.types.keys() if each.startswith(f"{PACKAGES[provider]}:")) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_action_has_a_known_form_and_each_type_creates_or_reads(provider: str) -> None:
    table = load_permissions(provider)
    for name, each in table.types.items():
        assert each.create or each.read or each.added, name
    assert table.commands.keys() == {Command.PREFLIGHT, Command.BENCH}
    assert any("of 20" in source for source in table.sources), "a source tells its date"


def test_providers_without_policies_say_what_limits_the_caller() -> None:
    for provider in all_providers():
        assert bool(provider.instead_of_policies) is ("permissions" not in provider.adapters), provider.name


@pytest.mark.parametrize(("name", "words"), [("hosts-lab", "SSH"), ("openstack-gpu", "Keystone's roles")])
def test_a_provider_without_policies_is_refused_before_the_plan(name: str, words: str) -> None:
    def never() -> Plan:
        raise AssertionError("no plan is made")

    with pytest.raises(InputError, match=words) as caught:
        make_needs(name.partition("-")[0], never, DEFAULT)
    assert caught.value.allowed == "aws, gcp, azure"
    assert caught.value.fix


def actions(plan: Plan, *commands: Command) -> set[str]:
    return {use.action for use in collect(plan, load_permissions(plan.config.provider), commands)}


@pytest.mark.parametrize("name", ["aws-p5-spot", "gcp-a3-spot", "azure-ndv4"])
def test_commands_need_what_they_do(shipped_plan: Shipped, name: str) -> None:
    plan = shipped_plan(name)
    up, destroy, bench = (actions(plan, command) for command in (Command.UP, Command.DESTROY, Command.BENCH))
    preflight = actions(plan, Command.PREFLIGHT)
    assert up | destroy <= bench
    assert bench - up - destroy <= actions(plan, Command.BENCH)
    assert any("elete" in action for action in destroy - up)
    changing = ("reate", "elete", "pdate", "/write", "Put", "Modify")
    assert not any(word in action.rpartition(":")[2] for action in preflight for word in changing)
    assert actions(plan, *DEFAULT) == up | destroy


def test_what_destroy_keeps_needs_no_deletion(shipped_plan: Shipped) -> None:
    destroyed = actions(shipped_plan("azure-ndv4"), *DEFAULT)
    assert "Microsoft.Resources/subscriptions/resourceGroups/delete" not in destroyed
    assert "Microsoft.Network/virtualNetworks/delete" in destroyed


def test_only_a_stack_that_keeps_no_records_may_delete_them(shipped_plan: Shipped) -> None:
    plan = shipped_plan("aws-demo")
    assert not any(action.startswith("s3:DeleteObject") for action in actions(plan, *DEFAULT))
    forced = [
        replace(one, inputs={**one.inputs, "forceDestroy": True}) if one.type.endswith(":Bucket") else one
        for one in plan.resources
    ]
    assert {"s3:DeleteObject", "s3:DeleteObjectVersion"} <= actions(replace(plan, resources=tuple(forced)), *DEFAULT)


def test_the_stacks_key_needs_grants_only_where_it_exists(shipped_plan: Shipped) -> None:
    assert "kms:CreateGrant" in actions(shipped_plan("aws-p5-spot"), Command.UP)
    assert not any(action.startswith("kms:") for action in actions(shipped_plan("aws-demo"), Command.UP))


def test_reasons_name_resources_or_commands(shipped_plan: Shipped) -> None:
    plan = shipped_plan("aws-p5-spot")
    uses = collect(plan, load_permissions("aws"), (Command.UP, Command.PREFLIGHT))
    reasons = {use.action: use.reason for use in uses}
    assert reasons["ec2:CreateVpc"] == "create aws:ec2:Vpc aws-p5-spot-vpc"
    assert reasons["ssm:PutParameter"].startswith("update aws:ssm:Parameter aws-p5-spot-member-key, ")
    assert reasons["servicequotas:GetServiceQuota"] == "gangway preflight: the quota of the accelerators' vCPUs"
    alarms = next(use for use in uses if use.type.endswith("MetricAlarm"))
    assert alarms.reason.endswith(f" and {len(alarms.resources) - 2} more")
