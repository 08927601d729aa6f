"""How fast the accelerators of one machine reach each other, and how long a message is on its way.

The network between machines is part of the machine types (`network_gbps`, `fabric`). What a step makes of both is
`components.scaling`.

    >>> link_gbps("H100x8").value
    3600.0
    >>> link_gbps("Gaudix8").value is None
    True
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from components.catalog.rows import by_model, read_file, with_facts
from components.catalog.schema import Fact, Frozen

__all__ = ["Ici", "Latency", "LinkTable", "ici", "latency", "link_gbps", "load_links"]


class Link(Frozen):
    """Of one accelerator, in one direction, as the vendor states it."""

    gbps: Fact[float | None]


class Ici(Frozen):
    """How the links of a TPU chip are laid out.

    Attributes:
        ports: links of one chip, to its neighbours, which its bandwidth is shared out to.
        wraps_every: a slice whose sides are all multiples of this has links between its ends: it is a torus.
    """

    ports: Fact[int]
    wraps_every: Fact[int]


class Latency(Frozen):
    """Of one message, in microseconds: inside a machine, between TPU chips, and between machines by kind of fabric."""

    inside_usec: Fact[float]
    ici_usec: Fact[float]
    efa_usec: Fact[float]
    infiniband_usec: Fact[float]
    roce_usec: Fact[float]
    gpudirect_usec: Fact[float]
    ethernet_usec: Fact[float]

    def between(self, fabric: str) -> Fact[float]:
        """Between machines; `ethernet` for those without a fabric that bypasses the kernel."""
        found: Fact[float] = getattr(self, f"{fabric}_usec")
        return found


class LinkTable(Frozen):
    """Links by the accelerator's model; `unknown` stands for every other. `ici` is of TPU generations."""

    links: Mapping[str, Link]
    ici: Mapping[str, Ici]
    unknown: Link
    latency: Latency


@cache
def load_links() -> LinkTable:
    """The table, read once a process."""
    tables, sources = read_file(Path(__file__).parent / "links.yaml")
    return LinkTable.model_validate(
        {
            "links": by_model(Link, tables["links"], sources),
            "ici": by_model(Ici, tables["ici"], sources),
            "unknown": with_facts(Link, tables["unknown"], sources),
            "latency": with_facts(Latency, tables["latency"], sources),
        }
    )


def link_gbps(accelerator: str) -> Fact[float | None]:
    """Of one accelerator of `accelerator`, such as `H100x8`, in Gbit/s; None where nobody says."""
    table = load_links()
    return table.links.get(accelerator.rpartition("x")[0], table.unknown).gbps


def ici(generation: str) -> Ici:
    """The links of a TPU generation, which is in the catalogue."""
    return load_links().ici[generation]


def latency() -> Latency:
    """Of one message."""
    return load_links().latency
