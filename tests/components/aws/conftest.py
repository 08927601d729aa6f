"""Arguments for every component of AWS, and `make`, which declares one of them with changes."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

PURCHASE = {
    "kind": "capacity-block",
    "purchase": True,
    "offering_id": "cbo-0123456789abcdef0",
    "upfront_usd": 16000,
    "ends_at": "2026-07-01T11:30:00Z",
}


KEY = "arn:aws:kms:us-east-2:1:key/x"


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
        "tags": tags,
    }


@pytest.fixture
def example_args(
    tags: dict[str, str],
    pool_args: dict[str, Any],
    network_args: dict[str, Any],
    fleet_args: dict[str, Any],
    identity_args: dict[str, Any],
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
        "EfaNodePool": {**pool_args, "capacity": [PURCHASE, *pool_args["capacity"]]},
        "EncryptionKey": {"region": "us-east-2", "tags": tags},
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
        "NodeIdentity": {**identity_args, "data_source": "s3://bucket/prefix", "self_termination": True},
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
def make(declare: Declare, example_args: dict[str, dict[str, Any]]) -> Callable[..., Any]:
    """Declares one component with its example arguments and the given changes."""

    def run(component: type[pulumi.ComponentResource], **changes: Any) -> Any:
        args: Any = {**example_args[component.__name__], **changes}

        def program() -> None:
            component("demo", args)

        return declare(program)

    return run
