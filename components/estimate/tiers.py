"""Errors for a size that a file system's tier lacks: the nearest size, and the tiers that have it, with prices."""

from collections.abc import Iterable

from gangway.components.catalog.loader import Provider, load_provider
from gangway.components.core.findings import InputError
from gangway.components.core.limits import nearest_number

__all__ = ["refuse_size"]


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
    """An error for `capacity_gib` with the nearest of `sizes`, or a tier of `others` that takes the size as it is.
    `allowed`: text; `bill`: provider, region and service name, to which a tier is appended; `tier`: MB/s per TiB, None
    if the service has only one.
    """
    near = nearest_number(capacity_gib, sizes)
    fix = f"set capacity_gib: {near}{_price(bill, near, tier)}"
    for other in others:
        fix += f", or throughput_mbps_per_tib: {other} with the {capacity_gib} GiB{_price(bill, capacity_gib, other)}"
    return InputError(f"{place}.capacity_gib", problem, value=capacity_gib, allowed=allowed, fix=fix)


def _price(bill: tuple[Provider, str, str], size_gib: int, tier: int | None) -> str:
    """Its price per month in brackets, with the region if it is another one's."""
    provider, region, service = bill
    price = load_provider(provider).service_price(provider, region, service if tier is None else f"{service}-{tier}")
    if price.usd.value is None:
        return " (price not known)"
    where = f" in {price.region}" if price.region != region else ""
    return f" (${price.usd.value * size_gib:,.0f} a month{where})"
