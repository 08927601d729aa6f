"""The ladder's order, kept by CloudWatch: alarms and step policies that fill a rung with what the rungs above it lack.

No code of ours runs in the account, and a fallback rung only makes up for the job's minimum. A node counts once its
group has it in service. A rung is filled when nodes were missing in FILL_MINUTES of the last FILL_WITHIN_MINUTES (a
large machine takes ten minutes and more to come up, while a rung whose nodes come and go is to be made up for), and
emptied after EMPTY_MINUTES in a row without a missing node, longer than FILL_WITHIN_MINUTES - FILL_MINUTES, so that the
two never pull at once. Behind a capacity block that has not begun the alarm pulls in vain: the group is closed
(`components.aws.node_pool`). GroupPendingInstances would tell a node that comes up from one without capacity, but would
take two of an expression's ten metrics for each group: a ladder would end at its sixth rung.
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
    """Steps that fill a rung: (nodes missing above it beyond the first, size to set). A step for each missing node;
    where AWS's 20 do not suffice, each step covers several and sets the largest of them.
    """
    stride = -(-num_nodes // MAX_STEPS)
    return [(beyond, min(beyond + stride, num_nodes)) for beyond in range(0, num_nodes, stride)]


@dataclass(frozen=True)
class Fallback:
    """Declares alarms and policies of one pool.

    Attributes:
        pool: name of the pool, which begins every resource's.
        num_nodes_min: the number of nodes that the ladder keeps up.
        tags: for what can carry them.
        opts: of every resource.
    """

    pool: str
    num_nodes_min: int
    tags: dict[str, str]
    opts: pulumi.ResourceOptions

    def fill_behind(self, suffix: str, group: autoscaling.Group, above: Sequence[autoscaling.Group]) -> None:
        """Fills `group` with exactly the nodes that the rungs above it lack, and empties it when they lack none."""
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
        """Sets the group to the size whose bounds hold the alarm's breach: (size, from, below), from its threshold."""
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
        """An alarm on (minimum - nodes in service above), which is how many nodes are missing. No FILL: groups publish
        their metrics late, and a filled newest minute would look as if all nodes were gone.
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
            metric_queries=[*(_running(index, group) for index, group in enumerate(above)), missing],
            alarm_actions=[policy.arn],
            tags=self.tags,
            opts=self.opts,
        )


def _running(index: int, group: autoscaling.Group) -> cloudwatch.MetricAlarmMetricQueryArgs:
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
