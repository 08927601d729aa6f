"""Errors of parallel file systems that read the same on every provider. Sizes and tiers are the providers' own."""

from collections.abc import Mapping
from typing import Any

from components.findings import InputError
from components.limits import nearest_number

__all__ = ["Setting", "check_tier", "refuse_foreign"]

Setting = tuple[bool, Any, str]
"""Whether it was given, its value, and why the service has no such thing."""


def refuse_foreign(place: str, service: str, provider: str, settings: Mapping[str, Setting]) -> None:
    """Refuses the first setting that was given although this provider's file system has none such.

    Raises:
        InputError: at `<place>.<setting>`.
    """
    for name, (given, value, why) in settings.items():
        if given:
            raise InputError(
                f"{place}.{name}",
                f"not a setting of {service}: {why}",
                value=value,
                allowed=f"no {name} with provider: {provider}",
                fix=f"leave {name} out",
            )


def check_tier(place: str, service: str, tiers: Mapping[int, Any] | tuple[int, ...], wanted: int | None) -> int:
    """The tier, MB/s per TiB.

    Raises:
        InputError: the service has no such tier; the fix names the nearest.
    """
    if wanted is not None and wanted in tiers:
        return wanted
    raise InputError(
        f"{place}.throughput_mbps_per_tib",
        f"not a throughput tier of {service}",
        value=wanted,
        allowed=", ".join(map(str, tiers)),
        fix=f"set throughput_mbps_per_tib: {nearest_number(wanted, tiers)}",
    )
