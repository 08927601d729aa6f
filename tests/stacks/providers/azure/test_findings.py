"""The findings of stacks on Azure: when each appears, and its severity."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from gangway.components.core.findings import Finding, InputError, Severity
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.providers.azure.findings import findings
from gangway.stacks.providers.azure.plan import plan

DEV, V4, V5 = "azure-nc-dev", "azure-ndv4", "azure-ndv5-spot"
OWN_IMAGE = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g/providers/Microsoft.Compute/images/ours"
)
RESERVED = {
    "kind": "reservation",
    "id": OWN_IMAGE.replace("images/ours", "capacityReservationGroups/ours"),
}
PINNED = "microsoft-dsvm:ubuntu-hpc:2404:24.04.2026072901"
Edited = Callable[..., StackConfig]


def found_in(config: StackConfig) -> dict[str, Finding]:
    """The findings about a configuration by their codes, without those about money."""
    return {finding.code: finding for finding in findings(config, plan(config), None)}


def test_the_shipped_stacks_have_no_mistake(azure_plans: dict[str, Plan]) -> None:
    for made in azure_plans.values():
        assert [finding for finding in made.findings if finding.severity is Severity.ERROR] == []


def test_the_ways_out_that_remain_are_named(azure_edited: Edited) -> None:
    found = found_in(azure_edited(V5, network={"egress": "endpoints"}))["network.ways-out"]
    assert (found.severity, found.path) == (Severity.INFO, "gangway:network.egress")
    assert "into any tenant's storage accounts, registries, vaults and log tables" in found.message
    everywhere = found_in(azure_edited(V5, network={"egress": "nat"}))["network.ways-out"]
    assert "machines reach the whole internet" in everywhere.message


def test_the_fabric_and_its_check_are_reported(azure_edited: Edited) -> None:
    found = found_in(azure_edited(V5))
    assert "8 NDR InfiniBand adapters of 400 Gbit/s per node" in found["fabric.ib"].message
    assert "reaches 800 Gbit/s, 0.25 of the fabric's" in found["fabric.check"].message
    assert "fabric.none" not in found
    assert "fabric.check" not in found_in(azure_edited(V5, cluster={"fabric_check": {"enabled": False}}))


def test_machines_without_infiniband_are_a_warning_on_several_nodes(azure_edited: Edited) -> None:
    cluster = {"nodes": {"min": 2, "max": 2}, "fabric_check": {"enabled": True}}
    several = found_in(azure_edited(DEV, cluster=cluster))
    assert several["fabric.none"].severity is Severity.WARNING
    assert "over TCP at 20 Gbit/s" in several["fabric.none"].message
    assert "Standard_NC24ads_A100_v4, without InfiniBand, has no fabric" in several["fabric.check-ignored"].message
    assert several["storage.not-shared"].severity is Severity.ERROR
    alone = found_in(azure_edited(DEV))
    assert not {"fabric.ib", "fabric.none", "fabric.check", "fabric.check-ignored"} & set(alone)
    one = found_in(azure_edited(DEV, cluster={"fabric_check": {"min_fraction": 0.5}}))
    assert "one node has no fabric" in one["fabric.check-ignored"].message


@pytest.mark.parametrize(
    ("machine_type", "code", "why"),
    [
        ("Standard_ND128isr_NDR_GB200_v6", "machine.not-trained-on", "it is arm64"),
        ("Standard_ND96isr_MI300X_v5", "fabric.rocm", "made for CUDA"),
    ],
)
def test_what_nothing_would_train_on(azure_edited: Edited, machine_type: str, code: str, why: str) -> None:
    found = found_in(azure_edited(V5, cluster={"machine_type": machine_type, "image_id": OWN_IMAGE}))
    assert found[code].severity is Severity.ERROR
    assert why in found[code].message


def test_the_addresses_of_azures_rdma_network(azure_edited: Edited) -> None:
    found = found_in(azure_edited(V5, network={"cidr": "172.16.0.0/16"}))
    assert (found["fabric.rdma-range"].severity, found["fabric.rdma-range"].path) == (
        Severity.ERROR,
        "gangway:network.cidr",
    )


def test_an_image_that_moves_can_be_pinned(azure_edited: Edited) -> None:
    found = found_in(azure_edited(V5))
    assert "microsoft-dsvm:ubuntu-hpc:2404:VERSION" in found["image.newest"].fix
    assert "fabric.own-image" not in found
    pinned = found_in(azure_edited(V5, cluster={"image_id": "microsoft-dsvm:ubuntu-hpc:2404:24.04.2026010101"}))
    assert not {"image.newest", "fabric.own-image"} & set(pinned), "it is Azure's HPC image all the same"
    written = found_in(azure_edited(V5, cluster={"image_id": "microsoft-dsvm:ubuntu-hpc:2404:latest"}))
    assert "microsoft-dsvm:ubuntu-hpc:2404:VERSION" in written["image.newest"].fix
    own = found_in(azure_edited(V5, cluster={"image_id": OWN_IMAGE}))
    assert "image.newest" not in own
    assert "your image must hold /etc/nccl.conf" in own["fabric.own-image"].message


def test_a_root_disk_that_is_small(azure_edited: Edited) -> None:
    found = found_in(azure_edited(V5, cluster={"root_volume_gib": 128}))
    assert found["machine.root-disk"].severity is Severity.WARNING
    assert "set root_volume_gib: 256" in found["machine.root-disk"].fix
    assert "machine.root-disk" not in found_in(azure_edited(V5))
    assert "machine.root-disk" not in found_in(azure_edited(DEV, cluster={"root_volume_gib": 128}))


@pytest.mark.parametrize(
    ("name", "cluster", "code", "why"),
    [
        (V4, {}, "machine.trusted-launch-off", "Standard_ND96asr_v4"),
        (V5, {}, "machine.secure-boot-off", "signed by nobody"),
        (V5, {"image_id": OWN_IMAGE}, "machine.secure-boot-off", "taken to be unsigned"),
        (DEV, {}, "machine.secure-boot-off", "signed by nobody"),
        (DEV, {"image_id": PINNED}, "machine.secure-boot-off", "signed by nobody"),
        (DEV, {"image_id": OWN_IMAGE}, "", ""),
    ],
)
def test_a_protection_that_is_off_has_its_reason(
    azure_edited: Edited, name: str, cluster: Any, code: str, why: str
) -> None:
    found = found_in(azure_edited(name, cluster=cluster))
    off = {"machine.trusted-launch-off", "machine.secure-boot-off"} & set(found)
    assert off == ({code} if code else set())
    assert not code or why in found[code].message
    assert "--name EncryptionAtHost" in found["machine.encryption-at-host"].fix


def test_an_own_image_that_boots_securely_may_lack_a_driver(azure_edited: Edited) -> None:
    """Nobody has looked at its modules: an unsigned driver would cost every node."""

    def found(**azure: bool) -> dict[str, Finding]:
        return found_in(azure_edited(DEV, cluster={"image_id": OWN_IMAGE}, azure=azure))

    unsaid = found()["machine.secure-boot"]
    assert (unsaid.severity, unsaid.path) == (Severity.WARNING, "gangway:azure.secure_boot")
    assert "modinfo -F signer nvidia" in unsaid.fix
    assert not {"machine.secure-boot", "machine.secure-boot-off"} & set(found(secure_boot=True))
    assert "as written" in found(secure_boot=False)["machine.secure-boot-off"].message
    assert "machine.secure-boot" not in found_in(azure_edited(DEV, cluster={"image_id": PINNED}))
    signed = azure_edited(V5, cluster={"image_id": OWN_IMAGE}, azure={"secure_boot": True})
    assert plan(signed).security.secure_boot, "with InfiniBand and Lustre, as its owner says"


def test_a_lustre_client_may_cost_secure_boot(azure_edited: Edited) -> None:
    storage = {"kind": "lustre", "capacity_gib": 4096, "throughput_mbps_per_tib": 500}
    found = found_in(azure_edited(DEV, cluster={"image_id": OWN_IMAGE}, storage=storage))
    assert "no Lustre client for the kernel" in found["machine.secure-boot-off"].message


def test_a_protection_that_is_turned_off_says_what_is_lost(azure_edited: Edited) -> None:
    guarded = found_in(azure_edited(DEV))
    assert "az vm image show --urn microsoft-dsvm:ubuntu-hpc:2404:latest" in guarded["machine.trusted-launch"].fix
    assert "EncryptionAtHostSupported" in guarded["machine.encryption-at-host"].message
    assert "set encryption_at_host: false" in guarded["machine.encryption-at-host"].fix
    found = found_in(azure_edited(DEV, azure={"trusted_launch": False, "encryption_at_host": False}))
    boot, disks = found["machine.trusted-launch-off"], found["machine.encryption-at-host-off"]
    assert (boot.severity, boot.path) == (Severity.WARNING, "gangway:azure.trusted_launch")
    assert (disks.severity, disks.path) == (Severity.WARNING, "gangway:azure.encryption_at_host")
    assert "without a virtual TPM" in boot.message
    what = "caches and local disks of nodes and head, and the traffic to their disks, are not encrypted"
    assert what in disks.message
    assert not {"machine.trusted-launch", "machine.encryption-at-host", "machine.secure-boot-off"} & set(found)


def test_an_unlisted_region_names_the_command_that_shows_its_sizes(azure_edited: Edited) -> None:
    assert "machine.region-unknown" not in found_in(azure_edited(V5))
    found = found_in(azure_edited(V5, region="francecentral"))["machine.region-unknown"]
    assert (found.severity, found.path) == (Severity.WARNING, "gangway:region")
    assert "has it in australiaeast, canadacentral" in found.message
    assert "az vm list-skus --location francecentral --size Standard_ND96isr_H100_v5" in found.fix


def test_a_size_that_microsoft_adds_no_more_of(azure_edited: Edited) -> None:
    assert "only of the next generation" in found_in(azure_edited(DEV))["machine.no-new-capacity"].message
    assert "machine.no-new-capacity" not in found_in(azure_edited(V5))


def test_a_cap_that_caps_nothing(azure_edited: Edited) -> None:
    capped = found_in(azure_edited(V5, cluster={"capacity": [{"kind": "spot", "max_usd_per_hour": 500}]}))
    found = capped["capacity.spot-cap-high"]
    assert (found.severity, found.path) == (Severity.WARNING, "gangway:cluster.capacity[0].max_usd_per_hour")
    assert "500 USD is above the on-demand price, 98.32 USD" in found.message
    usual = azure_edited(V5, cluster={"capacity": [{"kind": "spot", "max_usd_per_hour": 50}]})
    assert "capacity.spot-cap-high" not in found_in(usual)


def test_an_automatic_zone_is_reported(azure_edited: Edited) -> None:
    found = found_in(azure_edited(V4))
    assert "zone 1 chosen: the first of southcentralus" in found["placement.zone"].message
    assert "file system and head are in zone 1" in found["placement.nodes-zone"].message
    assert "capacity.zone-unpublished" not in found, "scale sets with InfiniBand name none"
    written = found_in(azure_edited(V4, cluster={"zone": "1"}))
    assert "az vm list-skus --location southcentralus" in written["capacity.zone-unpublished"].message
    assert "placement.nodes-zone" not in written
    assert "if Azure refuses it" in written["placement.zone-with-fabric"].fix
    assert "Azure chooses a zone of eastus" in found_in(azure_edited(DEV))["placement.zone"].message
    assert "placement.zone" not in found_in(azure_edited(V5))
    assert "placement.zone" not in found_in(azure_edited(V4, region="westus"))


def test_spot_has_a_notice_and_a_cap(azure_edited: Edited) -> None:
    assert "30 s of notice" in found_in(azure_edited(V5))["capacity.notice"].message
    assert "capacity.notice" not in found_in(azure_edited(V4))
    capped = found_in(azure_edited(DEV, cluster={"capacity": [{"kind": "spot", "max_usd_per_hour": 0.1}]}))
    assert capped["capacity.spot-cap-low"].severity is Severity.ERROR
    behind = [{"kind": "spot", "max_usd_per_hour": 0.1}, {"kind": "on-demand"}]
    capped = found_in(azure_edited(DEV, cluster={"capacity": behind}))
    assert capped["capacity.spot-cap-low"].severity is Severity.WARNING
    assert "capacity.spot-cap-low" not in found_in(azure_edited(DEV))


def test_the_head_sets_the_sizes(azure_edited: Edited) -> None:
    assert "pulumi up --refresh" in found_in(azure_edited(V4))["capacity.head-fills"].fix


@pytest.mark.parametrize(("nodes", "severity"), [(100, None), (101, Severity.WARNING), (300, Severity.WARNING)])
def test_how_far_infiniband_reaches(azure_edited: Edited, nodes: int, severity: Severity | None) -> None:
    found = found_in(azure_edited(V5, cluster={"nodes": {"min": 2, "max": nodes}})).get("capacity.placement-group-size")
    assert (None if found is None else found.severity) == severity


def test_rungs_of_infiniband_are_apart(azure_edited: Edited) -> None:
    assert "capacity.rungs-apart" in found_in(azure_edited(V5))
    assert "capacity.rungs-apart" not in found_in(azure_edited(V4))


def test_quotas_are_reported_by_family(azure_edited: Edited) -> None:
    config = azure_edited(V5)
    quotas = [f.message for f in findings(config, plan(config), None) if f.code == "capacity.quota"]
    names = ("Total Regional Low-priority vCPUs", "Standard NDSH100v5 Family vCPUs", "Standard DSv5 Family vCPUs",
             "Total Regional vCPUs")  # fmt: skip
    assert [[name for name in names if repr(name) in text] for text in quotas] == [[name] for name in names]


def test_the_way_out_has_to_lead_to_packages(azure_edited: Edited) -> None:
    found = found_in(azure_edited(V4, network={"egress": "endpoints"}))["network.head-no-packages"]
    assert (found.severity, found.fix[:15]) == (Severity.ERROR, "set egress: nat")
    assert "network.head-no-packages" not in found_in(azure_edited(V4))


def test_private_endpoints_leave_log_tables_alone(azure_edited: Edited) -> None:
    image = "/subscriptions/11111111-0000-0000-0000-111111111111/resourceGroups/g/providers/Microsoft.Compute/images/h"
    closed = {"network": {"egress": "endpoints"}, "azure": {"private_endpoints": True, "head_image": image}}
    found = found_in(azure_edited(V4, **closed))
    assert "network.head-no-packages" not in found
    assert "into any tenant's log tables" in found["network.ways-out"].message
    assert "storage accounts" not in found["network.ways-out"].message
    with pytest.raises(InputError, match="head_image"):
        plan(azure_edited(V4, azure={"head_image": "ubuntu"}))


def test_data_behind_the_file_system(azure_edited: Edited) -> None:
    found = found_in(azure_edited(V5))
    assert "later blobs do not appear" in found["storage.imported-once"].message
    assert "read and write all of myaccount, not only images" in found["storage.whole-account"].message
    assert not {"storage.imported-once", "storage.whole-account", "storage.key-stays"} & set(found_in(azure_edited(V4)))


def test_a_customer_key(azure_edited: Edited) -> None:
    assert "keeps the key version of its creation" in found_in(azure_edited(V5))["storage.key-stays"].message
    tenant = {"tenant_id": "22222222-0000-0000-0000-222222222222"}
    without = azure_edited(DEV, encryption="customer-key", azure=tenant)
    assert "storage.key-stays" not in found_in(without), "there is no file system"
    assert "`destroy` keeps vault, key" in found_in(without)["encryption.key-kept"].message
    assert "encryption.key-kept" not in found_in(azure_edited(V4))


def test_money(azure_edited: Edited) -> None:
    found = found_in(azure_edited(V4))
    assert "Azure takes 50,000.00 in your billing currency" in found["budget.currency"].message
    assert "budget.late" not in found
    assert found["job.nodes-stay"].severity is Severity.INFO
    stopped = found_in(azure_edited(V5))
    assert "no hard limit" in stopped["budget.late"].message
    assert "job.nodes-stay" not in stopped


def month(ahead: int) -> str:
    """The first of a month, `ahead` of December 2030."""
    years, months = divmod(11 + ahead, 12)
    return str(date(2030 + years, months + 1, 1))


@pytest.mark.parametrize(
    ("ahead", "code", "severity"),
    [
        (None, "budget.start", Severity.INFO),
        (-80, "budget.began", Severity.WARNING),
        (-1, "budget.began", Severity.WARNING),
        (0, None, None),
        (1, None, None),
        (12, None, None),
        (13, "budget.too-far", Severity.ERROR),
        (14, "budget.too-far", Severity.ERROR),
    ],
)
def test_when_a_budget_may_begin(
    azure_edited: Edited,
    monkeypatch: pytest.MonkeyPatch,
    ahead: int | None,
    code: str | None,
    severity: Severity | None,
) -> None:
    """A past one is a warning: the stack that stands keeps it, and its plan is no failure in later months."""
    monkeypatch.setattr("gangway.stacks.providers.azure.findings.this_month", lambda: date(2030, 12, 1))
    starts_on = None if ahead is None else month(ahead)
    all_found = found_in(azure_edited(V4, azure={"budget_starts_on": starts_on}))
    codes = ("budget.began", "budget.start", "budget.too-far")
    found = {key: finding for key, finding in all_found.items() if key in codes}
    assert list(found) == ([code] if code else [])
    for finding in found.values():
        assert (finding.severity, finding.path) == (severity, "gangway:azure.budget_starts_on")
        fixes = {"budget.began": "remove budget_starts_on: ", "budget.too-far": "set budget_starts_on: '2030-12-01'"}
        assert finding.fix.startswith(fixes.get(finding.code, ""))


@pytest.mark.parametrize(
    ("cluster", "code", "text"),
    [
        ({"nodes": {"min": 2, "max": 2}}, "placement.proximity", "nodes are in one data centre"),
        ({"nodes": {"min": 1, "max": 1}}, "placement.proximity-ignored", "one node"),
        (
            {"nodes": {"min": 2, "max": 2}, "capacity": [RESERVED]},
            "placement.proximity-ignored",
            "nodes that are reserved",
        ),
        (
            {"nodes": {"min": 2, "max": 2}, "capacity": [RESERVED, {"kind": "spot"}]},
            "placement.proximity",
            "except those of rung 0,",
        ),
    ],
)
def test_nodes_in_one_data_centre(azure_edited: Edited, cluster: dict[str, Any], code: str, text: str) -> None:
    found = found_in(azure_edited(DEV, cluster=cluster, azure={"proximity": True}))
    assert text in found[code].message
    assert found[code].severity is (Severity.INFO if code == "placement.proximity" else Severity.WARNING)
    without = found_in(azure_edited(DEV, cluster=cluster))
    assert not {"placement.proximity", "placement.proximity-ignored"} & set(without)


def test_whom_a_bastion_lets_in(azure_edited: Edited) -> None:
    found = found_in(azure_edited(V4, azure={"bastion": True}))["network.bastion"]
    assert "Virtual Machine User Login" in found.message
    assert "network.bastion" not in found_in(azure_edited(V4))
