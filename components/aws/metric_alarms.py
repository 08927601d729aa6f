"""One CloudWatch alarm as data, and how it asks for its metrics. Which alarms a stack has is `components.aws.alarms`.

Plans only, no resources. Sums of groups need no FILL: metric math takes a missing point for 0 there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pulumi_aws import cloudwatch

__all__ = ["MAX_GROUPS", "NAMESPACE", "AlarmPlan", "CompositePlan", "MetricPlan", "Missing", "Source"]

NAMESPACE = "Gangway"
# An alarm's expression takes ten metrics, one of which is not a group's.
MAX_GROUPS = 9


class Source(StrEnum):
    """Whose metric it is. The first group wants all nodes; the groups after it only make up for missing ones."""

    TRAINER = "trainer"
    FIRST_GROUP = "first group"
    EVERY_GROUP = "every group"


class Missing(StrEnum):
    """What a window without any point is taken for, in CloudWatch's words."""

    QUIET = "notBreaching"
    RINGS = "breaching"


@dataclass(frozen=True)
class MetricPlan:
    """One metric of an alarm; with EVERY_GROUP, one for each group, as `<id>0`, `<id>1`, ..."""

    id: str
    name: str
    stat: str
    source: Source = Source.TRAINER


@dataclass(frozen=True)
class AlarmPlan:
    """One alarm.

    Attributes:
        name: ends the resource's name.
        description: what is the matter and what to do; the message that people get.
        comparison: of the expression (or the only metric) with the threshold, in CloudWatch's words.
        threshold: in the metric's unit.
        period_sec: length of one window; windows slide by a minute.
        periods: windows that are looked at.
        metrics: what is looked at.
        expression: metric math; `{nodes}` stands for the sum of the metrics of every group.
        breaching: how many of the windows have to breach; all of them when left out.
        missing: what a window without a point counts as.
        tells: whether people hear of it; else it is a part of a CompositePlan.
    """

    name: str
    description: str
    comparison: str
    threshold: float
    period_sec: int
    periods: int
    metrics: tuple[MetricPlan, ...]
    expression: str | None = None
    breaching: int | None = None
    # Nothing at all is reported while nothing runs, and that is no reason to wake anybody.
    missing: Missing = Missing.QUIET
    tells: bool = True

    def queries(self, stack: str, groups: Sequence[str]) -> list[cloudwatch.MetricAlarmMetricQueryArgs]:
        """The alarm's metrics, and the expression over them, for these Auto Scaling groups."""
        found = [query for metric in self.metrics for query in self._of(metric, stack, groups)]
        if self.expression is None:
            return found
        each = [metric.id for metric in self.metrics if metric.source is Source.EVERY_GROUP]
        nodes = " + ".join(f"{id_}{index}" for id_ in each for index in range(len(groups)))
        result = cloudwatch.MetricAlarmMetricQueryArgs(
            id="result", label=self.name, expression=self.expression.format(nodes=nodes), return_data=True
        )
        return [*found, result]

    def _of(
        self, metric: MetricPlan, stack: str, groups: Sequence[str]
    ) -> Iterator[cloudwatch.MetricAlarmMetricQueryArgs]:
        if metric.source is Source.TRAINER:
            yield self._query(metric.id, metric, f"{NAMESPACE}/{stack}", None)
        elif metric.source is Source.FIRST_GROUP:
            yield self._query(metric.id, metric, "AWS/AutoScaling", {"AutoScalingGroupName": groups[0]})
        else:
            for index, group in enumerate(groups):
                yield self._query(f"{metric.id}{index}", metric, "AWS/AutoScaling", {"AutoScalingGroupName": group})

    def _query(
        self, query_id: str, metric: MetricPlan, namespace: str, dimensions: dict[str, str] | None
    ) -> cloudwatch.MetricAlarmMetricQueryArgs:
        return cloudwatch.MetricAlarmMetricQueryArgs(
            id=query_id,
            return_data=self.expression is None,
            metric=cloudwatch.MetricAlarmMetricQueryMetricArgs(
                namespace=namespace,
                metric_name=metric.name,
                dimensions=dimensions,
                period=self.period_sec,
                stat=metric.stat,
            ),
        )


@dataclass(frozen=True)
class CompositePlan:
    """An alarm that rings while all alarms of the names `parts` do. `description` is what people get."""

    name: str
    description: str
    parts: tuple[str, ...]
