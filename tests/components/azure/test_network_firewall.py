"""Who may open which port to whom, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.network import (
    AZURE_SERVICES,
    FIRST_PRIORITY,
    LAST_PRIORITY,
    ROLES,
    Flow,
    plan_flows,
    plan_lustre_flows,
    plan_rules,
)
from gangway.components.core.fields import Egress
from gangway.components.core.network import HeadPortsArgs

HEAD: HeadPortsArgs = {"rendezvous_port": 29400, "metrics_port": 9400}
LUSTRE, BASTION, CLIENTS = "10.42.128.0/27", "10.42.255.192/26", "10.42.0.0/18"

heads = st.none() | st.fixed_dictionaries(
    {"rendezvous_port": st.integers(1, 65535), "metrics_port": st.integers(1, 65535)},
    optional={"lustre": st.booleans()},
)


def holds(ports: tuple[str, ...], port: int) -> bool:
    """Whether a port is among ports as Azure writes them."""
    ranges = [tuple(map(int, (word.split("-") * 2)[:2])) for word in ports]
    return not ports or any(first <= port <= last for first, last in ranges)


def passes(flows: tuple[Flow, ...], source: str, target: str, port: int, direction: str = "Inbound") -> bool:
    """Whether a tcp connection is allowed."""
    return any(
        (flow.source, flow.target, flow.direction) == (source, target, direction) and holds(flow.ports, port)
        for flow in flows
    )


@pytest.mark.parametrize(
    ("source", "target", "port", "allowed"),
    [
        ("fabric", "fabric", 45000, True),
        ("fabric", "head", 29400, True),
        ("head", "fabric", 9400, True),
        (BASTION, "fabric", 22, True),
        (BASTION, "head", 22, True),
        (LUSTRE, "fabric", 988, True),
        (LUSTRE, "fabric", 1021, True),
        (LUSTRE, "head", 988, True),
        ("fabric", "head", 22, False),
        ("fabric", "head", 9400, False),
        ("head", "fabric", 22, False),
        ("head", "head", 29400, False),
        (BASTION, "head", 29400, False),
        (LUSTRE, "fabric", 22, False),
        (LUSTRE, "fabric", 1024, False),
        ("*", "head", 22, False),
    ],
)
def test_the_flows_of_a_whole_stack(source: str, target: str, port: int, allowed: bool) -> None:
    flows = plan_flows({**HEAD, "lustre": True}, Egress.NAT, LUSTRE, BASTION)
    assert passes(flows, source, target, port) is allowed


def test_the_head_is_reached_by_no_file_server_that_it_does_not_use() -> None:
    assert not passes(plan_flows(HEAD, Egress.NAT, LUSTRE), LUSTRE, "head", 988)
    assert not any(flow.target == "head" for flow in plan_flows(None, Egress.NAT, LUSTRE, BASTION))


@pytest.mark.parametrize(
    ("source", "target", "port", "allowed"),
    [
        (LUSTRE, LUSTRE, 22, True),
        (CLIENTS, LUSTRE, 988, True),
        (CLIENTS, LUSTRE, 1019, True),
        ("AzureMonitor", "VirtualNetwork", 443, True),
        (CLIENTS, LUSTRE, 22, False),
        ("*", LUSTRE, 988, False),
    ],
)
def test_the_flows_of_the_file_system(source: str, target: str, port: int, allowed: bool) -> None:
    assert passes(plan_lustre_flows(LUSTRE, CLIENTS), source, target, port) is allowed


@given(heads, st.sampled_from(Egress), st.none() | st.just(LUSTRE), st.none() | st.just(BASTION))
def test_every_rule_has_a_place_of_its_own_and_the_last_refuses(
    head: HeadPortsArgs | None, egress: Egress, lustre: str | None, bastion: str | None
) -> None:
    flows = plan_flows(head, egress, lustre, bastion)
    rules = plan_rules(flows)
    names = [rule.flow.name for rule in rules]
    assert len(set(names)) == len(names), "Azure tells rules apart by them"
    assert [rule.flow for rule in rules if rule.allow] == list(flows)
    directions = {flow.direction for flow in flows}
    assert directions == ({"Inbound"} if egress == Egress.NAT else {"Inbound", "Outbound"})
    for direction in directions:
        mine = [rule for rule in rules if rule.flow.direction == direction]
        priorities = [rule.priority for rule in mine]
        assert len(set(priorities)) == len(priorities)
        assert FIRST_PRIORITY <= min(priorities) <= max(priorities) == LAST_PRIORITY
        refused = max(mine, key=lambda rule: rule.priority)
        assert not refused.allow
        assert (refused.flow.source, refused.flow.target, refused.flow.protocol) == ("*", "*", "*")
    for flow in flows:
        if flow.direction == "Inbound":
            assert flow.target in ROLES
            assert flow.source in {*ROLES, lustre, bastion}
            every_port = not flow.ports
            assert not every_port or (flow.source, flow.target) == ("fabric", "fabric"), "only among workers"


def test_endpoints_lead_to_azure_and_nowhere_else() -> None:
    out = {flow.target: flow for flow in plan_flows(HEAD, Egress.ENDPOINTS) if flow.direction == "Outbound"}
    assert set(out) == {"VirtualNetwork", *AZURE_SERVICES}
    assert all(out[tag].ports == ("443",) for tag in AZURE_SERVICES)
    assert {"Internet", "*"}.isdisjoint(out)
