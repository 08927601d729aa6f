"""Who may open which port to whom, and nothing else."""

from collections.abc import Callable
from typing import Any, cast

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi_gcp import compute

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.core.network import HeadPortsArgs
from gangway.components.gcp.fabric import MAIN, plan_fabric_networks
from gangway.components.gcp.network import (
    IAP_RANGE,
    ROLES,
    Flow,
    declare_denial,
    declare_rules,
    network_tag,
    plan_flows,
)

MACHINES = cast("dict[str, GcpMachineType]", load_provider("gcp").machines)
HEAD: HeadPortsArgs = {"rendezvous_port": 29400, "metrics_port": 9400}
SERVICES = "10.42.224.0/19"

heads = st.none() | st.fixed_dictionaries(
    {"rendezvous_port": st.integers(1, 65535), "metrics_port": st.integers(1, 65535)},
    optional={"lustre": st.booleans()},
)
ranges = st.none() | st.just(SERVICES)


def passes(flows: tuple[Flow, ...], source: str, target: str, port: int, network: str = MAIN) -> bool:
    """Whether a tcp connection is allowed."""
    return any(
        (flow.source, flow.target, flow.network) == (source, target, network) and (not flow.ports or port in flow.ports)
        for flow in flows
    )


@pytest.mark.parametrize(
    ("source", "target", "port", "allowed"),
    [
        ("fabric", "fabric", 45000, True),
        ("fabric", "head", 29400, True),
        ("head", "fabric", 9400, True),
        (IAP_RANGE, "fabric", 22, True),
        (IAP_RANGE, "head", 22, True),
        (SERVICES, "fabric", 988, True),
        (SERVICES, "head", 988, True),
        ("fabric", "head", 22, False),
        ("fabric", "head", 9400, False),
        ("head", "fabric", 22, False),
        ("head", "fabric", 29400, False),
        ("head", "head", 29400, False),
        (IAP_RANGE, "head", 29400, False),
        (IAP_RANGE, "fabric", 9400, False),
        (SERVICES, "fabric", 22, False),
        ("0.0.0.0/0", "head", 22, False),
    ],
)
def test_the_flows_of_a_whole_stack(source: str, target: str, port: int, allowed: bool) -> None:
    flows = plan_flows({**HEAD, "lustre": True}, services_range=SERVICES)
    assert passes(flows, source, target, port) is allowed


def test_the_head_is_reached_by_no_file_server_that_it_does_not_use() -> None:
    assert not passes(plan_flows(HEAD, services_range=SERVICES), SERVICES, "head", 988)
    assert not any(flow.target == "head" for flow in plan_flows(None, services_range=SERVICES))


@given(heads, st.sampled_from(sorted(MACHINES)), ranges)
def test_every_flow_is_of_known_ends_and_no_wider_than_it_must_be(
    head: HeadPortsArgs | None, machine_type: str, services_range: str | None
) -> None:
    networks = plan_fabric_networks(MACHINES[machine_type], "us-east4-b")
    flows = plan_flows(head, networks, services_range)
    names = [flow.name for flow in flows]
    assert len(set(names)) == len(names), "rules are told apart by them"
    ruled = {network.name for network in networks if network.takes_firewall_rules}
    assert {flow.network for flow in flows} == {MAIN, *ruled}, "none in an RDMA network, which takes none"
    for flow in flows:
        assert flow.target in ROLES
        assert flow.source in {*ROLES, IAP_RANGE, services_range}
        every_port = flow.protocol == "all"
        assert every_port == (not flow.ports)
        assert not every_port or (flow.source, flow.target) == ("fabric", "fabric"), "everything only among workers"
    assert all(passes(flows, "fabric", "fabric", 12345, network) for network in ruled)


@given(st.from_regex(r"\A[a-z][a-z0-9-]{38}[a-z0-9]\Z"), st.sampled_from(sorted(MACHINES)))
def test_names_of_the_longest_stack_fit(stack: str, machine_type: str) -> None:
    networks = plan_fabric_networks(MACHINES[machine_type], "us-east4-b")
    flows = plan_flows({**HEAD, "lustre": True}, networks, SERVICES)
    # Pulumi adds a dash and seven digits.
    assert all(len(f"{stack}-{flow.name}") <= 63 - 8 for flow in flows)
    assert all(len(network_tag(stack, role)) <= 63 for role in ROLES)


@pytest.fixture
def rules(declare: Callable[..., Any]) -> dict[str, Any]:
    """The rules of a stack with a head, as they reach the provider, by name."""

    def program() -> None:
        main = compute.Network("main")
        declare_rules("demo", "lab", plan_flows(HEAD), {MAIN: main}, pulumi.ResourceOptions())
        declare_denial("demo", "lab", main, pulumi.ResourceOptions())

    return {rule.name: rule.inputs for rule in declare(program).of("Firewall")}


def test_rules_name_machines_by_their_tags(rules: dict[str, Any]) -> None:
    assert set(rules) == {f"demo-{name}" for name in
                          ("self", "iap-fabric", "iap-head", "rendezvous", "metrics", "denied")}  # fmt: skip
    assert rules["demo-rendezvous"] == {
        "project": "lab", "network": "${Network.main.id}", "description": "fabric to head", "direction": "INGRESS",
        "sourceTags": ["demo-fabric"], "targetTags": ["demo-head"], "allows": [{"protocol": "tcp", "ports": ["29400"]}],
    }  # fmt: skip
    assert rules["demo-self"]["allows"] == [{"protocol": "all"}]
    assert rules["demo-iap-head"]["sourceRanges"] == ["35.235.240.0/20"]
    assert "sourceTags" not in rules["demo-iap-head"]


def test_what_is_refused_is_logged_last(rules: dict[str, Any]) -> None:
    denied = rules["demo-denied"]
    assert (denied["priority"], denied["denies"], denied["sourceRanges"]) == (
        65534,
        [{"protocol": "all"}],
        ["0.0.0.0/0"],
    )
    assert "allows" not in denied
    assert not [rule for name, rule in rules.items() if name != "demo-denied" and "priority" in rule]


def test_the_api_takes_the_rules(rules: dict[str, Any], api_mistakes: Callable[..., list[str]]) -> None:
    for rule in rules.values():
        spelled = {"allows": "allowed", "denies": "denied"}
        body = {key: value for key, value in rule.items() if key not in {"project", *spelled}}
        for ours, theirs in spelled.items():
            body[theirs] = [{"IPProtocol": r["protocol"], "ports": r.get("ports", [])} for r in rule.get(ours, [])]
        body["logConfig"] = rule.get("logConfig", {})
        assert api_mistakes("compute.v1", "Firewall", body) == []
