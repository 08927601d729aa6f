"""The bill of declared Google Cloud resources, worked out by hand line by line, and that of what is really declared."""

from datetime import date
from typing import Any

import pytest

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import Fact
from gangway.components.estimate.cost import CostComponent, estimate
from gangway.components.gcp.gke import GkeCluster
from gangway.components.gcp.gke_pools import GkeNodePools
from gangway.components.gcp.pricing import GROUP, NAT, NODE_POOL, RESIZE_REQUEST, TEMPLATE, price_resources
from tests.components.fixture_types import Make, Resource

TPU = "pulumi-python:dynamic/gangway:QueuedTpuRequest"


NONE = Fact[float | None](value=None, source="a test", read_on=date(2026, 11, 30), confidence="assumed")


def template(machine: str, model: str = "STANDARD", disk: str = "pd-balanced", **changes: Any) -> Resource:
    inputs: dict[str, Any] = {
        "machineType": machine,
        "disks": [{"boot": True, "diskSizeGb": 200.0, "diskType": disk}],
        "scheduling": {"provisioningModel": model},
        "reservationAffinity": {"type": "NO_RESERVATION"},
        **changes,
    }
    return Resource(TEMPLATE, f"{machine}-{model}", inputs, f"id-{machine}-{model}")


def group(of: Resource, size: float, name: str = "pool") -> Resource:
    return Resource(GROUP, name, {"versions": [{"instanceTemplate": of.id}], "targetSize": size})


def bill(*resources: Resource, region: str = "us-central1") -> list[CostComponent]:
    return price_resources(resources, load_provider("gcp"), region)


def test_two_a3_mega_on_spot_by_hand() -> None:
    offer = template("a3-megagpu-8g", "SPOT")
    nodes, disks = bill(offer, group(offer, 2), region="us-east4")
    assert nodes.name == "pool: 2 x a3-megagpu-8g, spot"
    assert nodes.hourly == pytest.approx(2 * 23.275237)
    assert nodes.source == "Google Cloud's SKUs in Cyclenerd's pricing-cost-calculator, spot since 2025-10-30"
    assert disks.name == "pool: boot disks, 200 GiB a node"
    assert disks.hourly == pytest.approx(400 * 0.11 / 730)
    assert disks.priced_in == ""
    assert not nodes.standby


def test_a_lower_rung_stands_by_at_the_size_of_the_first() -> None:
    spot, list_price = template("a3-megagpu-8g", "SPOT"), template("a3-megagpu-8g")
    lines = bill(spot, list_price, group(spot, 3, "first"), group(list_price, 0, "second"))
    assert [(line.name, line.standby) for line in lines] == [
        ("first: 3 x a3-megagpu-8g, spot", False),
        ("first: boot disks, 200 GiB a node", False),
        ("second: 3 x a3-megagpu-8g, on-demand", True),
        ("second: boot disks, 200 GiB a node", True),
    ]
    assert lines[2].hourly == pytest.approx(3 * 92.21427)
    assert estimate(lines, 1).hourly == pytest.approx(3 * 50.19552 + 600 * 0.10 / 730)


def test_nodes_that_are_asked_for_together_count_where_they_go() -> None:
    flex, spot = template("a3-ultragpu-8g", "FLEX_START", "hyperdisk-balanced"), template("a3-ultragpu-8g", "SPOT")
    request = Resource(RESIZE_REQUEST, "flex", {"resizeBy": 4.0})
    nodes, disks, below, _ = bill(flex, spot, group(flex, 0, "flex"), group(spot, 0, "below"), request)
    assert (nodes.name, nodes.standby) == ("flex: 4 x a3-ultragpu-8g, flex-start, at most", False)
    assert nodes.hourly == pytest.approx(4 * 86.75992)
    assert nodes.source.endswith(", on-demand: flex-start costs this at most")
    assert disks.hourly == pytest.approx(800 * 0.08 / 730)
    assert (below.name, below.standby) == ("below: 4 x a3-ultragpu-8g, spot", True)


def test_a_reservation_is_paid_whether_used_or_not() -> None:
    affinity = {"type": "SPECIFIC_RESERVATION"}
    for model in ("STANDARD", "RESERVATION_BOUND"):
        offer = template("a3-megagpu-8g", model, reservationAffinity=affinity)
        nodes, _ = bill(offer, group(offer, 1))
        assert nodes.name == "pool: 1 x a3-megagpu-8g, reservation"
        assert nodes.source.endswith(", paid whether used or not")
        assert nodes.hourly == pytest.approx(92.21427)


@pytest.mark.parametrize(
    ("machine", "model", "market"),
    [("a4-highgpu-8g", "STANDARD", "on-demand"), ("x9-huge", "SPOT", "spot")],
)
def test_a_price_nobody_knows_stays_unknown(machine: str, model: str, market: str) -> None:
    offer = template(machine, model, "pd-extreme")
    nodes, disks = bill(offer, group(offer, 1))
    assert (nodes.price, nodes.hourly, nodes.source) == (None, None, f"no {market} price in the catalogue")
    assert (disks.hourly, disks.source) == (None, "no price of pd-extreme in the catalogue")
    assert disks.unit == "GiB-months"


def test_spot_without_a_known_price_is_bounded_by_the_price_on_demand_and_says_so() -> None:
    offer = template("g2-standard-4", "SPOT")
    catalog = load_provider("gcp")
    none = {f"spot_{end}": NONE for end in ("low", "typical", "high")}
    row = catalog.get_prices("g2-standard-4")[0].model_copy(update=none)
    nodes, _ = price_resources([offer, group(offer, 2)], catalog.model_copy(update={"prices": [row]}), "us-central1")
    assert (nodes.name, nodes.price, nodes.is_limit) == ("pool: 2 x g2-standard-4, spot, at most", 0.706832, True)
    assert nodes.source.endswith(", as a limit: no spot price in the catalogue")


def test_slices_cost_by_the_chip() -> None:
    queued = {"tier": "spot", "accelerator_type": "v5p-256", "num_slices": 2.0}
    (line,) = bill(Resource(TPU, "tpu", queued), region="us-east5")
    assert line.name == "tpu: 2 x v5p-256, 256 chips, spot"
    assert (line.unit, line.quantity) == ("chip-hours", 256)
    assert line.hourly == pytest.approx(256 * 1.299952)


@pytest.mark.parametrize(
    ("inputs", "name", "price"),
    [
        ({"tier": "on-demand", "accelerator_type": "v5litepod-16"}, "v5litepod-16, 16 chips, on-demand", 1.2),
        ({"tier": "guaranteed", "accelerator_type": "v6e-8"}, "v6e-8, 8 chips, on-demand", 2.7),
        (
            {"tier": "guaranteed", "accelerator_type": "v6e-8", "reservation_name": "r"},
            "v6e-8, 8 chips, reservation",
            2.7,
        ),
        (
            {"tier": "spot", "accelerator_config": {"type": "V5P", "topology": "4x4x8"}},
            "v5p-256, 128 chips, spot",
            0.78049,
        ),
        ({"tier": "spot", "accelerator_type": "tpu7x-8"}, "tpu7x-8, 4 chips, spot, at most", 12.0),
    ],
)
def test_every_way_to_ask_for_a_slice(inputs: dict[str, Any], name: str, price: float | None) -> None:
    (line,) = bill(Resource(TPU, "tpu", inputs))
    assert line.name == f"tpu: 1 x {name}"
    assert line.price == price


def test_a_price_of_another_region_says_so() -> None:
    (line,) = bill(Resource(TPU, "tpu", {"tier": "spot", "accelerator_type": "v4-8"}), region="us-east1")
    assert line.priced_in == "us-central2"
    assert line.source.endswith(" (price of us-central2)")


def test_a_region_without_the_price_does_not_keep_another_from_standing_in() -> None:
    offer = template("a3-ultragpu-8g")
    nodes, _ = bill(offer, group(offer, 2), region="europe-west4")
    assert nodes.hourly == pytest.approx(2 * 86.75992)
    assert nodes.priced_in == "us-central1"
    own, _ = bill(offer, group(offer, 2), region="us-east4")
    assert own.hourly == pytest.approx(2 * 86.75992)
    assert own.priced_in == ""
    slices = {"tier": "spot", "accelerator_type": "v6e-8"}
    (line,) = bill(Resource(TPU, "tpu", slices), region="southamerica-west1")
    assert (line.priced_in, line.is_limit) == ("", True), "its own limit is nearer than another region's price"


def test_flex_start_of_a_machine_without_a_list_price_stays_unknown() -> None:
    offer = template("a4-highgpu-8g", "FLEX_START")
    nodes, _ = bill(offer, group(offer, 1))
    assert (nodes.hourly, nodes.source) == (None, "no flex-start price in the catalogue")


def test_the_rest_by_hand() -> None:
    share = {"tier": "BASIC_SSD", "fileShares": {"capacityGb": 2560.0}}
    boot = {"initializeParams": {"size": 60.0, "type": "pd-balanced"}}
    lustre, files, head, disk, key, nat, address, zone = bill(
        Resource("gcp:lustre/instance:Instance", "data", {"capacityGib": "18000", "perUnitStorageThroughput": "500"}),
        Resource("gcp:filestore/instance:Instance", "files", share),
        Resource("gcp:compute/instance:Instance", "head", {"machineType": "e2-medium", "bootDisk": boot}),
        Resource("gcp:kms/cryptoKey:CryptoKey", "key", {}),
        Resource("gcp:compute/routerNat:RouterNat", "nat", {}),
        Resource("gcp:compute/network:Network", "net", {}),
        Resource("gcp:dns/managedZone:ManagedZone", "zone", {}),
    )
    assert (lustre.name, lustre.quantity) == ("data: 18000 GiB at 500 MB/s/TiB", 18000)
    assert lustre.hourly == pytest.approx(18000 * 0.34 / 730)
    assert files.name == "files: 2560 GiB, basic-ssd"
    assert files.hourly == pytest.approx(2560 * 0.30 / 730)
    assert (head.name, head.hourly) == ("head: e2-medium, on-demand", 0.033506)
    assert disk.hourly == pytest.approx(60 * 0.10 / 730)
    assert key.hourly == pytest.approx(0.06 / 730)
    assert (nat.name, nat.hourly) == ("nat: Cloud NAT, 1 machines", 0.0014)
    assert (address.name, address.hourly) == ("nat: Cloud NAT's addresses", 0.005)
    assert zone.hourly == pytest.approx(0.20 / 730)
    assert nat.of == ("gcp:compute/routerNat:RouterNat::nat",)


@pytest.mark.parametrize(
    ("nodes", "gateway", "addresses"),
    [(4, 5 * 0.0014, 1), (31, 32 * 0.0014, 1), (32, 0.0448, 1), (1100, 0.0448, 2)],
)
def test_cloud_nat_costs_by_the_machine_up_to_32(nodes: int, gateway: float, addresses: int) -> None:
    """Nodes of the first rung and the head; the rung below stands by with none of its own."""
    spot, dear = template("a3-megagpu-8g", "SPOT"), template("a3-megagpu-8g")
    boot = {"initializeParams": {"size": 60.0, "type": "pd-balanced"}}
    lines = bill(
        *(spot, dear, group(spot, nodes, "first"), group(dear, 0, "second")),
        Resource("gcp:compute/instance:Instance", "head", {"machineType": "e2-medium", "bootDisk": boot}),
        Resource("gcp:compute/routerNat:RouterNat", "nat", {}),
    )
    machines, address = [line for line in lines if line.name.startswith("nat:")]
    assert machines.hourly == pytest.approx(gateway)
    assert address.quantity == addresses
    assert address.hourly == pytest.approx(addresses * 0.005)


def test_hosts_of_a_slice_are_machines_too() -> None:
    queued = {"tier": "spot", "accelerator_type": "v5litepod-64", "num_slices": 1.0}
    lines = bill(
        Resource(TPU, "tpu", queued), Resource("gcp:compute/routerNat:RouterNat", "nat", {}), region="us-west4"
    )
    assert [line.name for line in lines[1:]] == ["nat: Cloud NAT, 16 machines", "nat: Cloud NAT's addresses"]


def test_alarms_cost_by_their_conditions() -> None:
    policy = "gcp:monitoring/alertPolicy:AlertPolicy"
    (line,) = bill(Resource(policy, "a", {"conditions": [{}, {}]}), Resource(policy, "b", {"conditions": [{}]}))
    assert line.name == "alarms: conditions, 3"
    assert line.hourly == pytest.approx(0.3 / 730)
    assert line.of == (f"{policy}::a", f"{policy}::b")


def test_a_head_node_of_unknown_price_says_so() -> None:
    boot = {"initializeParams": {"size": 60.0, "type": "pd-balanced"}}
    head, _ = bill(Resource("gcp:compute/instance:Instance", "h", {"machineType": "z9", "bootDisk": boot}))
    assert (head.hourly, head.source) == (None, "no price in the catalogue")


def test_every_tier_of_a_file_system_has_a_row() -> None:
    """A price nobody knows is a row with null; a tier without a row would stop the plan."""
    from gangway.components.catalog.loader import load_filestore_tiers, load_lustre_tiers

    services = load_provider("gcp").get_services("gcp")
    lustre = {f"managed-lustre-{tier}" for tier in load_lustre_tiers()}
    filestore = {f"filestore-{tier}" for tier in load_filestore_tiers()}
    assert lustre
    assert filestore
    assert lustre | filestore <= services


def test_what_is_really_declared_is_priced(declare: Make, tpu_args: Any, labels: dict[str, str]) -> None:
    """Type tokens and field names are the components' own, so that no line is silently left out."""
    from gangway.components.gcp.identity import EncryptionKey
    from gangway.components.gcp.storage import Filestore, LustreFileSystem
    from gangway.components.gcp.tpu.queued_tpu import QueuedTpu

    place: Any = {"project": "lab", "zone": "us-east5-a", "network": "n", "tags": labels}
    lustre: Any = {**place, "stack": "demo", "capacity_gib": 18000, "throughput_mbps_per_tib": 500}
    files: Any = {**place, "capacity_gib": 2560, "client_cidr": "10.0.0.0/8"}
    key: Any = {"project": "lab", "project_number": "1", "region": "us-east5", "services": [], "tags": labels}
    key["agents"] = {"storage": "serviceAccount:s", "logging": "serviceAccount:c"}

    def program() -> None:
        QueuedTpu("tpu", tpu_args)
        LustreFileSystem("lustre", lustre)
        Filestore("files", files)
        EncryptionKey("key", key)

    lines = price_resources(declare(program).resources, load_provider("gcp"), "us-east5")
    assert sorted(line.name for line in lines) == [
        "files-filestore: 2560 GiB, basic-ssd",
        "key-data: key version",
        "lustre-lustre: 18000 GiB at 500 MB/s/TiB",
        "tpu-request: 1 x v5p-256, 128 chips, spot",
    ]


def test_a_pool_and_a_head_that_are_really_declared(declare: Make, labels: dict[str, str]) -> None:
    """Between the node pool's words and ours there is nothing but their spelling."""
    from gangway.components.gcp.launch import HeadNode
    from gangway.components.gcp.node_pool import GpuNodePool

    place: Any = {"project": "lab", "region": "us-east4", "zone": "us-east4-c", "tags": labels}
    machine: Any = {**place, "service_account_email": "x@lab", "user_data": "IyE=", "security_group_ids": ["node"]}
    rungs = [{"kind": "flex-start", "max_hours": 24}, {"kind": "spot"}, {"kind": "reservation", "id": "ours"}]
    pool: Any = {
        **machine,
        "machine_type": "a3-megagpu-8g",
        "num_nodes_min": 2,
        "num_nodes_max": 4,
        "capacity": rungs,
        "subnet_ids": ["main"],
        "fabric_subnet_ids": [f"gpu-{n}" for n in range(8)],
        "root_volume_gib": 200,
    }
    head: Any = {**machine, "subnet_id": "main", "host_name": "head.demo.gangway.internal", "zone_id": "z"}

    def program() -> None:
        GpuNodePool("pool", pool)
        HeadNode("demo", head)

    lines = price_resources(declare(program).resources, load_provider("gcp"), "us-east4")
    nodes = [(line.name, line.standby, line.price) for line in lines if "a3-megagpu-8g" in line.name]
    assert sorted(nodes) == [
        ("pool-0-flex-start: 4 x a3-megagpu-8g, flex-start, at most", False, 92.937588),
        ("pool-1-spot: 4 x a3-megagpu-8g, spot", True, 23.275237),
        ("pool-2-reservation: 4 x a3-megagpu-8g, reservation", False, 92.937588),
    ]
    assert "demo-head: e2-medium, on-demand" in [line.name for line in lines]


def pool(name: str, machine: str, most: int, rung: str | None = "0-spot", **node: Any) -> Resource:
    labels = {} if rung is None else {"labels": {"gangway.dev/rung": rung}}
    config = {"machineType": machine, "diskSizeGb": 200.0, "diskType": "pd-balanced", **labels, **node}
    sizes = {"minNodeCount": 1.0, "maxNodeCount": float(most)}
    return Resource(NODE_POOL, name, {"autoscaling": sizes, "nodeConfig": config})


def test_a_rung_is_priced_at_its_most() -> None:
    nodes, disks = bill(pool("demo-0-spot", "a3-megagpu-8g", 2, spot=True), region="us-east4")
    assert nodes.name == "demo-0-spot: 2 x a3-megagpu-8g, spot"
    assert nodes.hourly == pytest.approx(2 * 23.275237)
    assert disks.hourly == pytest.approx(400 * 0.11 / 730)
    assert not nodes.standby


def test_the_rungs_below_stand_by_unless_they_are_paid_for() -> None:
    lines = bill(
        pool("d-0-spot", "a3-megagpu-8g", 3, spot=True),
        pool("d-1-on-demand", "a3-megagpu-8g", 3, "1-on-demand"),
        pool(
            "d-2-reservation",
            "a3-megagpu-8g",
            3,
            "2-reservation",
            reservationAffinity={"consumeReservationType": "SPECIFIC_RESERVATION"},
        ),
    )
    assert [line.standby for line in lines] == [False, False, True, True, False, False]
    assert lines[4].source.endswith(", paid whether used or not")
    disks = 2 * 600 * 0.10 / 730
    assert estimate(lines, 1).hourly == pytest.approx(3 * 50.19552 + 3 * 92.21427 + disks)


def test_flex_start_costs_at_most_what_on_demand_does() -> None:
    nodes, _ = bill(pool("d-0-flex-start", "a3-ultragpu-8g", 4, "0-flex-start", flexStart=True))
    assert nodes.name.endswith("4 x a3-ultragpu-8g, flex-start, at most")
    assert nodes.hourly == pytest.approx(4 * 86.75992)


@pytest.mark.parametrize(("spot", "usd"), [(True, 0.29771), (False, 1.2)])
def test_slices_of_a_pool_cost_by_the_chip(spot: bool, usd: float) -> None:
    chips, _ = bill(pool("d-0-spot-0", "ct5lp-hightpu-4t", 4, spot=spot))
    assert (chips.unit, chips.quantity) == ("chip-hours", 16)
    assert chips.hourly == pytest.approx(16 * usd)
    assert chips.name == f"d-0-spot: slice 0: 4 x ct5lp-hightpu-4t, 16 chips, {'spot' if spot else 'on-demand'}"


def test_the_system_costs_what_is_always_up() -> None:
    nodes, _ = bill(pool("demo-system", "e2-standard-4", 3, None))
    assert nodes.name == "demo-system: 1 x e2-standard-4, on-demand"
    assert nodes.hourly == pytest.approx(0.134023)
    (unknown, _) = bill(pool("demo-system", "n9-huge", 3, None))
    assert unknown.hourly is None


def test_nat_counts_the_nodes() -> None:
    lines = bill(
        Resource(NAT, "nat", {}),
        pool("d-0-spot", "g2-standard-4", 4, spot=True),
        pool("d-1-on-demand", "g2-standard-4", 4, "1-on-demand"),
        pool("d-system", "e2-standard-4", 3, None),
    )
    assert "nat: Cloud NAT, 5 machines" in {line.name for line in lines}


def test_what_is_really_declared_has_a_price(declare: Make, labels: dict[str, str]) -> None:
    usual: dict[str, Any] = {
        "project": "lab",
        "region": "us-central1",
        "zone": "us-central1-a",
        "security_group_ids": ["demo-fabric"],
        "service_account_email": "nodes@lab.iam.gserviceaccount.com",
        "tags": labels,
    }
    of_cluster = {"vpc_id": "v", "subnet_id": "s", "num_nodes_max": 4, "multi_networking": False, "gpus": True}
    of_pools = {
        "cluster": "c",
        "machine_type": "g2-standard-4",
        "num_nodes_min": 0,
        "num_nodes_max": 4,
        "capacity": [{"kind": "spot"}, {"kind": "on-demand"}],
        "root_volume_gib": 200,
    }

    def program() -> None:
        GkeCluster("demo", {**usual, **of_cluster})  # type: ignore[typeddict-item]  # parts of a fixture
        GkeNodePools("demo", {**usual, **of_pools})  # type: ignore[typeddict-item]  # as above

    made = declare(program).resources
    lines = price_resources(made, load_provider("gcp"), "us-central1")
    assert {line.name for line in lines if line.hourly is None} == set()
    (plane,) = [line for line in lines if line.name == "demo-cluster: control plane"]
    assert plane.hourly == pytest.approx(0.10)
    assert plane.as_of or plane.read_on
    billed = {key for line in lines for key in line.of}
    assert len(billed) == sum(one.custom for one in made), "nothing declared is left out"
