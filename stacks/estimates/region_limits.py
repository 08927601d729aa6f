"""What a stack file's `regions` forbid of the stack: its region, where its data come from, and where its resources say
that they are. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from components.catalog.jurisdictions import load_jurisdictions
from components.core.findings import Finding
from components.estimate.cost import Declared
from components.estimate.regions import Place, refusal
from stacks.base.rule import is_unknown
from stacks.config.stack_config import StackConfig

CODE: Final = "regions.refused"
_REGIONS: Final = frozenset({"region", "location", "locations", "vpcregion", "storagelocations", "sourceregion"})
_ZONES: Final = frozenset({"zone", "availabilityzone"})
_EVERYWHERE: Final = "global"
"""What holds names and addresses alone: Azure's DNS zones and groups of who is told."""
_PACKAGES: Final = ("aws:", "gcp:", "azure-native:", "openstack:", "pulumi:providers:", "pulumi-python:dynamic/")
_NAMED: Final = 3


def get_place(config: StackConfig) -> Place:
    """Where the stack is."""
    country = config.site.country or "" if config.site is not None else ""
    return Place(config.provider, config.region, country)


def region_findings(config: StackConfig) -> Iterator[Finding]:
    """Of what the stack file itself says: the region, and the region of `storage.source`."""
    limits, here = config.regions.limits, get_place(config)
    if not limits.asked:
        return
    if (refused := refusal(limits, here)) is not None:
        unsaid = config.site is not None and not config.site.country
        fix = (
            "write gangway:site.country, two letters" if unsaid else "choose another region, or change gangway:regions"
        )
        yield Finding.error(CODE, "gangway:region", f"{refused.said} (regions.{refused.why})", fix)
    if config.storage is None or config.storage.source is None:
        return
    source = config.estimate.source_region
    if source is None:
        yield Finding.warning(
            "regions.source-unsaid",
            "gangway:storage.source",
            f"nobody has said in which region {config.storage.source} is: it is not held against gangway:regions",
            "write gangway:estimate.source_region",
        )
    elif source != config.region and (refused := refusal(limits, Place(config.provider, source))) is not None:
        yield Finding.error(
            CODE,
            "gangway:storage.source",
            f"its bucket, from where data are copied: {refused.said} (regions.{refused.why})",
            "copy the data to a region that is allowed first, or change gangway:regions",
        )


def resource_findings(config: StackConfig, resources: Sequence[Declared]) -> Iterator[Finding]:
    """Of what declared resources say, buckets, copies and snapshots among them; those in the stack's own region are
    `region_findings`' matter.
    """
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
            "move them to a region that is allowed, or change gangway:regions",
        )


def _regions(inputs: Any, provider: str, key: str = "") -> Iterable[str]:
    """What keys that name regions and zones hold, at any depth, as regions: Azure writes `East US 2` for eastus2."""
    if isinstance(inputs, Mapping):
        for name, value in inputs.items():
            yield from _regions(value, provider, str(name).lower())
    elif isinstance(inputs, Sequence) and not isinstance(inputs, str):
        for value in inputs:
            yield from _regions(value, provider, key)
    elif isinstance(inputs, str) and not is_unknown(inputs) and key in (*_REGIONS, *_ZONES):
        # Of a site's regions nobody knows how they are spelled.
        word = inputs.replace(" ", "").lower() if load_jurisdictions().regions(provider) else inputs
        region = _region_of_zone(word, provider)
        if region is not None or key in _REGIONS:
            yield region or word


def _region_of_zone(word: str, provider: str) -> str | None:
    """`us-east-2` of us-east-2a, `us-central1` of us-central1-a, and of a region itself; None of anything else."""
    known = load_jurisdictions().regions(provider)
    parts = (word, word.rpartition("-")[0], word.rstrip("abcdefghijklmnopqrstuvwxyz"))
    return next((region for region in parts if region in known), None)
