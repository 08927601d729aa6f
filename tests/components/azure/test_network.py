"""TrainingNetwork: address plan, ways out, and nothing that could be reached from outside."""

from ipaddress import IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.network import (
    AZURE_SERVICES,
    FIRST_PRIORITY,
    LAST_PRIORITY,
    PRIVATE,
    PRIVATE_SERVICES,
    ROLES,
    Flow,
    PrivateEndpoints,
    TrainingNetwork,
    plan_flows,
    plan_lustre_flows,
    plan_network,
    plan_rules,
)
from gangway.components.core.fields import Egress
from gangway.components.core.findings import InputError
from gangway.components.core.limits import HeadPortsArgs
from tests.components.fixture_types import Make, Mistakes

HEAD: HeadPortsArgs = {"rendezvous_port": 29400, "metrics_port": 9400}
ranges = st.integers(16, 20).flatmap(
    lambda prefix: st.sampled_from(
        [str(network) for network in list(IPv4Network("10.0.0.0/8").subnets(new_prefix=prefix))[:200]]
    )
)


@given(ranges, st.none() | st.integers(23, 27))
def test_subnets_lie_in_the_range_and_apart(cidr: str, lustre: int | None) -> None:
    plan = plan_network(cidr, lustre)
    parts = [IPv4Network(part) for part in (plan.private_cidr, plan.lustre_cidr, plan.bastion_cidr) if part]
    assert all(part.subnet_of(IPv4Network(cidr)) for part in parts)
    assert not any(a.overlaps(b) for i, a in enumerate(parts) for b in parts[i + 1 :])
    # Azure keeps five addresses of each subnet; a scale set of one placement group has 100 machines.
    assert parts[0].num_addresses - 5 >= 1000
    assert (plan.lustre_cidr is None) == (lustre is None)
    assert lustre is None or parts[1].prefixlen == lustre
    assert parts[-1].prefixlen == 26


@pytest.mark.parametrize("cidr", ["8.8.0.0/16", "10.0.0.0/24", "10.0.0.0/8", "x"])
def test_a_range_that_cannot_be_divided_is_named(cidr: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_network(cidr)
    assert (caught.value.place, caught.value.fix) == ("gangway:network.cidr", "use 10.42.0.0/16")


@pytest.fixture
def made(make: Make, place: dict[str, Any]) -> Make:
    """A network with these changes."""

    def run(**changes: Any) -> Any:
        args = {key: place[key] for key in ("resource_group_name", "location", "zone", "tags")}
        return make(TrainingNetwork, {**args, "cidr": "10.42.0.0/16", "egress": Egress.NAT, **changes})

    return run


WHOLE: dict[str, Any] = {
    "egress": Egress.ENDPOINTS, "head": HEAD, "lustre_prefix_length": 27, "bastion": True,
    "flow_log_account_id": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a",
    "flow_log_identity_id": "/flows",
}  # fmt: skip


@pytest.mark.parametrize("changes", [{}, WHOLE, {"zone": ""}])
def test_microsofts_models_take_it(made: Make, arm_mistakes: Mistakes, changes: dict[str, Any]) -> None:
    assert arm_mistakes(made(**changes)) == []


def test_public_addresses_are_those_of_nat_and_bastion(made: Make) -> None:
    assert [address.name for address in made().of("PublicIPAddress")] == ["demo-nat"]
    whole = made(**WHOLE)
    assert [address.name for address in whole.of("PublicIPAddress")] == ["demo-bastion", "demo-nat"]
    for address in whole.each("PublicIPAddress"):
        assert address.inputs["sku"] == {"name": "Standard"}
        assert address.inputs["publicIPAllocationMethod"] == "Static"
        assert address.inputs["zones"] == ["1"]
    assert "zones" not in made(zone="").one("NatGateway").inputs


def test_no_subnet_has_the_outbound_access_that_azure_gives_by_default(made: Make) -> None:
    subnets = {subnet.name: subnet.inputs for subnet in made(**WHOLE).of("Subnet")}
    assert set(subnets) == {"demo-private", "demo-lustre", "demo-bastion"}
    assert all(subnet["defaultOutboundAccess"] is False for subnet in subnets.values())
    for name in ("demo-private", "demo-lustre"):
        assert subnets[name]["natGateway"] == {"id": "${NatGateway.demo-nat.id}"}
        label = name.removeprefix("demo-")
        assert subnets[name]["networkSecurityGroup"] == {"id": f"${{NetworkSecurityGroup.demo-{label}.id}}"}
        services = [one["service"] for one in subnets[name]["serviceEndpoints"]]
        assert services == ["Microsoft.Storage", "Microsoft.KeyVault"]
    assert subnets["demo-bastion"]["subnetName"] == "AzureBastionSubnet"
    assert subnets["demo-lustre"]["addressPrefix"] == "10.42.128.0/27"


def rules_of(made: Any, group: str) -> dict[str, dict[str, Any]]:
    """The rules of a security group, by name."""
    (found,) = [it for it in made.of("NetworkSecurityGroup") if it.name == group]
    return {rule["name"]: rule for rule in found.inputs["securityRules"]}


def test_rules_name_machines_by_their_groups(made: Make) -> None:
    rules = rules_of(made(head=HEAD), "demo-private")
    assert set(rules) == {"self", "rendezvous", "metrics", "refuse-inbound"}
    assert rules["rendezvous"] == {
        "name": "rendezvous", "priority": 110, "access": "Allow", "direction": "Inbound", "protocol": "Tcp",
        "sourcePortRange": "*", "destinationPortRange": "29400",
        "sourceApplicationSecurityGroups": [{"id": "${ApplicationSecurityGroup.demo-fabric.id}"}],
        "destinationApplicationSecurityGroups": [{"id": "${ApplicationSecurityGroup.demo-head.id}"}],
    }  # fmt: skip
    refused = rules["refuse-inbound"]
    assert (refused["access"], refused["priority"]) == ("Deny", 4096)
    assert (refused["sourceAddressPrefix"], refused["destinationAddressPrefix"]) == ("*", "*")


def test_lustre_ports_are_a_list(made: Make) -> None:
    whole = made(**WHOLE)
    for group, rule in (("demo-private", "lustre-fabric"), ("demo-lustre", "clients")):
        found = rules_of(whole, group)[rule]
        assert found["destinationPortRanges"] == ["988", "1019-1023"]
        assert "destinationPortRange" not in found
    assert rules_of(whole, "demo-lustre")["clients"]["sourceAddressPrefix"] == "10.42.0.0/18"


def test_subnets_are_changed_one_after_another(made: Make) -> None:
    subnets = {subnet.name: subnet for subnet in made(**WHOLE).of("Subnet")}
    assert subnets["demo-private"].urn in subnets["demo-lustre"].dependencies
    assert subnets["demo-lustre"].urn in subnets["demo-bastion"].dependencies


def test_the_head_has_a_name_in_a_zone_of_the_network(made: Make) -> None:
    whole = made(head=HEAD)
    assert whole.one("PrivateZone").inputs["privateZoneName"] == "demo.gangway.internal"
    link = whole.one("VirtualNetworkLink").inputs
    assert link["virtualNetwork"] == {"id": "${VirtualNetwork.demo-network.id}"}
    assert link["registrationEnabled"] is False
    assert not made().of("PrivateZone")


def test_flow_logs_are_of_the_network_and_where_one_says(made: Make) -> None:
    log = made(**WHOLE).one("FlowLog").inputs
    assert log["targetResourceId"] == "${VirtualNetwork.demo-network.id}"
    assert log["networkWatcherName"] == "NetworkWatcher_eastus"
    assert log["storageId"] == WHOLE["flow_log_account_id"]
    assert log["identity"] == {"type": "UserAssigned", "userAssignedIdentities": ["/flows"]}
    assert not made().of("FlowLog")


@pytest.mark.slow
def test_the_log_waits_for_the_watcher_that_azure_makes(made: Make) -> None:
    """It comes some time after the region's first network: a log without it is refused."""
    whole = made(**WHOLE, watcher_wait_sec=300)
    wait, log = whole.one("Settling"), whole.one("FlowLog")
    assert wait.inputs["awaited"] == ["${VirtualNetwork.demo-network.id}"]
    assert "NetworkWatcher_eastus in NetworkWatcherRG" in wait.inputs["what"]
    assert wait.urn in log.dependencies
    assert not made(**WHOLE).of("Settling")


def test_a_watcher_that_is_named_is_there_already(made: Make) -> None:
    whole = made(**WHOLE, watcher_wait_sec=300, network_watcher="net-hub/nw-eastus")
    log = whole.one("FlowLog").inputs
    assert (log["resourceGroupName"], log["networkWatcherName"]) == ("net-hub", "nw-eastus")
    assert not whole.of("Settling")


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


TARGETS = {"account": "/accounts/runs", "registry": "/registries/r", "vault": "/vaults/v"}


@pytest.fixture
def endpoints(make: Make, place: dict[str, Any]) -> Any:
    args = {name: place[name] for name in ("resource_group_name", "location", "tags")}
    args |= {f"{what}_id": target for what, target in TARGETS.items()}
    return make(PrivateEndpoints, {**args, "subnet_id": "/subnets/private", "network_id": "/networks/n"})


def test_each_leads_to_the_one_that_is_the_stacks(endpoints: Any, arm_mistakes: Mistakes) -> None:
    assert arm_mistakes(endpoints) == []
    by_service = {one.name.removeprefix("demo-"): one.inputs for one in endpoints.of("PrivateEndpoint")}
    for what, target in TARGETS.items():
        (connection,) = by_service[what]["privateLinkServiceConnections"]
        assert connection["privateLinkServiceId"] == target
        assert connection["groupIds"] == [PRIVATE_SERVICES[what].part]
        assert by_service[what]["subnet"]["id"] == "/subnets/private"


def test_public_names_become_their_addresses_in_this_network_alone(endpoints: Any) -> None:
    zones = {zone.name: zone.inputs["privateZoneName"] for zone in endpoints.of("PrivateZone")}
    assert set(zones.values()) == {service.zone for service in PRIVATE_SERVICES.values()}
    for group in endpoints.each("PrivateDnsZoneGroup"):
        (config,) = group.inputs["privateDnsZoneConfigs"]
        assert config["privateDnsZoneId"] == f"${{PrivateZone.{group.name}.id}}"
        assert group.inputs["privateEndpointName"] == f"${{PrivateEndpoint.{group.name}.name}}"
    for link in endpoints.each("VirtualNetworkLink"):
        assert (link.inputs["virtualNetwork"], link.inputs["registrationEnabled"]) == ({"id": "/networks/n"}, False)


def test_one_comes_after_the_other(endpoints: Any) -> None:
    """Azure refuses two changes of a subnet at once."""
    first, second, third = (
        next(one for one in endpoints.of("PrivateEndpoint") if one.name == f"demo-{what}") for what in TARGETS
    )
    assert not {second.urn, third.urn} & first.dependencies
    for earlier, later in ((first, second), (second, third)):
        (group,) = [one for one in endpoints.of("PrivateDnsZoneGroup") if one.name == earlier.name]
        assert group.urn in later.dependencies


@pytest.mark.attack("root of a node", "sends data to another account (Azure, private endpoints)")
def test_machines_reach_nobody_elses_storage_then() -> None:
    def reached(*, private: bool) -> set[str]:
        flows = plan_flows(None, Egress.ENDPOINTS, private_endpoints=private)
        return {flow.target for flow in flows if flow.direction == "Outbound"} - {"VirtualNetwork"}

    assert reached(private=False) == set(AZURE_SERVICES)
    assert reached(private=False) - reached(private=True) == PRIVATE
