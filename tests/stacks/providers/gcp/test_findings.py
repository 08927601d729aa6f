"""The findings of stacks on Google Cloud: when each appears, and its severity."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest
from pulumi_gcp import accesscontextmanager

from gangway.components.core.findings import Finding, InputError, Severity
from gangway.components.gcp.network import RESTRICTED, read_perimeter
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.providers.gcp.findings import IMAGE_NCCL, findings, perimeter_findings
from gangway.stacks.providers.gcp.plan import plan
from gangway.stacks.recording import PlaceholderCloud, Recording, record

GPU, POD, SLICES = "gcp-a3-spot", "gcp-v5e-pod", "gcp-v5p-multislice"
Edited = Callable[..., StackConfig]


def found_in(config: StackConfig) -> dict[str, Finding]:
    """The findings about a configuration by their codes, without those about money."""
    found = findings(config, plan(config), None)
    return {finding.code: finding for finding in found}


def test_the_shipped_stacks_have_no_mistake(gcp_configs: dict[str, StackConfig]) -> None:
    for config in gcp_configs.values():
        assert [finding for finding in findings(config, plan(config), None) if finding.severity is Severity.ERROR] == []


@pytest.mark.parametrize("name", [GPU, POD, SLICES])
def test_the_ways_out_that_remain_are_named(gcp_edited: Edited, name: str) -> None:
    found = found_in(gcp_edited(name, network={"egress": "endpoints"}))["network.ways-out"]
    assert (found.severity, found.path) == (Severity.INFO, "gangway:network.egress")
    assert found.message.startswith("data can still leave by DNS and into other projects' buckets and registries: ")
    assert "set gangway:gcp.service_perimeter" in found.fix
    everywhere = found_in(gcp_edited(name, network={"egress": "nat"}))["network.ways-out"]
    assert "machines reach the whole internet" in everywhere.message


def test_limits_of_permissions_are_reported(gcp_edited: Edited) -> None:
    tag = found_in(gcp_edited(GPU))["rights.group-tag"]
    assert (tag.severity, tag.path) == (Severity.INFO, "gangway:gcp.project")
    assert "roles/resourcemanager.tagAdmin" in tag.message
    for leaves in (True, False):
        found = found_in(gcp_edited(SLICES, job={"terminate_when_done": leaves}))
        assert "rights.group-tag" not in found, "slices are in no group"
        assert ("rights.whole-project" in found) is leaves


def test_the_fabric_and_its_check_are_reported(gcp_edited: Edited) -> None:
    found = found_in(gcp_edited(GPU))
    assert "8 gVNICs for the GPUs in addition to the machine's" in found["fabric.gpu-nics"].message
    assert "reaches 450 Gbit/s, 0.25 of the fabric's" in found["fabric.check"].message
    assert "fabric.none" not in found
    without = found_in(gcp_edited(GPU, cluster={"fabric_check": {"enabled": False}}))
    assert "fabric.check" not in without
    roce = found_in(gcp_edited(GPU, cluster={"machine_type": "a3-ultragpu-8g"}))
    assert "8 RDMA NICs per node in one RoCE network of the zone" in roce["fabric.gpu-nics"].message


def test_machines_without_gpu_nics_are_a_warning_on_several_nodes(gcp_edited: Edited) -> None:
    several = found_in(gcp_edited(GPU, cluster={"machine_type": "g2-standard-48"}))
    assert several["fabric.none"].severity is Severity.WARNING
    assert "gradients use TCP at 50 Gbit/s" in several["fabric.none"].message
    alone = found_in(gcp_edited(GPU, cluster={"machine_type": "g2-standard-48", "nodes": {"min": 1, "max": 1}}))
    assert not {"fabric.none", "fabric.gpu-nics", "fabric.check"} & set(alone)


@pytest.mark.parametrize(
    ("name", "cluster", "storage", "reasons"),
    [
        (GPU, {}, {}, "the modules of the tcpxo plug-in of NCCL and Lustre's client are unsigned"),
        (GPU, {"machine_type": "g2-standard-48"}, {}, "the modules of Lustre's client are unsigned"),
        (GPU, {"machine_type": "g2-standard-48"}, None, ""),
    ],
)
def test_a_protection_that_is_off_has_its_reason(
    gcp_edited: Edited, name: str, cluster: Any, storage: Any, reasons: str
) -> None:
    found = found_in(gcp_edited(name, cluster=cluster, storage=storage))
    assert ("machine.secure-boot-off" in found) is bool(reasons)
    if reasons:
        assert found["machine.secure-boot-off"].message.endswith(reasons)


def test_a_zone_that_was_chosen_by_itself_has_its_reason(gcp_edited: Edited) -> None:
    assert "the first of us-central1 that has a3-megagpu-8g" in found_in(gcp_edited(GPU))["placement.zone"].message
    assert "placement.zone" not in found_in(gcp_edited(GPU, cluster={"zone": "us-central1-a"}))


@pytest.mark.parametrize(("name", "zone"), [(GPU, "us-central1-f"), (POD, "us-west4-c")])
def test_a_zone_without_such_machines_names_those_with_them(gcp_edited: Edited, name: str, zone: str) -> None:
    """How grave it is tests/components/catalog/test_offerings.py says."""
    finding = found_in(gcp_edited(name, cluster={"zone": zone}))["capacity.zone-without-machine"]
    assert finding.path == "gangway:cluster.zone"
    assert zone in finding.message
    assert finding.fix.startswith("set gangway:cluster.zone: ")


def test_slices_where_no_zone_has_them_name_the_regions_that_do(gcp_edited: Edited) -> None:
    found = found_in(gcp_edited(POD, region="us-east4", image={"prebuilt": None}))
    said = [found[code] for code in ("machine.not-in-region", "machine.region-unknown") if code in found]
    assert [finding.path for finding in said] == ["gangway:region"]
    assert "us-west4" in said[0].message
    assert "capacity.zone-without-machine" not in found, "a zone's region is said once"


def test_spot_tells_its_notice(gcp_edited: Edited) -> None:
    assert "30 s of notice" in found_in(gcp_edited(GPU))["capacity.notice"].message
    assert "capacity.notice" not in found_in(gcp_edited(GPU, cluster={"capacity": [{"kind": "on-demand"}]}))


def test_slices_of_spot_are_asked_for_again_by_a_schedule(gcp_edited: Edited) -> None:
    finding = found_in(gcp_edited(POD))["tpu.preemption"]
    assert finding.severity is Severity.INFO
    assert "checks every 5 minutes" in finding.message
    assert "gives up after 8 preemptions within 6 hours" in finding.message
    assert "tpu.preemption" not in found_in(gcp_edited(POD, cluster={"capacity": [{"kind": "on-demand"}]}))


def test_slices_come_in_one_number(gcp_edited: Edited) -> None:
    finding = found_in(gcp_edited(SLICES, cluster={"nodes": {"min": 1, "max": 2}}))["tpu.fixed-number"]
    assert (finding.severity, finding.path) == (Severity.ERROR, "gangway:cluster.nodes")
    assert finding.fix == "set nodes: {min: 2, max: 2}"
    odd = found_in(gcp_edited(POD, cluster={"accelerator": "v6e-8", "nodes": {"min": 1, "max": 3}}, region="us-east5"))
    assert odd["tpu.fixed-number"].fix == "set nodes: {min: 2, max: 2}", "three would be refused by the batch"
    large = found_in(gcp_edited(SLICES, cluster={"accelerator": "v5p-256", "topology": None}))
    assert large["batch.too-small"].fix == "choose an accelerator with fewer chips"
    fine = found_in(gcp_edited(SLICES))
    assert "tpu.fixed-number" not in fine
    assert "2 slices train as one job of 16 hosts" in fine["tpu.multislice"].message
    assert "tpu.multislice" not in found_in(gcp_edited(POD))


IGNORED_BY_SLICES: dict[str, tuple[str, dict[str, Any]]] = {
    "gangway:cluster.fabric_check": ("cluster", {"fabric_check": {"enabled": True}}),
    "gangway:cluster.root_volume_gib": ("cluster", {"root_volume_gib": 300}),
    "gangway:cluster.image_id": ("cluster", {"image_id": "projects/p/global/images/i"}),
    "gangway:cluster.capacity[0].max_usd_per_hour": (
        "cluster", {"capacity": [{"kind": "spot", "max_usd_per_hour": 2}]},
    ),
    "gangway:head": ("head", {"machine_type": "e2-medium"}),
}  # fmt: skip


@pytest.mark.parametrize("path", IGNORED_BY_SLICES)
def test_what_slices_do_not_have_is_never_ignored_in_silence(gcp_edited: Edited, path: str) -> None:
    section, changes = IGNORED_BY_SLICES[path]
    config = gcp_edited(POD, **{section: changes})
    (finding,) = [found for found in findings(config, plan(config), None) if found.path == path]
    assert finding.severity is Severity.WARNING
    assert finding.code in ("tpu.ignored-setting", "capacity.ignored-setting")
    assert finding.fix


def test_slices_without_a_file_system_share_a_folder_of_the_run_bucket(gcp_edited: Edited) -> None:
    found = found_in(gcp_edited(SLICES, storage=None))
    assert found["tpu.state-in-bucket"].severity is Severity.INFO
    assert not {"storage.not-shared", "storage.lost-with-node"} & set(found)
    assert "storage.not-shared" in found_in(gcp_edited(GPU, storage=None))


def test_unpublished_figures_are_reported_as_missing(gcp_edited: Edited) -> None:
    assert "no power figure" in found_in(gcp_edited(POD))["energy.unknown"].message
    assert "energy.unknown" not in found_in(gcp_edited(GPU))


ENDPOINTS = {"network": {"egress": "endpoints"}}
ALONE: dict[str, Any] = {"nodes": {"min": 1, "max": 1}, "capacity": [{"kind": "spot"}]}
OWN_IMAGE = {"image_id": "projects/p/global/images/i"}


@pytest.mark.parametrize(
    ("cluster", "storage", "fix"),
    [
        ({}, {}, "set egress: nat"),
        (
            ALONE,
            None,
            "set egress: nat, or set image_id to an image with Docker, NVIDIA's driver, NVIDIA's container toolkit and "
            "the kernel module import-helper",
        ),
    ],
    ids=["with a head", "alone"],
)
def test_endpoints_do_not_lead_to_docker(gcp_edited: Edited, cluster: Any, storage: Any, fix: str) -> None:
    finding = found_in(gcp_edited(GPU, cluster=cluster, storage=storage, **ENDPOINTS))["network.no-packages"]
    assert (finding.severity, finding.path, finding.fix) == (Severity.ERROR, "gangway:network.egress", fix)
    assert "network.no-packages" not in found_in(gcp_edited(GPU))


@pytest.mark.parametrize("cluster", [{}, {**ALONE, "capacity": [{"kind": "spot"}, {"kind": "on-demand"}]}])
def test_an_image_of_their_own_is_not_the_heads(gcp_edited: Edited, cluster: Any) -> None:
    found = found_in(gcp_edited(GPU, cluster={**cluster, **OWN_IMAGE}, **ENDPOINTS))
    assert found["network.head-no-packages"].severity is Severity.ERROR
    assert found["network.head-no-packages"].fix == "set egress: nat"
    assert not {"network.no-packages", "network.image-holds"} & set(found)
    assert "network.head-no-packages" not in found_in(gcp_edited(GPU, cluster={**cluster, **OWN_IMAGE}))


@pytest.mark.parametrize(
    ("machine_type", "storage", "holds"),
    [
        ("a3-megagpu-8g", {}, "NVIDIA's container toolkit, the Lustre client and the kernel module import-helper"),
        ("g2-standard-48", None, "Docker, NVIDIA's driver and NVIDIA's container toolkit"),
    ],
)
def test_an_own_image_has_to_hold_all_of_it(gcp_edited: Edited, machine_type: str, storage: Any, holds: str) -> None:
    cluster = {**ALONE, **OWN_IMAGE, "machine_type": machine_type}
    finding = found_in(gcp_edited(GPU, cluster=cluster, storage=storage, **ENDPOINTS))["network.image-holds"]
    assert (finding.severity, finding.path) == (Severity.INFO, "gangway:cluster.image_id")
    assert finding.message.endswith(holds)


@pytest.mark.parametrize(
    ("name", "storage", "severity", "lacks"),
    [
        (SLICES, {}, Severity.ERROR, "the Lustre client"),
        (SLICES, None, Severity.WARNING, "Cloud Storage FUSE"),
        (POD, {}, Severity.WARNING, "nfs-common"),
    ],
)
def test_hosts_of_slices_have_docker_and_not_their_file_systems_client(
    gcp_edited: Edited, name: str, storage: Any, severity: Severity, lacks: str
) -> None:
    finding = found_in(gcp_edited(name, storage=storage, **ENDPOINTS))["network.no-packages"]
    assert (finding.severity, finding.fix) == (severity, "set egress: nat")
    assert f"has Docker, but perhaps not {lacks}" in finding.message
    assert "network.no-packages" not in found_in(gcp_edited(name, storage=storage))


def test_the_copy_of_the_data_is_reported(gcp_edited: Edited) -> None:
    assert "storage.copied-by-node" in found_in(gcp_edited(SLICES))
    assert "storage.copied-by-node" not in found_in(gcp_edited(GPU)), "the head has Lustre import it"
    assert "network.private-services" in found_in(gcp_edited(GPU))
    assert not {"network.private-services", "storage.copied-by-node"} & set(found_in(gcp_edited(POD)))


@pytest.mark.parametrize("name", [GPU, POD])
def test_nodes_that_stay_are_reported(gcp_edited: Edited, name: str) -> None:
    finding = found_in(gcp_edited(name, job={"terminate_when_done": None}))["job.nodes-stay"]
    assert finding.fix.startswith("set terminate_when_done: true")
    assert "job.nodes-stay" not in found_in(gcp_edited(name))


@pytest.mark.parametrize("leaves", [True, False])
def test_slices_cost_until_they_leave(gcp_edited: Edited, leaves: bool) -> None:
    made = make_plan(gcp_edited(POD, job={"terminate_when_done": leaves}))
    assert made.rungs[0].nodes_hourly
    rest = made.cost.hourly - made.rungs[0].nodes_hourly
    assert made.idle_hourly == (pytest.approx(rest) if leaves else made.rungs[0].hourly)


def test_slices_cannot_be_measured_so_an_idle_stop_is_refused(gcp_edited: Edited) -> None:
    finding = found_in(gcp_edited(POD, cluster={"idle_stop": {"minutes": 60}}))["idle.unmeasured"]
    assert (finding.severity, finding.path) == (Severity.ERROR, "gangway:cluster.idle_stop")
    assert "idle.stop" in found_in(gcp_edited(GPU, cluster={"idle_stop": {"minutes": 60}}))


def test_a_late_stop_is_reported(gcp_edited: Edited) -> None:
    assert "no hard limit" in found_in(gcp_edited(GPU))["budget.late"].message
    assert "budget.late" not in found_in(gcp_edited(GPU, budget={"stop_at_percent": None}))


@pytest.mark.parametrize("name", [SLICES, GPU])
def test_a_reservation_is_in_a_zone(gcp_edited: Edited, name: str) -> None:
    rung = {"kind": "reservation", "id": "gan"}
    zone = plan(gcp_edited(name)).zone
    finding = found_in(gcp_edited(name, cluster={"zone": None, "capacity": [rung]}))["capacity.zone-unnamed"]
    assert (finding.severity, finding.path) == (Severity.WARNING, "gangway:cluster.capacity[0].zone")
    for named in ({"zone": zone, "capacity": [rung]}, {"zone": None, "capacity": [{**rung, "zone": zone}]}):
        assert "capacity.zone-unnamed" not in found_in(gcp_edited(name, cluster=named))


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ({"machine_type": "a2-highgpu-8g"}, "a2-highgpu-8g, whose"),
        ({"machine_type": "a3-highgpu-8g"}, "a3-highgpu-8g, whose"),
        ({"nodes": {"min": 1, "max": 1}}, "one node has"),
        ({}, None),
    ],
)
def test_a_check_of_no_fabric_is_not_ignored_in_silence(gcp_edited: Edited, cluster: Any, told: str | None) -> None:
    found = found_in(gcp_edited(GPU, cluster={**cluster, "fabric_check": {"min_fraction": 0.5}}))
    assert ("fabric.check-ignored" in found) is (told is not None)
    if told is not None:
        assert told in found["fabric.check-ignored"].message
        assert "fabric.check-ignored" not in found_in(gcp_edited(GPU, cluster=cluster)), "nobody wrote it"
        off = {**cluster, "fabric_check": {"enabled": False}}
        assert "fabric.check-ignored" not in found_in(gcp_edited(GPU, cluster=off))


def test_a_head_that_is_not_there_is_not_ignored_in_silence(gcp_edited: Edited) -> None:
    head = {"machine_type": "e2-small"}
    finding = found_in(gcp_edited(GPU, cluster=ALONE, head=head))["head.ignored"]
    assert (finding.severity, finding.path) == (Severity.WARNING, "gangway:head")
    assert "head.ignored" not in found_in(gcp_edited(GPU, head=head))
    assert "head.ignored" not in found_in(gcp_edited(GPU, cluster=ALONE))


def test_lustres_client_is_made_for_some_kernels(gcp_edited: Edited) -> None:
    assert found_in(gcp_edited(SLICES))["storage.lustre-kernel"].severity is Severity.WARNING
    assert "storage.lustre-kernel" not in found_in(gcp_edited(POD)), "it has a Filestore"
    assert found_in(gcp_edited(GPU))["storage.newest-image"].path == "gangway:cluster.image_id"
    pinned = found_in(gcp_edited(GPU, cluster=OWN_IMAGE))
    assert not {"storage.newest-image", "storage.lustre-kernel", "storage.lustre-secure-boot"} & set(pinned)


def test_a_client_that_is_built_on_the_node_is_not_loaded_under_secure_boot(gcp_edited: Edited) -> None:
    """A3 Mega's plug-in wants unsigned modules, so that Secure Boot is off there; A3 Ultra's does not."""
    assert "builds them, which" in found_in(gcp_edited(GPU))["storage.newest-image"].message
    signed = {"machine_type": "a3-ultragpu-8g"}
    assert (
        "since Secure Boot loads no modules"
        in found_in(gcp_edited(GPU, cluster=signed))["storage.newest-image"].message
    )
    finding = found_in(gcp_edited(GPU, cluster={**signed, **OWN_IMAGE}))["storage.lustre-secure-boot"]
    assert (finding.severity, finding.path) == (Severity.WARNING, "gangway:cluster.image_id")


def test_the_currency_of_the_budget_is_reported(gcp_edited: Edited) -> None:
    finding = found_in(gcp_edited(GPU))["budget.currency"]
    assert "160,000.00 USD" in finding.message
    assert "currency: EUR" in finding.fix
    own = found_in(gcp_edited(GPU, gcp={"currency": "EUR", "monthly_amount": 147000}))["budget.currency"]
    assert (own.severity, own.path) == (Severity.INFO, "gangway:gcp.monthly_amount")
    assert "147,000.00 EUR per month" in own.message


def test_a_fabric_untested_with_the_images_nccl_is_reported(gcp_edited: Edited, repo: Path) -> None:
    finding = found_in(gcp_edited(GPU))["fabric.nccl-unproven"]
    assert finding.severity is Severity.WARNING
    assert IMAGE_NCCL in finding.message
    lock = (repo / "images" / "locks" / "trainer.lock").read_text("utf-8")
    assert re.findall(r"^nvidia-nccl-cu\d+==([\d.]+)", lock, re.MULTILINE) == [IMAGE_NCCL], "what torch is locked with"
    assert "fabric.nccl-unproven" not in found_in(gcp_edited(GPU, cluster={"machine_type": "a3-ultragpu-8g"}))


@pytest.mark.parametrize(("source", "told"), [("gs://data/celeba", True), ("gs://data/", False), (None, False)])
def test_a_prefix_does_not_bound_what_may_be_read(gcp_edited: Edited, source: str | None, told: bool) -> None:
    found = found_in(gcp_edited(GPU, storage={"source": source}))
    assert ("storage.whole-bucket" in found) is told
    if told:
        assert "may read all of data" in found["storage.whole-bucket"].message


def test_a_reservation_of_slices_is_an_ordinary_one(gcp_edited: Edited) -> None:
    finding = found_in(gcp_edited(SLICES))["tpu.calendar-mode"]
    assert (finding.severity, finding.path) == (Severity.INFO, "gangway:cluster.capacity[0]")
    assert "tpu.calendar-mode" not in found_in(gcp_edited(POD))


def test_slices_are_said_to_be_joined_as_far_as_it_was_tried(gcp_edited: Edited) -> None:
    assert "with a simulated server only" in found_in(gcp_edited(SLICES))["tpu.multislice"].message


def test_zones_without_lustre_are_reported_from_the_list(gcp_edited: Edited) -> None:
    assert "storage.zone-unknown" not in found_in(gcp_edited(GPU)), "us-central1 has it"
    unknown = found_in(gcp_edited(SLICES))["storage.zone-unknown"]
    assert (unknown.severity, unknown.path) == (Severity.WARNING, "gangway:storage.kind")
    assert "whether there is Managed Lustre in us-east5-a is not known" in unknown.message
    assert "gcloud lustre locations list --project my-project" in unknown.fix
    assert "storage.zone-unknown" not in found_in(gcp_edited(POD)), "Filestore is everywhere"


@pytest.mark.parametrize("name", [GPU, POD, SLICES])
def test_quotas_are_reported(gcp_edited: Edited, name: str) -> None:
    config = gcp_edited(name)
    quotas = [f for f in findings(config, plan(config), None) if f.code == "capacity.quota"]
    assert {"gangway:cluster", "gangway:cluster.capacity[0]", "gangway:storage.capacity_gib"} <= {
        f.path for f in quotas
    }


GPU_STACK, SLICES_STACK = "gcp-a3-spot", "gcp-v5p-multislice"
OWN = {"access_policy": 330193482019, "operators": ["user:ops@example.com"]}


@pytest.fixture
def found(gcp_edited: Edited) -> Callable[..., dict[str, Finding]]:
    """The findings of a stack with this perimeter, by code; egress by endpoints."""

    def of(perimeter: dict[str, Any], name: str = GPU_STACK, **changes: Any) -> dict[str, Finding]:
        gcp = {"service_perimeter": perimeter}
        config = gcp_edited(name, **{"network": {"egress": "endpoints"}, "gcp": gcp, **changes})
        return {finding.code: finding for finding in perimeter_findings(config, plan(config))}

    return of


def perimeters(recorded: Recording) -> list[Any]:
    return [r for r in recorded.resources if r.type.endswith(":ServicePerimeter") and r.type.startswith("gcp:")]


@pytest.mark.parametrize("name", [GPU_STACK, SLICES_STACK])
def test_it_stands_after_all_that_machines_are_in(
    gcp_edited: Edited, recorded: Callable[[StackConfig], Recording], name: str
) -> None:
    """Until Google heeds a new perimeter it may refuse anybody, so `up` makes it last, and destroy takes it first."""
    made = recorded(gcp_edited(name, gcp={"service_perimeter": OWN}))
    (perimeter,) = perimeters(made)
    machines = {"gcp-a3-spot": "InstanceGroupManager", "gcp-v5p-multislice": "QueuedTpuRequest"}[name]
    before = {r.urn for r in made.resources if r.type.endswith((f":{machines}", ":Dashboard"))}
    assert before
    assert before <= perimeter.dependencies
    assert made.result["service_perimeter"] == perimeter.inputs["name"]
    apis = [r.inputs["service"] for r in made.resources if r.type.endswith(":Service")]
    assert "accesscontextmanager.googleapis.com" in apis


@pytest.mark.slow
def test_a_dry_run_is_what_a_stack_gets_that_says_nothing_of_it(
    gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> None:
    assert perimeters(recorded(gcp_edited(GPU_STACK))) == []
    dry = recorded(gcp_edited(GPU_STACK, gcp={"service_perimeter": OWN}))
    assert "spec" in perimeters(dry)[0].inputs
    enforced = recorded(gcp_edited(GPU_STACK, gcp={"service_perimeter": {**OWN, "mode": "enforced"}}))
    assert "status" in perimeters(enforced)[0].inputs


def test_one_that_is_there_is_read_and_not_declared(
    gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> None:
    there = {"access_policy": 330193482019, "existing": "corp"}
    made = recorded(gcp_edited(GPU_STACK, gcp={"service_perimeter": there}))
    assert perimeters(made) == []
    assert made.result["service_perimeter"] == "accessPolicies/330193482019/servicePerimeters/corp"


@pytest.mark.parametrize(
    ("status", "lacks"),
    [
        (SimpleNamespace(resources=["projects/1"], restricted_services=list(RESTRICTED)), ""),
        (SimpleNamespace(resources=["projects/2"], restricted_services=list(RESTRICTED)), "projects/1"),
        (SimpleNamespace(resources=["projects/1"], restricted_services=list(RESTRICTED[1:])), RESTRICTED[0]),
        (None, "storage.googleapis.com"),
    ],
    ids=["holds all", "another project", "a service less", "a dry run alone"],
)
def test_up_ends_where_one_does_not_hold_the_project(monkeypatch: pytest.MonkeyPatch, status: Any, lacks: str) -> None:
    read = SimpleNamespace(title=pulumi.Output.from_input("corp"), status=pulumi.Output.from_input(status))
    monkeypatch.setattr(accesscontextmanager.ServicePerimeter, "get", lambda *_, **__: read)

    def program() -> dict[str, Any]:
        return {"name": read_perimeter("demo", 7, "corp", "1", pulumi.ResourceOptions())}

    if not lacks:
        assert record(program, PlaceholderCloud(), "demo").result["name"].endswith("/corp")
        return
    with pytest.raises(InputError) as refused:
        record(program, PlaceholderCloud(), "demo")
    assert refused.value.place == "gangway:gcp.service_perimeter.existing"
    assert lacks in str(refused.value.allowed)


def test_an_enforced_perimeter_closes_what_it_holds(found: Callable[..., dict[str, Finding]]) -> None:
    ways = found({**OWN, "mode": "enforced"})["network.ways-out"]
    assert ways.message == "data can still leave by DNS: Google's resolver resolves every name"
    reading = found({**OWN, "mode": "enforced", "reads_from": [42]})["network.ways-out"].message
    assert "into registries of 42" in reading


def test_a_dry_run_closes_nothing(found: Callable[..., dict[str, Finding]]) -> None:
    ways = found(OWN)["network.ways-out"]
    assert "into other projects' buckets and registries" in ways.message
    assert "mode: enforced" in ways.fix


def test_what_it_takes_and_was_not_tried_is_said(found: Callable[..., dict[str, Finding]]) -> None:
    dry, enforced = (found({**OWN, "mode": mode})["network.perimeter"] for mode in ("dry-run", "enforced"))
    assert (dry.severity, enforced.severity) == (Severity.INFO, Severity.WARNING)
    for finding in (dry, enforced, found({"access_policy": 7, "existing": "corp"})["network.perimeter"]):
        assert "Untested on a real organisation" in finding.message
        assert "roles/accesscontextmanager." in finding.fix
    assert "one perimeter only" in dry.message


def test_what_machines_read_from_elsewhere_is_named(found: Callable[..., dict[str, Finding]]) -> None:
    digest = "0123456789abcdef" * 4
    image = {"prebuilt": f"us-central1-docker.pkg.dev/images-lab/gan/trainer@sha256:{digest}"}
    region = {"image": image, "region": "us-central1", "cluster": {"zone": "us-central1-a"}}
    outside = found(OWN, **region)
    assert "add the number of images-lab" in outside["network.perimeter-image"].fix
    assert "network.perimeter-image" not in found({**OWN, "reads_from": [42]}, **region)


def test_workflows_are_a_warning_where_it_is_enforced(found: Callable[..., dict[str, Finding]]) -> None:
    assert "network.perimeter-workflow" in found({**OWN, "mode": "enforced"}, SLICES_STACK)
    assert "network.perimeter-workflow" not in found(OWN, SLICES_STACK)


@pytest.mark.parametrize(
    ("perimeter", "place", "fix"),
    [
        ({"access_policy": 7}, "gangway:gcp.service_perimeter", "add operators: [user:YOU@example.com]"),
        ({**OWN, "existing": "corp"}, "gangway:gcp.service_perimeter", "remove operators"),
        ({**OWN, "operators": ["ops@example.com"]}, "gangway:gcp.service_perimeter.operators[0]", "serviceAccount:"),
        ({**OWN, "operators": ["group:ops@example.com"]}, "gangway:gcp.service_perimeter.operators[0]", ""),
        ({**OWN, "mode": "on"}, "gangway:gcp.service_perimeter.mode", ""),
        ({**OWN, "access_levels": ["a/b"]}, "gangway:gcp.service_perimeter.access_levels[0]", ""),
        ({**OWN, "reads_from": [0]}, "gangway:gcp.service_perimeter.reads_from[0]", ""),
    ],
)
def test_bad_input_names_the_place_and_the_fix(
    gcp_edited: Edited, perimeter: dict[str, Any], place: str, fix: str
) -> None:
    with pytest.raises(ExceptionGroup) as refused:
        gcp_edited(GPU_STACK, gcp={"service_perimeter": perimeter})
    (error,) = refused.value.exceptions
    assert isinstance(error, InputError)
    assert error.place.endswith(f": {place}")
    assert fix in f"{error.fix} {error.allowed} {error.problem}"
