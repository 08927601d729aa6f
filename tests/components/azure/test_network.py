"""TrainingNetwork: address plan, ways out, and nothing that could be reached from outside."""

from collections.abc import Callable
from ipaddress import IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.network import TrainingNetwork, plan_network
from gangway.components.core.fields import Egress
from gangway.components.core.findings import InputError

HEAD = {"rendezvous_port": 29400, "metrics_port": 9400}
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
def made(make: Callable[..., Any], place: dict[str, Any]) -> Callable[..., Any]:
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
def test_microsofts_models_take_it(
    made: Callable[..., Any], arm_mistakes: Callable[[Any], list[str]], changes: dict[str, Any]
) -> None:
    assert arm_mistakes(made(**changes)) == []


def test_public_addresses_are_those_of_nat_and_bastion(made: Callable[..., Any]) -> None:
    assert [address.name for address in made().of("PublicIPAddress")] == ["demo-nat"]
    whole = made(**WHOLE)
    assert [address.name for address in whole.of("PublicIPAddress")] == ["demo-bastion", "demo-nat"]
    for address in whole.of("PublicIPAddress"):
        assert address.inputs["sku"] == {"name": "Standard"}
        assert address.inputs["publicIPAllocationMethod"] == "Static"
        assert address.inputs["zones"] == ["1"]
    assert "zones" not in made(zone="").one("NatGateway").inputs


def test_no_subnet_has_the_outbound_access_that_azure_gives_by_default(made: Callable[..., Any]) -> None:
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


def test_rules_name_machines_by_their_groups(made: Callable[..., Any]) -> None:
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


def test_lustre_ports_are_a_list(made: Callable[..., Any]) -> None:
    whole = made(**WHOLE)
    for group, rule in (("demo-private", "lustre-fabric"), ("demo-lustre", "clients")):
        found = rules_of(whole, group)[rule]
        assert found["destinationPortRanges"] == ["988", "1019-1023"]
        assert "destinationPortRange" not in found
    assert rules_of(whole, "demo-lustre")["clients"]["sourceAddressPrefix"] == "10.42.0.0/18"


def test_subnets_are_changed_one_after_another(made: Callable[..., Any]) -> None:
    subnets = {subnet.name: subnet for subnet in made(**WHOLE).of("Subnet")}
    assert subnets["demo-private"].urn in subnets["demo-lustre"].dependencies
    assert subnets["demo-lustre"].urn in subnets["demo-bastion"].dependencies


def test_the_head_has_a_name_in_a_zone_of_the_network(made: Callable[..., Any]) -> None:
    whole = made(head=HEAD)
    assert whole.one("PrivateZone").inputs["privateZoneName"] == "demo.gangway.internal"
    link = whole.one("VirtualNetworkLink").inputs
    assert link["virtualNetwork"] == {"id": "${VirtualNetwork.demo-network.id}"}
    assert link["registrationEnabled"] is False
    assert not made().of("PrivateZone")


def test_flow_logs_are_of_the_network_and_where_one_says(made: Callable[..., Any]) -> None:
    log = made(**WHOLE).one("FlowLog").inputs
    assert log["targetResourceId"] == "${VirtualNetwork.demo-network.id}"
    assert log["networkWatcherName"] == "NetworkWatcher_eastus"
    assert log["storageId"] == WHOLE["flow_log_account_id"]
    assert log["identity"] == {"type": "UserAssigned", "userAssignedIdentities": ["/flows"]}
    assert not made().of("FlowLog")


@pytest.mark.slow
def test_the_log_waits_for_the_watcher_that_azure_makes(made: Callable[..., Any]) -> None:
    """It comes some time after the region's first network: a log without it is refused."""
    whole = made(**WHOLE, watcher_wait_sec=300)
    wait, log = whole.one("Settling"), whole.one("FlowLog")
    assert wait.inputs["awaited"] == ["${VirtualNetwork.demo-network.id}"]
    assert "NetworkWatcher_eastus in NetworkWatcherRG" in wait.inputs["what"]
    assert wait.urn in log.dependencies
    assert not made(**WHOLE).of("Settling")


def test_a_watcher_that_is_named_is_there_already(made: Callable[..., Any]) -> None:
    whole = made(**WHOLE, watcher_wait_sec=300, network_watcher="net-hub/nw-eastus")
    log = whole.one("FlowLog").inputs
    assert (log["resourceGroupName"], log["networkWatcherName"]) == ("net-hub", "nw-eastus")
    assert not whole.of("Settling")
