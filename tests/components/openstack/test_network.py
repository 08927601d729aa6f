"""The network: who has which address, what passes, and the one way out."""

from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.fields import Egress
from gangway.components.core.findings import InputError
from gangway.components.core.limits import HeadPortsArgs
from gangway.components.openstack.network import (
    Rule,
    TrainingNetwork,
    check_services,
    ipv4_of,
    plan_network,
    plan_rules,
)
from tests.components.fixture_types import Make

HEAD: HeadPortsArgs = {"rendezvous_port": 29400, "metrics_port": 9400}
ROUTER = "11111111-0000-4000-8000-111111111111"


@given(st.integers(16, 20), st.integers(0, 255), st.integers(1, 512))
def test_no_two_have_one_address(prefix: int, second: int, num_nodes: int) -> None:
    cidr = str(IPv4Network((f"10.{second}.0.0", prefix), strict=False))
    plan = plan_network(cidr)
    fixed = [plan.gateway, plan.head, *(plan.worker(index) for index in range(num_nodes))]
    assert len(set(fixed)) == len(fixed)
    first, last = map(IPv4Address, plan.pool)
    assert all(IPv4Address(address) in IPv4Network(cidr) for address in (*fixed, *plan.pool))
    assert all(not first <= IPv4Address(address) <= last for address in fixed)
    assert int(last) - int(first) > 2000


@pytest.mark.parametrize("cidr", ["10.0.0.0/24", "8.8.0.0/16", "10.42.0.1/16", "x"])
def test_a_range_that_is_none_is_refused(cidr: str) -> None:
    with pytest.raises(InputError, match=r"gangway:network\.cidr"):
        plan_network(cidr)


@pytest.mark.parametrize(
    "addresses",
    [
        ["203.0.113.5"],
        ["2001:db8::5", "203.0.113.5"],
        ["203.0.113.5", "2001:db8::5"],
        [None, "", "::ffff:198.51.100.1", "203.0.113.5", "203.0.113.6"],
    ],
)
def test_a_router_is_known_by_its_first_ipv4_address(addresses: list[str | None]) -> None:
    assert ipv4_of(addresses) == "203.0.113.5"


def test_in_a_plan_a_reference_stands_for_the_address() -> None:
    reference = "${Router.demo-nat.externalFixedIps[0].ipAddress}"
    assert ipv4_of([reference]) == reference


@pytest.mark.parametrize(("addresses", "said"), [([], "no address"), (["2001:db8::5"], "2001:db8::5")])
def test_a_router_without_an_ipv4_address_is_told(addresses: list[str], said: str) -> None:
    with pytest.raises(InputError, match="no IPv4 address on that network") as told:
        ipv4_of(addresses)
    assert (told.value.place, told.value.value) == ("gangway:openstack.external_network_id", said)


def reached(rules: tuple[Rule, ...], role: str) -> set[tuple[str, str | None, tuple[int, int] | None]]:
    """What a role may open connections to."""
    return {
        (rule.remote, rule.protocol, rule.ports) for rule in rules if (rule.role, rule.direction) == (role, "egress")
    }


def test_nobody_comes_in_but_for_the_job() -> None:
    rules = plan_rules(HEAD, Egress.NAT, "10.42.0.0/16")
    inward = [(rule.remote, rule.role, rule.protocol, rule.ports) for rule in rules if rule.direction == "ingress"]
    assert sorted(inward, key=str) == [
        ("fabric", "fabric", None, None),
        ("fabric", "head", "tcp", (29400, 29400)),
        ("head", "fabric", "tcp", (9400, 9400)),
    ]
    assert reached(rules, "fabric") == reached(rules, "head") == {("0.0.0.0/0", None, None)}
    assert len({rule.name for rule in rules}) == len(rules)


def test_one_node_alone_has_no_rules_of_a_head() -> None:
    assert {rule.role for rule in plan_rules(None, Egress.NAT, "10.42.0.0/16")} == {"fabric"}


def test_with_endpoints_machines_reach_the_clouds_services_alone() -> None:
    rules = plan_rules(HEAD, Egress.ENDPOINTS, "10.42.0.0/16", ["192.0.2.0/24"], ["198.51.100.53"])
    for role in ("fabric", "head"):
        assert reached(rules, role) == {
            ("10.42.0.0/16", None, None),
            ("169.254.169.254/32", "tcp", (80, 80)),
            ("192.0.2.0/24", "tcp", (1, 65535)),
            ("198.51.100.53/32", "tcp", (53, 53)),
            ("198.51.100.53/32", "udp", (53, 53)),
        }
    assert len({rule.name for rule in rules}) == len(rules)


@pytest.mark.parametrize(
    ("egress", "cidrs", "place", "fix"),
    [
        (Egress.ENDPOINTS, [], "service_cidrs", "gangway:network.egress: nat"),
        (Egress.NAT, ["192.0.2.0/24"], "service_cidrs", "leave service_cidrs out"),
        (Egress.ENDPOINTS, ["192.0.2.0/24", "192.0.2.1/24"], "service_cidrs[1]", "192.0.2.0/24"),
    ],
)
def test_a_way_out_that_leads_nowhere_is_refused(egress: Egress, cidrs: list[str], place: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        check_services(egress, cidrs)
    assert caught.value.place == f"gangway:openstack.{place}"
    assert fix in caught.value.fix


def network(**changes: Any) -> dict[str, Any]:
    return {"cidr": "10.42.0.0/16", "egress": Egress.NAT, "external_network_id": ROUTER, "tags": {}, **changes}


def test_one_router_leads_out(make: Make) -> None:
    made = make(TrainingNetwork, network(head=HEAD))
    assert made.one("Router").inputs["externalNetworkId"] == ROUTER
    leg = made.one("RouterInterface").inputs
    assert (leg["routerId"], leg["subnetId"]) == (made.one("Router").id, made.one("Subnet").id)
    assert made.of("FloatingIp") == []
    subnet = made.one("Subnet").inputs
    assert subnet["allocationPools"] == [{"start": "10.42.128.0", "end": "10.42.255.254"}]
    assert (subnet["cidr"], subnet["gatewayIp"]) == ("10.42.0.0/16", "10.42.0.1")
    assert made.one("Network").inputs["portSecurityEnabled"] is True


def test_groups_hold_our_rules_alone(make: Make) -> None:
    made = make(TrainingNetwork, network(head=HEAD))
    groups = {group.name: group.id for group in made.of("SecGroup")}
    assert set(groups) == {"demo-fabric", "demo-head"}
    assert all(group.inputs["deleteDefaultRules"] is True for group in made.each("SecGroup"))
    rules = {rule.name: rule.inputs for rule in made.of("SecGroupRule")}
    own = rules["demo-self"]
    assert (own["securityGroupId"], own["remoteGroupId"], own["direction"]) == (
        groups["demo-fabric"], groups["demo-fabric"], "ingress",
    )  # fmt: skip
    assert not {"protocol", "portRangeMin", "remoteIpPrefix"} & set(own)
    meet = rules["demo-rendezvous"]
    assert (meet["securityGroupId"], meet["remoteGroupId"]) == (groups["demo-head"], groups["demo-fabric"])
    assert (meet["protocol"], meet["portRangeMin"], meet["portRangeMax"]) == ("tcp", 29400, 29400)
    assert rules["demo-out-fabric"]["remoteIpPrefix"] == "0.0.0.0/0"


def test_without_a_head_there_is_no_group_of_one(make: Make) -> None:
    made = make(TrainingNetwork, network())
    assert [group.name for group in made.of("SecGroup")] == ["demo-fabric"]


def test_the_program_of_others_is_told_of_services_too(make: Make) -> None:
    with pytest.raises(InputError, match=r"^service_cidrs: missing"):
        make(TrainingNetwork, network(egress=Egress.ENDPOINTS))
