"""What a node of Azure needs so that its GPUs talk over InfiniBand."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.fabric import (
    DEVICE_PREFIX,
    FabricPlan,
    ImageReference,
    fabric_findings,
    plan_fabric,
)
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import AzureMachineType
from gangway.components.core.findings import Finding
from gangway.components.core.job import Volume

MACHINES = cast("dict[str, AzureMachineType]", load_provider("azure").machines)
H100 = "Standard_ND96isr_H100_v5"
NC = "Standard_NC24ads_A100_v4"


def find(machine_type: str, nodes: int = 2, own_image: bool = False, cidr: str = "10.42.0.0/16") -> list[Finding]:
    machine = MACHINES[machine_type]
    return fabric_findings(machine, num_nodes_max=nodes, own_image=own_image, network_cidr=cidr)


def codes(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.severity.value, finding.code) for finding in findings]


def test_an_h100_node() -> None:
    topology = "/opt/microsoft/ndv5/topo.xml"
    assert plan_fabric(MACHINES[H100]) == FabricPlan(
        num_hcas=8,
        gbps_each=400,
        generation="NDR",
        device_prefix="mlx5_ib",
        image=ImageReference("microsoft-dsvm", "ubuntu-hpc", "2404"),
        topology_file=topology,
        nccl_conf={
            "NCCL_IB_PCI_RELAXED_ORDERING": "1",
            "NCCL_TOPO_FILE": topology,
            "NCCL_IGNORE_CPU_AFFINITY": "1",
        },
        nccl_env={
            "NCCL_SOCKET_IFNAME": "eth0",
            "GLOO_SOCKET_IFNAME": "eth0",
            "NCCL_NET": "IB",
            "NCCL_IB_HCA": "^mlx5_an",
        },
        volumes=(
            Volume(source="/etc/nccl.conf", target="/etc/nccl.conf", read_only=True),
            Volume(source="/opt/microsoft", target="/opt/microsoft", read_only=True),
        ),
        devices=("/dev/infiniband",),
        single_placement_group=True,
        kernel_modules=("nvidia-peermem",),
    )
    assert plan_fabric(MACHINES[H100]).gbps == 3200


@pytest.mark.parametrize(
    ("machine_type", "num_hcas", "gbps_each", "topology"),
    [
        ("Standard_ND96asr_v4", 8, 200, "/opt/microsoft/ndv4/topo.xml"),
        ("Standard_ND96amsr_A100_v4", 8, 200, "/opt/microsoft/ndv4/topo.xml"),
        ("Standard_ND96isr_H200_v5", 8, 400, "/opt/microsoft/ndv5/topo.xml"),
        ("Standard_ND96isr_MI300X_v5", 8, 400, None),
        ("Standard_ND128isr_NDR_GB200_v6", 4, 400, None),
        ("Standard_ND128isr_GB300_v6", 4, 800, None),
        ("Standard_NC96ads_A100_v4", 0, 0, "/opt/microsoft/ncv4/topo.xml"),
        (NC, 0, 0, None),
    ],
)
def test_the_other_sizes(machine_type: str, num_hcas: int, gbps_each: int, topology: str | None) -> None:
    plan = plan_fabric(MACHINES[machine_type])
    assert (plan.num_hcas, plan.gbps_each, plan.topology_file) == (num_hcas, gbps_each, topology)


@given(st.sampled_from(sorted(MACHINES)), st.booleans())
def test_infiniband_is_never_replaced_in_silence(machine_type: str, own_image: bool) -> None:
    machine = MACHINES[machine_type]
    plan = plan_fabric(machine, own_image=own_image)
    with_fabric = machine.infiniband is not None
    assert (plan.nccl_env.get("NCCL_NET") == "IB") == with_fabric == plan.single_placement_group
    assert bool(plan.devices) == with_fabric == bool(plan.num_hcas and plan.gbps_each and plan.generation)
    assert plan.device_prefix == (DEVICE_PREFIX if with_fabric else "")
    # What is said to NCCL twice would be a matter of luck.
    assert not set(plan.nccl_env) & set(plan.nccl_conf)
    assert bool(plan.volumes) == bool(plan.nccl_conf)
    mounted = [volume.target for volume in plan.volumes]
    for path in plan.nccl_conf.values():
        assert not path.startswith("/") or any(path.startswith(f"{target}/") for target in mounted)
    assert all(volume.read_only and volume.source == volume.target for volume in plan.volumes)
    if own_image:
        assert plan.image is None


@given(st.sampled_from(sorted(MACHINES)), st.integers(1, 300), st.booleans())
def test_several_nodes_without_infiniband_are_told(machine_type: str, nodes: int, own_image: bool) -> None:
    told = ("warning", "fabric.none") in codes(find(machine_type, nodes, own_image))
    assert told == (MACHINES[machine_type].infiniband is None and nodes > 1)


def test_an_h100_cluster_has_nothing_to_be_said_of() -> None:
    assert find(H100) == []
    assert find(NC, nodes=1) == []


def test_tcp_is_named_with_its_rate() -> None:
    (finding,) = find(NC, nodes=4)
    assert "4 nodes talk over TCP at 20 Gbit/s each" in finding.message
    assert finding.fix.startswith("set nodes: {min: 1, max: 1}")


@pytest.mark.parametrize("machine_type", ["Standard_ND128isr_GB300_v6", "Standard_NV36ads_A10_v5"])
def test_a_size_without_an_image_wants_one_of_yours(machine_type: str) -> None:
    (finding,) = find(machine_type, nodes=1)
    assert codes([finding]) == [("error", "fabric.no-image")]
    assert f"no public HPC image fits {machine_type}" in finding.message
    assert ("error", "fabric.no-image") not in codes(find(machine_type, nodes=1, own_image=True))


def test_an_own_image_is_told_what_it_must_hold() -> None:
    (finding,) = find(H100, own_image=True)
    assert codes([finding]) == [("info", "fabric.own-image")]
    assert "/etc/nccl.conf, /opt/microsoft/ndv5/topo.xml, InfiniBand drivers" in finding.message
    assert find(NC, nodes=1, own_image=True) == []


def test_amds_gpus_do_not_run_a_container_for_cuda() -> None:
    assert codes(find("Standard_ND96isr_MI300X_v5")) == [("error", "fabric.rocm")]
    assert plan_fabric(MACHINES["Standard_ND96isr_MI300X_v5"]).kernel_modules == ()


def test_a_rack_of_grace_blackwell_is_not_one_machine() -> None:
    machine_type = "Standard_ND128isr_NDR_GB200_v6"
    assert codes(find(machine_type))[-1] == ("info", "fabric.nvlink-domain")
    assert ("info", "fabric.nvlink-domain") not in codes(find(machine_type, nodes=1))


@pytest.mark.parametrize(
    ("cidr", "refused"),
    [
        ("172.16.0.0/16", True),
        ("172.16.128.0/20", True),
        ("172.0.0.0/8", True),
        ("172.17.0.0/16", False),
        ("10.0.0.0/8", False),
    ],
)
def test_the_rdma_networks_own_addresses(cidr: str, refused: bool) -> None:
    findings = find(H100, cidr=cidr)
    assert codes(findings) == ([("error", "fabric.rdma-range")] if refused else [])
    assert all(finding.path == "gangway:network.cidr" and cidr in finding.message for finding in findings)
    assert find(NC, nodes=1, cidr=cidr) == [], "no InfiniBand, no RDMA network"
