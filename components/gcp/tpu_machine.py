"""A TPU slice in the words that every plan speaks: a machine type with a price, so that batch, bill and energy need no
second way of counting.

A node is a slice, as the TPU API counts; what stands for its accelerators are the workers of a job on it. Pure: facts
are the catalogue's. Chip power that nobody publishes stays unknown, and so does the energy of a run.
"""

from components.catalog import Fact, MachinePrice, MachineType, TpuGeneration, load_tpus
from components.gcp.slices import SlicePlan

__all__ = ["slice_machine", "slice_price", "worker_tflops"]


def slice_machine(plan: SlicePlan) -> MachineType:
    """One slice as a machine type: processes for accelerators, its hosts' CPUs, memory and watts added up."""
    tpu = load_tpus().generations[plan.generation]
    counted = tpu.topologies
    return MachineType(
        name=plan.accelerator_type,
        provider="gcp",
        accelerator=plan.accelerator_type,
        architecture="x86_64",
        backend="xla",
        num_accelerators=_fact(plan.processes, counted),
        accelerator_memory_gib=_fact(tpu.hbm_gib.value * plan.chips / plan.processes, tpu.hbm_gib),
        accelerator_watts=_worker_watts(plan, tpu),
        host_watts=_fact(plan.hosts * tpu.host_watts.value, tpu.host_watts),
        vcpus=_fact(plan.hosts * tpu.host_vcpus.value, tpu.host_vcpus),
        memory_gib=_fact(plan.hosts * tpu.host_memory_gib.value, tpu.host_memory_gib),
        interconnect=_fact("ici", counted),
        network_gbps=_fact(None, counted),
        instance_store_gib=_fact(None, counted),
        fabric=None,
    )


def slice_price(plan: SlicePlan, region: str) -> MachinePrice | None:
    """What one slice costs an hour, from the price of its chips; None where no region has one."""
    price = load_tpus().price(plan.generation, region)
    if price is None:
        return None
    spot = _times(plan.chips, price.spot)
    # No list of committed prices at hand.
    unknown = Fact[float | None].model_validate({**price.on_demand.model_dump(), "value": None})
    return MachinePrice(
        provider="gcp",
        machine_type=plan.accelerator_type,
        region=price.region,
        on_demand=_times(plan.chips, price.on_demand),
        spot_low=spot,
        spot_high=spot,
        reserved_1y=unknown,
        reserved_3y=unknown,
        block=unknown,
    )


def worker_tflops(plan: SlicePlan) -> Fact[float | None]:
    """The bf16 peak of what one process drives, TFLOP/s: a chip, or a half of one."""
    peak = load_tpus().generations[plan.generation].peak_bf16_tflops
    return _times(plan.chips / plan.processes, Fact[float | None].model_validate(peak.model_dump()))


def _worker_watts(plan: SlicePlan, tpu: TpuGeneration) -> Fact[float | None]:
    return _times(plan.chips / plan.processes, tpu.chip_watts)


def _times(factor: float, fact: Fact[float | None]) -> Fact[float | None]:
    """`fact` of so many of its kind; unknown stays unknown."""
    value = None if fact.value is None else factor * fact.value
    return Fact[float | None].model_validate({**fact.model_dump(), "value": value})


def _fact(value: object, like: Fact) -> dict[str, object]:  # type: ignore[type-arg]  # whatever it is a fact of
    """`value` with the provenance of `like`, in the shape that a model validates."""
    return {**like.model_dump(), "value": value}
