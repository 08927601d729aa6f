"""The network interfaces of an EFA machine: the catalogue's documented layout, written out device by device.

Pure. Which layout a machine has is data (`catalog/aws/machines.yaml`, from the Amazon EC2 user guide, "Maximize network
bandwidth on instances with multiple network cards"), checked when it is loaded; nothing is derived from a machine's
name, because layouts differ: card 0 of p6-b300 takes no EFA, p6e-gb200 leaves cards unused.
"""

from dataclasses import dataclass
from typing import Literal

from components.catalog import CardRun, Device, EfaFabric, MachineType, load

__all__ = ["InterfacePlan", "count_efa", "count_lustre_efa", "plan_interfaces"]

InterfaceType = Literal["interface", "efa-only"]


@dataclass(frozen=True)
class InterfacePlan:
    """One network interface: which card, which device on it, and whether it is ENA (`interface`) or `efa-only`."""

    network_card_index: int
    device_index: int
    interface_type: InterfaceType


def plan_interfaces(machine: MachineType) -> tuple[InterfacePlan, ...]:
    """The interfaces a launch template must declare for `machine`; one plain ENA where it has no EFA."""
    if not isinstance(machine.fabric, EfaFabric):
        return (InterfacePlan(0, 0, "interface"),)
    return tuple(interface for run in machine.fabric.layout.value for interface in _on_cards(run))


def count_efa(machine: MachineType) -> int:
    """The EFA interfaces among those planned."""
    return sum(interface.interface_type == "efa-only" for interface in plan_interfaces(machine))


def count_lustre_efa(machine: MachineType) -> int:
    """How many of them AWS's script gives to an FSx for Lustre client, and so has to bring up; 0 without EFA."""
    if not isinstance(machine.fabric, EfaFabric):
        return 0
    listed = load().lustre["aws"].efa_client_interfaces.value
    usual = 2 if machine.fabric.num_cards.value > 1 else 1
    return min(listed.get(machine.name, usual), count_efa(machine))


def _on_cards(run: CardRun) -> tuple[InterfacePlan, ...]:
    return tuple(
        InterfacePlan(card, index, _interface_type(device))
        for card in range(run.first, run.last + 1)
        for index, device in enumerate(run.devices)
    )


def _interface_type(device: Device) -> InterfaceType:
    return "interface" if device == "ena" else "efa-only"
