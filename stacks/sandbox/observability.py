"""Sandbox handlers: log groups, the metrics read out of them, dashboards, and alarms over other alarms.

Alarms on metrics are in `stacks.sandbox.scaling`.

Moto keeps a dashboard's text and a filter's pattern without reading them: whether they mean something is for the tests
of `components.aws`, not for this module.
"""

import json
from collections.abc import Mapping
from typing import Any

from stacks.sandbox.aws import Aws, one
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]


def _log_group(aws: Aws, wire: Wire) -> Applied:
    wire.skip("skipDestroy")
    name = wire.physical_name()
    days = wire.take("retentionInDays")
    tags = wire.take("tags")
    parameters = aws.request("logs", "CreateLogGroup", {"logGroupName": name, **tags, **wire.rest()})
    aws.call("logs", "CreateLogGroup", parameters)
    retention = aws.request("logs", "PutRetentionPolicy", {"logGroupName": name, **days}) if days else {}
    if retention:
        aws.call("logs", "PutRetentionPolicy", retention)
    # AWS answers this ARN with `:*` behind it, which Pulumi's provider takes away.
    arn = f"arn:aws:logs:{aws.region}:{aws.account}:log-group:{name}"

    def held() -> Mapping[str, Any]:
        found = aws.read("logs", "DescribeLogGroups", {"logGroupNamePrefix": name})["logGroups"]
        group = one([group for group in found if group["logGroupName"] == name])
        return {**group, **aws.read("logs", "ListTagsForResource", {"resourceArn": arn})}

    return Applied(name, wire.outputs(name=name, arn=arn), {**parameters, **retention}, held)


def _metric_filter(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    rename = {"name": "metricName", "namespace": "metricNamespace", "value": "metricValue"}
    (inputs,) = wire.take("metricTransformation").values()
    metric = {rename.get(key, key): value for key, value in inputs.items()}
    asked = {"filterName": name, "metricTransformations": [metric], **wire.rest()}
    parameters = aws.request("logs", "PutMetricFilter", asked, pattern="filterPattern")
    aws.call("logs", "PutMetricFilter", parameters)

    def held() -> Mapping[str, Any]:
        question = {"filterNamePrefix": name, "logGroupName": parameters["logGroupName"]}
        return one(aws.read("logs", "DescribeMetricFilters", question)["metricFilters"])

    return Applied(name, wire.outputs(name=name), parameters, held)


def _dashboard(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("cloudwatch", "PutDashboard", wire.rest())
    aws.call("cloudwatch", "PutDashboard", parameters)
    name = parameters["DashboardName"]

    def held() -> Mapping[str, Any]:
        answer = aws.read("cloudwatch", "GetDashboard", {"DashboardName": name})
        return {**answer, "DashboardBody": json.loads(answer["DashboardBody"])}

    arn = f"arn:aws:cloudwatch::{aws.account}:dashboard/{name}"
    declared = {"DashboardName": name, "DashboardBody": json.loads(parameters["DashboardBody"])}
    return Applied(name, wire.outputs(dashboardArn=arn), declared, held)


def _composite_alarm(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("cloudwatch", "PutCompositeAlarm", {**wire.tags(), **wire.rest()})
    aws.validate("cloudwatch", "PutCompositeAlarm", parameters)
    name = parameters["AlarmName"]
    arn = f"arn:aws:cloudwatch:{aws.region}:{aws.account}:alarm:{name}"
    note = "moto has no PutCompositeAlarm: botocore checked and serialized the request"
    return Applied(name, wire.outputs(arn=arn), note=note)


HANDLERS = {
    "aws:cloudwatch/compositeAlarm:CompositeAlarm": _composite_alarm,
    "aws:cloudwatch/dashboard:Dashboard": _dashboard,
    "aws:cloudwatch/logGroup:LogGroup": _log_group,
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": _metric_filter,
}
