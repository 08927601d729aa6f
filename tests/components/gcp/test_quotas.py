"""What a project has to allow: how much of which quota, by machine, kind of capacity, slice and file system."""

from collections.abc import Sequence

import pytest

from gangway.components.catalog.loader import load_provider, load_tpus
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.core.capacity import AnyRung, FlexStart, OnDemand, Reservation, Spot
from gangway.components.core.findings import Severity
from gangway.components.gcp.quotas import (
    POOL_QUOTAS,
    QuotaContext,
    machine_quotas,
    pool_quotas,
    slice_quotas,
    storage_quota,
)
from gangway.components.gcp.slices import plan_slice

SPOT, ON_DEMAND = Spot(kind="spot"), OnDemand(kind="on-demand")
RESERVED = Reservation(kind="reservation", id="r", zone="us-east5-a")
MACHINES = [machine for machine in load_provider("gcp").machines.values() if isinstance(machine, GcpMachineType)]


def told(machine: str, rungs: Sequence[AnyRung], num_nodes: int = 4) -> list[tuple[str, str]]:
    """Place and first words of each finding."""
    context = QuotaContext("lab", "us-east5", "us-east5-a", num_nodes)
    (found,) = [one for one in MACHINES if one.name == machine]
    findings = list(machine_quotas(found, rungs, context))
    assert {(finding.severity, finding.code) for finding in findings} == {(Severity.INFO, "capacity.quota")}
    return [(finding.path.removeprefix("gangway:cluster"), finding.message.partition(";")[0]) for finding in findings]


def test_spot_and_on_demand_are_counted_apart() -> None:
    assert told("a3-megagpu-8g", [SPOT, ON_DEMAND]) == [
        (".capacity[0]", "32 GPUs of the quota PREEMPTIBLE_NVIDIA_H100_MEGA_GPUS in us-east5, for 4 nodes"),
        (".capacity[0]", "24,000 GB of the quota PREEMPTIBLE_LOCAL_SSD_GB in us-east5, for 4 nodes"),
        (".capacity[1]", "32 GPUs of the quota NVIDIA_H100_MEGA_GPUS in us-east5, for 4 nodes"),
        (
            ".capacity[1]",
            "24,000 GB of the quota LOCAL_SSD_TOTAL_GB (newer projects: by VM family) in us-east5, for 4 nodes",
        ),
        (".capacity", "32 of the quota GPUS_ALL_REGIONS in project lab"),
        ("", "9 of the quota NETWORKS in project lab, for nodes and GPU NICs"),
    ]


def test_flex_start_counts_as_preemptible_and_nothing_twice() -> None:
    flex = FlexStart(kind="flex-start", max_hours=12)
    quotas = [message for _, message in told("a3-highgpu-8g", [flex, SPOT], num_nodes=1)]
    assert [message for message in quotas if "H100" in message] == [
        "8 GPUs of the quota PREEMPTIBLE_NVIDIA_H100_GPUS in us-east5, for 1 node"
    ]


def test_a_reservation_has_taken_its_share() -> None:
    assert told("a3-ultragpu-8g", [RESERVED]) == [
        (".capacity[0]", "no quota: the reservation took its share when it was made"),
        ("", "3 of the quota NETWORKS in project lab, for nodes and GPU NICs"),
    ]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_machine_has_its_quota(machine: GcpMachineType) -> None:
    quotas = told(machine.name, [ON_DEMAND], num_nodes=1)
    assert any("NVIDIA_" in message for _, message in quotas)
    assert any("LOCAL_SSD" in message for _, message in quotas) is bool(machine.instance_store_gib.value)


@pytest.mark.parametrize(
    ("accelerator", "rung", "words"),
    [
        (
            "v5litepod-64",
            SPOT,
            "128 chips of the quota TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI in us-east5-a (preemptible)",
        ),
        ("v6e-8", ON_DEMAND, "16 chips of the quota TPUV6EPerProjectPerZoneForTPUAPI in us-east5-a (on demand)"),
        (
            "v5p-64",
            RESERVED,
            "64 chips (128 where TensorCores are counted) of the quota of TPU v5p in us-east5-a (reserved)",
        ),
    ],
)
def test_queued_slices_count_in_their_zone(accelerator: str, rung: AnyRung, words: str) -> None:
    context = QuotaContext("lab", "us-east5", "us-east5-a", 2)
    first, network = slice_quotas(plan_slice(accelerator_type=accelerator), rung, context)
    assert first.message.startswith(f"{words}, for 2 slices; `gcloud beta quotas info list --service tpu.")
    assert "1 of the quota NETWORKS in project lab" in network.message


def test_gkes_slices_count_against_compute_engine_in_their_region() -> None:
    context = QuotaContext("lab", "us-east5", "us-east5-a", 1)
    tpu = plan_slice(accelerator_type="v5litepod-64")
    *rungs, _ = [(one.path[-3:], one.message) for one in pool_quotas(tpu, [SPOT, RESERVED, ON_DEMAND, SPOT], context)]
    assert [path for path, _ in rungs] == ["[0]", "[1]", "[2]"]
    assert rungs[0][1].startswith("64 chips of the quota PREEMPTIBLE_TPU_LITE_PODSLICE_V5 (")
    assert "in us-east5, for 1 slice; `gcloud beta quotas info list --service compute." in rungs[0][1]
    assert rungs[1][1].startswith("no quota: ")
    assert rungs[2][1].startswith("64 chips of the quota TPU_LITE_PODSLICE_V5 (")


def test_every_generation_has_a_quota_on_gke_spot_apart() -> None:
    assert set(POOL_QUOTAS) == set(load_tpus().generations)
    for on_demand, preemptible in POOL_QUOTAS.values():
        assert "preemptible" in preemptible.lower()
        assert "preemptible" not in on_demand.lower()
        assert "ForTPUAPI" not in on_demand + preemptible


@pytest.mark.parametrize(("kind", "service"), [("lustre", "lustre"), ("filestore", "file")])
def test_a_file_system_counts_by_its_capacity(kind: str, service: str) -> None:
    finding = storage_quota(kind, 18000, QuotaContext("lab", "us-east5", "us-east5-a", 1))
    assert finding.message.startswith("18,000 GiB of the quota of ")
    assert f"--service {service}.googleapis.com --project lab" in finding.message
