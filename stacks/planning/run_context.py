"""What the launcher knows and the trainer cannot: which stack, which machines, at which price, on which grid.

Travels to the trainer in the job's environment (GANGWAY_CONTEXT, JSON) and from there into the run record, each value
as a Figure with its provenance. Pure; measures nothing.
"""

import os
from collections.abc import Mapping

from components.capacity import AnyRung, CapacityBlock
from components.catalog import Fact, MachinePrice, MachineType, Region
from components.catalog.embodied import card_kg, life_hours
from components.energy import UTILISATION, UTILISATION_SOURCE
from stacks.settings.config import StackConfig
from trainer.record import Figure, RunContext

__all__ = ["cloud_context", "local_context"]


def cloud_context(
    config: StackConfig,
    machine: MachineType,
    region: Region,
    price: MachinePrice | None,
    image_digest: str,
    num_nodes: int | None = None,
    peak_tflops: Mapping[str, Fact[float | None]] | None = None,
) -> RunContext:
    """The context of a run in the cloud, with the price of each kind of capacity that its nodes may come from.

    Args:
        config: the stack.
        machine: one node, as the trainer counts nodes: what runs one launcher.
        region: where it is.
        price: of such a node.
        image_digest: of the trainer's image.
        num_nodes: how many of them; the stack's own number when left out.
        peak_tflops: of what one worker drives, by number format, where the trainer does not know the device's itself.
    """
    ladder = config.cluster.capacity
    kinds = tuple(rung.kind for rung in ladder)
    # The first rung of a kind stands for all of them: their nodes cost alike, but for two blocks bought apart.
    prices = {rung.kind: _price(rung, config.cluster.nodes.max, price) for rung in reversed(ladder)}
    return RunContext(
        run_id=config.job.run_id or "",
        stack=config.stack,
        provider=config.provider,
        region=region.name,
        machine_type=machine.name,
        capacity=kinds,
        num_nodes=config.cluster.nodes.max if num_nodes is None else num_nodes,
        image_digest=image_digest,
        usd_per_hour=prices[kinds[0]],
        usd_per_hour_by_kind=prices,
        accelerators_per_node=machine.num_accelerators.value,
        embodied_kg_per_accelerator=_figure(card_kg(machine.accelerator), "kg"),
        accelerator_life_hours=_figure(life_hours(), "h"),
        accelerator_watts=_figure(machine.accelerator_watts, "W"),
        accelerator_tflops={numbers: _figure(peak, "TFLOP/s") for numbers, peak in (peak_tflops or {}).items()},
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


def _price(rung: AnyRung, num_nodes: int, price: MachinePrice | None) -> Figure:
    """What a node of a rung costs an hour: reservations what they do on demand, flex-start at most so much."""
    if isinstance(rung, CapacityBlock) and rung.upfront_usd and rung.starts_at and rung.ends_at:
        hours = (rung.ends_at - rung.starts_at).total_seconds() / 3600
        return Figure(
            value=rung.upfront_usd / hours / num_nodes,
            unit="USD/h",
            provenance="assumed",
            source="gangway:cluster.capacity: upfront_usd of the block, over its hours and nodes",
        )
    if price is None:
        return Figure.absent("USD/h", f"the catalogue has no {rung.kind} price")
    fact = {"spot": price.spot_high, "capacity-block": price.block}.get(rung.kind, price.on_demand)
    if fact.value is None:
        unsaid = fact.source if fact.confidence == "stated" else f"the catalogue has no {rung.kind} price"
        return Figure.absent("USD/h", unsaid)
    at_most = ", which it stays below" if rung.kind == "flex-start" else ""
    return _figure(fact, "USD/h", note=f"{rung.kind}, {price.region}{at_most}")


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
