"""What the launcher knows and the trainer cannot: which stack, which machines, at which price, on which grid.

Travels to the trainer in the job's environment (GANGWAY_CONTEXT, JSON) and from there into the run record, each value
as a Figure with its provenance. Pure; measures nothing.
"""

import os

from components.catalog import Fact, MachinePrice, MachineType, Region
from components.energy import UTILISATION, UTILISATION_SOURCE
from stacks.config import StackConfig
from trainer.record import Figure, RunContext

__all__ = ["cloud_context", "local_context"]


def cloud_context(
    config: StackConfig,
    machine: MachineType,
    region: Region,
    price: MachinePrice | None,
    image_digest: str,
    num_nodes: int | None = None,
) -> RunContext:
    """The context of a run in the cloud. Dollars are of the first rung: what fallback nodes cost, the bill will say.

    Args:
        config: the stack.
        machine: one node, as the trainer counts nodes: what runs one launcher.
        region: where it is.
        price: of such a node.
        image_digest: of the trainer's image.
        num_nodes: how many of them; the stack's own number when left out.
    """
    kinds = tuple(rung.kind for rung in config.cluster.capacity)
    return RunContext(
        stack=config.stack,
        provider=config.provider,
        region=region.name,
        machine_type=machine.name,
        capacity=kinds,
        num_nodes=config.cluster.nodes.max if num_nodes is None else num_nodes,
        image_digest=image_digest,
        usd_per_hour=_price(kinds[0], price),
        accelerator_watts=_figure(machine.accelerator_watts, "W"),
        accelerator_utilisation=Figure(value=UTILISATION, unit="1", provenance="assumed", source=UTILISATION_SOURCE),
        host_watts=_figure(machine.host_watts, "W"),
        fabric_gbps=_figure(machine.network_gbps, "Gbit/s", note="nominal, of one node"),
        pue=_figure(region.pue, "1"),
        intensity_g_per_kwh=_figure(region.intensity_g_per_kwh, "gCO2e/kWh"),
    )


def local_context(stack: str, run_id: str) -> RunContext:
    """The context of a run on this machine, about whose bill and grid nothing is known."""
    return RunContext(
        run_id=run_id,
        stack=stack,
        provider="local",
        region="this machine",
        machine_type=f"{os.cpu_count()} CPU cores",
        usd_per_hour=Figure.absent("USD/h", "nobody bills this machine; the plan estimates the cloud's bill"),
        pue=Figure(value=1.0, unit="1", provenance="assumed", source="no data centre around this machine"),
        intensity_g_per_kwh=Figure(
            value=480.0,
            unit="gCO2e/kWh",
            provenance="assumed",
            source="world average, Ember Global Electricity Review 2024 (for 2023); this machine's grid is not known",
            as_of="2024-05-08",
        ),
    )


def _price(kind: str, price: MachinePrice | None) -> Figure:
    fact = None if price is None else {"spot": price.spot_high, "on-demand": price.on_demand}.get(kind)
    if price is None or fact is None or fact.value is None:
        return Figure.absent("USD/h", f"the catalogue has no {kind} price")
    return _figure(fact, "USD/h", note=f"{kind}, {price.region}; of the first rung: fallback nodes cost otherwise")


def _figure(fact: Fact[float] | Fact[float | None], unit: str, note: str = "") -> Figure:
    if fact.value is None:
        return Figure.absent(unit, fact.source)
    provenance = "list-price" if fact.confidence == "list-price" else "assumed"
    return Figure(
        value=fact.value,
        unit=unit,
        provenance=provenance,
        source=f"{fact.source} ({fact.confidence})",
        as_of=fact.as_of.isoformat(),
        note=note,
    )
