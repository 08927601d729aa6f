"""The stack's CloudWatch dashboard as data: what trains, what it runs on, what went wrong, and where the money is.

Pure. Not the trainer's own figures in full: losses come straight from the log, so that they cost no custom metric, and
everything else the trainer measures is in the Grafana dashboard of `images.observability`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from components.aws.metric_alarms import NAMESPACE

__all__ = ["COLUMNS", "plan_dashboard"]

COLUMNS = 24
PERIOD_SEC = 60
BUDGETS_PAGE = "https://console.aws.amazon.com/costmanagement/home#/budgets"

_COUNTED = ("Interruptions", "Checkpoints", "NodesGivenUp", "JobsEndedBadly", "RecordsAtRisk")

Widget = dict[str, Any]
# Width, height and what the widget is, before it has a place.
Sized = tuple[int, int, Widget]


def plan_dashboard(
    stack: str, region: str, log_group: str, groups: Sequence[str], alarm_arns: Sequence[str]
) -> dict[str, Any]:
    """The dashboard's body, as CloudWatch's PutDashboard wants it once it is JSON.

    Args:
        stack: name of the stack; its metrics are in the namespace `Gangway/<stack>`.
        region: of every widget. A dashboard itself belongs to no region.
        log_group: of the stack.
        groups: names of the Auto Scaling groups, in the order of the rungs.
        alarm_arns: alarms whose state is shown on top.
    """
    trainer = f"{NAMESPACE}/{stack}"
    widgets = [
        _text(_heading(stack, region, log_group)),
        (12, 3, {"type": "alarm", "properties": {"title": "Alarms", "alarms": list(alarm_arns)}}),
        _graph("Images per second", region, [[trainer, "ImagesPerSecond"]]),
        _losses(region, log_group),
        _graph("GPU utilisation, share of time", region, [[trainer, "GpuUtilisation"]], top=1.0),
        _graph(
            "Interruptions, checkpoints, nodes given up",
            region,
            [[trainer, name] for name in _COUNTED],
            stat="Sum",
            period_sec=300,
        ),
        _graph("Nodes in service and desired, by rung", region, list(_nodes(groups))),
        _graph(
            "Network out without EFA, bytes by rung",
            region,
            [["AWS/EC2", "NetworkOut", "AutoScalingGroupName", group] for group in groups],
            stat="Sum",
            period_sec=300,
        ),
    ]
    return {"start": "-PT6H", "periodOverride": "inherit", "widgets": list(_placed(widgets))}


def _placed(widgets: Iterable[Sized]) -> Iterator[Widget]:
    """Fills rows from the left; a widget that no longer fits begins the next row."""
    x = y = tallest = 0
    for width, height, widget in widgets:
        if x + width > COLUMNS:
            x, y, tallest = 0, y + tallest, 0
        yield {"x": x, "y": y, "width": width, "height": height, **widget}
        x, tallest = x + width, max(tallest, height)


def _text(markdown: str) -> Sized:
    return 12, 3, {"type": "text", "properties": {"markdown": markdown}}


def _heading(stack: str, region: str, log_group: str) -> str:
    return (
        f"# {stack}\nGangway in {region}, log group `{log_group}`. [Budgets]({BUDGETS_PAGE}). EFA's traffic bypasses "
        "EC2's network metrics; the trainer's images per second show what the fabric is worth."
    )


def _graph(
    title: str,
    region: str,
    metrics: list[list[Any]],
    *,
    stat: str = "Average",
    period_sec: int = PERIOD_SEC,
    top: float | None = None,
) -> Sized:
    axis = {"min": 0} if top is None else {"min": 0, "max": top}
    properties = {
        "title": title,
        "region": region,
        "view": "timeSeries",
        "stacked": False,
        "stat": stat,
        "period": period_sec,
        "metrics": metrics,
        "yAxis": {"left": axis},
    }
    return 12, 6, {"type": "metric", "properties": properties}


def _nodes(groups: Sequence[str]) -> Iterator[list[Any]]:
    for group in groups:
        yield [
            "AWS/AutoScaling",
            "GroupInServiceInstances",
            "AutoScalingGroupName",
            group,
            {"label": f"{group}: in service"},
        ]
        yield ["AWS/AutoScaling", "GroupDesiredCapacity", "AutoScalingGroupName", group, {"label": f"{group}: desired"}]


def _losses(region: str, log_group: str) -> Sized:
    query = (
        f"SOURCE '{log_group}' | filter not ispresent(event) and ispresent(loss_g) "
        "| stats avg(loss_g) as generator, avg(loss_d) as discriminator by bin(5m)"
    )
    properties = {"title": "Losses", "region": region, "view": "timeSeries", "stacked": False, "query": query}
    return 12, 6, {"type": "log", "properties": properties}
