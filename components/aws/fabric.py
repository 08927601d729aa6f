"""The network interfaces of an EFA machine, laid out as AWS documents them.

Pure. The layout: card 0 device 0 is a plain ENA interface (it carries IP traffic); where card 0 also carries EFA, its
device 1 is efa-only; every further card has one efa-only interface at device 0. Source: Amazon EC2 user guide,
"Maximize network bandwidth on EFA-enabled instance types".
"""

from dataclasses import dataclass
from typing import Literal

from components.catalog import MachineType

__all__ = ["InterfacePlan", "plan_interfaces"]


@dataclass(frozen=True)
class InterfacePlan:
    """One network interface: which card, which device on it, and whether it is ENA (`interface`) or `efa-only`."""

    network_card_index: int
    device_index: int
    interface_type: Literal["interface", "efa-only"]


def plan_interfaces(machine: MachineType) -> tuple[InterfacePlan, ...]:
    """The interfaces a launch template must declare for `machine`: one ENA plus the catalogue's number of EFAs."""
    interfaces = [InterfacePlan(0, 0, "interface")]
    wanted = machine.efa_interfaces.value
    if wanted and machine.efa_on_card_0.value:
        interfaces.append(InterfacePlan(0, 1, "efa-only"))
    further = wanted - (len(interfaces) - 1)
    return (*interfaces, *(InterfacePlan(card, 0, "efa-only") for card in range(1, further + 1)))
