"""Prometheus scrape configurations that find a stack's workers, and a Grafana dashboard.

    python -m gangway.images.observability > grafana-dashboard.json

It has every gauge of `gangway.trainer.telemetry.prometheus`, which may not be imported here: a test compares the two.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import yaml

from gangway.components.core.hardware_alerts import STACK, alert_rules
from gangway.components.core.safe_text import google_filter_text
from gangway.images.render import NodeFile, etc_file, template_environment
from gangway.images.specs import MachineSpec

PREFIX = "gangway_trainer_"
_NONE: Mapping[str, int] = MappingProxyType({})
# The classic model of Grafana 10.4 and 11.0; later versions migrate it.
SCHEMA_VERSION = 39
COLUMNS, PANEL_WIDTH, PANEL_HEIGHT = 24, 12, 8
DATASOURCE: Mapping[str, str] = {"type": "prometheus", "uid": "${datasource}"}
_LOST = (
    "loader_stall_seconds",
    "allreduce_wait_seconds",
    "checkpoint_stall_seconds",
    "telemetry_seconds",
    "noise_scale_seconds",
    "controller_seconds",
)
_FULL = ("host_memory_share", "gpu_memory_share", "cpu_wait_share")


@dataclass(frozen=True)
class Panel:
    """One graph. `unit`: Grafana's id (`short`: a plain number); `queries`: PromQL by legend, with {} for labels."""

    title: str
    unit: str
    queries: Mapping[str, str]


def _gauges(*names: str) -> dict[str, str]:
    return {name: f"{PREFIX}{name}{{}}" for name in names}


PANELS: Sequence[Panel] = (
    Panel("Images per second", "short", _gauges("images_per_second")),
    Panel("Images", "short", _gauges("images_total")),
    Panel("Losses", "short", _gauges("loss_g", "loss_d")),
    Panel("Gradient norms", "short", _gauges("grad_norm_g", "grad_norm_d")),
    Panel("R1 penalty", "short", _gauges("r1_penalty")),
    Panel("Workers and nodes", "short", _gauges("world_size", "nodes", "nodes_wanted")),
    Panel("Energy since the start of the session", "joule", _gauges("energy_joules")),
    # A gauge, so deriv() and not rate(); ten minutes smooth the interval between statistics.
    Panel("Power, 10-minute mean", "watt", {"watts": f"deriv({PREFIX}energy_joules{{}}[10m])"}),
    Panel("Power since the last statistics line", "watt", _gauges("watts")),
    Panel("Utilization", "percentunit", _gauges("mfu", "gpu_utilisation", "cpu_utilisation")),
    Panel("Seconds lost to waits and overhead, this session", "s", _gauges(*_LOST)),
    Panel("Memory, GiB", "short", _gauges("rss_gib", "gpu_gib", "host_memory_gib")),
    Panel("Memory use and CPU wait, share", "percentunit", _gauges(*_FULL)),
    Panel("Cores used by other processes", "short", _gauges("neighbour_cores")),
    Panel("Disk reads", "Bps", _gauges("read_bytes_per_second")),
    Panel("Gradient noise scale, images", "short", _gauges("noise_scale_images")),
    Panel("Price of all nodes, USD per hour", "short", _gauges("usd_per_hour")),
    Panel("Grid intensity, gCO2e/kWh", "short", _gauges("grid_g_per_kwh")),
    Panel("Steps", "short", _gauges("step")),
)


Exporters = Mapping[str, int]
"""Ports of the workers' exporters, by scrape job; empty for none."""


def render_prometheus(stack: str, region: str, *, port: int, exporters: Exporters = _NONE) -> str:
    """For the head node, whose role must allow ec2:DescribeInstances; rank 0 serves its metrics at `port`."""
    return _prometheus("prometheus", port, exporters, stack=stack, region=region)


def render_prometheus_gce(
    stack: str, project: str, zones: Sequence[str], *, port: int, exporters: Exporters = _NONE
) -> str:
    """The same on Google Cloud, where it must be allowed to list instances of `zones`."""
    running = f'labels.gangway-stack = {google_filter_text(stack)} AND status = "RUNNING"'
    return _prometheus("prometheus-gce", port, exporters, filter=running, project=project, zones=zones)


def render_prometheus_azure(
    stack: str, place: tuple[str, str], client_id: str, *, port: int, exporters: Exporters = _NONE
) -> str:
    """The same on Azure. `place`: subscription id and resource group; `client_id`: the head's identity."""
    ids = {"subscription_id": place[0], "resource_group_name": place[1], "client_id": client_id}
    return _prometheus("prometheus-azure", port, exporters, stack=stack, **ids)


def render_prometheus_static(stack: str, hosts: Sequence[str], *, port: int, exporters: Exporters = _NONE) -> str:
    """prometheus.yml for fixed `hosts`, the addresses on which rank 0 may run."""
    names = [f"[{host}]" if ":" in host else host for host in hosts]
    return _prometheus("prometheus-static", port, exporters, stack=stack, hosts=names)


def _prometheus(name: str, port: int, exporters: Exporters, **values: Any) -> str:
    jobs = {"gangway-trainer": port, **exporters}
    template = template_environment().get_template(f"{name}.yml.j2")
    return template.render(values, scrape_interval_sec=15, exporters=exporters, jobs=jobs)


def prometheus_files(spec: MachineSpec, scrape_config: str) -> list[NodeFile]:
    """Prometheus' configuration on the head, with alerts if the workers have exporters."""
    alerts = yaml.safe_dump(alert_rules(STACK), sort_keys=False, width=200)
    return [
        etc_file("prometheus.yaml", "0644", scrape_config),
        *([etc_file("alerts.yaml", "0644", alerts)] if spec.exporters else []),
    ]


def grafana_dashboard() -> str:
    """The dashboard as JSON; data source and stack are variables."""
    dashboard = {
        "uid": "gangway-trainer",
        "title": "Gangway trainer",
        "description": "All metrics of rank 0, for one stack.",
        "tags": ["gangway"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": [_panel(index, panel) for index, panel in enumerate(PANELS)],
    }
    return json.dumps(dashboard, indent=2) + "\n"


def _variables() -> list[dict[str, Any]]:
    query = f"label_values({PREFIX}images_total, stack)"
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "stack",
            "label": "Stack",
            "type": "query",
            "datasource": DATASOURCE,
            "query": query,
            "definition": query,
            # Whenever the time range changes.
            "refresh": 2,
        },
    ]


def _panel(index: int, panel: Panel) -> dict[str, Any]:
    per_row = COLUMNS // PANEL_WIDTH
    row, column = divmod(index, per_row)
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": DATASOURCE,
        "gridPos": {"x": column * PANEL_WIDTH, "y": row * PANEL_HEIGHT, "w": PANEL_WIDTH, "h": PANEL_HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": query.replace("{}", '{stack="$stack"}'),
                "legendFormat": legend,
            }
            for number, (legend, query) in enumerate(panel.queries.items())
        ],
    }


if __name__ == "__main__":
    print(grafana_dashboard(), end="")
