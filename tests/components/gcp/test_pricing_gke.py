"""The bill of a GKE cluster, worked out by hand: control plane, system, each rung's nodes at their most."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gangway.components.catalog.loader import load_provider
from gangway.components.estimate.cost import CostComponent, estimate
from gangway.components.gcp.gke import GkeCluster
from gangway.components.gcp.gke_pools import GkeNodePools
from gangway.components.gcp.pricing import NAT, NODE_POOL, price_resources


@dataclass(frozen=True)
class Resource:
    """A resource as pricing sees it."""

    type: str
    name: str
    inputs: dict[str, Any]
    id: str = ""


def pool(name: str, machine: str, most: int, rung: str | None = "0-spot", **node: Any) -> Resource:
    labels = {} if rung is None else {"labels": {"gangway.dev/rung": rung}}
    config = {"machineType": machine, "diskSizeGb": 200.0, "diskType": "pd-balanced", **labels, **node}
    sizes = {"minNodeCount": 1.0, "maxNodeCount": float(most)}
    return Resource(NODE_POOL, name, {"autoscaling": sizes, "nodeConfig": config})


def bill(*resources: Resource, region: str = "us-central1") -> list[CostComponent]:
    return price_resources(resources, load_provider("gcp"), region)


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
def test_slices_cost_by_the_chip(spot: bool, usd: float) -> None:
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


def test_what_is_really_declared_has_a_price(declare: Callable[..., Any], labels: dict[str, str]) -> None:
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
