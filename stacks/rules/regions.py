"""Regions whose power is clean enough: an allow-list made by carbon intensity. Pure.

Intensities are the catalogue's: location-based yearly averages of the grid, with source and date. Machines of one's own
are in no region that it has: there the stack file says the intensity (`gangway:site`), and `grid_of` hands it to the
rule.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.catalog import Provider, load_provider
from components.cost import Declared
from components.findings import Severity
from stacks.providers.site import region_of
from stacks.rules.inputs import is_unknown, kind
from stacks.rules.rule import Limits, ResourceRule
from stacks.settings.config import StackConfig

__all__ = ["CLEAN_REGION", "SiteGrid", "grid_of"]

_TOLD = 3
# Whose region is the whole stack's. Azure has none: each resource names its own, and machines are what draws power.
_PROVIDERS: dict[str, Provider] = {"pulumi:providers:aws": "aws", "pulumi:providers:gcp": "gcp"}
_AZURE_MACHINES = ("azure-native:compute:VirtualMachine", "azure-native:compute:VirtualMachineScaleSet")
SITE = "gangway:site:Site"


@dataclass(frozen=True)
class SiteGrid:
    """The grid of a site as rules read resources: no cloud has one, so no program declares it."""

    name: str
    inputs: Mapping[str, Any]
    type: str = field(default=SITE, init=False)
    id: str = field(default=SITE, init=False)


def grid_of(config: StackConfig) -> SiteGrid | None:
    """What the stack file says of its site's grid; None for a stack in a region of the catalogue."""
    if config.site is None:
        return None
    fact = region_of(config).intensity_g_per_kwh
    return SiteGrid(config.region, {"grams": fact.value, "source": f"{fact.source}, {fact.as_of}, {fact.confidence}"})


def _region(resource: Declared) -> tuple[Provider, str] | None:
    """The provider and the region that a resource says its machines are in; None where it does not say, or not yet."""
    what = kind(resource.type)
    region = resource.inputs.get("location" if what in _AZURE_MACHINES else "region")
    if not isinstance(region, str) or is_unknown(region):
        return None
    if what in _AZURE_MACHINES:
        # `East US 2` is `eastus2`.
        return "azure", region.replace(" ", "").lower()
    return (_PROVIDERS[what], region) if what in _PROVIDERS else None


def _dirty(resource: Declared, limits: Limits) -> Iterable[str]:
    if resource.type == SITE:
        grams, source = resource.inputs["grams"], resource.inputs["source"]
        if grams > limits.max_g_per_kwh and resource.name not in limits.allowed_regions:
            yield f"{resource.name}: {grams:g} gCO2e per kWh ({source}) is above {limits.max_g_per_kwh:g}"
        return
    found = _region(resource)
    if found is None:
        return
    provider, region = found
    if region in limits.allowed_regions:
        return
    regions = load_provider(provider).regions
    if region not in regions:
        yield f"{region}: nobody here knows the carbon intensity of its grid"
        return
    fact = regions[region].intensity_g_per_kwh
    if fact.value <= limits.max_g_per_kwh:
        return
    cleaner = sorted((one.intensity_g_per_kwh.value, one.name) for one in regions.values())[:_TOLD]
    named = ", ".join(f"{name} ({grams:g})" for grams, name in cleaner)
    yield (
        f"{region}: {fact.value:g} gCO2e per kWh ({fact.source}, {fact.as_of}) is above {limits.max_g_per_kwh:g}; the "
        f"cleanest regions of {provider} are {named}"
    )


CLEAN_REGION = ResourceRule(
    code="region.carbon-intensity",
    severity=Severity.WARNING,
    holds="The region's power is below the allowed carbon intensity",
    path="gangway:region",
    fix="choose a cleaner region (`gangway quote` ranks them with price and emissions), or allow this one in the "
    "policy pack's configuration",
    check=_dirty,
    limits=("max_g_per_kwh", "allowed_regions"),
)
