"""The stack's workbook in Azure Monitor as data: what trains, what it runs on, and what went wrong.

Pure. Not the trainer's own figures in full: those are in the Grafana dashboard of `images.observability`. Losses are in
the lines, whose newest are shown below the charts.
"""

from typing import Any

from components.azure.alarms import ALIVE_EVENT, TABLE

__all__ = ["plan_dashboard"]

DAY_MS = 24 * 3600 * 1000
NEWEST_LINES = 200
Item = dict[str, Any]


def plan_dashboard(stack: str, location: str) -> dict[str, Any]:
    """The workbook, as Azure wants it once it is JSON. What it asks is the workspace it belongs to."""
    statistics = f'{TABLE} | where Event == ""'
    counted = '"interrupt", "checkpoint", "node-given-up", "job-ended"'
    items = [
        _text(stack, location),
        _chart("images", "Images per second", f"{statistics} | {_average('images_per_sec')}"),
        _chart("gpu", "GPU utilisation, share of time", f"{statistics} | {_average('gpu_utilisation')}"),
        _chart(
            "nodes",
            "Nodes",
            f'{TABLE} | where Role == "node" and Event == "{ALIVE_EVENT}"'
            " | summarize Nodes = dcount(Node) by bin(TimeGenerated, 5m)",
        ),
        _chart(
            "events",
            "Interruptions, checkpoints, nodes given up, jobs ended",
            f"{TABLE} | where Event in ({counted}) | summarize Times = count() by Event, bin(TimeGenerated, 5m)",
        ),
        _query(
            "newest",
            "Newest lines",
            f'{TABLE} | where Event != "{ALIVE_EVENT}" | top {NEWEST_LINES} by TimeGenerated desc'
            " | project TimeGenerated, Node, Unit, Event, Line",
            "table",
        ),
    ]
    return {"version": "Notebook/1.0", "items": items, "styleSettings": {}}


def _average(field: str) -> str:
    return f"where isnotnull(Line.{field}) | summarize avg(todouble(Line.{field})) by bin(TimeGenerated, 1m)"


def _text(stack: str, location: str) -> Item:
    content = (
        f"# {stack}\nGangway in {location}, table `{TABLE}`. Traffic over InfiniBand bypasses the network metrics of "
        "the machines; the trainer's images per second show what the fabric is worth."
    )
    return {"type": 1, "name": "heading", "content": {"json": content}}


def _chart(name: str, title: str, query: str) -> Item:
    return _query(name, title, query, "timechart")


def _query(name: str, title: str, query: str, visualization: str) -> Item:
    content = {
        "version": "KqlItem/1.0",
        "query": query,
        "size": 0,
        "title": title,
        "timeContext": {"durationMs": DAY_MS},
        # 0 is Log Analytics.
        "queryType": 0,
        "resourceType": "microsoft.operationalinsights/workspaces",
        "visualization": visualization,
    }
    return {"type": 3, "name": name, "content": content}
