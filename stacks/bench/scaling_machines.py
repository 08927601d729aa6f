"""What a scaling study projects to, by name: a machine type of any provider, a TPU generation or an accelerator type.

    p5.48xlarge, a3-megagpu-8g      machines of that type, powers of two up to MAX_WORKERS accelerators
    v5p, v5e                        slices of that generation, of one chip up to the largest, at most MAX_WORKERS
    v5p-512, v5litepod-256          the same up to that slice; v5e-256, as everybody writes it, is v5litepod-256

Looks names up, and knows no formula: `components.scaling` and `components.scaling_torus` do.
"""

from dataclasses import dataclass

from components.catalog import PROVIDERS, load_provider, load_tpus
from components.findings import InputError, nearest_hint
from components.gcp.slices import plan_slice, slice_topologies
from components.scaling import Links, links_of
from components.scaling_torus import Torus, torus_of

__all__ = ["MAX_WORKERS", "Target", "target_named"]

MAX_WORKERS = 512
_PLACE = "--machines"
_ONE_SLICE = "one slice: the catalogue knows no bandwidth of the network between slices (DCN), so it stops there"


@dataclass(frozen=True)
class Target:
    """Machines to project to.

    Attributes:
        name: as the catalogue has it.
        network: what the all-reduce travels over.
        counts: accelerators, ascending from 1.
        note: what its projection leaves out; empty for nothing of its own.
    """

    name: str
    network: Links | Torus
    counts: tuple[int, ...]
    note: str = ""


def target_named(name: str) -> Target:
    """The machines of that name, of any provider, or the TPU slices.

    Raises:
        InputError: there are none, or the catalogue does not know a bandwidth that is needed.
    """
    machines = {key: one for provider in PROVIDERS for key, one in load_provider(provider).machines.items()}
    if name in machines:
        return Target(name, links_of(machines[name]), tuple(2**power for power in range(MAX_WORKERS.bit_length())))
    generations = load_tpus().generations
    if name in generations:
        return _slices(name, name, max(size for size in slice_topologies(name) if size <= MAX_WORKERS))
    word, _, number = name.partition("-")
    prefixes = {key: tpu.prefix for tpu in generations.values() for key in (tpu.name, tpu.prefix)}
    if word in prefixes and number.isdecimal():
        return _slice_named(name, f"{prefixes[word]}-{number}")
    types = [plan_slice(key, chips).accelerator_type for key in generations for chips in slice_topologies(key)]
    raise InputError(
        _PLACE,
        "no such machine type, TPU generation or slice",
        value=name,
        allowed=f"machine types of the catalogue; {', '.join(generations)}; accelerator types such as v5litepod-256",
        fix=nearest_hint(name, [*machines, *generations, *types]),
    )


def _slice_named(name: str, accelerator_type: str) -> Target:
    try:
        plan = plan_slice(accelerator_type=accelerator_type)
    except InputError as mistake:
        raise InputError(_PLACE, mistake.problem, value=name, allowed=mistake.allowed, fix=mistake.fix) from None
    return _slices(plan.accelerator_type, plan.generation, plan.chips)


def _slices(name: str, generation: str, most_chips: int) -> Target:
    """Slices of the default topology of their size: powers of two up to `most_chips`, and that one."""
    shapes = slice_topologies(generation)
    sizes = [size for size in shapes if 1 < size <= most_chips and (size == most_chips or size.bit_count() == 1)]
    torus = torus_of(generation, [shapes[size][0] for size in sizes])
    halves = load_tpus().generations[generation].devices_per_chip.value
    counted = f"; an accelerator is a chip, its {halves} devices together" if halves > 1 else ""
    return Target(name, torus, (1, *sizes), _ONE_SLICE + counted)
