"""AksNodePools: what a ladder is in agent pools, and what each is told."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.aks import AksCluster
from gangway.components.azure.aks_pools import MAX_POOL_NAME, SPOT_TAINT, AksNodePools, plan_node_pools, pool_name
from gangway.components.azure.pricing import price_resources
from gangway.components.catalog.loader import load_provider
from gangway.components.core.findings import InputError

NDV5 = "Standard_ND96isr_H100_v5"
GROUP = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/r/providers/Microsoft.Compute"
    "/capacityReservationGroups/ours"
)
RESERVED = {"kind": "reservation", "id": GROUP}
RUNGS: list[dict[str, Any]] = [
    {"kind": "spot"},
    {"kind": "spot", "max_usd_per_hour": 30.123456},
    {"kind": "on-demand"},
]
PLAIN = sorted(
    name for name, one in load_provider("azure").machines.items() if getattr(one, "infiniband", None) is None
)


@pytest.fixture
def args(place: dict[str, Any]) -> dict[str, Any]:
    """Arguments of AksNodePools, to be varied."""
    return {
        "resource_group_name": place["resource_group_name"],
        "cluster_name": "demo",
        "zone": "",
        "version": "1.36",
        "machine_type": NDV5,
        "num_nodes_min": 0,
        "num_nodes_max": 4,
        "capacity": RUNGS,
        "subnet_id": "/subnet",
        "root_volume_gib": 256,
        "tags": place["tags"],
    }


def planned(machine: str, ladder: list[dict[str, Any]], least: int, most: int) -> tuple[Any, ...]:
    args: Any = {
        "machine_type": machine,
        "zone": "1",
        "capacity": ladder,
        "num_nodes_min": least,
        "num_nodes_max": most,
    }
    return plan_node_pools(args)[1]


@given(st.sampled_from(PLAIN), st.permutations([*RUNGS, RESERVED]), st.integers(0, 6), st.integers(0, 90))
def test_a_pool_for_each_rung_from_zero(machine: str, ladder: list[dict[str, Any]], least: int, more: int) -> None:
    pools = planned(machine, ladder, least, least + more)
    assert [pool.suffix for pool in pools] == [f"{n}-{rung['kind']}" for n, rung in enumerate(ladder)]
    assert len({pool.name for pool in pools}) == len(ladder)
    assert [pool.least for pool in pools] == [least, 0, 0, 0]
    for pool, rung in zip(pools, ladder, strict=True):
        assert pool.most == least + more
        assert pool.spot is (rung["kind"] == "spot")
        assert (pool.fields.capacity_reservation_group is not None) is (rung["kind"] == "reservation")
        if pool.spot:
            assert pool.fields.max_price == (30.12345 if "max_usd_per_hour" in rung else -1.0)


@given(st.integers(0, 99), st.sampled_from(["spot", "on-demand", "reservation"]))
def test_names_are_such_as_aks_takes(position: int, kind: str) -> None:
    name = pool_name(position, kind)
    assert name.isalnum()
    assert name.islower()
    assert len(name) <= MAX_POOL_NAME
    assert name != pool_name(position + 1, kind)


def test_infiniband_refuses_what_it_cannot_be(args: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot be reserved"):
        planned(NDV5, [RESERVED], 0, 4)
    with pytest.raises(InputError, match="more nodes than one InfiniBand partition"):
        planned(NDV5, [{"kind": "spot"}], 0, 301)


def test_spot_pools_delete_what_is_taken(make: Callable[..., Any], args: dict[str, Any]) -> None:
    free, capped, demanded = (pool.inputs for pool in make(AksNodePools, args).of("AgentPool"))
    for inputs in (free, capped):
        assert (inputs["scaleSetPriority"], inputs["scaleSetEvictionPolicy"]) == ("Spot", "Delete")
        assert SPOT_TAINT in inputs["nodeTaints"]
        assert "upgradeSettings" not in inputs, "spot pools take none"
    assert (free["spotMaxPrice"], capped["spotMaxPrice"]) == (-1, 30.12345)
    assert demanded["scaleSetPriority"] == "Regular"
    assert not {"spotMaxPrice", "scaleSetEvictionPolicy", "nodeTaints"} & demanded.keys()
    assert demanded["upgradeSettings"] == {"maxSurge": "0", "maxUnavailable": "1"}


def test_pools_grow_from_nothing(make: Callable[..., Any], args: dict[str, Any]) -> None:
    for pool in make(AksNodePools, args).of("AgentPool"):
        sizes = [pool.inputs[key] for key in ("enableAutoScaling", "minCount", "maxCount", "count")]
        assert sizes == [True, 0, 4, 0]
        assert pool.inputs["mode"] == "User"
        assert pool.inputs["scaleDownMode"] == "Delete"
        assert pool.inputs["enableNodePublicIP"] is False
        assert pool.inputs["securityProfile"] == {"sshAccess": "Disabled"}
        assert "availabilityZones" not in pool.inputs


def test_rungs_are_told_apart_by_their_labels(make: Callable[..., Any], args: dict[str, Any]) -> None:
    labelled = {"node_labels": [{"a": "1"}, {"a": "2"}, {"a": "3"}], "node_taints": ["a=b:NoSchedule"]}
    pools = make(AksNodePools, {**args, **labelled}).of("AgentPool")
    assert [pool.inputs["nodeLabels"] for pool in pools] == [
        {"gangway.dev/rung": "0-spot", "a": "1"},
        {"gangway.dev/rung": "1-spot", "a": "2"},
        {"gangway.dev/rung": "2-on-demand", "a": "3"},
    ]
    assert all("a=b:NoSchedule" in pool.inputs["nodeTaints"] for pool in pools)


@pytest.mark.parametrize("driver", ["Install", "None"])
def test_who_installs_the_driver(make: Callable[..., Any], args: dict[str, Any], driver: str) -> None:
    pools = make(AksNodePools, {**args, "gpu_driver": driver}).of("AgentPool")
    assert {pool.inputs["gpuProfile"]["driver"] for pool in pools} == {driver}


def test_pools_are_made_one_after_the_other(make: Callable[..., Any], args: dict[str, Any]) -> None:
    first, second, third = make(AksNodePools, args).of("AgentPool")
    assert first.urn in second.dependencies
    assert second.urn in third.dependencies


def test_the_bill(declare: Callable[..., Any], args: Any, place: dict[str, Any]) -> None:
    of_cluster: Any = {
        **{key: args[key] for key in ("resource_group_name", "subnet_id", "tags", "zone")},
        "location": "eastus",
        "tenant_id": "t",
        "idle_minutes": 15,
        "identity_id": "/c",
        "kubelet_identity_id": "/n",
        "kubelet_client_id": "c",
        "kubelet_object_id": "o",
    }

    def program() -> None:
        AksCluster("demo", of_cluster)
        AksNodePools("demo", args)

    made = declare(program).resources
    lines = {line.name: line for line in price_resources(made, load_provider("azure"), "eastus")}
    assert lines["demo-cluster: control plane"].hourly == pytest.approx(0.10)
    assert lines["demo-cluster: 1 x Standard_D4s_v5, on-demand"].hourly == pytest.approx(0.192)
    assert lines[f"demo-0-spot: 4 x {NDV5}, spot"].hourly == pytest.approx(4 * 18.17)
    assert {line.standby for name, line in lines.items() if name.startswith("demo-0-spot")} == {False}
    assert {line.standby for name, line in lines.items() if name.startswith(("demo-1", "demo-2"))} == {True}
    assert {key for line in lines.values() for key in line.of} == {
        f"{one.type}::{one.name}" for one in made if one.custom
    }
