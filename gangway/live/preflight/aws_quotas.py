"""Service Quotas of a stack on AWS, less what other stacks use."""

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import Any

from gangway.components.aws.capacity import load_quotas
from gangway.components.core.limits import QuotaNeed
from gangway.live.preflight.aws_api import Aws
from gangway.live.preflight.check import Check, NoAnswerError, Result, compare_quota

_SOURCE, _DEFAULT = "service-quotas:GetServiceQuota", "service-quotas:GetAWSDefaultServiceQuota"
_NOT_LISTED = "NoSuchResourceException"


def quota_check(aws: Aws, stack: str, need: QuotaNeed) -> Check:
    """The check of one need that has a key."""
    service, _, code = need.key.partition("/")

    def run() -> Result:
        limit = _limit(aws, service, code)
        used = _used(aws, stack, code)
        number = math.ceil(need.amount + (used or 0))
        fix = (
            f"aws service-quotas request-service-quota-increase --region {aws.region} --service-code {service} "
            f"--quota-code {code} --desired-value {number}"
        )
        return compare_quota(need.amount, limit, used, need.unit, fix)

    return Check(f"quota {need.name}", _SOURCE, run, need.path)


def _limit(aws: Aws, service: str, code: str) -> float:
    """The account's limit, or AWS's default for accounts that never had another."""
    for source in (_SOURCE, _DEFAULT):
        try:
            return float(aws.call(source, ServiceCode=service, QuotaCode=code)["Quota"]["Value"])
        except NoAnswerError as refusal:
            if refusal.code != _NOT_LISTED:
                raise
    raise NoAnswerError(f"Service Quotas does not list {service}/{code} in {aws.region}", code=_NOT_LISTED)


def _used(aws: Aws, stack: str, code: str) -> float | None:
    """What is in use apart from this stack, which an update may have; None if no cheap call tells."""
    try:
        if code in _COUNTS:
            source, key, size = _COUNTS[code]
            return sum(size(row) for row in aws.pages(source, key) if not _is_own(row, stack))
        if any(code in (row.on_demand, row.spot) for row in load_quotas().instances):
            return _vcpus(aws, stack, code)
    except NoAnswerError:
        pass
    return None


def _is_own(row: Mapping[str, Any], stack: str) -> bool:
    tags: Iterable[Mapping[str, str]] = row.get("Tags") or row.get("TagSet") or ()
    return any(tag["Key"] == "gangway:stack" and tag["Value"] == stack for tag in tags)


def _persistent_gib(file_system: Mapping[str, Any]) -> float:
    own = file_system.get("LustreConfiguration") or {}
    return float(file_system["StorageCapacity"]) if own.get("DeploymentType") == "PERSISTENT_2" else 0.0


_COUNTS: Mapping[str, tuple[str, str, Callable[[Mapping[str, Any]], float]]] = {
    "L-F678F1CE": ("ec2:DescribeVpcs", "Vpcs", lambda _: 1),
    "L-0263D0A3": ("ec2:DescribeAddresses", "Addresses", lambda _: 1),
    "L-DF5E4CA3": ("ec2:DescribeNetworkInterfaces", "NetworkInterfaces", lambda _: 1),
    "L-8F1B9C74": ("fsx:DescribeFileSystems", "FileSystems", _persistent_gib),
}
"""By quota: the call that lists what counts, the key of its rows, and how much one counts."""


def _vcpus(aws: Aws, stack: str, code: str) -> float:
    rows = [row for row in load_quotas().instances if code in (row.on_demand, row.spot)]
    letters = {letter for row in rows for letter in row.letters}
    spot = any(code == row.spot for row in rows)
    states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    total = 0
    for reservation in aws.pages("ec2:DescribeInstances", "Reservations", Filters=states):
        for row in reservation["Instances"]:
            counts_here = "".join(takewhile(str.isalpha, row["InstanceType"])) in letters
            # A block's machines count in the quota of blocks.
            market = row.get("InstanceLifecycle", "")
            if counts_here and market != "capacity-block" and (market == "spot") == spot and not _is_own(row, stack):
                cpus = row["CpuOptions"]
                total += cpus["CoreCount"] * cpus["ThreadsPerCore"]
    return total
