"""A TPU slice by generation and chips, accelerator type or topology; the slice as a priced machine type."""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

from gangway.components.catalog.loader import load_tpus
from gangway.components.catalog.schema import Fact, MachinePrice, MachineType, TpuGeneration, TpuPrice
from gangway.components.core.findings import InputError, nearest_hint

PLACE = "gangway:cluster"
CUBE_SIDE = 4
MAX_LISTED = 10
TYPE_PATTERN = re.compile(r"([a-z0-9]+)-([0-9]+)")
TOPOLOGY_PATTERN = re.compile(r"[0-9]+(x[0-9]+){1,2}")


@dataclass(frozen=True)
class SlicePlan:
    """One slice. `accelerator_type`: for the default topology of its size; `topology`: chips along each side, such as
    `4x8x8`; `processes`: PyTorch/XLA devices, the job's world size; `api_type`: AcceleratorConfig.type; None if the
    Cloud TPU API does not create such slices.
    """

    generation: str
    chips: int
    tensor_cores: int
    accelerator_type: str
    topology: str
    default_topology: bool
    hosts: int
    chips_per_host: int
    processes: int
    runtime_version: str | None
    api_type: str | None


def plan_slice(
    generation: str | None = None,
    chips: int | None = None,
    accelerator_type: str | None = None,
    topology: str | None = None,
    place: str = PLACE,
) -> SlicePlan:
    """The slice that all given settings describe. `chips` are not TensorCores; `topology` defaults to the one nearest
    to a cube. InputError at `place`: no such generation, size or topology (with the nearest), or a contradiction.
    """
    if generation is None and accelerator_type is None:
        raise InputError(
            place, "no TPU generation is named", allowed=_names(), fix="write v5p-512, or tpu: v5p with chips: 256"
        )
    sizes: dict[str, int] = {}
    if accelerator_type is not None:
        tpu, sizes["accelerator type"] = _parse_type(accelerator_type, f"{place}.accelerator")
    if generation is not None:
        named = _generation(generation, f"{place}.tpu")
        if accelerator_type is not None and named.name != tpu.name:
            raise InputError(
                f"{place}.tpu", f"{accelerator_type} is a {tpu.name}", value=generation, fix=f"write {tpu.name}"
            )
        tpu = named
    if chips is not None:
        sizes["chips"] = _checked_size(tpu, chips, chips, f"{place}.chips")
    if topology is not None:
        sizes["topology"] = _checked_topology(tpu, topology, next(iter(sizes.values()), None), f"{place}.topology")
    return _plan(tpu, _agreed(tpu, sizes, place), topology)


@cache
def slice_topologies(generation: str) -> Mapping[int, tuple[str, ...]]:
    """The topologies by size in chips, ascending; the default (nearest to a cube) comes first."""
    tpu = load_tpus().generations[generation]
    by_size: dict[int, list[tuple[int, ...]]] = {}
    for sides in (*map(_sides, tpu.topologies.value), *_cube_topologies(tpu.max_cubes.value, tpu.max_side.value)):
        by_size.setdefault(prod(sides), []).append(sides)
    return {
        size: tuple("x".join(map(str, sides)) for sides in sorted(by_size[size], key=lambda s: (sum(s), max(s))))
        for size in sorted(by_size)
    }


def _cube_topologies(max_cubes: int, max_side: int) -> list[tuple[int, ...]]:
    """AxBxC with A <= B <= C, all multiples of 4, no side above `max_side`, of at most `max_cubes` cubes of 4x4x4."""
    longest = max_side // CUBE_SIDE
    return [
        (CUBE_SIDE * a, CUBE_SIDE * b, CUBE_SIDE * c)
        for a in range(1, max_cubes + 1)
        for b in range(a, max_cubes // a + 1)
        for c in range(b, min(max_cubes // (a * b), longest) + 1)
    ]


def _plan(tpu: TpuGeneration, chips: int, topology: str | None) -> SlicePlan:
    default = slice_topologies(tpu.name)[chips][0]
    chips_per_host = chips if chips in tpu.single_host_chips.value else tpu.chips_per_host.value
    return SlicePlan(
        generation=tpu.name,
        chips=chips,
        tensor_cores=chips * tpu.tensorcores_per_chip.value,
        accelerator_type=_get_type(tpu, chips),
        topology=topology or default,
        default_topology=topology in (None, default),
        hosts=chips // chips_per_host,
        chips_per_host=chips_per_host,
        processes=chips * tpu.devices_per_chip.value,
        runtime_version=tpu.runtime_version.value,
        api_type=tpu.api_type.value,
    )


def _generation(name: str, place: str) -> TpuGeneration:
    generations = load_tpus().generations
    if name not in generations:
        raise InputError(
            place, "no such TPU generation", value=name, allowed=_names(), fix=nearest_hint(name, generations)
        )
    return generations[name]


def _parse_type(text: str, place: str) -> tuple[TpuGeneration, int]:
    by_prefix = {tpu.prefix: tpu for tpu in load_tpus().generations.values()}
    match = TYPE_PATTERN.fullmatch(text)
    if match is None or match[1] not in by_prefix:
        allowed = ", ".join(f"{prefix}-NUMBER" for prefix in by_prefix)
        raise InputError(place, "no such accelerator type", value=text, allowed=allowed, fix=_type_hint(text))
    tpu = by_prefix[match[1]]
    return tpu, _checked_size(tpu, int(match[2]) / _per_chip(tpu), text, place)


def _type_hint(text: str) -> str:
    """A fix for a mistyped accelerator type; the common `v5e-16` is called v5litepod-16."""
    generations = load_tpus().generations
    word, _, number = text.partition("-")
    if word in generations:
        return f"write {generations[word].prefix}-{number or 'NUMBER'}"
    return nearest_hint(text, [_get_type(tpu, size) for tpu in generations.values() for size in _sizes(tpu)])


def _checked_size(tpu: TpuGeneration, chips: float, value: object, place: str) -> int:
    if chips not in slice_topologies(tpu.name):
        raise InputError(
            place,
            f"no {tpu.name} slice has this size",
            value=value,
            allowed=_size_list(tpu),
            fix=f"nearest: {_spelled(tpu, _neighbours(_sizes(tpu), chips))}",
        )
    return int(chips)


def _checked_topology(tpu: TpuGeneration, topology: str, chips: int | None, place: str) -> int:
    """The chips of a valid topology; the fix for an invalid one prefers those of `chips`, if given."""
    shapes = slice_topologies(tpu.name)
    if TOPOLOGY_PATTERN.fullmatch(topology) is None:
        raise InputError(place, "no topology", value=topology, allowed="sides joined by x, such as 4x8x8")
    size = prod(_sides(topology))
    if topology not in shapes.get(size, ()):
        raise InputError(
            place,
            f"no {tpu.name} slice has this topology",
            value=topology,
            allowed=_topology_rule(tpu),
            fix=_topology_fix(tpu, topology, size if chips is None else chips),
        )
    return size


def _topology_fix(tpu: TpuGeneration, topology: str, chips: int) -> str:
    shapes = slice_topologies(tpu.name)
    same_sides = [t for t in shapes.get(chips, ()) if sorted(_sides(t)) == sorted(_sides(topology))]
    if same_sides:
        return f"write {same_sides[0]}: sides ascend"
    if chips in shapes:
        return f"topologies of {chips} chips: {_first(shapes[chips])}"
    return f"nearest: {_spelled(tpu, _neighbours(_sizes(tpu), chips))}"


def _agreed(tpu: TpuGeneration, sizes: Mapping[str, int], place: str) -> int:
    if not sizes:
        raise InputError(place, "the slice has no size", allowed=_size_list(tpu), fix="add chips or topology")
    if len(set(sizes.values())) > 1:
        stated = ", ".join(f"{word}: {size} chips" for word, size in sizes.items())
        first = next(iter(sizes.values()))
        raise InputError(
            place,
            "the words contradict each other",
            value=stated,
            fix=f"leave all but one out; topologies of {first} chips: {_first(slice_topologies(tpu.name)[first])}",
        )
    return next(iter(sizes.values()))


def _names() -> str:
    return ", ".join(load_tpus().generations)


def _sides(topology: str) -> tuple[int, ...]:
    return tuple(map(int, topology.split("x")))


def _sizes(tpu: TpuGeneration) -> list[int]:
    return list(slice_topologies(tpu.name))


def _per_chip(tpu: TpuGeneration) -> int:
    """The unit of an accelerator type's number, per chip."""
    return tpu.tensorcores_per_chip.value if tpu.suffix_counts == "tensorcores" else 1


def _get_type(tpu: TpuGeneration, chips: int) -> str:
    return f"{tpu.prefix}-{chips * _per_chip(tpu)}"


def _neighbours(sizes: Sequence[int], wanted: float) -> Sequence[int]:
    above = bisect_left(sizes, wanted)
    return sizes[max(above - 1, 0) : above + 1]


def _spelled(tpu: TpuGeneration, sizes: Sequence[int]) -> str:
    shapes = slice_topologies(tpu.name)
    return " or ".join(f"{_get_type(tpu, size)} ({shapes[size][0]}, chips: {size})" for size in sizes)


def _size_list(tpu: TpuGeneration) -> str:
    sizes = _sizes(tpu)
    longest = f" up to {sizes[-1]}" if len(sizes) > MAX_LISTED else ""
    return f"{_first([str(size) for size in sizes])}{longest} chips"


def _first(words: Sequence[str]) -> str:
    return ", ".join(words[:MAX_LISTED]) + (", ..." if len(words) > MAX_LISTED else "")


def _topology_rule(tpu: TpuGeneration) -> str:
    topologies = ", ".join(tpu.topologies.value)
    if tpu.max_cubes.value == 0:
        return topologies
    chips = tpu.max_cubes.value * CUBE_SIDE**3
    return f"{topologies}, or AxBxC with A <= B <= C, multiples of {CUBE_SIDE}, up to {chips} chips"


def slice_machine(plan: SlicePlan) -> MachineType:
    """One slice as a machine type: processes are accelerators; its hosts' CPUs, memory and watts are added up."""
    tpu = load_tpus().generations[plan.generation]
    counted, mean = tpu.topologies, _worker_watts(plan, tpu.chip_mean_watts)
    return MachineType(
        name=plan.accelerator_type,
        provider="gcp",
        accelerator=plan.accelerator_type,
        architecture="x86_64",
        backend="xla",
        num_accelerators=_fact(plan.processes, counted),
        accelerator_memory_gib=_fact(tpu.hbm_gib.value * plan.chips / plan.processes, tpu.hbm_gib),
        accelerator_watts=_worker_watts(plan, tpu.chip_watts),
        accelerator_mean_watts=None if mean.value is None else Fact[float].model_validate(mean.model_dump()),
        host_watts=_fact(plan.hosts * tpu.host_watts.value, tpu.host_watts),
        vcpus=_fact(plan.hosts * tpu.host_vcpus.value, tpu.host_vcpus),
        memory_gib=_fact(plan.hosts * tpu.host_memory_gib.value, tpu.host_memory_gib),
        interconnect=_fact("ici", counted),
        network_gbps=_fact(None, counted),
        instance_store_gib=_fact(None, counted),
        fabric=None,
        offered=tpu.offered,
    )


def chip_prices(generation: str) -> list[MachinePrice]:
    """Price per chip-hour by region."""
    return [_scaled(1, price) for price in load_tpus().get_prices(generation)]


def slice_prices(plan: SlicePlan) -> list[MachinePrice]:
    """Price per slice-hour by region, from its chips."""
    rows = (_scaled(plan.chips, price) for price in load_tpus().get_prices(plan.generation))
    return [row.model_copy(update={"machine_type": plan.accelerator_type}) for row in rows]


def _scaled(chips: int, price: TpuPrice) -> MachinePrice:
    spot = _times(chips, price.spot)
    # There is no list of committed prices.
    unknown = Fact[float | None].model_validate({**price.on_demand.model_dump(), "value": None})
    return MachinePrice(
        provider="gcp",
        machine_type=price.generation,
        region=price.region,
        on_demand=_times(chips, price.on_demand),
        spot_low=spot,
        spot_typical=spot,
        spot_high=spot,
        reserved_1y=unknown,
        reserved_3y=unknown,
        block=unknown,
    )


def worker_tflops(plan: SlicePlan) -> Fact[float | None]:
    """The bf16 peak of one process, TFLOP/s: a chip, or half of one."""
    peak = load_tpus().generations[plan.generation].peak_bf16_tflops
    return _times(plan.chips / plan.processes, Fact[float | None].model_validate(peak.model_dump()))


def _worker_watts(plan: SlicePlan, chip_watts: Fact[float | None]) -> Fact[float | None]:
    return _times(plan.chips / plan.processes, chip_watts)


def _times(factor: float, fact: Fact[float | None]) -> Fact[float | None]:
    value = None if fact.value is None else factor * fact.value
    return Fact[float | None].model_validate({**fact.model_dump(), "value": value})


def _fact(value: object, like: Fact) -> dict[str, object]:  # type: ignore[type-arg]  # whatever it is a fact of
    """`value` with the provenance of `like`, in the shape that a model validates."""
    return {**like.model_dump(), "value": value}
