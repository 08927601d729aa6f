"""GPU nodes: ports, placement, disks, and what is kept from `up`'s hands."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.openstack.node_pool import PLACEMENTS, NodePool, NodePoolArgs, plan_node_pool
from tests.components.fixture_types import Make

RESERVED = {"kind": "reservation", "id": "c1fb5090-e046-42a5-8287-2aa380a8d31a"}
OPTIONAL = (
    "boot_volume_gib", "head_host", "volume_type", "placement", "rdma_network_id", "rdma_ports", "rdma_vnic_type",
)  # fmt: skip


@pytest.fixture
def args(everything: dict[str, Any]) -> dict[str, Any]:
    """The least that a pool needs."""
    hints = set(NodePoolArgs.__annotations__) - set(OPTIONAL)
    return {name: everything[name] for name in hints}


@given(st.integers(1, 512), st.integers(0, 8))
def test_every_node_has_an_address_of_its_own(num_nodes: int, ports: int) -> None:
    plan = plan_node_pool(
        {
            "machine_type": "m", "num_nodes_max": num_nodes, "capacity": [{"kind": "on-demand"}],
            "zone": "", "image": "ubuntu", "cidr": "10.42.0.0/20", "network_id": "n", "subnet_ids": ["s"],
            "security_group_ids": [], "user_data": "", "tags": {}, "rdma_ports": ports, "rdma_network_id": "r",
            "secrets_place": "", "secrets_signature": "",
        }
    )  # fmt: skip
    assert len(set(plan.addresses)) == num_nodes
    assert plan.rdma_ports == ports


def test_nodes_are_instances_on_ports_of_their_own(make: Make, args: dict[str, Any]) -> None:
    made = make(NodePool, args)
    nodes = made.of("Instance")
    assert [node.name for node in nodes] == ["demo-0-on-demand-0", "demo-0-on-demand-1"]
    for node, address in zip(nodes, ["10.42.0.16", "10.42.0.17"], strict=True):
        (port,) = [port for port in made.of("Port") if port.name == node.name]
        assert node.inputs["networks"] == [{"port": port.id}]
        assert port.inputs["fixedIps"] == [{"subnetId": "subnet", "ipAddress": address}]
        assert (port.inputs["securityGroupIds"], port.inputs["portSecurityEnabled"]) == (["fabric"], True)
        assert node.inputs["flavorName"] == "gpu.h100x8"
        assert (node.inputs["configDrive"], node.inputs["stopBeforeDestroy"]) == (True, True)
        assert node.inputs["metadata"]["gangway:role"] == "worker"
        assert "keyPair" not in node.inputs, "nobody logs in"
    assert made.of("FloatingIp") == []


def test_nodes_know_the_head_by_what_may_change(make: Make, args: dict[str, Any]) -> None:
    """A head that is made anew takes no worker with it, as it would by their user data."""
    for host, known in (("10.42.0.10", {"gangway:head": "10.42.0.10"}), (None, {})):
        for node in make(NodePool, {**args, "head_host": host}).each("Instance"):
            assert {k: v for k, v in node.inputs["metadata"].items() if k == "gangway:head"} == known


def test_where_the_secrets_are_stands_in_what_may_change(make: Make, args: dict[str, Any]) -> None:
    """Another address replaces no node; other user data would."""
    for node in make(NodePool, {**args, "secrets_signature": "temp_url_sig=cd"}).each("Instance"):
        assert node.inputs["metadata"]["gangway:secrets"] == args["secrets_place"]
        assert node.inputs["metadata"]["gangway:secrets-signature"] == "temp_url_sig=cd"
        assert node.inputs["userData"] == args["user_data"]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_server_group_places_what_nobody_has_reserved(make: Make, args: dict[str, Any], placement: str) -> None:
    made = make(NodePool, {**args, "placement": placement})
    group = made.one("ServerGroup")
    assert group.inputs["policies"] == placement
    assert [node.inputs["schedulerHints"] for node in made.of("Instance")] == [[{"group": group.id}]] * 2


def test_a_reservation_is_a_hint_to_the_scheduler(make: Make, args: dict[str, Any]) -> None:
    made = make(NodePool, {**args, "capacity": [RESERVED]})
    assert made.of("ServerGroup") == []
    hints = [{"additionalProperties": {"reservation": RESERVED["id"]}}]
    assert [node.inputs["schedulerHints"] for node in made.of("Instance")] == [hints] * 2
    assert made.of("Instance")[0].name == "demo-0-reservation-0"


def test_a_reserved_flavour_needs_no_hint(make: Make, args: dict[str, Any]) -> None:
    made = make(NodePool, {**args, "capacity": [RESERVED], "machine_type": f"reservation:{RESERVED['id']}"})
    assert all("schedulerHints" not in node.inputs for node in made.each("Instance"))
    assert made.of("ServerGroup") == []


def test_rdma_ports_have_no_firewall_and_none_is_pretended(
    make: Make, everything: dict[str, Any], args: dict[str, Any]
) -> None:
    rdma = {name: everything[name] for name in ("rdma_network_id", "rdma_ports")}
    made = make(NodePool, {**args, **rdma})
    ports = [port for port in made.of("Port") if "-rdma-" in port.name]
    assert len(ports) == 16
    for port in ports:
        assert port.inputs["binding"] == {"vnicType": "direct"}
        assert port.inputs["noSecurityGroups"] is True
        assert "portSecurityEnabled" not in port.inputs, "the network owner's to say"
        assert port.inputs["networkId"] == everything["rdma_network_id"]
    first, *others = made.of("Instance")[0].inputs["networks"]
    assert "rdma" not in first["port"], "the first is the way out"
    assert len({port["port"] for port in others}) == 8


def test_where_nodes_start_from(make: Make, everything: dict[str, Any], args: dict[str, Any]) -> None:
    disks = {name: everything[name] for name in ("boot_volume_gib", "volume_type")}
    (first, _) = make(NodePool, {**args, **disks}).of("Instance")
    (disk,) = first.inputs["blockDevices"]
    assert (disk["uuid"], disk["volumeSize"], disk["volumeType"]) == (everything["image"], 200, "luks")
    assert not {"imageId", "imageName"} & set(first.inputs)
    (first, _) = make(NodePool, {**args, "image": "ubuntu", "zone": ""}).of("Instance")
    assert first.inputs["imageName"] == "ubuntu"
    assert not {"blockDevices", "availabilityZone"} & set(first.inputs)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"placement": "afinity"}, "did you mean 'affinity'"),
        ({"rdma_ports": 8}, "rdma_network_id: missing: 8 RDMA ports"),
        ({"rdma_vnic_type": "normal"}, "direct, direct-physical"),
        ({"capacity": [{"kind": "spot"}]}, "sells no spare capacity"),
        ({"cidr": "10.0.0.0/30"}, "gangway:network.cidr"),
        ({"image": "ubuntu", "boot_volume_gib": 100}, "openstack image show"),
    ],
)
def test_what_openstack_would_refuse(args: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan_node_pool({**args, **changes})  # type: ignore[typeddict-item]  # from a mapping of all arguments
