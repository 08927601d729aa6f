"""What a ladder is in node pools: for any ladder, GPUs and slices, without a cloud."""

from ipaddress import IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider, load_tpus
from gangway.components.core.capacity import rung_from_args
from gangway.components.core.findings import InputError
from gangway.components.gcp.gke_plan import (
    MAX_NAME,
    MAX_NODES,
    gpu_nodes,
    plan_pools,
    pods_cidr,
    pool_name,
    tpu_chips,
    tpu_nodes,
)

RUNGS: list[dict[str, Any]] = [
    {"kind": "reservation", "id": "ours"},
    {"kind": "flex-start", "max_hours": 24},
    {"kind": "spot"},
    {"kind": "on-demand"},
]
GPUS = sorted(load_provider("gcp").machines)


def pools(machine: str, ladder: list[dict[str, Any]], least: int, most: int) -> tuple[Any, ...]:
    rungs = [rung_from_args(rung) for rung in ladder]
    return plan_pools(rungs, gpu_nodes(machine), "us-east4-b", "lab", least, most)


@given(st.sampled_from(GPUS), st.permutations(RUNGS), st.integers(0, 6), st.integers(0, 100))
def test_a_pool_for_each_rung_from_zero(machine: str, ladder: list[dict[str, Any]], least: int, more: int) -> None:
    found = pools(machine, ladder, least, least + more)
    assert [pool.kind for pool in found] == [rung["kind"] for rung in ladder]
    assert [pool.suffix for pool in found] == [f"{n}-{rung['kind']}" for n, rung in enumerate(ladder)]
    assert all(pool.most == least + more for pool in found)
    assert all(pool.least == 0 for pool in found[1:])
    assert found[0].least == (0 if found[0].kind == "flex-start" else least)
    for pool in found:
        assert pool.spot is (pool.kind == "spot")
        assert (pool.reservation is not None) is (pool.kind == "reservation")
        assert pool.queued is (pool.run_duration_sec is not None) is (pool.kind == "flex-start")
        assert not (pool.queued and (pool.compact or pool.spot or pool.reservation)), "GKE takes neither beside it"


@pytest.mark.parametrize("machine", GPUS)
def test_every_gpu_machine_is_a_node(machine: str) -> None:
    nodes, sold = gpu_nodes(machine), load_provider("gcp").machines[machine]
    assert nodes.gpus is not None
    assert nodes.gpus.number == sold.num_accelerators.value
    assert nodes.gpus.accelerator.startswith("nvidia-")
    assert nodes.local_ssds * 375 == sold.instance_store_gib.value
    assert len(nodes.interfaces) == 1 or (nodes.machine is not None and nodes.machine.gpu_fabric is not None)


def test_nodes_with_gpu_nics_stand_together_where_nobody_placed_them() -> None:
    placed = {pool.kind: pool.compact for pool in pools("a3-megagpu-8g", RUNGS, 0, 4)}
    assert placed == {"reservation": False, "flex-start": False, "spot": True, "on-demand": True}
    assert not any(pool.compact for pool in pools("g2-standard-4", RUNGS, 0, 4))


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("ours", "projects/lab/reservations/ours"),
        ("projects/other-lab/reservations/r", "projects/other-lab/reservations/r"),
        ("ours/reservationBlocks/b1", "ours/reservationBlocks/b1"),
        ("projects/lab-one/reservations/r", "projects/lab-one/reservations/r"),
    ],
)
def test_a_reservation_by_its_full_name(written: str, told: str) -> None:
    (pool,) = pools("a3-megagpu-8g", [{"kind": "reservation", "id": written}], 0, 2)
    assert pool.reservation == told


def test_a_block_of_somebody_elses_is_refused() -> None:
    shared = "projects/other-lab/reservations/r/reservationBlocks/b1"
    with pytest.raises(InputError) as caught:
        pools("a3-megagpu-8g", [{"kind": "spot"}, {"kind": "reservation", "id": shared}], 0, 2)
    assert caught.value.place == "capacity[1].id"
    assert caught.value.fix == "write id: projects/other-lab/reservations/r"


def test_a_rung_may_lie_in_another_zone() -> None:
    found = pools("g2-standard-4", [{"kind": "spot"}, {"kind": "spot", "zones": ["us-east4-c"]}], 0, 2)
    assert [pool.zone for pool in found] == ["us-east4-b", "us-east4-c"]


def slices(accelerator: str, least: int, most: int, kind: str = "spot") -> tuple[Any, Any]:
    nodes = tpu_nodes(accelerator)
    return nodes, plan_pools([rung_from_args({"kind": kind})], nodes, "us-west4-a", "lab", least, most)


@pytest.mark.parametrize(
    ("accelerator", "machine", "topology", "hosts"),
    [
        ("v5litepod-4", "ct5lp-hightpu-4t", None, 1),
        ("v5litepod-8", "ct5lp-hightpu-8t", None, 1),
        ("v5litepod-16", "ct5lp-hightpu-4t", "4x4", 4),
        ("v5litepod-256", "ct5lp-hightpu-4t", "16x16", 64),
        ("v5p-8", "ct5p-hightpu-4t", None, 1),
        ("v5p-128", "ct5p-hightpu-4t", "4x4x4", 16),
        ("v6e-16", "ct6e-standard-4t", "4x4", 4),
        ("v4-16", "ct4p-hightpu-4t", "2x2x2", 2),
        ("tpu7x-128", "tpu7x-standard-4t", "4x4x4", 16),
    ],
)
def test_a_slice_is_a_pool_of_its_own(accelerator: str, machine: str, topology: str | None, hosts: int) -> None:
    nodes, found = slices(accelerator, 1, 3)
    assert (nodes.machine_type, nodes.topology, nodes.hosts) == (machine, topology, hosts)
    if topology is None:
        assert [(pool.suffix, pool.least, pool.most) for pool in found] == [("0-spot", 1, 3)]
        assert not found[0].compact
    else:
        assert [(pool.suffix, pool.least, pool.most) for pool in found] == [
            ("0-spot-0", hosts, hosts),
            ("0-spot-1", 0, hosts),
            ("0-spot-2", 0, hosts),
        ]
        assert all(pool.compact for pool in found)


@pytest.mark.parametrize("generation", sorted(load_tpus().generations))
def test_a_host_tells_its_chips(generation: str) -> None:
    prefix = load_tpus().generations[generation].prefix
    cores = load_tpus().generations[generation].tensorcores_per_chip.value
    nodes = tpu_nodes(
        f"{prefix}-{4 * cores if load_tpus().generations[generation].suffix_counts == 'tensorcores' else 4}"
    )
    assert tpu_chips(nodes.machine_type) == (generation, 4)
    assert all(tpu_chips(machine) is None for machine in GPUS)


def test_slices_are_not_asked_for_by_the_queue_of_nodes() -> None:
    rungs = [rung_from_args({"kind": "flex-start", "max_hours": 2})]
    with pytest.raises(InputError, match="slices come whole"):
        plan_pools(rungs, tpu_nodes("v5litepod-16"), "us-west4-a", "lab", 0, 1)


@pytest.mark.slow
@given(st.integers(1, MAX_NODES))
def test_every_node_has_room_for_its_pods(nodes: int) -> None:
    network = IPv4Network(pods_cidr(nodes))
    assert network.num_addresses >= nodes * 64
    assert network.subnet_of(IPv4Network("100.64.0.0/10"))
    assert network.prefixlen <= 17
    assert not network.overlaps(IPv4Network("100.127.240.0/20")), "services"


def test_more_nodes_than_addresses_are_refused() -> None:
    assert pools("g2-standard-4", [{"kind": "spot"}], 0, MAX_NODES)
    with pytest.raises(InputError) as caught:
        pools("g2-standard-4", [{"kind": "spot"}], 0, MAX_NODES + 1)
    assert str(MAX_NODES) in (caught.value.fix or "")


@given(
    st.from_regex(r"[a-z][a-z0-9-]{0,38}[a-z0-9]", fullmatch=True),
    st.sampled_from(["0-spot", "3-flex-start", "0-reservation-12"]),
)
def test_names_fit_and_stay_apart(stack: str, suffix: str) -> None:
    name = pool_name(stack, suffix)
    assert len(name) <= MAX_NAME
    assert name.endswith(f"-{suffix}")
    assert name != pool_name(stack + "x", suffix)
