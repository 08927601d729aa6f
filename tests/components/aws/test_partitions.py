"""Policies of GovCloud and China name the ARNs of their own partition."""

import json
from typing import Any

import pytest

from gangway.components.aws.budget import stop_policy
from gangway.components.aws.identity import head_policy, key_policy, node_policy
from gangway.components.aws.monitoring import topic_policy
from gangway.components.aws.network import delivery_trust, s3_endpoint_policy

GOV = ("us-gov-west-1", "aws-us-gov")
CHINA = ("cn-north-1", "aws-cn")


def policies(region: str, partition: str) -> list[dict[str, Any]]:
    bucket, logs = f"arn:{partition}:s3:::runs", f"arn:{partition}:logs:{region}:1234:log-group:x"
    repository = f"arn:{partition}:ecr:{region}:1234:repository/x"
    return [
        key_policy("1234", region),
        delivery_trust("1234", region),
        s3_endpoint_policy(region, [bucket], "1234"),
        node_policy(bucket, repository, "demo", log_group_arn=logs, self_termination=True),
        head_policy(bucket, repository, "demo", log_group_arn=logs),
        stop_policy(logs, "demo"),
        topic_policy(f"arn:{partition}:sns:{region}:1234:x", "s.amazonaws.com", "arn:{partition}:s::{account}:*"),
    ]


@pytest.mark.parametrize(("region", "partition"), [GOV, CHINA])
def test_no_policy_names_another_partition(region: str, partition: str) -> None:
    made = list(policies(region, partition))
    assert made
    for policy in made:
        text = json.dumps(policy)
        assert "arn:aws:" not in text, policy


def test_elsewhere_they_name_the_partition_of_most_regions() -> None:
    named = [json.dumps(policy) for policy in policies("eu-west-1", "aws")]
    assert named
    assert all("arn:aws:" in text for text in named)
