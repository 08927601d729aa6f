"""Findings that several providers say of their nodes in the same words. Pure.

What depends on nothing but the stack file and the prices is `stacks.planning.checks`; these take what a provider's plan
knows.
"""

from collections.abc import Iterable

from components.capacity import Spot
from components.catalog import MachineType, Provider, load_provider
from components.findings import Finding, Severity
from stacks.settings.config import StackConfig

__all__ = ["CLUSTER", "fabric_check", "ignored_check", "nodes_stay", "spot_caps", "spot_notice", "trainable", "zone"]

CLUSTER = "gangway:cluster"


def trainable(machine: MachineType) -> Iterable[Finding]:
    """The trainer's image is x86_64 with CUDA 13, which begins with Turing."""
    why = None
    if machine.backend != "nccl":
        why = f"its accelerators need {machine.backend}, and the trainer has no such backend"
    elif machine.architecture != "x86_64":
        why = f"it is {machine.architecture}, and the trainer's image is x86_64"
    elif machine.accelerator.startswith("V100"):
        why = "the trainer's image holds CUDA 13, which no longer runs on Volta"
    if why:
        yield Finding(
            Severity.ERROR,
            "machine.not-trained-on",
            CLUSTER,
            f"{machine.name} can be declared, but nothing would train on it: {why}",
            "choose a machine type with NVIDIA GPUs of Turing or later; `gangway catalog list` names them",
        )


def fabric_check(config: StackConfig, least_gbps: float | None) -> Iterable[Finding]:
    """What the job has to reach before it starts; nothing where nothing is tested."""
    if least_gbps is not None:
        yield Finding(
            Severity.INFO,
            "fabric.check",
            f"{CLUSTER}.fabric_check",
            f"before the job an all-reduce has to reach {least_gbps:g} Gbit/s, "
            f"{config.cluster.fabric_check.min_fraction:g} of the fabric's, or it does not start",
            "set fabric_check: {enabled: false} to start without",
        )


def ignored_check(config: StackConfig, least_gbps: float | None, why: str) -> Iterable[Finding]:
    """A fabric check that somebody wrote where several nodes have nothing to be tested: `why`; or one node has."""
    written = "fabric_check" in config.cluster.model_fields_set and config.cluster.fabric_check.enabled
    if written and least_gbps is None:
        yield Finding(
            Severity.WARNING,
            "fabric.check-ignored",
            f"{CLUSTER}.fabric_check",
            f"of no effect: {'one node' if config.cluster.nodes.max < 2 else why} has no fabric to be tested",
            "remove fabric_check",
        )


def zone(name: str, reason: str) -> Iterable[Finding]:
    """A zone that nobody chose."""
    if reason:
        yield Finding(
            Severity.INFO,
            "placement.zone",
            f"{CLUSTER}.zone",
            f"{name} chosen: {reason}; nodes and file system share one zone",
            "set zone where your quota or capacity is elsewhere",
        )


def spot_notice(config: StackConfig, notice_sec: int) -> Iterable[Finding]:
    """How long a spot machine may save."""
    spots = [index for index, rung in enumerate(config.cluster.capacity) if isinstance(rung, Spot)]
    if spots:
        yield Finding(
            Severity.INFO,
            "capacity.notice",
            f"{CLUSTER}.capacity[{spots[0]}]",
            f"spot machines get {notice_sec} s of notice: the job has 25 s for its checkpoint, and what was trained "
            f"since the last one is lost where that is too short",
        )


def spot_caps(config: StackConfig, machine: MachineType, provider: Provider) -> Iterable[Finding]:
    """Price caps with which no machine will come."""
    price = load_provider(provider).price(machine.name, config.region)
    low = None if price is None else price.spot_low.value
    for position, rung in enumerate(config.cluster.capacity):
        cap = rung.max_usd_per_hour if isinstance(rung, Spot) else None
        if price is not None and low is not None and cap is not None and cap < low:
            yield Finding(
                Severity.WARNING,
                "capacity.spot-cap-low",
                f"{CLUSTER}.capacity[{position}].max_usd_per_hour",
                f"{cap:g} USD is below the lowest spot price seen for {machine.name}, {low:g} USD",
                f"set max_usd_per_hour: {price.spot_high.value:g}",
            )


def nodes_stay(config: StackConfig, *, can_leave: bool = True) -> Iterable[Finding]:
    """Nodes that go on costing; `can_leave` where they could leave by themselves."""
    if not config.job.terminate_when_done:
        yield Finding(
            Severity.INFO,
            "job.nodes-stay",
            "gangway:job.terminate_when_done",
            "the nodes stay, and cost, when the job is done",
            "set terminate_when_done: true, or destroy the stack then" if can_leave else "destroy the stack then",
        )
