"""Regions whose power is clean enough: an allow-list made by carbon intensity. Pure.

Intensities are the catalogue's: location-based yearly averages of the grid, with source and date.
"""

from collections.abc import Iterable

from components.catalog import Provider, load_provider
from components.cost import Declared
from components.findings import Severity
from stacks.rules.inputs import is_unknown, kind
from stacks.rules.rule import Limits, ResourceRule

__all__ = ["CLEAN_REGION"]

_TOLD = 3
# Whose region is the whole stack's. Azure has none: each resource names its own, and machines are what draws power.
_PROVIDERS: dict[str, Provider] = {"pulumi:providers:aws": "aws", "pulumi:providers:gcp": "gcp"}
_AZURE_MACHINES = ("azure-native:compute:VirtualMachine", "azure-native:compute:VirtualMachineScaleSet")


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
