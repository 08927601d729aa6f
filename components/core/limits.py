"""Limits of providers: ranges and lists of numbers, private networks, file system settings they lack, and quotas."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any, NotRequired, TypedDict

from gangway.components.core.findings import Finding, InputError, Severity

# Below, late metrics look like a stalled trainer; above, the alarm is useless.
STEPS_ALARM_MINUTES = range(10, 1441)


def nearest_number(wanted: int | None, values: Iterable[int]) -> int:
    """The value closest to `wanted` (None for 0); the larger of two equally close ones.

    >>> nearest_number(1100, [1000, 1200])
    1200
    """
    return min(values, key=lambda value: (abs(value - (wanted or 0)), -value))


def check_within(value: int, allowed: range, place: str, problem: str, unit: str = "") -> None:
    """Check that a value is in a range of step 1. InputError: at `place`, with the nearer end."""
    if value not in allowed:
        raise InputError(
            place,
            problem,
            value=value,
            allowed=f"{allowed.start} to {allowed.stop - 1}{unit}",
            fix=f"set {place.rpartition('.')[2]}: {nearest_number(value, (allowed.start, allowed.stop - 1))}",
        )


def check_steps_alarm(minutes: int) -> None:
    """Check that a window is in STEPS_ALARM_MINUTES. InputError otherwise."""
    problem = "not a window in which missing steps can be told"
    check_within(minutes, STEPS_ALARM_MINUTES, "steps_alarm_minutes", problem, " minutes")


Setting = tuple[bool, Any, str]
"""Whether it is set, its value, and why the service lacks it."""


def refuse_foreign(place: str, service: str, provider: str, settings: Mapping[str, Setting]) -> None:
    """Check that no setting is given that this provider's file system lacks. InputError at `<place>.<setting>`."""
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
    """The tier, MB/s per TiB, as an int: other languages pass 250.0. InputError: no such tier, with the nearest."""
    if (tier := next((tier for tier in tiers if tier == wanted), None)) is not None:
        return tier
    raise InputError(
        f"{place}.throughput_mbps_per_tib",
        f"not a throughput tier of {service}",
        value=wanted,
        allowed=", ".join(map(str, tiers)),
        fix=f"set throughput_mbps_per_tib: {nearest_number(wanted, tiers)}",
    )


CODE = "capacity.quota"


@dataclass(frozen=True)
class QuotaNeed:
    """The most of one quota that a stack uses.

    Attributes:
        unit: empty if the name says it.
        users: what the amount is for; empty if the path says it.
        fix: how to request more; empty if only the console can.
        key: the quota in the provider's API, for checks in the cloud; empty if no API is known to have it.
    """

    path: str
    amount: int
    unit: str
    name: str
    place: str
    users: str
    command: str
    note: str = ""
    fix: str = ""
    key: str = ""

    def finding(self) -> "QuotaFinding":
        """The quota's line in the plan."""
        amount = f"{self.amount:,} {self.unit}".rstrip()
        users = f", for {self.users}" if self.users else ""
        note = f"; {self.note}" if self.note else ""
        message = f"{amount} of the quota {self.name} in {self.place}{users}; `{self.command}` shows the limit{note}"
        return QuotaFinding(Severity.INFO, CODE, self.path, message, self.fix, need=self)


@dataclass(frozen=True, kw_only=True)
class QuotaFinding(Finding):
    """A quota's line in the plan, with the need itself."""

    need: QuotaNeed


def no_quota(path: str, reason: str) -> Finding:
    """A rung's line that needs no quota, with the reason."""
    return Finding.info(CODE, path, f"no quota: {reason}")


def count_nodes(number: int, one: str = "node") -> str:
    """`1 node`, `4 nodes`; `one` is another singular noun."""
    return f"{number} {one}{'' if number == 1 else 's'}"


# RFC 1918. Python's `is_private` also admits loopback, link-local and test ranges, which no VPC can use.
PRIVATE_RANGES = (IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"), IPv4Network("192.168.0.0/16"))
SHORTEST_PREFIX, LONGEST_PREFIX = 16, 20
ALLOWED = f"a private IPv4 network, /{SHORTEST_PREFIX} to /{LONGEST_PREFIX}"
FIX = "use 10.42.0.0/16"


def private_network(cidr: str, place: str = "gangway:network.cidr") -> IPv4Network:
    """Parse `cidr`. InputError: not a private IPv4 network between /16 and /20."""
    try:
        network = IPv4Network(cidr)
    except ValueError as error:
        raise InputError(place, str(error), value=cidr, allowed=ALLOWED, fix=FIX) from None
    is_private = any(network.subnet_of(private) for private in PRIVATE_RANGES)
    if not is_private or not SHORTEST_PREFIX <= network.prefixlen <= LONGEST_PREFIX:
        problem = "this address range does not fit a VPC of private subnets"
        raise InputError(place, problem, value=cidr, allowed=ALLOWED, fix=FIX)
    return network


class HeadPortsArgs(TypedDict):
    """Ports of the rendezvous store and the workers' metrics. `last_metrics_port`: of a range that starts with
    `metrics_port`; without it one port. `lustre` (false): the head mounts a file system.
    """

    rendezvous_port: int
    metrics_port: int
    last_metrics_port: NotRequired[int]
    lustre: NotRequired[bool]


def metrics_ports(head: HeadPortsArgs) -> range:
    """The ports of the workers' metrics."""
    return range(head["metrics_port"], head.get("last_metrics_port", head["metrics_port"]) + 1)


class SlurmPortsArgs(TypedDict):
    """Ports of Slurm: controller, nodes, and a range (first and last) for launches from the head.
    `metrics_ports`: first and last of the nodes' exporters, if any. `lustre` as above.
    """

    controller_port: int
    node_port: int
    client_ports: list[int]
    metrics_ports: NotRequired[list[int]]
    lustre: NotRequired[bool]
