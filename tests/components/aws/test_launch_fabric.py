"""The interface layout of every machine in the catalogue, against the rules of Amazon's guide."""

from collections import Counter
from datetime import date
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.launch import InterfacePlan, count_efa, count_lustre_efa, plan_interfaces
from gangway.components.catalog.loader import load
from gangway.components.catalog.schema import CardRun, EfaFabric, Fact, MachineType
from gangway.components.core.findings import InputError

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
