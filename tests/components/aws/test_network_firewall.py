"""The security groups: who may open which port to whom, on both sides, and that nothing else passes."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.network import GROUPS, Flow, RulePlan, TrainingNetwork, plan_flows, plan_rules
from gangway.components.core.network import HeadPortsArgs

CIDR, ANYWHERE = "10.42.0.0/16", "0.0.0.0/0"
HEAD = HeadPortsArgs(rendezvous_port=29400, metrics_port=9400)
HEAD_WITH_LUSTRE = HeadPortsArgs(rendezvous_port=29400, metrics_port=9400, lustre=True)
LUSTRE = [988, *range(1018, 1024)]
ports = st.integers(1, 65535)
heads = st.none() | st.builds(HeadPortsArgs, rendezvous_port=ports, metrics_port=ports, lustre=st.booleans())


def rules_of(head: HeadPortsArgs | None, *, endpoints: bool = False) -> tuple[RulePlan, ...]:
    return plan_rules(plan_flows(CIDR, head, endpoints))


def allowed(rules: tuple[RulePlan, ...], group: str, direction: str, peer: str, port: int) -> bool:
    """Whether one side lets TCP to `port` pass. Every address lies within 0.0.0.0/0."""
    return any(
        (rule.group, rule.direction) == (group, direction)
        and rule.peer in (peer, ANYWHERE)
        and (rule.from_port is None or (rule.to_port is not None and rule.from_port <= port <= rule.to_port))
        for rule in rules
    )


def opens(rules: tuple[RulePlan, ...], source: str, target: str, port: int) -> bool:
    """Whether a machine in `source` can connect to one in `target`: both sides have to let it pass."""
    return allowed(rules, source, "egress", target, port) and allowed(rules, target, "ingress", source, port)


@given(heads, st.booleans())
def test_nothing_comes_in_but_from_our_own_groups_and_https_to_the_endpoints(
    head: HeadPortsArgs | None, endpoints: bool
) -> None:
    rules = rules_of(head, endpoints=endpoints)
    assert {rule.group for rule in rules} <= set(GROUPS)
    for rule in rules:
        assert rule.direction in ("ingress", "egress")
        if rule.direction == "ingress":
            assert rule.peer in GROUPS or (rule.group, rule.peer, rule.to_port) == ("endpoints", CIDR, 443)
    names = [(rule.group, rule.direction, rule.name) for rule in rules]
    assert len(set(names)) == len(names)


@given(heads, st.booleans())
def test_a_flow_between_groups_has_a_rule_on_either_side(head: HeadPortsArgs | None, endpoints: bool) -> None:
    flows = plan_flows(CIDR, head, endpoints)
    rules = plan_rules(flows)
    for flow in flows:
        same = [rule for rule in rules if (rule.name, rule.protocol) == (flow.name, flow.protocol)]
        sides = {(rule.direction, rule.group, rule.peer) for rule in same}
        wanted = {("egress", flow.source, flow.target), ("ingress", flow.target, flow.source)}
        assert {side for side in wanted if side[1] in GROUPS} <= sides
        assert {side for side in wanted if side[1] not in GROUPS}.isdisjoint(sides), "an address range has no rules"


def test_the_rules_of_one_flow_by_hand() -> None:
    assert plan_rules([Flow("web", "fabric", "head", "tcp", (80, 90))]) == (
        RulePlan("fabric", "egress", "web", "head", "tcp", 80, 90),
        RulePlan("head", "ingress", "web", "fabric", "tcp", 80, 90),
    )
    assert plan_rules([Flow("out", "head", ANYWHERE)]) == (RulePlan("head", "egress", "out", ANYWHERE),)
    assert plan_rules([Flow("https", CIDR, "endpoints", "tcp", (443, 443))]) == (
        RulePlan("endpoints", "ingress", "https", CIDR, "tcp", 443, 443),
    )


@given(heads, st.booleans())
def test_the_fabric_names_itself_in_both_directions(head: HeadPortsArgs | None, endpoints: bool) -> None:
    """EFA needs the self-reference spelled out, also beside 0.0.0.0/0; it covers Lustre's ports too."""
    rules = rules_of(head, endpoints=endpoints)
    for direction in ("ingress", "egress"):
        assert RulePlan("fabric", direction, "self", "fabric") in rules


@pytest.mark.parametrize(
    ("head", "into_head", "into_fabric"),
    [(HEAD, [29400], [9400]), (HEAD_WITH_LUSTRE, [29400, *LUSTRE], [9400, *LUSTRE])],
)
def test_head_and_workers_open_these_ports_to_each_other_and_no_other(
    head: HeadPortsArgs, into_head: list[int], into_fabric: list[int]
) -> None:
    """The file system stands in the fabric's group: a head that mounts it needs Lustre's ports, both ways."""
    rules = rules_of(head)
    everything = range(1, 65536)
    assert [port for port in everything if opens(rules, "fabric", "head", port)] == sorted(into_head)
    assert [port for port in everything if opens(rules, "head", "fabric", port)] == sorted(into_fabric)
    assert not any(opens(rules, "head", "head", port) for port in everything)


def test_a_flow_written_on_one_side_only_would_be_seen() -> None:
    """What the test above rests on: either side alone lets nothing pass."""
    both = plan_rules([Flow("web", "fabric", "head", "tcp", (80, 80))])
    assert opens(both, "fabric", "head", 80)
    for side in both:
        assert not opens((side,), "fabric", "head", 80)


@pytest.mark.parametrize(("egress", "expected"), [("nat", {"fabric", "head"}), ("endpoints", set(GROUPS))])
def test_rules_are_resources_of_their_own_and_never_inline(
    make: Callable[..., Any], egress: str, expected: set[str]
) -> None:
    made = make(TrainingNetwork, egress=egress, head=HEAD_WITH_LUSTRE)
    groups = {group.id: group for group in made.of("SecurityGroup")}
    assert {group.name for group in groups.values()} == {f"demo-{key}" for key in expected}
    for group in groups.values():
        assert not {"ingress", "egress"} & set(group.inputs), "inline rules would overwrite the others"
        assert group.inputs["description"] == GROUPS[group.name.removeprefix("demo-")]
    rules = [*made.of("SecurityGroupIngressRule"), *made.of("SecurityGroupEgressRule")]
    assert len(rules) == len(rules_of(HEAD_WITH_LUSTRE, endpoints=egress == "endpoints"))
    for rule in rules:
        assert rule.inputs["securityGroupId"] in groups
        assert ("referencedSecurityGroupId" in rule.inputs) is not ("cidrIpv4" in rule.inputs)
        assert ("fromPort" in rule.inputs) is (rule.inputs["ipProtocol"] != "-1"), "protocol -1 takes no ports"
    by_name = {rule.name: rule.inputs for rule in rules}
    (fabric,) = [group.id for group in groups.values() if group.name == "demo-fabric"]
    assert by_name["demo-head-ingress-rendezvous"]["referencedSecurityGroupId"] == fabric
    assert by_name["demo-head-ingress-rendezvous"]["toPort"] == 29400
    lustre = by_name["demo-head-egress-lustre-1018-1023"]
    assert (lustre["fromPort"], lustre["toPort"]) == (1018, 1023)
    assert lustre["referencedSecurityGroupId"] == fabric
    assert by_name["demo-fabric-ingress-self"]["referencedSecurityGroupId"] == fabric
    assert by_name["demo-fabric-egress-out"]["cidrIpv4"] == ANYWHERE
