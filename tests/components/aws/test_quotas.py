"""Service Quotas: every machine of the catalogue on every kind of rung, the table's codes, and what is beside nodes."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from gangway.components.aws.capacity import OFFERED, rung_from_args
from gangway.components.aws.eks_nodes import SYSTEM_MACHINE
from gangway.components.aws.launch import plan_interfaces
from gangway.components.aws.quotas import (
    QuotaContext,
    helper_quota,
    ladder_quotas,
    load_quotas,
    network_quotas,
    storage_quota,
)
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import MachineType
from gangway.components.core.fields import Egress

CATALOG = load_provider("aws")
MACHINES = list(CATALOG.machines.values())
CONTEXT = QuotaContext("us-east-2", 4)
RUNGS: dict[str, dict[str, Any]] = {
    "capacity-block": {"kind": "capacity-block", "id": "cr-0123456789abcdef0"},
    "reservation": {"kind": "reservation", "id": "cr-0123456789abcdef0"},
    "spot": {"kind": "spot"},
    "on-demand": {"kind": "on-demand"},
}
PURCHASE: dict[str, Any] = {
    "kind": "capacity-block",
    "purchase": True,
    "offering_id": "cbo-0123456789abcdef0",
    "upfront_usd": 16000,
    "starts_at": "2026-12-01T11:30:00Z",
    "ends_at": "2026-12-02T11:30:00Z",
}


def messages(machine: MachineType, rungs: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Place and words of each finding."""
    found = ladder_quotas([rung_from_args(rung) for rung in rungs], machine, CONTEXT)
    return [(one.path.removeprefix("gangway:cluster.capacity"), one.message) for one in found]


def get_machine(name: str) -> MachineType:
    return CATALOG.machine(name, "machine_type")


NEED = re.compile(r"([\d,]+) vCPUs of the quota (L-\w+) \((.*)\) in us-east-2, for 4 nodes; ")


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_machine_names_a_quota_or_a_reason_on_every_kind_of_rung(machine: MachineType) -> None:
    assert set(RUNGS) == set(OFFERED)
    for kind, rung in RUNGS.items():
        ((path, message),) = messages(machine, [rung])
        assert path == "[0]"
        if kind in ("capacity-block", "reservation"):
            assert message.startswith("no quota: ")
            continue
        need = NEED.match(message)
        assert need is not None, message
        assert need[1] == f"{machine.vcpus.value * 4:,}"
        assert need[3] == load_quotas().quotas[need[2]].name.value
        assert need[3].startswith("All " if kind == "spot" else "Running On-Demand ")
        assert re.search(rf"\b{machine.name[0].upper()}", need[3].removeprefix("All ")), "of another family"


def test_spot_and_on_demand_are_counted_apart_and_nothing_twice() -> None:
    found = messages(get_machine("p5.48xlarge"), [RUNGS["spot"], RUNGS["on-demand"], RUNGS["spot"]])
    assert [path for path, _ in found] == ["[0]", "[1]"]
    assert "768 vCPUs of the quota L-7212CCBC (All P Spot Instance Requests)" in found[0][1]
    assert "768 vCPUs of the quota L-417A185B (Running On-Demand P instances)" in found[1][1]


def test_the_largest_type_of_all_rungs_counts() -> None:
    further = {**RUNGS["on-demand"], "machine_types": ["g5.48xlarge"]}
    (found,) = messages(get_machine("g5.xlarge"), [RUNGS["on-demand"], further])
    assert found[0] == "[1]"
    assert found[1].startswith("768 vCPUs of the quota L-DB2E81BA")


def test_spot_of_p5_names_the_quota_that_it_had_before() -> None:
    assert "still lists L-C4BD4855 counts p5en there" in messages(get_machine("p5en.48xlarge"), [RUNGS["spot"]])[0][1]
    assert "L-C4BD4855" not in messages(get_machine("p4d.24xlarge"), [RUNGS["spot"]])[0][1]
    assert "L-C4BD4855" not in messages(get_machine("p5en.48xlarge"), [RUNGS["on-demand"]])[0][1]


def test_a_block_counts_when_it_is_bought() -> None:
    bought = messages(get_machine("p5.48xlarge"), [PURCHASE])[0][1]
    assert bought.startswith("768 vCPUs of the quota L-DA6814F2 (Concurrent P5 Capacity Blocks per account)")
    assert "when it was bought" in messages(get_machine("p5.48xlarge"), [RUNGS["capacity-block"]])[0][1]
    assert "none for capacity blocks of g5" in messages(get_machine("g5.xlarge"), [PURCHASE])[0][1]


def test_a_reservation_says_which_quota_it_took_its_share_of() -> None:
    assert (
        "L-2C3B7624 (Running On-Demand Trn instances)"
        in messages(get_machine("trn1.32xlarge"), [RUNGS["reservation"]])[0][1]
    )


def test_the_table_is_whole_and_its_codes_have_the_form() -> None:
    table = load_quotas()
    used = {
        *(code for row in table.instances for code in (row.on_demand, row.spot)),
        *table.former_spot.values(),
        *table.blocks.values(),
        *table.lustre.values(),
        *("L-F678F1CE", "L-FE5A380F", "L-0263D0A3", "L-DF5E4CA3"),
    }
    assert used == set(table.quotas)
    assert all(re.fullmatch(r"L-[0-9A-F]{8}", code) for code in used)
    families = {machine.name.partition(".")[0] for machine in MACHINES}
    assert set(table.blocks) | set(table.former_spot) <= families
    assert all(quota.name.seen_on for quota in table.quotas.values()), "a source without a day"
    letters = [each for row in table.instances for each in row.letters]
    assert len(letters) == len(set(letters))


def test_every_head_and_system_machine_counts_as_a_standard_one() -> None:
    services = CATALOG.get_services("aws")
    heads = {name.removeprefix("instance-") for name in services if name.startswith("instance-")}
    assert heads | {SYSTEM_MACHINE} == set(load_quotas().helper_vcpus)
    for name in heads:
        message = helper_quota("gangway:head.machine_type", name, 3, "heads", CONTEXT).message
        assert message.startswith("6 vCPUs of the quota L-1216C47A (Running On-Demand Standard ")


def test_the_network_counts_its_way_out_and_the_interfaces_of_efa() -> None:
    p5, g5 = get_machine("p5.48xlarge"), get_machine("g5.xlarge")
    assert len(list(network_quotas(g5, Egress.ENDPOINTS, CONTEXT))) == 1
    assert len(list(network_quotas(g5, Egress.NAT, CONTEXT))) == 3
    interfaces = list(network_quotas(p5, Egress.NAT, CONTEXT))[-1].message
    assert interfaces.startswith(
        f"{4 * len(plan_interfaces(p5))} of the quota L-DF5E4CA3 (Network interfaces per Region)"
    )


def test_a_file_system_counts_by_its_deployment() -> None:
    assert storage_quota("persistent", 9600, CONTEXT).message.startswith("9,600 GiB of the quota L-8F1B9C74")
    assert storage_quota("scratch", 1200, CONTEXT).message.startswith("1,200 GiB of the quota L-AD2FC696")


def test_the_commands_are_of_the_quotas_service_and_region() -> None:
    (found,) = ladder_quotas([rung_from_args(RUNGS["spot"])], get_machine("g6e.12xlarge"), CONTEXT)
    which = "--region us-east-2 --service-code ec2 --quota-code L-3819A6DF"
    assert f"`aws service-quotas get-service-quota {which} --query Quota.Value` shows the limit" in found.message
    assert f"`aws service-quotas request-service-quota-increase {which} --desired-value 192`" in found.fix
    assert "--service-code fsx" in storage_quota("scratch", 1200, CONTEXT).message


@pytest.mark.parametrize("kind", RUNGS)
def test_a_machine_of_an_unknown_family_is_said_to_have_no_known_quota(kind: str) -> None:
    """As one that the user has added to the catalogue."""
    mine = MACHINES[0].model_copy(update={"name": "x900.48xlarge"})
    (finding,) = ladder_quotas([rung_from_args(RUNGS[kind])], mine, CONTEXT)
    assert "x900 machines is not known" in finding.message


def test_a_head_of_an_unknown_type_is_said_to_have_no_known_quota() -> None:
    assert "not known" in helper_quota("gangway:head.machine_type", "x900.small", 1, "the head", CONTEXT).message
