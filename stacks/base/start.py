"""The defaults of `gangway init` for a provider."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

EXAMPLE_SITE: Mapping[str, Any] = {
    "as_of": "2026-11-01",
    "accelerator": "H100x8",
    "vcpus": 224,
    "memory_gib": 2048,
    "interconnect": "nvswitch",
    "network_gbps": 100,
    "usd_per_node_hour": 14.5,
    "intensity_g_per_kwh": 380,
    "pue": 1.3,
    "country": "DE",
}
"""An example of the section `site`."""
EXAMPLE_IMAGE = f"registry.example.com/gan/trainer@sha256:{'0123456789abcdef' * 4}"


def _empty() -> Mapping[str, Any]:
    return MappingProxyType({})


def _leaves() -> Mapping[str, Any]:
    return MappingProxyType({"terminate_when_done": True})


@dataclass(frozen=True)
class Start:
    """The first stack file of a provider.

    Attributes:
        machine_type: a small machine that is sold in `region`; for a site, the name of its machines.
        sections: further settings.
        questions: dotted settings of `sections` that only the user knows -> how to ask for them.
        shared: sections for several nodes: the smallest file system for data and checkpoints.
        job: further settings of the job.
        month_setting: dotted setting that gets the first day of this month; empty for none.
        refreshes: whether the project refreshes its state before each `up`.
    """

    region: str
    machine_type: str
    sections: Mapping[str, Any] = field(default_factory=_empty)
    questions: Mapping[str, str] = field(default_factory=_empty)
    shared: Mapping[str, Any] = field(default_factory=_empty)
    job: Mapping[str, Any] = field(default_factory=_leaves)
    month_setting: str = ""
    refreshes: bool = False

    def example(self, path: str) -> str:
        """The value of a dotted setting of `sections`."""
        place: Any = self.sections
        for part in path.split("."):
            place = place[int(part)] if isinstance(place, list) else place[part]
        return str(place)
