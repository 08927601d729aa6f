"""Findings that are the same for all providers. Pure."""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import date
from enum import StrEnum
from typing import Any, Final

from gangway.components.catalog.geography import load_jurisdictions
from gangway.components.catalog.loader import Provider, load_provider
from gangway.components.catalog.offerings import region_findings, zone_findings
from gangway.components.catalog.prices import PriceQuote
from gangway.components.catalog.schema import MachineType
from gangway.components.core.capacity import Spot, plan_ladder
from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding
from gangway.components.estimate.cost import CostComponent, Declared, get_key, load_billing
from gangway.components.estimate.regions import Place, refusal
from gangway.stacks.base.registry import get_provider
from gangway.stacks.base.rule import is_unknown, kind
from gangway.stacks.base.shared import PCIE_BUS_GBPS
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_costs import LowestSpot, first_in_reach, unmet_caps

CLUSTER = "gangway:cluster"


def trainable(machine: MachineType) -> Iterable[Finding]:
    """The trainer's image is for x86_64 with CUDA 13, which supports Turing and later."""
    why = None
    if machine.backend != "nccl":
        why = f"its accelerators need the backend {machine.backend}, which the trainer does not have"
    elif machine.architecture != "x86_64":
        why = f"it is {machine.architecture}, but the trainer's image is x86_64"
    elif machine.accelerator.startswith("V100"):
        why = "the trainer's image has CUDA 13, which does not support Volta"
    if why:
        yield Finding.error(
            "machine.not-trained-on",
            CLUSTER,
            f"{machine.name} can be declared, but the trainer cannot run on it: {why}",
            "choose a machine type with NVIDIA GPUs of Turing or later; `gangway catalog list` shows them",
        )


def runs_commands(machine: MachineType) -> Iterable[Finding]:
    """The same for a custom command: nodes have an x86_64 image with NVIDIA's driver and Docker."""
    if machine.backend != "nccl" or machine.architecture != "x86_64":
        yield Finding.error(
            "machine.not-run-on",
            CLUSTER,
            f"{machine.name} can be declared, but commands cannot run on it: nodes must be x86_64 with NVIDIA GPUs",
            "choose a machine type with NVIDIA GPUs; `gangway catalog list` shows them",
        )


def fabric_check(config: StackConfig, least_gbps: float | None) -> Iterable[Finding]:
    """The bandwidth that the job must reach before it starts; nothing without a test."""
    if least_gbps is not None:
        share = f"{config.cluster.fabric_check.min_fraction:g} of the fabric's"
        why = "what PCIe carries between its GPUs" if least_gbps == PCIE_BUS_GBPS else share
        yield Finding.info(
            "fabric.check",
            f"{CLUSTER}.fabric_check",
            f"the job starts only if an all-reduce reaches {least_gbps:g} Gbit/s, {why}",
            "set fabric_check: {enabled: false} to start without a check",
        )


def ignored_check(config: StackConfig, least_gbps: float | None, why: str) -> Iterable[Finding]:
    """An explicit fabric check without effect; `why` names what has no fabric, if there are several nodes."""
    is_explicit = "fabric_check" in config.cluster.model_fields_set and config.cluster.fabric_check.enabled
    reason = f"{'one node' if config.cluster.nodes.max < 2 else why} has no fabric to test"
    if config.own_command is not None:
        reason = "the fabric is not tested before a custom command"
    if is_explicit and least_gbps is None:
        yield Finding.warning(
            "fabric.check-ignored", f"{CLUSTER}.fabric_check", f"of no effect: {reason}", "remove fabric_check"
        )


def offering_findings(
    config: StackConfig, machine: MachineType, provider: Provider, zone: str, today: date
) -> Iterable[Finding]:
    """Whether region and zones offer the cluster's machine type and those of its rungs. `zone`: may be empty."""
    catalog, ladder = load_provider(provider), plan_ladder(config.cluster.capacity)
    region, reserved = config.region, all(rung.reserved for rung in ladder)
    yield from region_findings(machine, region, catalog.regions, today, reserved=reserved)
    if zone:
        yield from zone_findings(machine, region, zone, f"{CLUSTER}.zone", today, reserved=reserved)
    for index, rung in enumerate(ladder):
        path = f"{CLUSTER}.capacity[{index}]"
        for name in rung.machine_types:
            further = catalog.machine(name, f"{path}.machine_types")
            yield from region_findings(further, region, catalog.regions, today, path=f"{path}.machine_types")
        for other in rung.zones:
            if other != zone:
                named = f"{path}.{'zone' if rung.reserved else 'zones'}"
                yield from zone_findings(machine, region, other, named, today, reserved=rung.reserved)


def ways_out(config: StackConfig, remaining: Mapping[str, str], fix: str = "") -> Iterable[Finding]:
    """How data can leave the network. `remaining`: ways that `egress: endpoints` leaves open, with the reason."""
    path = "gangway:network.egress"
    if config.network.egress is Egress.NAT:
        yield Finding.info(
            "network.ways-out",
            path,
            "machines reach the whole internet: programs on them can send data anywhere",
            "if the images contain all packages, close it with egress: endpoints",
        )
    elif remaining:
        ways, reasons = " and ".join(remaining), "; ".join(remaining.values())
        yield Finding.info("network.ways-out", path, f"data can still leave {ways}: {reasons}", fix)


def zone(name: str, reason: str) -> Iterable[Finding]:
    """The zone that the plan chose."""
    if reason:
        yield Finding.info(
            "placement.zone",
            f"{CLUSTER}.zone",
            f"{name} chosen: {reason}; nodes and file system share one zone",
            "if your quota or capacity is in another zone, write that one",
        )


def spot_notice(config: StackConfig, notice_sec: int) -> Iterable[Finding]:
    """How long spot machines have to save a checkpoint."""
    spots = [index for index, rung in enumerate(config.cluster.capacity) if isinstance(rung, Spot)]
    if spots:
        yield Finding.info(
            "capacity.notice",
            f"{CLUSTER}.capacity[{spots[0]}]",
            f"spot machines get {notice_sec} s of notice: the job has 25 s for its checkpoint; if that is too short, "
            "training since the last checkpoint is lost",
        )


def spot_caps(config: StackConfig, machine: MachineType, provider: Provider) -> Iterable[Finding]:
    """Price caps that keep all machines away, and caps without effect."""
    catalog, unmet = load_provider(provider), unmet_caps(config, machine)
    spot = catalog.price(machine.name, config.region, "spot")
    on_demand = catalog.price(machine.name, config.region, "on-demand")
    for position, rung in enumerate(config.cluster.capacity):
        cap = rung.max_usd_per_hour if isinstance(rung, Spot) else None
        path = f"{CLUSTER}.capacity[{position}].max_usd_per_hour"
        if cap is None:
            continue
        if position in unmet:
            yield _unmet_cap(cap, unmet[position], path, first_in_reach(config, machine))
            continue
        if spot is not None and not spot.limit and spot.high is not None and cap < spot.high:
            yield _low_cap(cap, spot, path, machine)
        if on_demand is not None and on_demand.is_bounded and cap > (on_demand.high or 0.0):
            yield Finding.warning(
                "capacity.spot-cap-high",
                path,
                f"{cap:g} USD is above the on-demand price, {on_demand.usd:g} USD, which is the limit without a cap "
                f"({on_demand.source}, {on_demand.expected.dated})",
                "leave max_usd_per_hour out: the on-demand price is the default limit",
            )


def _unmet_cap(cap: float, lowest: LowestSpot, path: str, first: int | None) -> Finding:
    source = f"{lowest.quote.source}, {lowest.quote.expected.dated}"
    make, so = Finding.warning, "the plan ignores this rung"
    if first is None:
        make, so = Finding.error, "the job never starts"
    return make(
        "capacity.spot-cap-low",
        path,
        f"{cap:g} USD is below the lowest spot price seen for {lowest.machine_type}, {lowest.quote.low:g} USD: no "
        f"machine will come, and {so} ({source})",
        f"set max_usd_per_hour: {lowest.quote.high:g}",
    )


def _low_cap(cap: float, spot: PriceQuote, path: str, machine: MachineType) -> Finding:
    seen = "seen" if spot.low is None else f"seen, {spot.low:g} to {spot.high:g} USD"
    counted = min(cap, spot.usd or cap)
    return Finding.info(
        "capacity.spot-cap-within",
        path,
        f"{cap:g} USD is below the highest spot price of {machine.name} {seen}: while the price is above the cap, no "
        f"machine comes, and running ones are reclaimed; the bill counts {counted:g} USD ({spot.source}, "
        f"{spot.expected.dated})",
        f"set max_usd_per_hour: {spot.high:g} for all prices seen",
    )


def member_key_refreshed(config: StackConfig, *, has_key: bool) -> Iterable[Finding]:
    """A renewed member key, and when machines get it; or a setting without effect."""
    number, place = config.work.member_key_refresh, "gangway:job.member_key_refresh"
    if number and has_key:
        yield Finding.info(
            "job.member-key",
            place,
            f"member key number {number}: machines get it when they start, and do not connect to machines with another",
            "after the `up` that creates it, restart the head first, then the nodes",
        )
    elif number:
        yield Finding.warning(
            "job.member-key-ignored",
            place,
            "of no effect: a single node connects to no other, and a command's torchrun does not use the key",
            "remove member_key_refresh",
        )


def nodes_stay(config: StackConfig, *, can_leave: bool = True) -> Iterable[Finding]:
    """Nodes that cost after the job. `can_leave`: whether they could terminate by themselves."""
    if not config.nodes_leave:
        yield Finding.info(
            "job.nodes-stay",
            "gangway:job.terminate_when_done",
            "the nodes stay, and cost, when the job is done",
            "set terminate_when_done: true, or destroy the stack afterwards" if can_leave else "destroy the stack then",
        )


def idle_stop(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    """What ends an idle job, and whether it can."""
    idle, path = config.cluster.idle_stop, f"{CLUSTER}.idle_stop"
    if idle is None:
        return
    if machine.backend != "nccl":
        yield Finding.error(
            "idle.unmeasured",
            path,
            f"of no effect: nodes cannot measure how busy the accelerators of {machine.name} are, so these always "
            "count as active",
            "remove idle_stop; max_hours ends the job",
        )
        return
    waiting = "" if config.cluster.nodes.min == 1 else f"; waiting for {config.cluster.nodes.min} nodes is idle too"
    yield Finding.info(
        "idle.stop",
        path,
        f"once every GPU of all nodes was below {idle.below_percent} % for {idle.minutes} minutes, also after the "
        f"job's end, the job saves and ends, its nodes leave and are not replaced{waiting}. Head, file system and "
        "network stay, and cost, until the stack is destroyed",
        "a command that works without its GPUs touches $GANGWAY_BUSY_FILE at least every two minutes"
        if config.own_command
        else "",
    )


def runs_deleted(config: StackConfig) -> Iterable[Finding]:
    """Records that are deleted with the stack."""
    if not config.work.keep_runs:
        yield Finding.warning(
            "job.runs-deleted",
            f"gangway:{'engine' if config.engine.has_queue else 'job'}.keep_runs",
            "`destroy` deletes the run bucket with all its records and checkpoints",
            "remove keep_runs, or copy the runs before `destroy`",
        )


def unknown_replacements(config: StackConfig, resources: Sequence[Declared]) -> Iterable[Finding]:
    """Names in allow_replace without a resource with data: misspelt, or removed by this update."""
    guarded = get_provider(config.provider).retention.guarded
    names = sorted({resource.name for resource in resources if kind(resource.type) in guarded})
    for name in config.allow_replace:
        if name not in names:
            existing = f"those of this plan: {', '.join(names)}" if names else "this plan has none"
            yield Finding.warning(
                "data.allow-replace-unknown",
                "gangway:allow_replace",
                f"{name} is not the name of a resource with data ({existing}): it has an effect only if this update "
                "removes a resource of that name",
                f"remove {name}, or write one of these names",
            )


_KINDS = {
    # RFC 2606 and RFC 6761: no one can own these names.
    "a name reserved for examples": r"(?:[@/.]|^)example\.(?:com|net|org|edu)\b|\.(?:example|invalid)\b",
    # RFC 5737 and RFC 3849.
    "a network reserved for documentation": r"\b(?:192\.0\.2|198\.51\.100|203\.0\.113)\.\d|\b2001:0?db8:",
    # AWS uses these in its documentation.
    "an account number from documentation": r"(?<!\d)(?:123456789012|111122223333|444455556666|0{12})(?!\d)",
    "an id that only counts up or repeats": r"0123456789-?abcdef|012345-6789ab-cdef|\b([0-9a-f])\1{7}-",
    "a name from an example": r"(?<![\w-])(?:my|your)-(?:project|bucket|org|company|account|registry|team)(?![\w-])",
    "a blank to fill in": r"\b(?:change[-_ ]?me|replace[-_ ]?me|todo|fixme|placeholder)\b|<[a-z][a-z0-9 _-]*>",
}
_PATTERNS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KINDS.items())
_NOT_SETTINGS = ("stack", "stack_name", "job", "tags")
"""Sections without addresses and ids; commands and labels may contain anything."""
_NAMED = 3


def example_kind(text: str) -> str:
    """The kind of placeholder in `text`; empty for none.

    >>> example_kind("ml@example.com"), example_kind("ml@acme.io")
    ('a name reserved for examples', '')
    """
    return next((kind for kind, pattern in _PATTERNS if pattern.search(text)), "")


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}[{index}]")


def placeholder_findings(config: StackConfig) -> Iterator[Finding]:
    """One warning for all placeholders; no error, since plans work without an account."""
    written = config.model_dump(mode="json", exclude_unset=True, exclude=set(_NOT_SETTINGS))
    found = [(path, text, kind) for path, text in _texts(written, "") if (kind := example_kind(text))]
    if not found:
        return
    shown = "; ".join(
        f"{path}: {text if len(text) <= 60 else f'{text[:60]}...'} ({kind})" for path, text, kind in found[:_NAMED]
    )
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    yield Finding.warning(
        "config.placeholder",
        f"gangway:{found[0][0]}",
        f"values of an example: {shown}{more}; alarms will reach no one, or `up` will fail",
        "write your own values",
    )


class Coverage(StrEnum):
    """How a bill covers a resource. `PRICED`: by a line, even if its price is unknown."""

    PRICED = "priced"
    FREE = "free"
    BY_USE = "by use"
    NOWHERE = "nowhere"


def is_billable(kind: str) -> bool:
    """Whether a cloud may bill it: components and Pulumi's own resources are free."""
    return not kind.startswith(("gangway:", "pulumi:"))


def find_coverage(kind: str, name: str, inputs: Mapping[str, Any], priced: Container[str]) -> Coverage:
    """How the bill covers a resource. `priced`: keys of resources with a line, as of `get_key`."""
    table = load_billing()
    if get_key(kind, name) in priced:
        return Coverage.PRICED
    if table.free_of(kind, inputs) is not None:
        return Coverage.FREE
    return Coverage.NOWHERE if table.by_use_of(kind) is None else Coverage.BY_USE


def coverage(resources: Iterable[Declared], lines: Sequence[CostComponent]) -> dict[str, Coverage]:
    """How the bill covers each billable resource, by `get_key`."""
    priced = {key for line in lines for key in line.of}
    return {
        get_key(one.type, one.name): find_coverage(one.type, one.name, one.inputs, priced)
        for one in resources
        if is_billable(one.type)
    }


def unpriced(resources: Iterable[Declared], lines: Sequence[CostComponent]) -> Iterable[Finding]:
    """Warnings for resources without a line that are not known to be free."""
    found = [key.partition("::")[0] for key, how in coverage(resources, lines).items() if how is Coverage.NOWHERE]
    for what, number in sorted(Counter(found).items()):
        yield Finding.warning(
            "cost.not-covered",
            "gangway:cluster",
            f"not in the estimate, and not known to be free: {number} x {what}",
        )


CODE: Final = "regions.refused"
_REGIONS: Final = frozenset({"region", "location", "locations", "vpcregion", "storagelocations", "sourceregion"})
_ZONES: Final = frozenset({"zone", "availabilityzone"})
_EVERYWHERE: Final = "global"  # region of resources with names and addresses only: Azure's DNS zones and action groups
_PACKAGES: Final = ("aws:", "gcp:", "azure-native:", "openstack:", "pulumi:providers:", "pulumi-python:dynamic/")


def get_place(config: StackConfig) -> Place:
    """The stack's place."""
    country = config.site.country or "" if config.site is not None else ""
    return Place(config.provider, config.region, country)


def region_limit_findings(config: StackConfig) -> Iterator[Finding]:
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
        known = load_jurisdictions().regions(provider)
        word = inputs.replace(" ", "").lower() if known else inputs
        # `us-east-2` for us-east-2a, `us-central1` for us-central1-a, and a region for itself.
        parts = (word, word.rpartition("-")[0], word.rstrip("abcdefghijklmnopqrstuvwxyz"))
        region = next((part for part in parts if part in known), None)
        if region is not None or key in _REGIONS:
            yield region or word
