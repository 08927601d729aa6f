"""The interface layout of every machine in the catalogue, against the rules of Amazon's guide."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.aws.fabric import InterfacePlan, plan_interfaces
from components.catalog import Fact, MachineType, load

MACHINES = [machine for machine in load().machines.values() if machine.provider == "aws"]


def check_layout(machine: MachineType, interfaces: tuple[InterfacePlan, ...]) -> None:
    places = [(i.network_card_index, i.device_index) for i in interfaces]
    efa = [i for i in interfaces if i.interface_type == "efa-only"]
    assert len(set(places)) == len(places), "two interfaces in one place"
    assert interfaces[0] == InterfacePlan(0, 0, "interface"), "IP traffic needs a plain ENA interface"
    assert [i for i in interfaces if i.interface_type == "interface"] == [interfaces[0]]
    assert max(Counter(i.network_card_index for i in efa).values(), default=0) <= 1, "two EFAs on one card"
    assert len(efa) == machine.efa_interfaces.value
    assert all(0 <= i.network_card_index < machine.network_cards.value for i in interfaces)
    assert all(i.device_index == (1 if i.network_card_index == 0 else 0) for i in efa)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_machine_of_the_catalogue_keeps_the_rules(machine: MachineType) -> None:
    check_layout(machine, plan_interfaces(machine))


@given(st.sampled_from(MACHINES), st.integers(0, 64), st.booleans())
def test_a_machine_that_is_yet_to_come_keeps_them_too(machine: MachineType, efa: int, on_card_0: bool) -> None:
    def fact(value: int) -> Fact[int]:
        return machine.network_cards.model_copy(update={"value": value})

    coming = machine.model_copy(
        update={
            "efa_interfaces": fact(efa),
            "network_cards": fact(max(1, efa if on_card_0 else efa + 1)),
            "efa_on_card_0": machine.efa_on_card_0.model_copy(update={"value": on_card_0}),
        }
    )
    check_layout(coming, plan_interfaces(coming))


def test_p5_has_exactly_33_interfaces() -> None:
    interfaces = plan_interfaces(load().machine("p5.48xlarge"))
    assert len(interfaces) == 33
    assert interfaces[:3] == (
        InterfacePlan(0, 0, "interface"),
        InterfacePlan(0, 1, "efa-only"),
        InterfacePlan(1, 0, "efa-only"),
    )
    assert interfaces[-1] == InterfacePlan(31, 0, "efa-only")


def test_a_machine_without_efa_has_its_one_interface() -> None:
    assert plan_interfaces(load().machine("g5.xlarge")) == (InterfacePlan(0, 0, "interface"),)
