"""What the usage costs that the stack file declares, such as data transfer and logs. Pure."""

import re
from collections.abc import Iterable, Sequence
from math import inf

from gangway.components.catalog.geography import transfer_price
from gangway.components.catalog.schema import ServicePrice
from gangway.components.core.capacity import Spot
from gangway.components.core.fields import Egress
from gangway.components.estimate.cost import (
    CostComponent,
    Declared,
    from_service,
    load_billing,
    of_resources,
    used_once,
)
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.stack_config import StackConfig

_TIER = re.compile(r"egress-internet(?:-from-([0-9]+)tb)?")  # monthly volume from which a price applies
_GIB_PER_TIB = 1024
_SPOT_SETTINGS = ("taken_percent_per_month",)
_TRAINING_SETTINGS = ("images_per_second", "checkpoint_sec", "restart_sec")
_USAGE = {
    "nat_gib": "data through the NAT gateway",
    "log_gib": "log lines",
    "download_gib": "results that leave the cloud",
    "run_bucket_gib": "contents of the run bucket",
    "image_gib": "images in the registry",
    "flow_log_gib": "flow logs",
    "key_operations": "operations on the stack's key",
}
BILLED_SETTINGS = ("source_gib", "source_region", *_USAGE)
_FLOW_LOGS = {"flow-log-collection": "flow logs, a run", "flow-log-storage": "flow logs kept for a month, a run's"}
_OPERATIONS = 10_000  # key operations per unit of their price


def usage_lines(config: StackConfig, resources: Sequence[Declared] = ()) -> list[CostComponent]:
    """The bill's lines for declared usage. `resources`: the stack's."""
    if config.site is not None:
        return []
    lines = [*_data_transfer(config)]
    for setting, label, service, amount in _run_usage(config):
        line = used_once(label, _price(config, service), amount, config.region)
        lines += of_resources([line], *_billed_resources(setting, resources))
    for setting, label, service, gib in _stored_usage(config, resources):
        line = from_service(label, _price(config, service), gib, config.region)
        lines += of_resources([line], *_billed_resources(setting, resources))
    return lines


def _billed_resources(setting: str, resources: Sequence[Declared]) -> list[Declared]:
    table = load_billing()
    return [one for one in resources if (row := table.by_use_of(one.type)) is not None and setting in row.settings]


def missing_usage(config: StackConfig) -> tuple[str, ...]:
    """Usage that costs but is not in the estimate, with its settings."""
    own = config.estimate
    if config.site is not None:
        return ()
    idle, missing = _unused_settings(config), []
    is_foreign = own.source_region is None or (own.source_region != config.region and own.source_gib is None)
    if _has_source(config) and is_foreign:
        missing.append("transfer of the data set from another region (source_region, source_gib)")
    missing_usage = (name for name in _USAGE if not idle.get(name) and getattr(own, name) is None)
    return (*missing, *(f"{_USAGE[name]} ({name})" for name in missing_usage), "requests, messages and calls")


def idle_settings(config: StackConfig) -> dict[str, str]:
    """Settings of gangway:estimate that change no figure of this stack, and why."""
    own = config.estimate
    spot = any(isinstance(rung, Spot) for rung in config.cluster.capacity)
    reasons = dict.fromkeys(_SPOT_SETTINGS, "" if spot else "no rung is spot")
    if config.own_command is not None:
        reasons |= dict.fromkeys((*_SPOT_SETTINGS, *_TRAINING_SETTINGS), "custom commands are not forecast")
    elif config.job is None:
        reasons |= dict.fromkeys((*_SPOT_SETTINGS, *_TRAINING_SETTINGS), "jobs of a queue are not forecast")
    if config.site is not None:
        reasons |= dict.fromkeys(BILLED_SETTINGS, f"provider: {config.provider} has no list prices for usage")
    else:
        reasons |= _unused_settings(config)
    return {name: why for name, why in reasons.items() if why and name in own.model_fields_set}


def _unused_settings(config: StackConfig) -> dict[str, str]:
    services = _services(config)
    source = "" if _has_source(config) else "there is no storage.source"
    flow_logs = "" if config.network.flow_logs else "there are no flow logs"
    built = "" if config.ready_image is None else "the stack has no registry, since its image exists already"
    return {
        "source_gib": source,
        "source_region": source,
        "nat_gib": "" if config.network.egress is Egress.NAT else "there is no NAT gateway",
        "image_gib": built if "image-storage" in services else "the registry's price includes images",
        "flow_log_gib": flow_logs
        if "flow-log-collection" in services
        else "flow logs are billed as log lines (log_gib)",
        "key_operations": "" if config.encryption == "customer-key" else "the stack has no key",
    }


def _has_source(config: StackConfig) -> bool:
    return config.storage is not None and config.storage.source is not None


def _services(config: StackConfig) -> frozenset[str]:
    return get_provider(config.provider).catalog_here().get_services(config.provider)


def _price(config: StackConfig, service: str) -> ServicePrice:
    return get_provider(config.provider).catalog_here().service_price(config.provider, config.region, service)


def _data_transfer(config: StackConfig) -> Iterable[CostComponent]:
    own = config.estimate
    if not _has_source(config) or own.source_gib is None or own.source_region in (None, config.region):
        return
    usd = transfer_price(config.provider, own.source_region, config.region)
    price = ServicePrice(provider=config.provider, region=config.region, service="transfer", unit="GiB", usd=usd)
    yield used_once(f"data set from {own.source_region}, once", price, own.source_gib, config.region)


def _run_usage(config: StackConfig) -> Iterable[tuple[str, str, str, float]]:
    own, idle = config.estimate, _unused_settings(config)
    if not idle["nat_gib"] and own.nat_gib is not None:
        yield "nat_gib", "data through the NAT gateway, a run", "nat-data", own.nat_gib
    if own.log_gib is not None:
        yield "log_gib", "log lines, a run", "log-ingestion", own.log_gib
    if not idle["flow_log_gib"] and own.flow_log_gib is not None:
        for service, label in _FLOW_LOGS.items():
            yield "flow_log_gib", label, service, own.flow_log_gib
    if not idle["key_operations"] and own.key_operations is not None:
        amount = own.key_operations / _OPERATIONS
        yield "key_operations", "operations on the stack's key, a run", "key-operations", amount
    if own.download_gib is not None:
        yield from _egress(config, own.download_gib)


def _stored_usage(config: StackConfig, resources: Sequence[Declared]) -> Iterable[tuple[str, str, str, float]]:
    own, bucket_service = config.estimate, get_provider(config.provider).bucket_service
    if own.run_bucket_gib is not None and bucket_service is not None:
        yield "run_bucket_gib", f"run bucket: {own.run_bucket_gib:g} GiB", bucket_service(resources), own.run_bucket_gib
    if own.image_gib is not None and not _unused_settings(config)["image_gib"]:
        yield "image_gib", f"image registry: {own.image_gib:g} GiB", "image-storage", own.image_gib


def _egress(config: StackConfig, gib: float) -> Iterable[tuple[str, str, str, float]]:
    """Egress by price tier, as if nothing else left the cloud in that month."""
    tiers = sorted((int(match[1] or 0), match[0]) for name in _services(config) if (match := _TIER.fullmatch(name)))
    ends = (*(start for start, _ in tiers[1:]), inf)
    for (start, service), end in zip(tiers, ends, strict=True):
        part = min(gib, end * _GIB_PER_TIB) - start * _GIB_PER_TIB
        if part > 0:
            above = f", beyond {start} TiB" if start else ""
            yield "download_gib", f"results that leave the cloud, a run{above}", service, part
