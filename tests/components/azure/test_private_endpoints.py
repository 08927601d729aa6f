"""Private endpoints: what they lead to, by which names, and what machines need no longer reach."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.azure.network import AZURE_SERVICES, PRIVATE, plan_flows
from gangway.components.azure.private_endpoints import SERVICES, PrivateEndpoints
from gangway.components.core.fields import Egress

TARGETS = {"account": "/accounts/runs", "registry": "/registries/r", "vault": "/vaults/v"}


@pytest.fixture
def made(make: Callable[..., Any], place: dict[str, Any]) -> Any:
    args = {name: place[name] for name in ("resource_group_name", "location", "tags")}
    args |= {f"{what}_id": target for what, target in TARGETS.items()}
    return make(PrivateEndpoints, {**args, "subnet_id": "/subnets/private", "network_id": "/networks/n"})


def test_each_leads_to_the_one_that_is_the_stacks(made: Any, arm_mistakes: Callable[[Any], list[str]]) -> None:
    assert arm_mistakes(made) == []
    endpoints = {endpoint.name.removeprefix("demo-"): endpoint.inputs for endpoint in made.of("PrivateEndpoint")}
    for what, target in TARGETS.items():
        (connection,) = endpoints[what]["privateLinkServiceConnections"]
        assert connection["privateLinkServiceId"] == target
        assert connection["groupIds"] == [SERVICES[what].part]
        assert endpoints[what]["subnet"]["id"] == "/subnets/private"


def test_public_names_become_their_addresses_in_this_network_alone(made: Any) -> None:
    zones = {zone.name: zone.inputs["privateZoneName"] for zone in made.of("PrivateZone")}
    assert set(zones.values()) == {service.zone for service in SERVICES.values()}
    for group in made.of("PrivateDnsZoneGroup"):
        (config,) = group.inputs["privateDnsZoneConfigs"]
        assert config["privateDnsZoneId"] == f"${{PrivateZone.{group.name}.id}}"
        assert group.inputs["privateEndpointName"] == f"${{PrivateEndpoint.{group.name}.name}}"
    for link in made.of("VirtualNetworkLink"):
        assert (link.inputs["virtualNetwork"], link.inputs["registrationEnabled"]) == ({"id": "/networks/n"}, False)


def test_one_comes_after_the_other(made: Any) -> None:
    """Azure refuses two changes of a subnet at once."""
    first, second, third = (
        next(one for one in made.of("PrivateEndpoint") if one.name == f"demo-{what}") for what in TARGETS
    )
    assert not {second.urn, third.urn} & first.dependencies
    for earlier, later in ((first, second), (second, third)):
        (group,) = [one for one in made.of("PrivateDnsZoneGroup") if one.name == earlier.name]
        assert group.urn in later.dependencies


@pytest.mark.attack("root of a node", "sends data to another account (Azure, private endpoints)")
def test_machines_reach_nobody_elses_storage_then() -> None:
    def reached(*, private: bool) -> set[str]:
        flows = plan_flows(None, Egress.ENDPOINTS, private_endpoints=private)
        return {flow.target for flow in flows if flow.direction == "Outbound"} - {"VirtualNetwork"}

    assert reached(private=False) == set(AZURE_SERVICES)
    assert reached(private=False) - reached(private=True) == PRIVATE
