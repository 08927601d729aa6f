"""Launch templates: markets and targets that exclude each other, and price caps that reach EC2 unrounded."""

from collections import Counter
from datetime import date
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.launch import (
    HEAD_IMAGE,
    HeadNode,
    InterfacePlan,
    count_efa,
    count_lustre_efa,
    launch_market,
    plan_interfaces,
)
from gangway.components.catalog.loader import load
from gangway.components.catalog.schema import CardRun, EfaFabric, Fact, MachineType
from gangway.components.core.capacity import plan_rung, rung_from_args
from gangway.components.core.findings import InputError
from tests.components.fixture_types import Make

IDS = st.from_regex(r"\Acr-[0-9a-f]{8,17}\Z")
RUNGS = st.one_of(
    st.fixed_dictionaries({"kind": st.sampled_from(["capacity-block", "reservation"]), "id": IDS}),
    st.fixed_dictionaries(
        {
            "kind": st.just("capacity-block"),
            "purchase": st.just(True),
            "offering_id": st.just("cbo-01234567"),
            "upfront_usd": st.floats(1, 1e6),
            "starts_at": st.just("2026-06-30T11:30:00Z"),
            "ends_at": st.just("2026-07-01T11:30:00Z"),
        }
    ),
    st.fixed_dictionaries({"kind": st.just("spot")}, optional={"max_usd_per_hour": st.floats(0.001, 1e4)}),
    st.just({"kind": "on-demand"}),
)


@given(RUNGS)
def test_market_and_reservation_are_what_the_rung_says(rung: dict[str, Any]) -> None:
    bought = "cr-bought" if rung.get("purchase") else None
    market, target = launch_market(plan_rung(rung_from_args(rung)), bought)
    kind = rung["kind"]
    assert (market is not None) == (kind in ("spot", "capacity-block"))
    assert (target is not None) == (kind in ("reservation", "capacity-block"))
    if market is not None:
        assert market.market_type == kind
        assert (market.spot_options is not None) == (kind == "spot"), "spot options belong to spot alone"
    if target is not None:
        reservation: Any = target.capacity_reservation_target
        assert reservation.capacity_reservation_id == (bought or rung["id"])
        assert target.capacity_reservation_preference is None, "a preference excludes a target"


@pytest.mark.parametrize(
    ("cap", "written"), [(25, "25"), (25.5, "25.5"), (0.0125, "0.0125"), (123.456789, "123.456789"), (None, None)]
)
def test_a_price_cap_reaches_ec2_unrounded(cap: float | None, written: str | None) -> None:
    market, _ = launch_market(plan_rung(rung_from_args({"kind": "spot", "max_usd_per_hour": cap})))
    assert market is not None
    options: Any = market.spot_options
    assert options.max_price == written
    assert (options.spot_instance_type, options.instance_interruption_behavior) == ("one-time", "terminate")


MACHINES = [machine for machine in load().machines.values() if machine.provider == "aws"]
EFA_MACHINES = [machine for machine in MACHINES if machine.fabric]


def fact(value: Any) -> Fact[Any]:
    return Fact[Any](value=value, source="a guide", as_of=date(2026, 9, 6), confidence="documented")


def check_layout(fabric: EfaFabric, interfaces: tuple[InterfacePlan, ...]) -> None:
    places = [(i.network_card_index, i.device_index) for i in interfaces]
    efa = [i for i in interfaces if i.interface_type == "efa-only"]
    room = [run.max_interfaces for run in fabric.layout.value for _ in range(run.first, run.last + 1)]
    assert places == sorted(set(places)), "two interfaces in one place, or out of order"
    assert interfaces[0] == InterfacePlan(0, 0, "interface"), "IP traffic needs a plain ENA interface"
    assert max(Counter(i.network_card_index for i in efa).values(), default=0) <= 1, "two EFAs on one card"
    assert len(room) == fabric.num_cards.value
    for card, device in places:
        limit = room[card]
        assert limit is None or device < limit, "EC2 refuses a device index beyond the card's maximum"
    if fabric.max_efa_interfaces.value is not None:
        assert len(efa) == fabric.max_efa_interfaces.value
        assert {card for card, _ in places} == set(range(len(room))), "every card is used, from 0 on"


@pytest.mark.parametrize("machine", EFA_MACHINES, ids=lambda machine: machine.name)
def test_every_machine_of_the_catalogue_keeps_the_rules(machine: MachineType) -> None:
    assert machine.fabric is not None
    check_layout(machine.fabric, plan_interfaces(machine))


@given(st.integers(1, 64), st.booleans(), st.integers(2, 15))
def test_a_machine_that_is_yet_to_come_keeps_them_too(cards: int, efa_on_card_0: bool, room: int) -> None:
    first = CardRun(first=0, last=0, devices=("ena", "efa-only") if efa_on_card_0 else ("ena",), max_interfaces=room)
    further = CardRun(first=1, last=cards - 1, devices=("efa-only",), max_interfaces=room)
    fabric = EfaFabric(
        kind="efa",
        max_efa_interfaces=fact(cards - 1 + efa_on_card_0),
        num_cards=fact(cards),
        layout=fact((first, further) if cards > 1 else (first,)),
    )
    coming = EFA_MACHINES[0].model_copy(update={"fabric": fabric})
    check_layout(fabric, plan_interfaces(coming))
    assert count_efa(coming) == fabric.num_efa_interfaces


@pytest.mark.parametrize(
    ("machine_type", "efa", "total"),
    [
        ("p4d.24xlarge", 4, 5),
        ("p5.48xlarge", 32, 33),
        ("p5.4xlarge", 1, 2),
        ("p5en.48xlarge", 16, 17),
        ("p6-b200.48xlarge", 8, 9),
        ("p6-b300.48xlarge", 16, 17),
        ("p6e-gb200.36xlarge", 4, 5),
        ("trn1.32xlarge", 8, 9),
        ("g6e.48xlarge", 4, 5),
        ("g5.xlarge", 0, 1),
    ],
)
def test_the_number_of_interfaces_is_that_of_the_guide(machine_type: str, efa: int, total: int) -> None:
    machine = load().machine(machine_type)
    assert (count_efa(machine), len(plan_interfaces(machine))) == (efa, total)


def test_p5_is_laid_out_as_the_guide_saves_ip_addresses() -> None:
    interfaces = plan_interfaces(load().machine("p5.48xlarge"))
    assert interfaces[:3] == (
        InterfacePlan(0, 0, "interface"),
        InterfacePlan(0, 1, "efa-only"),
        InterfacePlan(1, 0, "efa-only"),
    )
    assert interfaces[-1] == InterfacePlan(31, 0, "efa-only")


def test_card_0_of_p6_b300_takes_no_efa() -> None:
    interfaces = plan_interfaces(load().machine("p6-b300.48xlarge"))
    assert interfaces[:2] == (InterfacePlan(0, 0, "interface"), InterfacePlan(1, 0, "efa-only"))
    assert all(second.network_card_index - first.network_card_index == 1 for first, second in pairwise(interfaces))


def test_gb200_uses_one_card_of_each_group_that_shares_a_gpu() -> None:
    interfaces = plan_interfaces(load().machine("p6e-gb200.36xlarge"))
    assert [i.network_card_index for i in interfaces] == [0, 1, 5, 9, 13]
    assert {i.device_index for i in interfaces} == {0}


def test_a_machine_without_efa_has_its_one_interface() -> None:
    assert plan_interfaces(load().machine("g5.xlarge")) == (InterfacePlan(0, 0, "interface"),)


def test_a_type_nobody_listed_is_refused_and_the_nearest_named() -> None:
    with pytest.raises(InputError) as caught:
        plan_interfaces(load().machine("p6-b300.48xlrge"))
    assert caught.value.fix == "did you mean 'p6-b300.48xlarge'?"


def run(first: int, last: int, *devices: str, room: int | None = 2) -> dict[str, object]:
    return {"first": first, "last": last, "devices": devices, "max_interfaces": room}


@pytest.mark.parametrize(
    ("layout", "efa", "cards", "why"),
    [
        ([run(0, 0, "ena"), run(2, 3, "efa-only")], 2, 4, "expected to begin at 1"),
        ([run(0, 0, "ena"), run(1, 0, "efa-only")], 0, 1, "expected to begin at 1"),
        ([run(0, 0, "ena", "efa-only", "efa-only", room=4)], 2, 1, "more than one EFA"),
        ([run(0, 0, "ena", "efa-only", room=1)], 1, 1, "more devices than 1"),
        ([run(0, 0, "ena", "efa-only")], 1, 2, "the layout has 1 cards, the machine 2"),
        ([run(0, 0, "efa-only")], 1, 1, "card 0 device 0 must be ena"),
        ([run(0, 0)], 0, 1, "card 0 device 0 must be ena"),
        ([run(0, 0, "ena", "efa-only")], 4, 1, "the layout has 1 EFAs, not 4"),
    ],
)
def test_a_row_that_breaks_a_rule_cannot_be_loaded(
    layout: list[dict[str, object]], efa: int, cards: int, why: str
) -> None:
    about = {"source": "a guide", "as_of": "2026-09-06", "confidence": "documented"}
    row = {
        "kind": "efa",
        "max_efa_interfaces": {"value": efa, **about},
        "num_cards": {"value": cards, **about},
        "layout": {"value": layout, **about},
    }
    with pytest.raises(ValueError, match=why):
        EfaFabric.model_validate(row)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [("p5.48xlarge", 8), ("p6e-gb200.36xlarge", 4), ("g6e.48xlarge", 2), ("g6.8xlarge", 1), ("g5.xlarge", 0)],
)
def test_as_many_interfaces_to_lustre_as_awss_script_sets_up(machine: str, expected: int) -> None:
    assert count_lustre_efa(load().machine(machine)) == expected


def test_no_machine_needs_more_interfaces_to_lustre_than_it_has() -> None:
    assert all(0 < count_lustre_efa(machine) <= count_efa(machine) for machine in EFA_MACHINES)
    assert load().lustre["aws"].efa_client_interfaces.value.keys() <= load().machines.keys()


def test_it_is_closed_and_encrypted(make: Make) -> None:
    made = make(HeadNode)
    inputs = made.one("Instance").inputs
    assert inputs["associatePublicIpAddress"] is False
    assert inputs["metadataOptions"] == {
        "httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1,
    }  # fmt: skip
    assert inputs["vpcSecurityGroupIds"] == ["sg-head"]
    assert made.one("LaunchTemplate").inputs["iamInstanceProfile"] == {"arn": "arn:aws:iam::1:instance-profile/head"}
    assert "keyName" not in inputs, "people come in through Session Manager"


def test_ec2_recovers_it_and_its_user_data_replaces_it(make: Make) -> None:
    inputs = make(HeadNode).one("Instance").inputs
    assert inputs["maintenanceOptions"] == {"autoRecovery": "default"}
    assert (inputs["userDataBase64"], inputs["userDataReplaceOnChange"]) == ("IyE=", True)
    assert "instanceMarketOptions" not in inputs, "on demand: it must outlive the workers"


def test_it_has_a_name(make: Make) -> None:
    record = make(HeadNode).one("Record").inputs
    assert (record["zoneId"], record["name"], record["type"]) == ("Z1", "head.test.gangway.internal", "A")
    assert record["records"] == ["${Instance.demo-head.privateIp}"]


def test_its_tags_tell_it_from_the_workers(make: Make) -> None:
    inputs = make(HeadNode).one("Instance").inputs
    assert inputs["tags"]["gangway:role"] == "head"
    assert inputs["volumeTags"] == inputs["tags"]
    assert inputs["tags"]["gangway:stack"] == "test"


def test_its_disk_stands_in_the_template_for_the_provider_asks_for_the_ami_of_any_other(
    make: Make,
) -> None:
    made = make(HeadNode)
    assert not {"rootBlockDevice", "ebsBlockDevices"} & made.one("Instance").inputs.keys()
    assert made.one("LaunchTemplate").inputs["blockDeviceMappings"] == [
        {
            "deviceName": "/dev/xvda",
            "ebs": {"volumeSize": 60, "volumeType": "gp3", "encrypted": "true", "deleteOnTermination": "true"},
        }
    ]
    ubuntu = make(HeadNode, root_device_name="/dev/sda1", root_volume_gib=100, kms_key_arn="arn:key")
    (disk,) = ubuntu.one("LaunchTemplate").inputs["blockDeviceMappings"]
    assert (disk["deviceName"], disk["ebs"]["volumeSize"], disk["ebs"]["kmsKeyId"]) == ("/dev/sda1", 100, "arn:key")


def test_its_ami_is_resolved_by_ec2_unless_given(make: Make) -> None:
    made = make(HeadNode)
    assert made.one("LaunchTemplate").inputs["imageId"] == HEAD_IMAGE
    assert "ami" not in made.one("Instance").inputs
    chosen = make(HeadNode, image_id="ami-1", machine_type="m7i.large")
    assert chosen.one("LaunchTemplate").inputs["imageId"] == "ami-1"
    assert chosen.one("Instance").inputs["instanceType"] == "m7i.large"
