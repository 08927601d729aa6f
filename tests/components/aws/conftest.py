"""Arguments for every component of AWS; `make`, which declares one of them with changes; CloudWatch's arithmetic."""

import re
from collections.abc import Callable, Collection, Mapping
from operator import ge, gt, lt
from statistics import fmean
from typing import Any

import pulumi
import pytest

from tests.components.fixture_types import Make

MUNGE_KEY = "arn:aws:ssm:us-east-2:1:parameter/gangway/test/munge-key"
KEY = "arn:aws:kms:us-east-2:1:key/x"
MEMBER_KEY = "arn:aws:ssm:us-east-2:1:parameter/gangway/test/member-key"
SIGNING_KEY = "arn:aws:ssm:us-east-2:1:parameter/gangway/test/signing-key"


# A program that makes components -> what it declared; `declare` is in the conftest above.
Declare = Callable[[Callable[[], object]], Any]


@pytest.fixture
def tags() -> dict[str, str]:
    return {"team": "ml", "gangway:stack": "test"}


@pytest.fixture
def pool_args(tags: dict[str, str]) -> dict[str, Any]:
    """Arguments of EfaNodePool, to be varied."""
    return {
        "machine_type": "p4d.24xlarge",
        "num_nodes_min": 2,
        "num_nodes_max": 4,
        "capacity": [{"kind": "spot", "max_usd_per_hour": 9.5}, {"kind": "on-demand"}],
        "subnet_ids": ["subnet-1"],
        "security_group_ids": ["sg-1"],
        "image_id": "ami-01234567",
        "instance_profile_arn": "arn:aws:iam::1:instance-profile/x",
        "user_data": "IyE=",
        "root_volume_gib": 200,
        "tags": tags,
    }


@pytest.fixture
def fleet_args(tags: dict[str, str]) -> dict[str, Any]:
    """What Ec2Fleet and SpotFleet have in common: two templates, two zones."""
    return {
        "num_nodes": 2,
        "templates": [
            {
                "launch_template_id": "lt-1",
                "launch_template_version": "1",
                "machine_types": ["p4d.24xlarge", "p4de.24xlarge"],
            },
            {"launch_template_id": "lt-2", "launch_template_version": "3", "machine_types": ["p5.48xlarge"]},
        ],
        "subnet_ids": {"us-east-2a": "subnet-1", "us-east-2b": "subnet-2"},
        "tags": tags,
    }


@pytest.fixture
def network_args(tags: dict[str, str]) -> dict[str, Any]:
    """Arguments of TrainingNetwork, to be varied."""
    return {
        "cidr": "10.42.0.0/16",
        "region": "us-east-2",
        "zones": ["us-east-2a", "us-east-2b"],
        "egress": "endpoints",
        "tags": tags,
    }


@pytest.fixture
def identity_args(tags: dict[str, str]) -> dict[str, Any]:
    """What NodeIdentity and HeadIdentity have in common."""
    return {
        "run_bucket_arn": "arn:aws:s3:::runs",
        "repository_arn": "arn:aws:ecr:us-east-2:1:repository/x",
        "stack": "test",
        "log_group_arn": "arn:aws:logs:us-east-2:1:log-group:x",
        "kms_key_arn": KEY,
        "member_key_arn": MEMBER_KEY,
        "signing_key_arn": SIGNING_KEY,
        "tags": tags,
    }


@pytest.fixture
def example_args(
    tags: dict[str, str],
    pool_args: dict[str, Any],
    network_args: dict[str, Any],
    fleet_args: dict[str, Any],
    identity_args: dict[str, Any],
    written: Callable[..., dict[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Arguments that make each component declare everything it can, by class name."""
    return {
        "Budget": {
            "monthly_usd": 100.0,
            "emails": ["a@example.com"],
            "alert_percent": [50.0],
            "stop_at_percent": 120.0,
            "tag_key": "gangway:stack",
            "tag_value": "test",
            "kms_key_arn": KEY,
            "tags": tags,
        },
        "CostTagActivation": {"tag_keys": ["team", "gangway:stack"]},
        "Ec2Fleet": {**fleet_args, "market": "spot", "max_usd_per_hour": 23.125},
        "EfaNodePool": {**pool_args, "capacity": [written("bought"), *pool_args["capacity"]]},
        "EksCluster": {
            "stack": "test",
            "version": "1.36",
            "region": "us-east-2",
            "subnet_ids": ["subnet-1", "subnet-2"],
            "service_cidr": "172.20.0.0/16",
            "api_cidrs": ["203.0.113.0/24"],
            "kms_key_arn": KEY,
            "log_days": 30,
            "tags": tags,
        },
        "EncryptionKey": {"region": "us-east-2", "tags": tags},
        "SecretParameter": {"what": "signing-key", "pem": "PEM", "stack": "test", "kms_key_arn": KEY, "tags": tags},
        "HeadIdentity": identity_args,
        "HeadNode": {
            "subnet_id": "subnet-1",
            "security_group_ids": ["sg-head"],
            "instance_profile_arn": "arn:aws:iam::1:instance-profile/head",
            "user_data": "IyE=",
            "host_name": "head.test.gangway.internal",
            "zone_id": "Z1",
            "tags": tags,
        },
        "HeadZone": {"vpc_id": "vpc-1", "region": "us-east-2", "tags": tags},
        "SecurityGroups": {
            "vpc_id": "vpc-1",
            "head": {"rendezvous_port": 29400, "metrics_port": 9400, "lustre": True},
            "tags": tags,
        },
        "ImageBuilder": {
            "repository_arn": "arn:aws:ecr:us-east-2:1:repository/x",
            "region": "us-east-2",
            "tags": tags,
        },
        "ImageRegistry": {"kms_key_arn": KEY, "tags": tags},
        "LustreFileSystem": {
            "capacity_gib": 1200,
            "throughput_mbps_per_tib": 125,
            "subnet_id": "subnet-1",
            "security_group_id": "sg-1",
            "source": "s3://bucket/prefix",
            "runs": "s3://runs/test",
            "kms_key_arn": KEY,
            "log": True,
            "tags": tags,
        },
        "MachineImage": {
            "base_image_id": "ami-01234567",
            "script": "#!/usr/bin/env bash",
            "subnet_id": "subnet-1",
            "security_group_ids": ["sg-1"],
            "repository_arn": "arn:aws:ecr:us-east-2:1:repository/x",
            "root_volume_gib": 200,
            "root_device_name": "/dev/sda1",
            "kms_key_arn": KEY,
            "keep": 3,
            "region": "us-east-2",
            "stack": "test",
            "tags": tags,
        },
        "NodeIdentity": {**identity_args, "self_termination": True},
        "NodeLogs": {"stack": "test", "retention_days": 30, "kms_key_arn": KEY, "tags": tags},
        "Observability": {
            "stack": "test",
            "region": "us-east-2",
            "group_names": ["test-0-spot", "test-1-on-demand"],
            "emails": ["a@example.com"],
            "steps_alarm_minutes": 30,
            "expect_gpu": True,
            "tags": tags,
        },
        "RunBucket": {"kms_key_arn": KEY, "tags": tags},
        "SlurmIdentity": {
            "role": "head",
            "stack": "test",
            "munge_key_arn": MUNGE_KEY,
            "kms_key_arn": KEY,
            "tags": tags,
        },
        "SpotFleet": {**fleet_args, "fleet_role_arn": "arn:aws:iam::1:role/fleet", "max_usd_per_hour": 23.125},
        "TrainingNetwork": {
            **network_args,
            "egress": "nat",
            "head": {"rendezvous_port": 29400, "metrics_port": 9400},
            "s3_bucket_arns": ["arn:aws:s3:::runs"],
            "kms_key_arn": KEY,
        },
    }


@pytest.fixture
def make(declare: Declare, example_args: dict[str, dict[str, Any]]) -> Make:
    """Declares one component with its example arguments and the given changes."""

    def run(component: type[pulumi.ComponentResource], **changes: Any) -> Any:
        args: Any = {**example_args[component.__name__], **changes}

        def program() -> None:
            component("demo", args)

        return declare(program)

    return run


Minutes = Mapping[str, list[float | None]]
"""What was reported minute by minute, by the metric's name and, for a group's, ` <group>` behind it; None: nothing."""

_STATISTICS: dict[str, Callable[[list[float]], float]] = {"Sum": sum, "Minimum": min, "Maximum": max, "Average": fmean}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "LessThanThreshold": lt,
    "GreaterThanThreshold": gt,
    "GreaterThanOrEqualToThreshold": ge,
}


class AlarmMaths:
    """CloudWatch's arithmetic, as far as our alarms go: windows that slide by a minute, M of N, missing points.

    The rules are the user guide's: a window without a point has no value; a sum takes a missing point for 0 as long as
    any metric in it has one; FILL fills a metric that has reported before, and has nothing to fill in one that never
    has; a window without a value counts as `treatMissingData` says. Not in it: that CloudWatch looks further back for
    real points when some are missing.
    """

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self._inputs = inputs
        self._metrics = {query["id"]: query["metric"] for query in inputs["metricQueries"] if "metric" in query}
        expressions = [query["expression"] for query in inputs["metricQueries"] if "expression" in query]
        self._expression = expressions[0] if expressions else next(iter(self._metrics))

    def states(self, reported: Minutes) -> list[bool]:
        """Whether it is in ALARM after each minute."""
        count = max(map(len, reported.values()))
        return [self._rings(reported, minute) for minute in range(1, count + 1)]

    def first(self, reported: Minutes) -> int | None:
        """The minute after which it is in ALARM for the first time; None if it never is."""
        return next((minute for minute, rings in enumerate(self.states(reported), start=1) if rings), None)

    def _rings(self, reported: Minutes, now: int) -> bool:
        (period,) = {int(metric["period"]) // 60 for metric in self._metrics.values()}
        windows = int(self._inputs["evaluationPeriods"])
        breaching = sum(self._breaches(reported, now - index * period, period) for index in range(windows))
        return bool(breaching >= self._inputs.get("datapointsToAlarm", windows))

    def _breaches(self, reported: Minutes, end: int, period: int) -> bool:
        """Whether the window of `period` minutes that ends after minute `end` breaches."""
        points: dict[str, float | None] = {}
        existing = set()
        for id_, metric in self._metrics.items():
            series = reported.get(" ".join([metric["metricName"], *metric.get("dimensions", {}).values()]), [])
            window = [value for value in series[max(end - period, 0) : max(end, 0)] if value is not None]
            points[id_] = _STATISTICS[metric["stat"]](window) if window else None
            if any(value is not None for value in series[: max(end, 0)]):
                existing.add(id_)
        value = self._value(points, existing)
        if value is None:
            return self._inputs.get("treatMissingData") == "breaching"
        return _COMPARISONS[self._inputs["comparisonOperator"]](value, self._inputs["threshold"])

    def _value(self, points: Mapping[str, float | None], existing: Collection[str]) -> float | None:
        """The expression: sums and differences, and FILL(one metric, a number)."""
        fill = re.fullmatch(r"FILL\((\w+), (\d+)\)", self._expression)
        if fill:
            point = points[fill[1]]
            return float(fill[2]) if point is None and fill[1] in existing else point
        assert set(re.findall(r"[A-Za-z_]\w*", self._expression)) == set(points), "sums and differences only"
        if all(point is None for point in points.values()):
            return None
        return float(eval(self._expression, {"__builtins__": {}}, {id_: point or 0.0 for id_, point in points.items()}))


@pytest.fixture
def alarm_maths() -> type[AlarmMaths]:
    """Evaluates an alarm as it is declared."""
    return AlarmMaths
