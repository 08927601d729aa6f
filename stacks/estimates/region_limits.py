"""Checks a stack's region, its data source and its declared resources against `regions` of the stack file. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gangway.components.catalog.geography import load_jurisdictions
from gangway.components.core.findings import Finding
from gangway.components.estimate.cost import Declared
from gangway.components.estimate.regions import Place, refusal
from gangway.stacks.base.rule import is_unknown
from gangway.stacks.config.stack_config import StackConfig

CODE: Final = "regions.refused"
_REGIONS: Final = frozenset({"region", "location", "locations", "vpcregion", "storagelocations", "sourceregion"})
_ZONES: Final = frozenset({"zone", "availabilityzone"})
_EVERYWHERE: Final = "global"
"""Region of resources with names and addresses only: Azure's DNS zones and action groups."""
_PACKAGES: Final = ("aws:", "gcp:", "azure-native:", "openstack:", "pulumi:providers:", "pulumi-python:dynamic/")
_NAMED: Final = 3


def get_place(config: StackConfig) -> Place:
    """The stack's place."""
    country = config.site.country or "" if config.site is not None else ""
    return Place(config.provider, config.region, country)


def region_findings(config: StackConfig) -> Iterator[Finding]:
    """Checks the stack's region and the region of `storage.source`."""
    limits, here = config.regions.limits, get_place(config)
    if not limits.asked:
        return
    if (refused := refusal(limits, here)) is not None:
        is_missing = config.site is not None and not config.site.country
        fix = (
            "write gangway:site.country, two letters"
            if is_missing
            else "choose another region, or change gangway:regions"
        )
        yield Finding.error(CODE, "gangway:region", f"{refused.said} (regions.{refused.why})", fix)
    if config.storage is None or config.storage.source is None:
        return
    source = config.estimate.source_region
    if source is None:
        yield Finding.warning(
            "regions.source-unsaid",
            "gangway:storage.source",
            f"the region of {config.storage.source} is not known, so gangway:regions is not checked for it",
            "write gangway:estimate.source_region",
        )
    elif source != config.region and (refused := refusal(limits, Place(config.provider, source))) is not None:
        yield Finding.error(
            CODE,
            "gangway:storage.source",
            f"the bucket that data is copied from: {refused.said} (regions.{refused.why})",
            "copy the data to an allowed region first, or change gangway:regions",
        )


def resource_findings(config: StackConfig, resources: Sequence[Declared]) -> Iterator[Finding]:
    """Checks declared resources in other regions, such as buckets, copies and snapshots."""
    limits, here = config.regions.limits, get_place(config)
    if not limits.asked:
        return
    breaches: dict[str, list[str]] = {}
    for resource in resources:
        if not resource.type.startswith(_PACKAGES):
            continue
        for region in sorted(set(_regions(resource.inputs, config.provider)) - {here.region, _EVERYWHERE}):
            if (refused := refusal(limits, Place(config.provider, region))) is not None:
                breaches.setdefault(f"{refused.said} (regions.{refused.why})", []).append(resource.name)
    for said, names in breaches.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield Finding.error(
            CODE,
            "gangway:regions",
            f"{', '.join(names[:_NAMED])}{more}: {said}",
            "move them to an allowed region, or change gangway:regions",
        )


def _regions(inputs: Any, provider: str, key: str = "") -> Iterable[str]:
    """The regions in keys for regions and zones, at any depth. Azure writes `East US 2` for eastus2."""
    if isinstance(inputs, Mapping):
        for name, value in inputs.items():
            yield from _regions(value, provider, str(name).lower())
    elif isinstance(inputs, Sequence) and not isinstance(inputs, str):
        for value in inputs:
            yield from _regions(value, provider, key)
    elif isinstance(inputs, str) and not is_unknown(inputs) and key in (*_REGIONS, *_ZONES):
        # The names of a site's regions are arbitrary.
        word = inputs.replace(" ", "").lower() if load_jurisdictions().regions(provider) else inputs
        region = _region_of_zone(word, provider)
        if region is not None or key in _REGIONS:
            yield region or word


def _region_of_zone(word: str, provider: str) -> str | None:
    """`us-east-2` for us-east-2a, `us-central1` for us-central1-a, and a region for itself; else None."""
    known = load_jurisdictions().regions(provider)
    parts = (word, word.rpartition("-")[0], word.rstrip("abcdefghijklmnopqrstuvwxyz"))
    return next((region for region in parts if region in known), None)
