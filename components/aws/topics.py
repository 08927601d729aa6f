"""SNS topics that exactly one AWS service may publish to, on behalf of this account. Not a component of its own."""

from collections.abc import Sequence
from typing import Any

import pulumi
from pulumi_aws import sns

from components.aws.names import account_of

__all__ = ["declare_topic", "topic_policy"]


def topic_policy(topic_arn: str, service: str, source: str) -> dict[str, Any]:
    """Only `service` may publish, and only for what matches `source`, an ARN with `{account}` for the topic's own."""
    account = account_of(topic_arn)
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "OneServiceMayPublish",
                "Effect": "Allow",
                "Principal": {"Service": service},
                "Action": "SNS:Publish",
                "Resource": topic_arn,
                "Condition": {
                    "StringEquals": {"aws:SourceAccount": account},
                    "ArnLike": {"aws:SourceArn": source.format(account=account)},
                },
            }
        ],
    }


def declare_topic(
    name: str,
    service: str,
    source: str,
    *,
    kms_key_arn: pulumi.Input[str] | None,
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
    emails: Sequence[str] = (),
) -> sns.Topic:
    """Declares the topic, its policy, and a subscription for each address, whose owner has to confirm it once."""
    topic = sns.Topic(name, kms_master_key_id=kms_key_arn, tags=tags, opts=opts)
    policy = topic.arn.apply(lambda arn: topic_policy(arn, service, source))
    sns.TopicPolicy(name, arn=topic.arn, policy=pulumi.Output.json_dumps(policy), opts=opts)
    for position, email in enumerate(emails):
        sns.TopicSubscription(f"{name}-{position}", topic=topic.arn, protocol="email", endpoint=email, opts=opts)
    return topic
