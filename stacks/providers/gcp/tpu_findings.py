"""What a person should know before `up` about TPU slices: their shape, their queue, and what does not go with them.

Pure. What machines of all kinds on Google Cloud share is `findings`.
"""

from collections.abc import Iterable

from components.capacity import AnyRung, Reservation, Spot
from components.findings import Finding, Severity
from components.gcp.capacity_findings import ignored_settings, zone_unnamed
from stacks.providers.gcp.plan import GcpPlan, offered_zones, zone_is_assumed
from stacks.providers.shared_findings import CLUSTER
from stacks.settings.config import StackConfig

__all__ = ["slice_findings"]

# Settings of a cluster that mean nothing to a slice.
_HAS_ITS_OWN = {
    "fabric_check": "the chips' own network is not tested before the job",
    "root_volume_gib": "hosts come with a disk of a fixed size",
    "image_id": "hosts start from the image of their TPU's runtime",
}


def slice_findings(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """All findings that are about slices."""
    yield from _shape(config, planned)
    yield from _state(config)
    yield from _ignored(config)
    yield from _rung(config.cluster.capacity[0])
    if zone_is_assumed(config):
        yield from zone_unnamed(config.cluster.capacity[0], f"{CLUSTER}.capacity[0]", planned.zone)
    yield from _zone(planned)
    yield from _energy(planned)


def _shape(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    tpu, nodes = planned.tpu, config.cluster.nodes
    assert tpu is not None, "asked of slices only"
    hosts = f"{tpu.hosts} host{'s' if tpu.hosts > 1 else ''} of {tpu.chips_per_host} chips"
    yield Finding(
        Severity.INFO,
        "tpu.slice",
        f"{CLUSTER}.accelerator",
        f"{tpu.accelerator_type}: {tpu.chips} chips as {tpu.topology}, {hosts}, image {tpu.runtime_version}; "
        f"nodes are slices",
    )
    if nodes.min != nodes.max:
        yield Finding(
            Severity.ERROR,
            "tpu.fixed-number",
            f"{CLUSTER}.nodes",
            f"the slices of one request come together and train together: {nodes.min} to {nodes.max} is no such number",
            f"set nodes: {{min: {(num := _even_number(config, planned))}, max: {num}}}",
        )
    if nodes.max > 1:
        yield Finding(
            Severity.INFO,
            "tpu.multislice",
            f"{CLUSTER}.nodes",
            f"{nodes.max} slices train as one job of {planned.num_machines} hosts, over the data centre's network: it "
            f"begins when all are there, and stops when one is taken away. What libtpu wants to know of the slices the "
            f"hosts take from their metadata (MEGASCALE_...), which was tried with a stand-in of it only",
            "take one larger slice where there is one: the chips' own network is faster",
        )


def _even_number(config: StackConfig, planned: GcpPlan) -> int:
    """The most slices of those asked for that share the batch evenly, which XLA needs; all of them where none do."""
    batch_size, chips = config.job.effective_config().batch_size, planned.machine.num_accelerators.value
    most = config.cluster.nodes.max
    return next((num for num in range(most, 0, -1) if batch_size % (num * chips) == 0), most)


def _state(config: StackConfig) -> Iterable[Finding]:
    if config.storage is None:
        yield Finding(
            Severity.INFO,
            "tpu.state-in-bucket",
            "gangway:storage",
            "all hosts see a folder of the run bucket as their run directory: it outlives the slices, and is slower "
            "than a file system",
            "add storage where checkpoints or data are large",
        )


def _ignored(config: StackConfig) -> Iterable[Finding]:
    for name, why in _HAS_ITS_OWN.items():
        if name in config.cluster.model_fields_set:
            yield Finding(
                Severity.WARNING,
                "tpu.ignored-setting",
                f"{CLUSTER}.{name}",
                f"of no effect with TPUs: {why}",
                f"remove {name}",
            )
    if config.job.terminate_when_done:
        yield Finding(
            Severity.WARNING,
            "tpu.ignored-setting",
            "gangway:job.terminate_when_done",
            "a slice does not leave the queue by itself: it stays, and costs, when the job is done",
            "destroy the stack then, and leave terminate_when_done out",
        )
    if config.head.model_fields_set:
        yield Finding(
            Severity.WARNING,
            "tpu.ignored-setting",
            "gangway:head",
            "of no effect with TPUs: the hosts of slices meet at their first, and nothing scrapes their metrics",
            "remove the section",
        )


def _rung(rung: AnyRung) -> Iterable[Finding]:
    path = f"{CLUSTER}.capacity[0]"
    yield from ignored_settings(rung, path)
    if isinstance(rung, Spot):
        yield Finding(
            Severity.WARNING,
            "tpu.preemption",
            path,
            "a slice that is taken back stays in the queue as it was, holds its quota, and is not asked for again by "
            "itself: only `pulumi up --refresh` sees it, deletes it and asks anew",
            "run `pulumi up --refresh` on a schedule",
        )
    if isinstance(rung, Reservation):
        yield Finding(
            Severity.INFO,
            "tpu.calendar-mode",
            path,
            f"{rung.id} has to be an ordinary reservation: one that was made in calendar mode has to be asked for with "
            "the provisioning model reservation-bound, which version 2 of the TPU API does not have",
        )


def _zone(planned: GcpPlan) -> Iterable[Finding]:
    zones = offered_zones(planned.machine, planned.tpu)
    if planned.zone not in zones:
        near = [zone for zone in zones if zone.startswith(f"{planned.region.name}-")]
        # A warning: public lists lag behind.
        yield Finding(
            Severity.WARNING,
            "capacity.zone-without-machine",
            f"{CLUSTER}.zone",
            f"{planned.machine.name} is not known to be offered in {planned.zone}",
            f"set zone: {near[0]}" if near else f"zones that have it: {', '.join(zones)}",
        )


def _energy(planned: GcpPlan) -> Iterable[Finding]:
    watts = planned.machine.accelerator_watts
    if watts.value is None:
        yield Finding(Severity.INFO, "energy.unknown", CLUSTER, f"energy and carbon are not estimated: {watts.source}")
