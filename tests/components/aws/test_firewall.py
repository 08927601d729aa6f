"""The security groups: what passes, and that nothing from outside ever does."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.aws.firewall import GROUPS, HeadPortsArgs, RulePlan, plan_rules
from components.aws.network import TrainingNetwork

HEAD = HeadPortsArgs(rendezvous_port=29400, metrics_port=9400)
ports = st.integers(1, 65535)
heads = st.none() | st.builds(HeadPortsArgs, rendezvous_port=ports, metrics_port=ports)


@given(heads, st.booleans())
def test_nothing_comes_in_but_from_our_own_groups_and_https_to_the_endpoints(
    head: HeadPortsArgs | None, endpoints: bool
) -> None:
    rules = plan_rules("10.42.0.0/16", head, endpoints)
    assert {rule.group for rule in rules} <= set(GROUPS)
    for rule in rules:
        assert rule.direction in ("ingress", "egress")
        if rule.direction == "ingress":
            assert rule.peer in GROUPS or (rule.group, rule.peer, rule.port) == ("endpoints", "10.42.0.0/16", 443)
    names = [(rule.group, rule.direction, rule.name) for rule in rules]
    assert len(set(names)) == len(names)


@given(heads, st.booleans())
def test_the_fabric_names_itself_in_both_directions(head: HeadPortsArgs | None, endpoints: bool) -> None:
    """EFA needs the self-reference spelled out, also beside 0.0.0.0/0; it covers Lustre's ports too."""
    rules = plan_rules("10.42.0.0/16", head, endpoints)
    for direction in ("ingress", "egress"):
        assert RulePlan("fabric", direction, "self", "fabric") in rules


def test_head_and_workers_open_one_port_each_to_each_other() -> None:
    rules = plan_rules("10.42.0.0/16", HEAD, endpoints=False)
    into_head = [rule for rule in rules if (rule.group, rule.direction) == ("head", "ingress")]
    assert into_head == [RulePlan("head", "ingress", "rendezvous", "fabric", "tcp", 29400)]
    from_head = [rule for rule in rules if rule.peer == "head"]
    assert from_head == [RulePlan("fabric", "ingress", "metrics", "head", "tcp", 9400)]


@pytest.mark.parametrize(("egress", "expected"), [("nat", {"fabric", "head"}), ("endpoints", set(GROUPS))])
def test_rules_are_resources_of_their_own_and_never_inline(
    make: Callable[..., Any], egress: str, expected: set[str]
) -> None:
    made = make(TrainingNetwork, egress=egress)
    groups = {group.id: group for group in made.of("SecurityGroup")}
    assert {group.name for group in groups.values()} == {f"demo-{key}" for key in expected}
    for group in groups.values():
        assert not {"ingress", "egress"} & set(group.inputs), "inline rules would overwrite the others"
        assert group.inputs["description"] == GROUPS[group.name.removeprefix("demo-")]
    rules = [*made.of("SecurityGroupIngressRule"), *made.of("SecurityGroupEgressRule")]
    assert len(rules) == len(plan_rules("10.42.0.0/16", HEAD, egress == "endpoints"))
    for rule in rules:
        assert rule.inputs["securityGroupId"] in groups
        assert ("referencedSecurityGroupId" in rule.inputs) is not ("cidrIpv4" in rule.inputs)
        assert ("fromPort" in rule.inputs) is (rule.inputs["ipProtocol"] != "-1"), "protocol -1 takes no ports"
    by_name = {rule.name: rule.inputs for rule in rules}
    (fabric,) = [group.id for group in groups.values() if group.name == "demo-fabric"]
    assert by_name["demo-head-ingress-rendezvous"]["referencedSecurityGroupId"] == fabric
    assert by_name["demo-head-ingress-rendezvous"]["toPort"] == 29400
    assert by_name["demo-fabric-ingress-self"]["referencedSecurityGroupId"] == fabric
    assert by_name["demo-fabric-egress-out"]["cidrIpv4"] == "0.0.0.0/0"
