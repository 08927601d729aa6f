"""The NICs of each GPU machine, and the networks they lie in."""

from collections import Counter
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.gcp.fabric import MAIN, FabricNetwork, InterfacePlan, plan_fabric_networks, plan_interfaces

MACHINES = cast("dict[str, GcpMachineType]", load_provider("gcp").machines)
machines = st.sampled_from(sorted(MACHINES)).map(MACHINES.__getitem__)


@pytest.mark.parametrize(
    ("machine_type", "nic_types", "networks"),
    [
        ("a2-highgpu-8g", {"GVNIC": 1}, []),
        ("a3-highgpu-1g", {"GVNIC": 1}, []),
        ("a3-highgpu-8g", {"GVNIC": 5}, [(f"gpu-{n}", 1, 8244, None) for n in range(1, 5)]),
        ("a3-megagpu-8g", {"GVNIC": 9}, [(f"gpu-{n}", 1, 8244, None) for n in range(1, 9)]),
        *(
            (name, {"GVNIC": 2, "MRDMA": 8}, [("host-1", 1, 8896, None), ("rdma", 8, 8896, "us-east4-b-vpc-roce")])
            for name in ("a3-ultragpu-8g", "a4-highgpu-8g")
        ),
    ],
)
def test_the_documented_layouts(
    machine_type: str, nic_types: dict[str, int], networks: list[tuple[str, int, int, str | None]]
) -> None:
    machine = MACHINES[machine_type]
    assert Counter(interface.nic_type for interface in plan_interfaces(machine)) == nic_types
    assert plan_fabric_networks(machine, "us-east4-b") == tuple(FabricNetwork(*network) for network in networks)


def test_the_host_nics_come_first() -> None:
    first, second, third, *_, last = plan_interfaces(MACHINES["a3-ultragpu-8g"])
    assert first == InterfacePlan(0, "GVNIC", MAIN, 0)
    assert second == InterfacePlan(1, "GVNIC", "host-1", 0)
    assert third == InterfacePlan(2, "MRDMA", "rdma", 0)
    assert last == InterfacePlan(9, "MRDMA", "rdma", 7)


@given(machines, st.sampled_from(["us-central1-a", "europe-west4-b"]))
def test_every_nic_has_a_subnet_of_its_own(machine: GcpMachineType, zone: str) -> None:
    interfaces, networks = plan_interfaces(machine), plan_fabric_networks(machine, zone)
    assert [interface.index for interface in interfaces] == list(range(len(interfaces)))
    assert interfaces[0].network == MAIN
    places = [(interface.network, interface.subnet) for interface in interfaces]
    assert len(set(places)) == len(places)
    # The order of the subnets that a network declares is that of the NICs: one list serves both.
    assert places[1:] == [(network.name, subnet) for network in networks for subnet in range(network.num_subnets)]
    for network in networks:
        rdma = [i.nic_type == "MRDMA" for i in interfaces if i.network == network.name]
        assert all(rdma) == any(rdma) == (network.profile is not None), "an RDMA network takes nothing else"
        assert network.takes_firewall_rules == (network.profile is None)
        assert network.profile is not None or network.num_subnets == 1, "one NIC of a machine in an ordinary network"
        assert 1300 <= network.mtu_bytes <= 8896, "what a VPC takes"
    assert len(interfaces) <= 10, "address ranges are planned for so many"


@given(machines)
def test_a_machine_without_a_fabric_has_one_nic(machine: GcpMachineType) -> None:
    assert (len(plan_interfaces(machine)) == 1) == (machine.gpu_fabric is None)
