"""What a run uses up once: data that passes a gateway or leaves a region, log lines. Pure.

No declaration fixes how much, so the stack file says it (`gangway:estimate`); what it does not say is named, and not
guessed. Reading the data set within one region costs nothing but requests, which are not counted.
"""

import re
from collections.abc import Iterable
from math import inf

from components.capacity import Spot
from components.catalog import PROVIDERS, load_provider
from components.choices import Egress
from components.cost import CostComponent, used_once
from stacks.settings.config import StackConfig

__all__ = ["idle_settings", "unsaid_usage", "usage_lines"]

_TIER = re.compile(r"egress-internet(?:-from-([0-9]+)tb)?")
"""Services of the catalogue: the way out, and from which volume in a month on another price holds."""
_GIB_PER_TIB = 1024
OF_SPOT = ("taken_percent_per_month", "checkpoint_sec", "restart_sec")
"""Settings that only the estimate of spot reads."""
OF_BILLED = ("source_gib", "source_region", "nat_gib", "log_gib", "download_gib")
"""Settings of what a provider bills by the GiB."""


def usage_lines(config: StackConfig) -> list[CostComponent]:
    """The lines of what the stack file says."""
    return [_line(config, label, service, gib) for label, service, gib in _said(config)]


def unsaid_usage(config: StackConfig) -> tuple[str, ...]:
    """What would cost something and is not in the estimate, with the settings that would put it there."""
    own = config.estimate
    if config.site is not None:
        return ()
    elsewhere = own.source_region != config.region
    unsaid = {
        "the data set's way, where its bucket is in another region (source_region, source_gib)": _source(config)
        and (own.source_region is None or (elsewhere and own.source_gib is None)),
        "data through the NAT gateway (nat_gib)": _nat(config) and own.nat_gib is None,
        "log lines (log_gib)": own.log_gib is None,
        "results that leave the cloud (download_gib)": own.download_gib is None,
    }
    return tuple(what for what, is_unsaid in unsaid.items() if is_unsaid)


def idle_settings(config: StackConfig) -> dict[str, str]:
    """Settings of gangway:estimate that change no figure of this stack -> why."""
    own = config.estimate
    spot = any(isinstance(rung, Spot) for rung in config.cluster.capacity)
    reasons = {
        "source_gib": "" if _source(config) else "there is no storage.source",
        "source_region": "" if _source(config) else "there is no storage.source",
        "nat_gib": "" if _nat(config) else "there is no NAT gateway",
        **dict.fromkeys(OF_SPOT, "" if spot else "no rung is spot"),
    }
    if config.site is not None:
        reasons |= dict.fromkeys(OF_BILLED, f"no list has what a GiB costs with provider: {config.provider}")
    return {name: why for name, why in reasons.items() if why and name in own.model_fields_set}


def _source(config: StackConfig) -> bool:
    return config.storage is not None and config.storage.source is not None


def _nat(config: StackConfig) -> bool:
    return config.network.egress is Egress.NAT


def _said(config: StackConfig) -> Iterable[tuple[str, str, float]]:
    """Label, service of the catalogue, GiB."""
    own = config.estimate
    if config.site is not None:
        return
    if _source(config) and own.source_gib is not None and own.source_region not in (None, config.region):
        yield f"data set from {own.source_region}, once", "transfer-between-regions", own.source_gib
    if _nat(config) and own.nat_gib is not None:
        yield "data through the NAT gateway, a run", "nat-data", own.nat_gib
    if own.log_gib is not None:
        yield "log lines, a run", "log-ingestion", own.log_gib
    if own.download_gib is not None:
        yield from _egress(config, own.download_gib)


def _egress(config: StackConfig, gib: float) -> Iterable[tuple[str, str, float]]:
    """Each tier of the way out with its own price, as if nothing else left the cloud in that month."""
    assert config.provider in PROVIDERS, "as below"
    services = load_provider(config.provider).services_of(config.provider)
    tiers = sorted((int(match[1] or 0), match[0]) for name in services if (match := _TIER.fullmatch(name)))
    ends = (*(start for start, _ in tiers[1:]), inf)
    for (start, service), end in zip(tiers, ends, strict=True):
        part = min(gib, end * _GIB_PER_TIB) - start * _GIB_PER_TIB
        if part > 0:
            beyond = f", beyond {start} TiB" if start else ""
            yield f"results that leave the cloud, a run{beyond}", service, part


def _line(config: StackConfig, label: str, service: str, gib: float) -> CostComponent:
    assert config.provider in PROVIDERS, "machines of a site use nothing up that is billed by the GiB"
    price = load_provider(config.provider).service_price(config.provider, config.region, service)
    return used_once(label, price, gib, config.region)
