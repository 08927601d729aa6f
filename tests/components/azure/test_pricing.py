"""The bill of declared Azure resources, worked out by hand line by line, and that of what is really declared."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.head_node import HeadNode
from gangway.components.azure.node_pool import IbNodePool
from gangway.components.azure.policies import NODES_TAG, RUNG_TAG
from gangway.components.azure.pricing import DISK_TIERS, SCALE_SET, disk_tier, price_resources
from gangway.components.catalog.loader import load_provider
from gangway.components.estimate.cost import CostComponent, estimate
from tests.components.fixture_types import Make, Resource

A100, SMALL, UNPRICED = "Standard_ND96asr_v4", "Standard_NC40ads_H100_v5", "Standard_ND128isr_GB300_v6"


def group(machine: str, nodes: int, rung: int = 0, disk: float = 256.0, **profile: Any) -> Resource:
    inputs: dict[str, Any] = {
        "sku": {"name": machine, "capacity": 0},
        "tags": {NODES_TAG: str(nodes), RUNG_TAG: str(rung)},
        "virtualMachineProfile": {
            "priority": "Regular", "storageProfile": {"osDisk": {"diskSizeGB": disk}}, **profile,
        },
    }  # fmt: skip
    return Resource(SCALE_SET, f"pool-{rung}", inputs)


def spot(cap: float = -1) -> dict[str, Any]:
    return {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": cap}}


def other(kind: str, **inputs: Any) -> Resource:
    return Resource(f"azure-native:{kind}", "it", inputs)


def bill(*resources: Resource, region: str = "eastus") -> list[CostComponent]:
    return price_resources(resources, load_provider("azure"), region)


def test_two_a100_machines_on_spot_by_hand() -> None:
    nodes, disks = bill(group(A100, 2, **spot()))
    assert nodes.name == f"pool-0: 2 x {A100}, spot"
    assert nodes.hourly == pytest.approx(2 * 5.90)
    assert not nodes.standby
    assert disks.name == "pool-0: root disks, 256 GiB a node (P15)"
    assert disks.hourly == pytest.approx(2 * 38.012142 / 730)


def test_a_lower_rung_stands_by_and_what_is_reserved_is_paid_for() -> None:
    reserved: dict[str, Any] = {"capacityReservation": {"capacityReservationGroup": {"id": "/ours"}}}
    lines = bill(group(A100, 3, 0, **spot()), group(A100, 3, 1), group(A100, 3, 2, **reserved))
    nodes = [(line.name, line.standby, line.price) for line in lines if " x " in line.name]
    assert nodes == [
        (f"pool-0: 3 x {A100}, spot", False, 5.90),
        (f"pool-1: 3 x {A100}, on-demand", True, 27.197),
        (f"pool-2: 3 x {A100}, reservation", False, 27.197),
    ]
    assert "paid whether used or not" in lines[4].source
    assert [line.standby for line in lines[1::2]] == [False, True, False], "disks come and go with their nodes"


def test_spot_without_a_known_price_is_bounded_and_says_so() -> None:
    uncapped, _ = bill(group(SMALL, 2, **spot()))
    assert (uncapped.name, uncapped.hourly) == (f"pool-0: 2 x {SMALL}, spot, at most", 2 * 6.98)
    assert "as a limit: no spot price" in uncapped.source
    capped, _ = bill(group(SMALL, 2, **spot(4.5)))
    assert (capped.name, capped.hourly, capped.confidence) == (f"pool-0: 2 x {SMALL}, spot, at most", 9.0, "stack file")


def test_a_cap_above_the_price_on_demand_is_no_limit() -> None:
    """Azure never charges more than that for spot."""
    nodes, _ = bill(group(SMALL, 2, **spot(500)))
    assert (nodes.hourly, nodes.confidence) == (2 * 6.98, "list-price")
    unknown, _ = bill(group(UNPRICED, 2, **spot(500)))
    assert unknown.hourly == 1000, "there the cap is all that is known"


def test_a_cap_below_the_known_spot_price_is_the_limit() -> None:
    nodes, _ = bill(group(A100, 2, **spot(4)))
    assert (nodes.hourly, nodes.confidence) == (8.0, "stack file")
    assert nodes.source == "max_usd_per_hour, as a limit: below the typical spot price in the catalogue, 5.9 USD"


def test_spot_without_any_price_is_no_limit_of_anything() -> None:
    nodes, _ = bill(group(UNPRICED, 2, **spot()))
    assert (nodes.name, nodes.price) == (f"pool-0: 2 x {UNPRICED}, spot", None)


def test_what_nobody_knows_is_unknown_and_not_nothing() -> None:
    nodes, disks = bill(group(UNPRICED, 2))
    assert (nodes.price, nodes.confidence) == (None, "unknown")
    assert estimate([nodes, disks], 1).unknown == (nodes.name,)
    (elsewhere,) = [line for line in bill(group(A100, 1), region="northeurope") if " x " in line.name]
    assert elsewhere.source.endswith("(price of eastus)")
    (huge,) = [line for line in bill(group(A100, 1, disk=30000.0)) if "disk" in line.name]
    assert (huge.price, huge.unit) == (None, "months")


@given(st.integers(1, 32767))
def test_a_disk_is_billed_as_the_next_larger_size(size: int) -> None:
    tier = disk_tier(size)
    assert size <= DISK_TIERS[tier]
    smaller = [largest for other, largest in DISK_TIERS.items() if other < tier]
    assert all(size > largest for largest in smaller)


@pytest.mark.parametrize(
    ("resource", "name", "hourly"),
    [
        (other("network:NatGateway"), "it: NAT gateway", 0.045),
        (other("network:PublicIPAddress"), "it: public address", 0.005),
        (other("network:PrivateEndpoint"), "it: private endpoint", 0.01),
        (other("network:BastionHost", sku={"name": "Standard"}), "it: Bastion, Standard", 0.29),
        (
            other("monitor:ScheduledQueryRule", evaluationFrequency="PT5M"),
            "query alarms: 1, each asks every 5 minutes",
            1.50 / 730,
        ),
        (other("privatedns:PrivateZone"), "it: private DNS zone", 0.50 / 730),
        (other("containerregistry:Registry", sku={"name": "Premium"}), "it: container registry, Premium", 50 / 730),
        (
            other("storagecache:AmlFilesystem", sku={"name": "AMLFS-Durable-Premium-250"}, storageCapacityTiB=8.0),
            "it: 8192 GiB, AMLFS-Durable-Premium-250",
            8192 * 0.25185 / 730,
        ),
    ],
)
def test_the_surroundings(resource: Resource, name: str, hourly: float | None) -> None:
    (line,) = bill(resource)
    assert line.name == name
    assert line.hourly == (None if hourly is None else pytest.approx(hourly))


def test_alarms_are_one_line() -> None:
    rule = other("monitor:ScheduledQueryRule", evaluationFrequency="PT5M")
    quarter, five = bill(rule, rule, other("monitor:ScheduledQueryRule", evaluationFrequency="PT15M"))
    names = ["query alarms: 2, each asks every 5 minutes", "query alarms: 1, each asks every 15 minutes"]
    assert [five.name, quarter.name] == names
    assert [five.hourly, quarter.hourly] == [pytest.approx(3 / 730), pytest.approx(0.5 / 730)]


def test_a_head_without_a_price_is_listed() -> None:
    head = other(
        "compute:VirtualMachine",
        hardwareProfile={"vmSize": "Standard_M128s"},
        storageProfile={"osDisk": {"diskSizeGB": 64.0}},
    )
    machine, disk = bill(head)
    assert (machine.name, machine.hourly) == ("it: Standard_M128s, on-demand", None)
    assert disk.name == "it: root disk, 64 GiB (P6)"
    assert disk.hourly == pytest.approx(10.207 / 730)


def test_what_is_really_declared(declare: Make, place: dict[str, Any]) -> None:
    common = {key: value for key, value in place.items() if key not in ("stack", "subscription_id")}
    machines: Any = {**common, "security_group_ids": [], "identity_id": "i", "user_data": "IyE="}
    pool: Any = {
        **machines, "subscription_id": "s", "machine_type": A100, "num_nodes_min": 2, "num_nodes_max": 4,
        "capacity": [{"kind": "spot"}, {"kind": "on-demand"}], "subnet_ids": ["main"], "root_volume_gib": 200,
    }  # fmt: skip
    head: Any = {
        **machines, "subnet_id": "main", "private_ip": "10.0.0.254", "host_name": "head.demo.gangway.internal",
        "zone_id": "demo.gangway.internal",
    }  # fmt: skip

    def program() -> None:
        IbNodePool("demo", pool)
        HeadNode("demo", head)

    lines = price_resources(declare(program).resources, load_provider("azure"), "eastus")
    assert [(line.name, line.standby) for line in lines] == [
        (f"demo-0-spot: 4 x {A100}, spot", False),
        ("demo-0-spot: root disks, 200 GiB a node (P15)", False),
        (f"demo-1-on-demand: 4 x {A100}, on-demand", True),
        ("demo-1-on-demand: root disks, 200 GiB a node (P15)", True),
        ("demo-head: Standard_D2s_v5, on-demand", False),
        ("demo-head: root disk, 64 GiB (P6)", False),
    ]
    assert not estimate(lines, 1).unknown
