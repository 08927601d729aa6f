"""Sizes of managed file systems: those around a wanted one, the nearest, and the error for one that a tier lacks."""

from collections.abc import Iterable, Mapping
from typing import Any

from gangway.components.catalog.loader import (
    Provider,
    load,
    load_amlfs_subnets,
    load_amlfs_tiers,
    load_filestore_tiers,
    load_lustre_tiers,
    load_provider,
)
from gangway.components.catalog.schema import AmlfsTier, LustreOffer, SizeRange
from gangway.components.core.findings import InputError
from gangway.components.core.limits import nearest_number

GIB_PER_TIB = 1024


def fsx_steps(offer: LustreOffer, tier: int | None, efa: bool) -> tuple[int, int]:
    """The smallest size of FSx for Lustre, and the step of the others. `tier`: None for scratch."""
    if not efa or tier is None:
        return offer.smallest_gib.value, offer.step_gib.value
    return offer.efa_step_gib.value[tier], offer.efa_step_gib.value[tier]


def fsx_sizes_around(offer: LustreOffer, tier: int | None, efa: bool, wanted: int) -> list[int]:
    """As `sizes_around`: one small size and multiples of a step; with EFA, multiples of the tier's step."""
    smallest, step = fsx_steps(offer, tier, efa)
    if wanted == smallest or (wanted >= step and wanted % step == 0):
        return [wanted]
    below = wanted // step * step or smallest
    around = sorted({size for size in (smallest, below, below + step, step) if size >= smallest})
    return [*[size for size in around if size < wanted][-1:], *[size for size in around if size > wanted][:1]]


def sizes_around(tier: SizeRange, wanted: int) -> list[int]:
    """The next smaller and larger sizes of a tier, ascending; only `wanted` if it is valid."""
    step, until, large = tier.step_gib.value, tier.step_until_gib.value, tier.large_step_gib.value
    smallest, largest = tier.smallest_gib.value, tier.largest_gib.value
    inside = min(max(wanted, smallest), largest)
    width = step if inside <= until else large
    # The last small size may be more than a step below the first large one.
    below = max(inside // width * width, until // step * step if inside > until else smallest)
    above = -(-inside // width) * width
    return sorted({below, min(above, largest)}) if inside == wanted else [inside]


def amlfs_largest_tib(tier: AmlfsTier) -> int:
    """The largest size of a tier of Azure Managed Lustre with a published subnet size."""
    step = tier.step_tib.value
    return min(tier.largest_tib.value, load_amlfs_subnets()[-1].up_to_tib) // step * step


def amlfs_sizes_around(tier: AmlfsTier, wanted: int) -> list[int]:
    """As `sizes_around`, for Azure Managed Lustre."""
    step, largest = tier.step_tib.value * GIB_PER_TIB, amlfs_largest_tib(tier) * GIB_PER_TIB
    inside = min(max(wanted, step), largest)
    return sorted({inside // step * step, -(-inside // step) * step})


def nearest_size(provider: str, storage: Mapping[str, Any], wanted: int) -> int:
    """The nearest valid size; `wanted` if the tier is invalid or unlisted, which another error reports."""
    sizes = _sizes(provider, storage, wanted)
    return nearest_number(wanted, sizes) if sizes else wanted


def _sizes(provider: str, storage: Mapping[str, Any], wanted: int) -> list[int]:
    tier = storage.get("throughput_mbps_per_tib", 0)
    match provider, storage.get("kind"):
        case "aws", "lustre":
            offer = load().lustre["aws"]
            if storage.get("deployment") == "scratch":
                return fsx_sizes_around(offer, None, False, wanted)
            known = tier in offer.throughput_mbps_per_tib.value
            return fsx_sizes_around(offer, tier, storage.get("efa") is True, wanted) if known else []
        case "gcp", "lustre":
            lustre = load_lustre_tiers()
            return sizes_around(lustre[tier], wanted) if tier in lustre else []
        case "gcp", "filestore":
            filestore, name = load_filestore_tiers(), storage.get("tier", "basic-ssd")
            return sizes_around(filestore[name], wanted) if name in filestore else []
        case "azure", "lustre":
            amlfs = load_amlfs_tiers()
            return amlfs_sizes_around(amlfs[tier], wanted) if tier in amlfs else []
    return []


def refuse_size(
    place: str,
    capacity_gib: int,
    problem: str,
    allowed: str,
    sizes: Iterable[int],
    *,
    bill: tuple[Provider, str, str],
    tier: int | None,
    others: Iterable[int] = (),
) -> InputError:
    """An error with the nearest of `sizes`, or a tier of `others`. `bill`: provider, region, service."""
    near = nearest_number(capacity_gib, sizes)
    fix = f"set capacity_gib: {near}{_price(bill, near, tier)}"
    for other in others:
        fix += f", or throughput_mbps_per_tib: {other} with the {capacity_gib} GiB{_price(bill, capacity_gib, other)}"
    return InputError(f"{place}.capacity_gib", problem, value=capacity_gib, allowed=allowed, fix=fix)


def _price(bill: tuple[Provider, str, str], size_gib: int, tier: int | None) -> str:
    provider, region, service = bill
    price = load_provider(provider).service_price(provider, region, service if tier is None else f"{service}-{tier}")
    if price.usd.value is None:
        return " (price not known)"
    where = f" in {price.region}" if price.region != region else ""
    return f" (${price.usd.value * size_gib:,.0f} a month{where})"
