"""Prometheus scrape configurations that find a stack's workers, and Grafana dashboards of the trainer and the hardware.

    python -m gangway.images.observability > grafana-dashboard.json
    python -m gangway.images.observability hardware > grafana-hardware.json

The first has every gauge of `gangway.trainer.telemetry.prometheus`, which may not be imported here: a test compares
them.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gangway.components.core.hardware_alerts import STACK, IdleScope, alert_rules
from gangway.components.core.safe_text import google_filter_text
from gangway.images.render import NodeFile, etc_file, template_environment

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

_GPU, _PORT = "{{instance}} GPU {{gpu}}", "{{instance}} {{device}}"


def _rates(metrics: Mapping[str, str], labels: str) -> dict[str, str]:
    """Per second, by what the metrics count."""
    return {f"{labels} {name}": f"rate({metric}{{}}[5m])" for name, metric in metrics.items()}


def _means(metrics: Mapping[str, str], function: str = "avg") -> dict[str, str]:
    """Of all GPUs of a machine."""
    return {f"{{{{instance}}}} {name}": f"{function} by (instance) ({metric}{{}})" for name, metric in metrics.items()}


HARDWARE_PANELS: Sequence[Panel] = (
    Panel("Alerts", "short", {"{{alertname}} {{alertstate}}": "sum by (alertname, alertstate) (ALERTS{})"}),
    Panel("Exporters that answer", "short", {"{{job}}": "sum by (job) (up{})"}),
    Panel("GPU utilization", "percent", {_GPU: "DCGM_FI_DEV_GPU_UTIL{}"}),
    Panel(
        "Use of GPU parts, mean of a machine",
        "percentunit",
        _means(
            {
                "any engine": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
                "tensor cores": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
                "memory interface": "DCGM_FI_PROF_DRAM_ACTIVE",
            }
        ),
    ),
    Panel("GPU memory in use", "mbytes", {_GPU: "DCGM_FI_DEV_FB_USED{}"}),
    Panel("GPU power", "watt", {_GPU: "DCGM_FI_DEV_POWER_USAGE{}"}),
    # In millijoules.
    Panel(
        "Power of all GPUs, by their energy counters",
        "watt",
        {"all": "sum(rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{}[5m])) / 1000"},
    ),
    Panel("Temperature", "celsius", {_GPU: "DCGM_FI_DEV_GPU_TEMP{}", f"{_GPU} memory": "DCGM_FI_DEV_MEMORY_TEMP{}"}),
    Panel("Clock of the multiprocessors", "hertz", {_GPU: "DCGM_FI_DEV_SM_CLOCK{} * 1e6"}),
    Panel(
        "PCIe, all GPUs of a machine",
        "Bps",
        _means({"received": "DCGM_FI_PROF_PCIE_RX_BYTES", "sent": "DCGM_FI_PROF_PCIE_TX_BYTES"}, "sum"),
    ),
    Panel(
        "GPU errors",
        "short",
        {
            f"{_GPU} last Xid": "DCGM_FI_DEV_XID_ERRORS{}",
            f"{_GPU} remapping of rows failed": "DCGM_FI_DEV_ROW_REMAP_FAILURE{}",
            f"{_GPU} remapped rows": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{}",
        },
    ),
    Panel("Active network ports", "short", {"{{instance}}": "count by (instance) (node_infiniband_state_id{} == 4)"}),
    Panel(
        "EFA", "Bps", _rates({"received": "gangway_efa_rx_bytes_total", "sent": "gangway_efa_tx_bytes_total"}, _PORT)
    ),
    Panel(
        "EFA, packets per second",
        "pps",
        _rates({"dropped": "gangway_efa_rx_drops_total", "sent again": "gangway_efa_retrans_pkts_total"}, _PORT),
    ),
    Panel(
        "InfiniBand and RoCE",
        "Bps",
        _rates(
            {
                "received": "node_infiniband_port_data_received_bytes_total",
                "sent": "node_infiniband_port_data_transmitted_bytes_total",
            },
            _PORT,
        ),
    ),
    Panel(
        "InfiniBand and RoCE, events per second",
        "cps",
        _rates(
            {
                "discards": "node_infiniband_port_discards_transmitted_total",
                "timeouts": "node_infiniband_local_ack_timeout_errors_total",
                "sequence errors": "node_infiniband_packet_sequence_errors_total",
                "out of buffer": "node_infiniband_out_of_buffer_drops_total",
            },
            _PORT,
        ),
    ),
    Panel(
        "Free space, share",
        "percentunit",
        {"{{instance}} {{mountpoint}}": "node_filesystem_avail_bytes{} / node_filesystem_size_bytes{}"},
    ),
    Panel(
        "Lustre",
        "Bps",
        _rates(
            {"read": "gangway_lustre_read_bytes_total", "written": "gangway_lustre_write_bytes_total"}, "{{instance}}"
        ),
    ),
    Panel(
        "Lustre, mean time of an operation",
        "s",
        {
            "{{operation}}": "sum by (operation) (rate(gangway_lustre_operation_microseconds_total{}[5m])) / 1e6"
            " / sum by (operation) (rate(gangway_lustre_operations_total{}[5m]))"
        },
    ),
    Panel(
        "NFS",
        "Bps",
        _rates(
            {
                "read": "node_mountstats_nfs_total_read_bytes_total",
                "written": "node_mountstats_nfs_total_write_bytes_total",
            },
            "{{instance}} {{export}}",
        ),
    ),
)


@dataclass(frozen=True)
class Dashboard:
    """`stacks`: the metric whose label `stack` lists the stacks."""

    uid: str
    title: str
    description: str
    stacks: str
    panels: Sequence[Panel]


TRAINER = Dashboard(
    "gangway-trainer", "Gangway trainer", "All metrics of rank 0, for one stack.", f"{PREFIX}images_total", PANELS
)
HARDWARE = Dashboard(
    "gangway-hardware", "Gangway hardware", "GPUs, fabric and file systems of one stack.", "up", HARDWARE_PANELS
)


Exporters = Mapping[str, int]
"""Ports of the workers' exporters, by scrape job; empty for none."""


def render_prometheus(stack: str, region: str, *, port: int | None, exporters: Exporters = _NONE) -> str:
    """For the head node, whose role must allow ec2:DescribeInstances; rank 0 serves its metrics at `port`, if any."""
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


def _prometheus(name: str, port: int | None, exporters: Exporters, **values: Any) -> str:
    jobs = {**({} if port is None else {"gangway-trainer": port}), **exporters}
    template = template_environment().get_template(f"{name}.yml.j2")
    return template.render(values, scrape_interval_sec=15, exporters=exporters, jobs=jobs)


def prometheus_files(exporters: Exporters, scrape_config: str, idle: IdleScope = STACK) -> list[NodeFile]:
    """Prometheus' configuration on the head, with alerts if the workers have exporters."""
    alerts = json.dumps(alert_rules(idle), indent=1) + "\n"  # JSON is YAML
    return [
        etc_file("prometheus.yaml", "0644", scrape_config),
        *([etc_file("alerts.yaml", "0644", alerts)] if exporters else []),
    ]


def grafana_dashboard(own: Dashboard = TRAINER) -> str:
    """The dashboard as JSON; data source and stack are variables."""
    dashboard = {
        "uid": own.uid,
        "title": own.title,
        "description": own.description,
        "tags": ["gangway"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": _variables(own.stacks)},
        "annotations": {"list": []},
        "links": [],
        "panels": [_panel(index, panel) for index, panel in enumerate(own.panels)],
    }
    return json.dumps(dashboard, indent=2) + "\n"


def _variables(metric: str) -> list[dict[str, Any]]:
    query = f"label_values({metric}, stack)"
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
    print(grafana_dashboard(HARDWARE if sys.argv[1:] == ["hardware"] else TRAINER), end="")
