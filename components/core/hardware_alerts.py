"""Prometheus alerts on GPUs, fabric and file systems. tests/images/exported has the exporters' metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

GPU_JOB, NODE_JOB = "gangway-dcgm-exporter", "gangway-node-exporter"
"""Names of the scrape jobs of dcgm-exporter and node_exporter."""
_SHARED_FILES = 'fstype=~"lustre|nfs4?|ceph"'
_FILES = 'fstype=~"lustre|nfs4?|ceph|ext4|xfs"'
# "Analyzing Xid Errors with the Xid Catalog": these come from the application; each of the others needs a look.
_JOB_XIDS = (13, 31, 43, 45)


@dataclass(frozen=True)
class Alert:
    """`minutes`: how long `query` must have a result; `summary`: may use Prometheus' template language."""

    name: str
    query: str
    minutes: int
    severity: str
    summary: str


@dataclass(frozen=True)
class IdleScope:
    """Which GPUs should work: those with `selector`, if another with the same `label` does."""

    label: str
    selector: str = ""


STACK = IdleScope("stack")
"""The job of a stack uses all its GPUs."""
MACHINE = IdleScope("instance")
"""Jobs of Slurm use whole machines."""
POD = IdleScope("instance", 'pod!=""')
"""Jobs in a cluster use the GPUs that their pods requested."""


def alert_rules(idle: IdleScope) -> dict[str, Any]:
    """The content of a rule file."""
    rules = [
        {
            "alert": alert.name,
            "expr": alert.query,
            "for": f"{alert.minutes}m",
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary},
        }
        for alert in (*_gpu_alerts(idle), *_FABRIC, *_FILE_SYSTEM, *_EXPORTERS)
    ]
    return {"groups": [{"name": "gangway-hardware", "rules": rules}]}


def _gpu_alerts(idle: IdleScope) -> Sequence[Alert]:
    gpu = "GPU {{ $labels.gpu }} of {{ $labels.instance }}"
    label, used = idle.label, f"DCGM_FI_DEV_GPU_UTIL{{{idle.selector}}}"
    return (
        Alert(
            "GpuXid",
            f"DCGM_FI_DEV_XID_ERRORS > 0{''.join(f' != {xid}' for xid in _JOB_XIDS)}",
            0,
            "critical",
            f"{gpu}: Xid {{{{ $value }}}}",
        ),
        Alert(
            "GpuRowRemapFailure",
            "DCGM_FI_DEV_ROW_REMAP_FAILURE > 0",
            0,
            "critical",
            f"{gpu} has no spare memory rows: replace it",
        ),
        # GPUs of data centres slow down from about 87 degrees, their memory from about 95.
        Alert(
            "GpuHot",
            "DCGM_FI_DEV_GPU_TEMP > 85 or DCGM_FI_DEV_MEMORY_TEMP > 95",
            5,
            "warning",
            f"{gpu} has {{{{ $value }}}} degrees Celsius and is about to reduce its clocks",
        ),
        Alert(
            "GpuIdle",
            f"max_over_time({used}[15m]) == 0 and on ({label}) max by ({label}) (avg_over_time({used}[15m])) > 20",
            0,
            "warning",
            f"{gpu} did nothing for 15 minutes, while others of the job worked",
        ),
    )


_PORT = "{{ $labels.device }} of {{ $labels.instance }}"
_FABRIC = (
    # 4: active. A port that was never up may have no cable.
    Alert(
        "FabricLinkDown",
        "node_infiniband_state_id != 4 and max_over_time(node_infiniband_state_id[6h]) == 4",
        2,
        "critical",
        f"{_PORT} is no longer active",
    ),
    Alert(
        "FabricLinkUnstable",
        "increase(node_infiniband_link_downed_total[30m]) > 0",
        0,
        "warning",
        f"the link of {_PORT} went down in the last 30 minutes",
    ),
    Alert(
        "FabricRetransmits",
        "rate(gangway_efa_retrans_pkts_total[10m]) > 0.001 * rate(gangway_efa_tx_pkts_total[10m])"
        " or rate(node_infiniband_local_ack_timeout_errors_total[10m]) > 1"
        " or rate(node_infiniband_packet_sequence_errors_total[10m]) > 1",
        10,
        "warning",
        f"{_PORT} sends packets again",
    ),
    Alert(
        "FabricDrops",
        "rate(gangway_efa_rx_drops_total[10m]) > 1"
        " or rate(node_infiniband_port_discards_transmitted_total[10m]) > 1"
        " or rate(node_infiniband_out_of_buffer_drops_total[10m]) > 1",
        10,
        "warning",
        f"{_PORT} drops packets",
    ),
)
_MOUNT = "{{ $labels.mountpoint }}{{ $labels.target }} on {{ $labels.instance }}"
_FILE_SYSTEM = (
    Alert(
        "FileSystemNearlyFull",
        f"node_filesystem_avail_bytes{{{_FILES}}} / node_filesystem_size_bytes{{{_FILES}}} < 0.1",
        15,
        "warning",
        f"{_MOUNT} has {{{{ $value | humanizePercentage }}}} left",
    ),
    Alert(
        "FileSystemStalled",
        f"node_filesystem_device_error{{{_SHARED_FILES}}} == 1 or gangway_lustre_connected == 0",
        3,
        "critical",
        f"{_MOUNT} does not answer",
    ),
)
_EXPORTERS = (
    # A new machine is a target before its containers run.
    Alert(
        "ExporterDown",
        f'up{{job=~"{GPU_JOB}|{NODE_JOB}"}} == 0',
        20,
        "warning",
        "{{ $labels.job }} of {{ $labels.instance }} does not answer",
    ),
    Alert(
        "CountersStale",
        "time() - node_textfile_mtime_seconds > 300",
        0,
        "warning",
        "gangway-counters.service of {{ $labels.instance }} writes no counters of EFA and Lustre",
    ),
)
