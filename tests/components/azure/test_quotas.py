"""The quotas of a ladder and of the head: each once, with what nodes take of it."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from gangway.components.azure.capacity import OFFERED, rung_from_args
from gangway.components.azure.quotas import HEAD_QUOTAS, REGIONAL_QUOTA, SPOT_QUOTA, QuotaContext, ladder_quotas
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import AzureMachineType
from gangway.components.core.findings import Finding

MACHINES = cast("dict[str, AzureMachineType]", load_provider("azure").machines)
H100 = "Standard_ND96isr_H100_v5"
RESERVED: dict[str, Any] = {"kind": "reservation", "id": "/subscriptions/s/ours"}
SPOT, ON_DEMAND = {"kind": "spot"}, {"kind": "on-demand"}
FAMILY = "Standard NDSH100v5 Family vCPUs"


def find(rungs: Sequence[dict[str, Any]], machine_type: str = H100, head_type: str | None = None) -> list[Finding]:
    context = QuotaContext("eastus", 4, head_type)
    return list(ladder_quotas([rung_from_args(rung) for rung in rungs], MACHINES[machine_type], context))


@pytest.mark.parametrize(
    ("rungs", "quotas"),
    [
        ([SPOT, ON_DEMAND, SPOT], ["[0]", SPOT_QUOTA, "[1]", FAMILY, "", REGIONAL_QUOTA]),
        ([ON_DEMAND, ON_DEMAND], ["[0]", FAMILY, "", REGIONAL_QUOTA]),
        ([SPOT], ["[0]", SPOT_QUOTA]),
    ],
)
def test_each_quota_is_told_once(rungs: list[dict[str, Any]], quotas: list[str]) -> None:
    told = find(rungs)
    assert [finding.path for finding in told] == [f"gangway:cluster.capacity{place}" for place in quotas[::2]]
    for finding, quota in zip(told, quotas[1::2], strict=True):
        assert finding.message.startswith(f"384 vCPUs of the quota {quota!r} in eastus, for 4 nodes")
        assert "`az vm list-usage --location eastus" in finding.message


@pytest.mark.parametrize("machine_type", sorted(MACHINES))
def test_every_machine_names_a_quota_or_a_reason_on_every_kind_of_rung(machine_type: str) -> None:
    for rung in (RESERVED, SPOT, ON_DEMAND):
        first = find([rung], machine_type)[0]
        assert first.path == "gangway:cluster.capacity[0]"
        needs = f"{MACHINES[machine_type].vcpus.value * 4:,} vCPUs of the quota"
        assert first.message.startswith("no quota: " if rung is RESERVED else needs)
    assert {"reservation", "spot", "on-demand"} == set(OFFERED)


def test_the_head_has_a_quota_of_its_own_and_counts_in_the_regions() -> None:
    spot, head, region = find([SPOT], head_type="Standard_D4s_v5")
    assert (head.path, region.path) == ("gangway:head.machine_type", "gangway:cluster.capacity")
    assert head.message.startswith("4 vCPUs of the quota 'Standard DSv5 Family vCPUs' in eastus, for the head node")
    assert region.message.startswith("4 vCPUs of the quota 'Total Regional vCPUs' in eastus, for the head node")
    assert "the portal calls it Total Regional Spot vCPUs" in spot.message
    both = find([ON_DEMAND], head_type="Standard_D4s_v5")[-1]
    assert both.message.startswith("388 vCPUs of the quota 'Total Regional vCPUs' in eastus, for 4 nodes on demand and")


def test_every_head_that_the_catalogue_knows_has_a_quota() -> None:
    services = load_provider("azure").get_services("azure")
    assert {name.removeprefix("instance-") for name in services if name.startswith("instance-")} == set(HEAD_QUOTAS)


@pytest.mark.parametrize(
    ("machine_type", "query"),
    [
        ("Standard_ND96isr_H200_v5", " --query \"[?name.value=='standardNDISRH200V5Family']\""),
        (H100, ""),
    ],
)
def test_a_quota_that_nobody_has_seen_printed_is_looked_up_by_azures_own_word(machine_type: str, query: str) -> None:
    found = find([ON_DEMAND], machine_type)[0]
    assert f"`az vm list-usage --location eastus{query}` shows the limit" in found.message


def test_every_quota_family_has_been_seen_somewhere() -> None:
    """By what is printed, or by what `az vm list-skus` calls it: never from memory."""
    families = [machine.quota_family for machine in MACHINES.values()]
    assert {family.confidence for family in families} == {"documented"}
    assert all(family.value.endswith("vCPUs") or family.value.startswith("standard") for family in families)
