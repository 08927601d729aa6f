"""The ladder as Compute Engine understands it."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider, load_tpus
from gangway.components.catalog.offerings import zone_names
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.core.capacity import (
    AnyRung,
    FlexStart,
    OnDemand,
    Reservation,
    Spot,
    plan_rung,
    preferred_zone,
    rung_from_args,
)
from gangway.components.core.findings import Finding, InputError, Severity
from gangway.components.gcp.capacity import (
    OFFERED,
    POOL_QUOTAS,
    LadderContext,
    Provisioning,
    QuotaContext,
    capacity_findings,
    check_ladder,
    machine_quotas,
    plan_provisioning,
    pool_quotas,
    rung_zone,
    slice_quotas,
    storage_quota,
)
from gangway.components.gcp.slices import plan_slice

MACHINES = cast("dict[str, GcpMachineType]", load_provider("gcp").machines)
RESERVED = {"kind": "reservation", "id": "ours"}
FLEX: dict[str, Any] = {"kind": "flex-start", "max_hours": 24}
SPOT = {"kind": "spot"}
ON_DEMAND = {"kind": "on-demand"}


def check(*rungs: dict[str, Any]) -> None:
    check_ladder([rung_from_args(rung) for rung in rungs])


@pytest.mark.parametrize(
    ("rung", "machine_type", "expected"),
    [
        (SPOT, "a3-highgpu-8g", Provisioning("SPOT", False, "DELETE")),
        (ON_DEMAND, "a2-highgpu-8g", Provisioning("STANDARD", True)),
        (RESERVED, "a3-megagpu-8g", Provisioning("STANDARD", True, reservation="ours")),
        (RESERVED, "a4-highgpu-8g", Provisioning("RESERVATION_BOUND", True, "DELETE", "ours")),
        (FLEX, "a3-ultragpu-8g", Provisioning("FLEX_START", False, "DELETE", run_duration_sec=86400)),
    ],
)
def test_each_kind_has_its_model(rung: dict[str, Any], machine_type: str, expected: Provisioning) -> None:
    assert plan_provisioning(plan_rung(rung_from_args(rung)), MACHINES[machine_type]) == expected


@given(
    st.sampled_from([RESERVED, SPOT, ON_DEMAND])
    | st.floats(1, 168).map(lambda hours: {"kind": "flex-start", "max_hours": hours}),
    st.sampled_from(sorted(MACHINES)),
)
def test_what_compute_engine_lets_stand_together(rung: dict[str, Any], machine_type: str) -> None:
    plan = plan_provisioning(plan_rung(rung_from_args(rung)), MACHINES[machine_type])
    # Spot and flex-start instances are not started again, and end by being deleted; neither uses a reservation.
    assert plan.automatic_restart == (plan.model in {"STANDARD", "RESERVATION_BOUND"})
    assert (plan.termination_action == "DELETE") == (plan.model != "STANDARD")
    assert (plan.reservation is not None) == (rung["kind"] == "reservation")
    assert plan.model != "RESERVATION_BOUND" or plan.reservation is not None
    assert (plan.run_duration_sec is not None) == (plan.model == "FLEX_START")
    assert plan.run_duration_sec is None or 600 <= plan.run_duration_sec <= 604800, "what a resize request takes"


def test_a_capacity_block_is_not_googles() -> None:
    with pytest.raises(InputError, match="Google Cloud has no such capacity") as caught:
        check(SPOT, {"kind": "capacity-block", "id": "cr-0123456789abcdef0"})
    assert caught.value.place == "gangway:cluster.capacity[1].kind"
    assert caught.value.allowed == ", ".join(OFFERED)
    assert "flex-start" in caught.value.fix


@pytest.mark.parametrize("id_", ["ours", "a", "projects/other-lab/reservations/ours", "ours/reservationBlocks/b-1"])
def test_a_reservation_by_its_name(id_: str) -> None:
    check({**RESERVED, "id": id_})


@pytest.mark.parametrize(
    "id_", ["cr-", "Ours", "1st", "projects/x/ours", "ours/", "o" * 64, "us-east4-b/reservations/ours", "ours "]
)
def test_a_name_no_reservation_can_have_is_refused(id_: str) -> None:
    with pytest.raises(InputError, match="no reservation of this name") as caught:
        check({**RESERVED, "id": id_})
    assert (caught.value.place, caught.value.value) == ("gangway:cluster.capacity[0].id", id_)


@pytest.mark.parametrize("kind", ["spot", "on-demand"])
def test_one_group_has_one_machine_type_in_one_zone(kind: str) -> None:
    with pytest.raises(InputError, match="one machine type") as caught:
        check({"kind": kind, "machine_types": ["a2-ultragpu-8g"]})
    assert caught.value.place == "gangway:cluster.capacity[0].machine_types"
    with pytest.raises(InputError, match="lies in one zone") as caught:
        check(SPOT, {"kind": kind, "zones": ["us-east4-a", "us-east4-b"]})
    assert caught.value.place == "gangway:cluster.capacity[1].zones"
    assert f"{{kind: {kind}, zones: [us-east4-a]}}" in caught.value.fix
    check({"kind": kind, "zones": ["us-east4-a"]})


def test_the_zone_of_a_rung() -> None:
    rungs = [rung_from_args(r) for r in (SPOT, {**SPOT, "zones": ["b"]}, {**RESERVED, "zone": "c"}, RESERVED, FLEX)]
    assert [rung_zone(rung, "a") for rung in rungs] == ["a", "b", "c", "a", "a"]
    assert [rung_zone(plan_rung(rung), "a") for rung in rungs] == ["a", "b", "c", "a", "a"]
    assert preferred_zone(rungs) == ("c", "gangway:cluster.capacity[2], a reservation, is there")
    assert preferred_zone(rungs[:2]) is None


def zones_with(machine_type: str) -> list[str]:
    offered = MACHINES[machine_type].offered
    assert offered is not None
    assert offered.zones.value is not None
    return [name for region, zones in offered.zones.value.items() for name in zone_names("gcp", region, zones)]


def find(rungs: Sequence[dict[str, Any]], machine_type: str = "a3-megagpu-8g", **changes: Any) -> list[Finding]:
    values: dict[str, Any] = {
        "machine": MACHINES[machine_type],
        "zone": zones_with(machine_type)[0],
        "zone_assumed": False,
        "num_nodes_min": 2,
        "num_nodes_max": 2,
        "max_hours": 12,
        **changes,
    }
    found = capacity_findings([rung_from_args(rung) for rung in rungs], LadderContext(**values))
    return [finding for finding in found if finding.code not in ("capacity.rungs-apart", "capacity.flex-start-once")]


def only(findings: list[Finding]) -> tuple[str, str, str]:
    (finding,) = findings
    return finding.severity.value, finding.code, finding.path.removeprefix("gangway:cluster.")


def test_a_ladder_that_fits_says_nothing() -> None:
    assert find([FLEX, SPOT, ON_DEMAND]) == []


@given(st.sampled_from(sorted(MACHINES)), st.sampled_from(OFFERED))
def test_what_is_not_sold_is_an_error_with_what_is(machine_type: str, kind: str) -> None:
    rung: dict[str, Any] = {"reservation": RESERVED, "flex-start": FLEX, "spot": SPOT, "on-demand": ON_DEMAND}[kind]
    errors = [finding for finding in find([rung], machine_type) if finding.severity == "error"]
    sold = MACHINES[machine_type].capacity.value
    assert [finding.code for finding in errors] == ([] if kind in sold else ["capacity.not-sold"])
    for finding in errors:
        assert finding.path == "gangway:cluster.capacity[0].kind"
        assert all(word in finding.fix for word in sold)


def test_an_a3_ultra_is_not_sold_on_demand() -> None:
    (finding,) = find([ON_DEMAND], "a3-ultragpu-8g")
    assert "a3-ultragpu-8g cannot be had as on-demand" in finding.message
    assert MACHINES["a3-ultragpu-8g"].capacity.dated in finding.message


def test_another_zone_is_an_error_where_nodes_must_be_close() -> None:
    own, other = zones_with("a3-megagpu-8g")[:2]
    elsewhere = {**SPOT, "zones": [other]}
    assert only(find([elsewhere])) == ("error", "capacity.zones-with-fabric", "capacity[0].zones")
    assert find([{**SPOT, "zones": [own]}]) == []
    assert only(find([elsewhere], "g2-standard-96", zone="us-central1-a")) == (
        "warning",
        "capacity.several-zones",
        "capacity[0].zones",
    )


def test_a_reservation_elsewhere_moves_the_cluster() -> None:
    other = zones_with("a3-megagpu-8g")[1]
    moved, placed = find([{**RESERVED, "zone": other}])
    assert only([moved]) == ("error", "capacity.other-zone", "capacity[0].zone")
    assert moved.fix == f"set gangway:cluster.zone: {other}"
    assert only([placed]) == ("info", "capacity.no-placement-policy", "capacity[0]")
    assert find([RESERVED], "a2-highgpu-8g") == [], "nothing places its nodes anyway"


def test_a_reservation_in_a_zone_that_nobody_named() -> None:
    zone = zones_with("a2-highgpu-8g")[0]
    (finding,) = find([RESERVED], "a2-highgpu-8g", zone_assumed=True)
    assert only([finding]) == ("warning", "capacity.zone-unnamed", "capacity[0].zone")
    assert f"{zone} is assumed" in finding.message
    assert find([SPOT], "a2-highgpu-8g", zone_assumed=True) == [], "only what is reserved is somewhere already"
    assert find([{**RESERVED, "zone": zone}], "a2-highgpu-8g", zone_assumed=True) == []


def test_the_same_reservation_twice() -> None:
    findings = [finding for finding in find([RESERVED, SPOT, RESERVED]) if finding.severity == "error"]
    assert only(findings) == ("error", "capacity.same-reservation", "capacity[2].id")


@pytest.mark.parametrize(("name", "value"), [("max_usd_per_hour", 25.0), ("allocation", "lowest-price")])
def test_a_setting_without_a_counterpart_is_not_ignored_in_silence(name: str, value: Any) -> None:
    (finding,) = find([{**SPOT, name: value}])
    assert only([finding]) == ("warning", "capacity.ignored-setting", f"capacity[0].{name}")
    assert str(value) in finding.message
    assert finding.fix == f"remove {name}"


@pytest.mark.parametrize(
    ("rungs", "machine_type", "num_nodes", "told"),
    [
        ([SPOT, ON_DEMAND], "a3-megagpu-8g", 4, True),
        ([SPOT], "a3-megagpu-8g", 4, False),
        ([SPOT, ON_DEMAND], "a3-megagpu-8g", 1, False),
        ([SPOT, ON_DEMAND], "g2-standard-96", 4, False),
    ],
)
def test_rungs_are_placed_each_by_itself(
    rungs: list[dict[str, Any]], machine_type: str, num_nodes: int, told: bool
) -> None:
    zone = zones_with(machine_type)[0]
    context = LadderContext(MACHINES[machine_type], zone, False, 1, num_nodes, 12)
    found = capacity_findings([rung_from_args(rung) for rung in rungs], context)
    assert [(f.severity.value, f.path) for f in found if f.code == "capacity.rungs-apart"] == (
        [("info", "gangway:cluster.capacity")] if told else []
    )


def test_flex_start_ends_before_the_job() -> None:
    (finding,) = find([FLEX], max_hours=36)
    assert only([finding]) == ("warning", "capacity.flex-start-too-short", "capacity[0].max_hours")
    assert "ends with its last checkpoint" in finding.message
    assert finding.fix == "set max_hours: 36"
    (finding,) = find([FLEX, SPOT], max_hours=200)
    assert "goes on with the next rung" in finding.message
    assert finding.fix == "set gangway:job.max_hours: 24", "a week is the longest there is"


@pytest.mark.parametrize(("rungs", "told"), [([FLEX, SPOT], True), ([SPOT, FLEX], False), ([SPOT], False)])
def test_flex_start_is_asked_for_once(rungs: list[dict[str, Any]], told: bool) -> None:
    machine = MACHINES["a3-megagpu-8g"]
    context = LadderContext(machine, zones_with(machine.name)[0], False, 2, 2, 12)
    found = capacity_findings([rung_from_args(rung) for rung in rungs], context)
    once = [finding for finding in found if finding.code == "capacity.flex-start-once"]
    assert [finding.path for finding in once] == (["gangway:cluster.capacity[0]"] if told else [])
    if told:
        assert "after 24 h all are gone" in once[0].message
        assert "pulumi up --replace" in once[0].fix


def test_flex_start_brings_all_nodes_or_none() -> None:
    assert only(find([FLEX], num_nodes_max=4)) == ("info", "capacity.flex-start-together", "capacity[0]")
    assert find([SPOT, FLEX], num_nodes_max=4) == [], "behind another rung it is asked for what is missing"


SPOT_RUNG, ON_DEMAND_RUNG = Spot(kind="spot"), OnDemand(kind="on-demand")
RESERVED_RUNG = Reservation(kind="reservation", id="r", zone="us-east5-a")
ALL_MACHINES = [machine for machine in load_provider("gcp").machines.values() if isinstance(machine, GcpMachineType)]


def told(machine: str, rungs: Sequence[AnyRung], num_nodes: int = 4) -> list[tuple[str, str]]:
    """Place and first words of each finding."""
    context = QuotaContext("lab", "us-east5", "us-east5-a", num_nodes)
    (found,) = [one for one in ALL_MACHINES if one.name == machine]
    findings = list(machine_quotas(found, rungs, context))
    assert {(finding.severity, finding.code) for finding in findings} == {(Severity.INFO, "capacity.quota")}
    return [(finding.path.removeprefix("gangway:cluster"), finding.message.partition(";")[0]) for finding in findings]


def test_spot_and_on_demand_are_counted_apart() -> None:
    assert told("a3-megagpu-8g", [SPOT_RUNG, ON_DEMAND_RUNG]) == [
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
    quotas = [message for _, message in told("a3-highgpu-8g", [flex, SPOT_RUNG], num_nodes=1)]
    assert [message for message in quotas if "H100" in message] == [
        "8 GPUs of the quota PREEMPTIBLE_NVIDIA_H100_GPUS in us-east5, for 1 node"
    ]


def test_a_reservation_has_taken_its_share() -> None:
    assert told("a3-ultragpu-8g", [RESERVED_RUNG]) == [
        (".capacity[0]", "no quota: the reservation took its share when it was made"),
        ("", "3 of the quota NETWORKS in project lab, for nodes and GPU NICs"),
    ]


@pytest.mark.parametrize("machine", ALL_MACHINES, ids=lambda machine: machine.name)
def test_every_machine_has_its_quota(machine: GcpMachineType) -> None:
    quotas = told(machine.name, [ON_DEMAND_RUNG], num_nodes=1)
    assert any("NVIDIA_" in message for _, message in quotas)
    assert any("LOCAL_SSD" in message for _, message in quotas) is bool(machine.instance_store_gib.value)


@pytest.mark.parametrize(
    ("accelerator", "rung", "words"),
    [
        (
            "v5litepod-64",
            SPOT_RUNG,
            "128 chips of the quota TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI in us-east5-a (preemptible)",
        ),
        ("v6e-8", ON_DEMAND_RUNG, "16 chips of the quota TPUV6EPerProjectPerZoneForTPUAPI in us-east5-a (on demand)"),
        (
            "v5p-64",
            RESERVED_RUNG,
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
    *rungs, _ = [
        (one.path[-3:], one.message)
        for one in pool_quotas(tpu, [SPOT_RUNG, RESERVED_RUNG, ON_DEMAND_RUNG, SPOT_RUNG], context)
    ]
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
