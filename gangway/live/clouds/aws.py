"""AWS: instances with the stack's tag, CloudWatch Logs, and Session Manager."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gangway.components.core.findings import InputError
from gangway.finops.audit.aws import TAG
from gangway.live.nodes import HEAD, LogLine, Node
from gangway.stacks.config.stack_config import StackConfig

_STATES = ("pending", "running", "stopping", "stopped", "shutting-down")
_GROUP_TAGS = ("aws:autoscaling:groupName", "aws:ec2:fleet-id", "aws:ec2spot:fleet-request-id", "eks:nodegroup-name")
_CONTAINER_ID, _SHORT_ID = 64, 12
_FIX = "sign in (aws sso login, or AWS_PROFILE) with the permission that is named"


def list_nodes(config: StackConfig, outputs: Mapping[str, Any]) -> list[Node]:
    """By tag: also of rungs that are no Auto Scaling groups."""
    filters = [
        {"Name": f"tag:{TAG}", "Values": [config.stack]},
        {"Name": "instance-state-name", "Values": list(_STATES)},
    ]
    pages = _pages(config.region, "ec2", "describe_instances", Filters=filters)
    return [_node(row) for page in pages for reservation in page["Reservations"] for row in reservation["Instances"]]


def _node(row: Mapping[str, Any]) -> Node:
    tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", ())}
    rung = HEAD if tags.get("gangway:role") == HEAD else next((tags[key] for key in _GROUP_TAGS if key in tags), "")
    name = str(row.get("PrivateDnsName", "")).partition(".")[0]
    return Node(name or row["InstanceId"], row["InstanceId"], rung, row["State"]["Name"])


def read_log(config: StackConfig, outputs: Mapping[str, Any], since: datetime) -> list[LogLine]:
    """The job's lines, and the nodes' own events, which are in a separate group."""
    group = str(outputs["log_group"])
    start = int(since.timestamp() * 1000)
    # As gangway.components.aws.alarms.events_group, which would load Pulumi's whole provider.
    names = [group, f"{group}/events"]
    pages = (
        page
        for name in names
        for page in _pages(config.region, "logs", "filter_log_events", logGroupName=name, startTime=start)
    )
    return [
        LogLine(
            at=datetime.fromtimestamp(event["timestamp"] / 1000, UTC),
            node=_stream_node(event["logStreamName"]),
            text=event["message"],
            key=event["eventId"],
        )
        for page in pages
        for event in page["events"]
    ]


def _stream_node(stream: str) -> str:
    """`i-.../node` is of an instance, a container's id of a container of an earlier release."""
    name = stream.partition("/")[0]
    return name[:_SHORT_ID] if len(name) == _CONTAINER_ID else name


def shell_argv(config: StackConfig, outputs: Mapping[str, Any], node: Node) -> list[str]:
    """Session Manager: no port is open, and every stack's machines are allowed to answer it."""
    return ["aws", "ssm", "start-session", "--region", config.region, "--target", node.id]


def _pages(region: str, service: str, operation: str, **request: Any) -> Iterator[Mapping[str, Any]]:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        # A new session, since threads must not share one.
        client: Any = boto3.Session().client(service, region_name=region)  # type: ignore[call-overload]
        pages: Sequence[Mapping[str, Any]] = list(client.get_paginator(operation).paginate(**request))
    except (BotoCoreError, ClientError) as error:
        place, action = f"AWS, {region}", f"{service}:{operation.title().replace('_', '')}"
        raise InputError(place, "cannot be read", value=str(error), allowed=action, fix=_FIX) from None
    yield from pages
