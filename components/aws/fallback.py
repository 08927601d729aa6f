"""Keeps the ladder's order with CloudWatch alarms and step policies that fill a rung with what those above it lack.

No code of ours runs in the account, and a fallback rung only covers the job's minimum. A node counts once it is in
service. A rung is filled when nodes were missing in FILL_MINUTES of the last FILL_WITHIN_MINUTES (a large machine takes
ten minutes or more to boot, and a rung with frequent interruptions needs a fallback), and emptied after EMPTY_MINUTES
in a row without a missing node, longer than FILL_WITHIN_MINUTES - FILL_MINUTES, so that the two never act at once.
Behind a capacity block that has not started the alarm has no effect: the group is closed
(`gangway.components.aws.node_pool`). GroupPendingInstances would distinguish booting nodes from missing capacity, but
takes two of an expression's ten metrics per group, which would limit a ladder to six rungs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import autoscaling, cloudwatch

__all__ = ["Fallback", "plan_fill_steps"]

FILL_MINUTES = 15
FILL_WITHIN_MINUTES = 30
EMPTY_MINUTES = 20
# AWS allows 20 adjustments a scaling policy.
MAX_STEPS = 20


def plan_fill_steps(num_nodes: int) -> list[tuple[int, int]]:
    """Steps (nodes missing above, beyond the first; size to set). Beyond AWS's 20 steps each covers several."""
    stride = -(-num_nodes // MAX_STEPS)
    return [(beyond, min(beyond + stride, num_nodes)) for beyond in range(0, num_nodes, stride)]


@dataclass(frozen=True)
class Fallback:
    """Declares the alarms and policies of one pool. `pool` is the prefix of resource names."""

    pool: str
    num_nodes_min: int
    tags: dict[str, str]
    opts: pulumi.ResourceOptions

    def fill_behind(self, suffix: str, group: autoscaling.Group, above: Sequence[autoscaling.Group]) -> None:
        """Fill `group` with exactly the nodes that the rungs above it lack."""
        steps = plan_fill_steps(self.num_nodes_min)
        ends = [*(str(beyond) for beyond, _ in steps[1:]), None]
        fill = [(size, str(beyond), end) for (beyond, size), end in zip(steps, ends, strict=True)]
        fill_policy = self._policy(f"{suffix}-fill", group, fill)
        empty_policy = self._policy(f"{suffix}-empty", group, [(0, None, "0")])
        rising, falling = "GreaterThanOrEqualToThreshold", "LessThanThreshold"
        self._missing_nodes_alarm(f"{suffix}-fill", above, fill_policy, rising, FILL_MINUTES, FILL_WITHIN_MINUTES)
        self._missing_nodes_alarm(f"{suffix}-empty", above, empty_policy, falling, EMPTY_MINUTES, EMPTY_MINUTES)

    def _policy(
        self, suffix: str, group: autoscaling.Group, steps: Sequence[tuple[int, str | None, str | None]]
    ) -> autoscaling.Policy:
        """Set the group to the size for the alarm's breach: (size, from, below), relative to its threshold."""
        return autoscaling.Policy(
            f"{self.pool}-{suffix}",
            autoscaling_group_name=group.name,
            policy_type="StepScaling",
            adjustment_type="ExactCapacity",
            metric_aggregation_type="Maximum",
            step_adjustments=[
                autoscaling.PolicyStepAdjustmentArgs(
                    scaling_adjustment=size, metric_interval_lower_bound=lower, metric_interval_upper_bound=upper
                )
                for size, lower, upper in steps
            ],
            opts=self.opts,
        )

    def _missing_nodes_alarm(
        self,
        suffix: str,
        above: Sequence[autoscaling.Group],
        policy: autoscaling.Policy,
        comparison: str,
        minutes: int,
        within_minutes: int,
    ) -> None:
        """An alarm on (minimum - nodes in service above), the number of missing nodes. No FILL: metrics arrive late,
        and a filled newest minute would look as if all nodes were gone.
        """
        in_service = " - ".join(f"m{index}" for index in range(len(above)))
        missing = cloudwatch.MetricAlarmMetricQueryArgs(
            id="missing",
            label="nodes missing above this rung",
            expression=f"{self.num_nodes_min} - {in_service}",
            return_data=True,
        )
        cloudwatch.MetricAlarm(
            f"{self.pool}-{suffix}",
            alarm_description=f"{self.pool}: nodes missing on the rungs above",
            comparison_operator=comparison,
            threshold=1,
            evaluation_periods=within_minutes,
            datapoints_to_alarm=minutes,
            metric_queries=[*(_nodes_query(index, group) for index, group in enumerate(above)), missing],
            alarm_actions=[policy.arn],
            tags=self.tags,
            opts=self.opts,
        )


def _nodes_query(index: int, group: autoscaling.Group) -> cloudwatch.MetricAlarmMetricQueryArgs:
    """Nodes in service in one group, as `m0`, `m1`, ..."""
    return cloudwatch.MetricAlarmMetricQueryArgs(
        id=f"m{index}",
        return_data=False,
        metric=cloudwatch.MetricAlarmMetricQueryMetricArgs(
            namespace="AWS/AutoScaling",
            metric_name="GroupInServiceInstances",
            dimensions={"AutoScalingGroupName": group.name},
            period=60,
            stat="Minimum",
        ),
    )
