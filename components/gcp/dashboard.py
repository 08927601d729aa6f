"""The stack's dashboard in Cloud Monitoring as data: what trains, what it runs on, and what went wrong.

Pure. Not the trainer's own figures in full: those are in the Grafana dashboard of `images.observability`. Losses are in
the log, whose newest lines are shown below the charts.
"""

from collections.abc import Sequence
from typing import Any

from components.gcp.alarms import MONITORED_RESOURCE, metric_name

__all__ = ["plan_dashboard"]

PERIOD = "60s"
Widget = dict[str, Any]


def plan_dashboard(
    stack: str, region: str, log_name: str, groups: Sequence[str], alarms: Sequence[str]
) -> dict[str, Any]:
    """The dashboard's body, as Cloud Monitoring's API wants it once it is JSON.

    Args:
        stack: name of the stack, which is part of its metrics' names.
        region: for the heading.
        log_name: full name of the stack's log.
        groups: names of the managed instance groups, in the order of the rungs.
        alarms: full names of alert policies whose state is shown on top.
    """
    counted = ("Interruptions", "Checkpoints", "NodesGivenUp", "JobsEndedBadly")
    widgets = [
        _text(stack, region, log_name),
        *(
            {"title": "Alarms", "incidentList": {"policyNames": list(alarms)}},
            _chart("Images per second", [_logged(stack, "ImagesPerSecond", "ALIGN_DELTA", "REDUCE_MEAN")]),
            _chart("GPU utilisation, share of time", [_logged(stack, "GpuUtilisation", "ALIGN_DELTA", "REDUCE_MEAN")]),
            _chart(
                "Interruptions, checkpoints, nodes given up",
                [_logged(stack, name, "ALIGN_DELTA", "REDUCE_SUM") | {"legendTemplate": name} for name in counted],
            ),
        ),
        *([_chart("Nodes, by rung", [_sizes(groups)])] if groups else []),
        {"title": "Newest lines", "logsPanel": {"filter": f'logName="{log_name}"'}},
    ]
    return {"displayName": f"gangway-{stack}", "gridLayout": {"columns": "2", "widgets": widgets}}


def _text(stack: str, region: str, log_name: str) -> Widget:
    content = (
        f"# {stack}\nGangway in {region}, log `{log_name}`. Traffic of the GPUs' own network bypasses the metrics of "
        "Compute Engine; the trainer's images per second show what the fabric is worth."
    )
    return {"text": {"content": content, "format": "MARKDOWN"}}


def _chart(title: str, data_sets: list[dict[str, Any]]) -> Widget:
    return {"title": title, "xyChart": {"dataSets": data_sets, "yAxis": {"scale": "LINEAR"}}}


def _line(metric_filter: str, aggregation: dict[str, Any]) -> dict[str, Any]:
    query = {"timeSeriesFilter": {"filter": metric_filter, "aggregation": {"alignmentPeriod": PERIOD, **aggregation}}}
    return {"timeSeriesQuery": query, "plotType": "LINE"}


def _logged(stack: str, metric: str, aligner: str, reducer: str) -> dict[str, Any]:
    metric_type = f"logging.googleapis.com/user/{metric_name(stack, metric)}"
    metric_filter = f'metric.type="{metric_type}" resource.type="{MONITORED_RESOURCE}"'
    return _line(metric_filter, {"perSeriesAligner": aligner, "crossSeriesReducer": reducer})


def _sizes(groups: Sequence[str]) -> dict[str, Any]:
    named = ", ".join(f'"{group}"' for group in groups)
    metric_filter = (
        'metric.type="compute.googleapis.com/instance_group/size" resource.type="instance_group" '
        f"resource.label.instance_group_name=one_of({named})"
    )
    aggregation = {
        "perSeriesAligner": "ALIGN_MEAN",
        "crossSeriesReducer": "REDUCE_SUM",
        "groupByFields": ["resource.label.instance_group_name"],
    }
    return _line(metric_filter, aggregation)
