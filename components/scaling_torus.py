"""How long an all-reduce takes on one TPU slice: chips in a mesh or a torus, linked to their neighbours alone.

The message is cut into as many parts as the slice has axes, and all travel at once. Each part is reduced and scattered
along one axis after the other, every part beginning with another axis, and gathered the same way back:

    all-reduce = 2 x sum over phases of the slowest part's: left x (s - 1) / s / axis + (s - 1) x hop
    left       = bytes / axes / product of the sides that the part has been scattered along before
    axis       = 2 x link where the slice wraps round (a ring, both ways), else 1 x link (a line's end has one)

On a torus with equal sides that is 2 (n - 1) / n x bytes / (all links of a chip): no all-reduce needs less. Sources:
bucket algorithms on meshes, Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice,
and experience" (2007); a bucket for every axis at once, Jain and Sabharwal, "Optimal bucket algorithms for large MPI
collectives on torus interconnects" (2010). Which XLA really takes is not published; twisted tori are taken as plain.

Pure, and of one slice: nothing here knows a network between slices.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from components.catalog.links import ici, latency, link_gbps
from components.scaling import BUS_SHARE, BUS_SHARE_SOURCE, Algorithm

__all__ = ["Slice", "Torus", "torus_of"]


@dataclass(frozen=True)
class Slice:
    """One slice.

    Attributes:
        sides: chips along each axis; axes of one chip are left out.
        wraps: whether the ends of every axis are linked.
    """

    sides: tuple[int, ...]
    wraps: bool

    @property
    def chips(self) -> int:
        """All of them."""
        return math.prod(self.sides)


@dataclass(frozen=True)
class Torus:
    """Slices of one TPU generation.

    Attributes:
        slices: ascending, each of another number of chips.
        link_gbps: of one link between neighbours, one direction.
        hop_sec: of one message over it.
        sources: where each comes from.
    """

    slices: tuple[Slice, ...]
    link_gbps: float
    hop_sec: float
    sources: tuple[str, ...] = ()

    def all_reduce_sec(self, workers: int, num_bytes: float, algorithm: Algorithm = "ring") -> float:
        """Seconds of one all-reduce on the slice of that many chips; 0 for one chip.

        Args:
            workers: chips: 1, or those of one of `slices`.
            num_bytes: of each chip's buffer.
            algorithm: no part of this model: within a slice there are rings and lines.
        """
        if workers == 1:
            return 0.0
        found = next(one for one in self.slices if one.chips == workers)
        axes = len(found.sides)
        gbps = self.link_gbps * (2 if found.wraps else 1)
        parts = [num_bytes * 8e-9 / axes] * axes
        seconds = 0.0
        for phase in range(axes):
            sides = [found.sides[(part + phase) % axes] for part in range(axes)]
            seconds += max(
                gbit * (side - 1) / side / gbps + (side - 1) * self.hop_sec
                for gbit, side in zip(parts, sides, strict=True)
            )
            parts = [gbit / side for gbit, side in zip(parts, sides, strict=True)]
        return 2 * seconds


def torus_of(generation: str, topologies: Iterable[str], bus_share: float = BUS_SHARE) -> Torus:
    """Slices of a TPU generation.

    Args:
        generation: of the TPU catalogue.
        topologies: such as `4x8x8`, ascending, of more than one chip each.
        bus_share: of nominal bandwidth that an all-reduce reaches, above 0.
    """
    facts, chip, hop = ici(generation), link_gbps(f"{generation}x1"), latency().ici_usec
    assert chip.value is not None, "a test holds every generation against links.yaml"
    every = facts.wraps_every.value
    slices = []
    for topology in topologies:
        sides = [int(side) for side in topology.split("x")]
        wraps = all(side % every == 0 for side in sides)
        slices.append(Slice(tuple(side for side in sides if side > 1), wraps))
    share = BUS_SHARE_SOURCE if bus_share == BUS_SHARE else f"{bus_share:g} of nominal bandwidth"
    return Torus(
        slices=tuple(slices),
        link_gbps=chip.value / facts.ports.value * bus_share,
        hop_sec=hop.value * 1e-6,
        sources=(
            f"ICI: {chip.value:g} Gbit/s of a chip in one direction, {chip.source}",
            f"its links: {facts.ports.value}, {facts.ports.source}",
            f"wraps round: every side a multiple of {every}, {facts.wraps_every.source}",
            f"latency: {hop.value:g} us a hop, {hop.source}",
            share,
        ),
    )
