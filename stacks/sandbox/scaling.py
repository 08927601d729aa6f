"""Sandbox handlers: Auto Scaling groups with hooks, policies and schedules, and the CloudWatch alarms behind those."""

from collections.abc import Mapping
from typing import Any

from stacks.sandbox.aws import Aws, one
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]


def _group(aws: Aws, wire: Wire) -> Applied:
    wire.skip("waitForCapacityTimeout", "forceDelete")
    name = wire.physical_name()
    suspended = wire.take("suspendedProcesses").get("suspendedProcesses", [])
    metrics = wire.take("enabledMetrics", "metricsGranularity")
    subnets = wire.take("vpcZoneIdentifiers").get("vpcZoneIdentifiers", [])
    hooks = _hooks(aws, name, wire)
    sizes = aws.request("autoscaling", "UpdateAutoScalingGroup", wire.take("minSize", "maxSize", "desiredCapacity"))
    parameters = aws.request(
        "autoscaling",
        "CreateAutoScalingGroup",
        {"autoScalingGroupName": name, "vpcZoneIdentifier": ",".join(subnets), **wire.take("tags"), **wire.rest()},
        id="LaunchTemplateId",
    )
    group = {"AutoScalingGroupName": name}
    # The provider's two steps: an empty group that gets its hooks, and only then its nodes.
    aws.call("autoscaling", "CreateAutoScalingGroup", {**parameters, "MinSize": 0, "MaxSize": 0})
    for hook in hooks:
        aws.call("autoscaling", "PutLifecycleHook", hook)
    # Moto forgets a mixed policy that an update does not repeat.
    mixed = {key: value for key, value in parameters.items() if key == "MixedInstancesPolicy"}
    aws.call("autoscaling", "UpdateAutoScalingGroup", {**group, **sizes, **mixed})
    if suspended:
        aws.call("autoscaling", "SuspendProcesses", {**group, "ScalingProcesses": suspended})
    collection = aws.request(
        "autoscaling", "EnableMetricsCollection", metrics, enabledMetrics="Metrics", metricsGranularity="Granularity"
    )
    if "Metrics" in collection:
        aws.call("autoscaling", "EnableMetricsCollection", {**group, **collection})

    declared = {
        **parameters,
        **sizes,
        "LifecycleHooks": hooks,
        "SuspendedProcesses": suspended,
        "EnabledMetrics": [f"{name} {collection['Granularity']}" for name in collection.get("Metrics", [])],
    }
    arn = _held_group(aws, name)["AutoScalingGroupARN"]
    return Applied(
        name, wire.outputs(name=name, arn=arn), declared, lambda: _held_group(aws, name), note=_nodes(aws, name)
    )


def _hooks(aws: Aws, group_name: str, wire: Wire) -> list[dict[str, Any]]:
    """A request for each hook that the group begins with."""
    return [
        aws.request(
            "autoscaling", "PutLifecycleHook", {"autoScalingGroupName": group_name, **hook}, name="LifecycleHookName"
        )
        for hook in wire.take("initialLifecycleHooks").get("initialLifecycleHooks", [])
    ]


def _held_group(aws: Aws, name: str) -> Mapping[str, Any]:
    question = {"AutoScalingGroupNames": [name]}
    group = one(aws.read("autoscaling", "DescribeAutoScalingGroups", question)["AutoScalingGroups"])
    if not group:
        return {}
    hooks = aws.read("autoscaling", "DescribeLifecycleHooks", {"AutoScalingGroupName": name})
    return {
        **group,
        "LifecycleHooks": hooks["LifecycleHooks"],
        "SuspendedProcesses": [item["ProcessName"] for item in group["SuspendedProcesses"]],
        "EnabledMetrics": [f"{item['Metric']} {item['Granularity']}" for item in group["EnabledMetrics"]],
    }


def _nodes(aws: Aws, group_name: str) -> str:
    """What moto made of the nodes: it starts them, but neither wires them as the template says nor finds their AMI."""
    filters = [{"Name": "tag:aws:autoscaling:groupName", "Values": [group_name]}]
    reservations = aws.read("ec2", "DescribeInstances", {"Filters": filters})["Reservations"]
    nodes = [instance for reservation in reservations for instance in reservation["Instances"]]
    if not nodes:
        return ""
    group = _held_group(aws, group_name)
    template = (
        group["LaunchTemplate"]
        if "LaunchTemplate" in group
        else group["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"]
    )
    question = {"LaunchTemplateId": template["LaunchTemplateId"], "Versions": [template["Version"]]}
    version = one(aws.read("ec2", "DescribeLaunchTemplateVersions", question)["LaunchTemplateVersions"])
    declared = version["LaunchTemplateData"].get("NetworkInterfaces", [])
    held = sorted({len(node["NetworkInterfaces"]) for node in nodes})
    notes = [f"moto started {len(nodes)} {nodes[0]['InstanceType']}"]
    if held != [len(declared)]:
        notes.append(f"with {', '.join(map(str, held))} of the template's {len(declared)} network interfaces")
    if nodes[0]["ImageId"].startswith("resolve:"):
        notes.append("and left the AMI reference unresolved, which EC2 resolves at launch")
    return " ".join(notes)


def _policy(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    parameters = aws.request("autoscaling", "PutScalingPolicy", {"policyName": name, **wire.rest()})
    aws.call("autoscaling", "PutScalingPolicy", parameters)

    def held() -> Mapping[str, Any]:
        question = {"AutoScalingGroupName": parameters["AutoScalingGroupName"], "PolicyNames": [name]}
        return one(aws.read("autoscaling", "DescribePolicies", question)["ScalingPolicies"])

    # AWS answers the ARN at once, moto only when asked.
    return Applied(name, wire.outputs(name=name, arn=held()["PolicyARN"]), parameters, held)


def _schedule(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("autoscaling", "PutScheduledUpdateGroupAction", wire.rest())
    aws.call("autoscaling", "PutScheduledUpdateGroupAction", parameters)
    name = parameters["ScheduledActionName"]

    def held() -> Mapping[str, Any]:
        question = {"AutoScalingGroupName": parameters["AutoScalingGroupName"], "ScheduledActionNames": [name]}
        action = one(aws.read("autoscaling", "DescribeScheduledActions", question)["ScheduledUpdateGroupActions"])
        # Boto3 answers a time where the request took text.
        start = {"StartTime": f"{action['StartTime']:%Y-%m-%dT%H:%M:%SZ}"} if "StartTime" in action else {}
        return {**action, **start}

    return Applied(name, wire.outputs(), parameters, held)


def _metric_alarm(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    queries = [_metric_query(query) for query in wire.take("metricQueries").get("metricQueries", [])]
    inputs = {"alarmName": name, **({"metrics": queries} if queries else {}), **wire.tags(), **wire.rest()}
    parameters = aws.request("cloudwatch", "PutMetricAlarm", inputs)
    aws.call("cloudwatch", "PutMetricAlarm", parameters)
    arn = _held_alarm(aws, name)["AlarmArn"]

    def held() -> Mapping[str, Any]:
        tags = aws.read("cloudwatch", "ListTagsForResource", {"ResourceARN": arn})["Tags"]
        return {**_held_alarm(aws, name), "Tags": tags}

    return Applied(name, wire.outputs(name=name, arn=arn), parameters, held)


def _metric_query(query: Mapping[str, Any]) -> dict[str, Any]:
    """Pulumi flattens what CloudWatch calls MetricStat: metric, period and statistic."""
    if "metric" not in query:
        return dict(query)
    stat = ("period", "stat", "unit")
    metric = {key: value for key, value in query["metric"].items() if key not in stat}
    flat = {key: query["metric"][key] for key in stat if key in query["metric"]}
    return {
        **{key: value for key, value in query.items() if key != "metric"},
        "metricStat": {"metric": metric, **flat},
    }


def _held_alarm(aws: Aws, name: str) -> Mapping[str, Any]:
    return one(aws.read("cloudwatch", "DescribeAlarms", {"AlarmNames": [name]})["MetricAlarms"])


HANDLERS = {
    "aws:autoscaling/group:Group": _group,
    "aws:autoscaling/policy:Policy": _policy,
    "aws:autoscaling/schedule:Schedule": _schedule,
    "aws:cloudwatch/metricAlarm:MetricAlarm": _metric_alarm,
}
