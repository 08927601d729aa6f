"""Each alert fires on series of a broken machine and stays silent on those of a good one: Prometheus' own promtool."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.hardware_alerts import GPU_JOB, NODE_JOB, POD, STACK, IdleScope, alert_rules

MINUTES = 60
GPU = 'stack="demo",instance="a",gpu="0"'
PORT = 'stack="demo",instance="a",device="rdmap16s27",port="1"'
MOUNT = 'stack="demo",instance="a",mountpoint="/fsx",fstype="lustre",device="10.0.0.5@tcp:/x"'
# Of each alert what makes it fire after an hour, and what does not; in promtool's notation, a value per minute.
CASES: dict[str, tuple[list[dict[str, str]], list[dict[str, str]]]] = {
    "GpuXid": ([{f"DCGM_FI_DEV_XID_ERRORS{{{GPU}}}": "79x60"}], [{f"DCGM_FI_DEV_XID_ERRORS{{{GPU}}}": "31x60"}]),
    "GpuRowRemapFailure": (
        [{f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{GPU}}}": "1x60"}],
        [{f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{GPU}}}": "0x60"}],
    ),
    "GpuHot": (
        [{f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}}": "88x60"}, {f"DCGM_FI_DEV_MEMORY_TEMP{{{GPU}}}": "97x60"}],
        [{f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}}": "70x57 88x2", f"DCGM_FI_DEV_MEMORY_TEMP{{{GPU}}}": "85x60"}],
    ),
    "GpuIdle": (
        [
            {
                f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": "0x60",
                'DCGM_FI_DEV_GPU_UTIL{stack="demo",instance="b",gpu="0"}': "90x60",
            }
        ],
        [
            {
                f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": "0x60",
                'DCGM_FI_DEV_GPU_UTIL{stack="other",instance="b",gpu="0"}': "90x60",
            },
            {
                f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": "0x55 5x5",
                'DCGM_FI_DEV_GPU_UTIL{stack="demo",instance="b",gpu="0"}': "90x60",
            },
        ],
    ),
    "FabricLinkDown": (
        [{f"node_infiniband_state_id{{{PORT}}}": "4x50 1x10"}],
        [{f"node_infiniband_state_id{{{PORT}}}": "1x60"}, {f"node_infiniband_state_id{{{PORT}}}": "4x60"}],
    ),
    "FabricLinkUnstable": (
        [{f"node_infiniband_link_downed_total{{{PORT}}}": "2x40 3x20"}],
        [{f"node_infiniband_link_downed_total{{{PORT}}}": "2x60"}],
    ),
    "FabricRetransmits": (
        [
            {
                f"gangway_efa_retrans_pkts_total{{{PORT}}}": "0+600x60",
                f"gangway_efa_tx_pkts_total{{{PORT}}}": "0+60000x60",
            },
            {f"node_infiniband_local_ack_timeout_errors_total{{{PORT}}}": "0+120x60"},
            {f"node_infiniband_packet_sequence_errors_total{{{PORT}}}": "0+120x60"},
        ],
        [
            {
                f"gangway_efa_retrans_pkts_total{{{PORT}}}": "0+6x60",
                f"gangway_efa_tx_pkts_total{{{PORT}}}": "0+60000x60",
            },
            {f"node_infiniband_packet_sequence_errors_total{{{PORT}}}": "0+30x60"},
        ],
    ),
    "FabricDrops": (
        [
            {f"{name}{{{PORT}}}": "0+120x60"}
            for name in (
                "gangway_efa_rx_drops_total",
                "node_infiniband_port_discards_transmitted_total",
                "node_infiniband_out_of_buffer_drops_total",
            )
        ],
        [{f"gangway_efa_rx_drops_total{{{PORT}}}": "7x60"}],
    ),
    "FileSystemNearlyFull": (
        [{f"node_filesystem_avail_bytes{{{MOUNT}}}": "9x60", f"node_filesystem_size_bytes{{{MOUNT}}}": "100x60"}],
        [
            {f"node_filesystem_avail_bytes{{{MOUNT}}}": "11x60", f"node_filesystem_size_bytes{{{MOUNT}}}": "100x60"},
            {
                'node_filesystem_avail_bytes{fstype="tmpfs",mountpoint="/run"}': "1x60",
                'node_filesystem_size_bytes{fstype="tmpfs",mountpoint="/run"}': "100x60",
            },
        ],
    ),
    "FileSystemStalled": (
        [
            {f"node_filesystem_device_error{{{MOUNT}}}": "1x60"},
            {'gangway_lustre_connected{target="fsx-OST0001",instance="a"}': "1x50 0x10"},
        ],
        [
            {f"node_filesystem_device_error{{{MOUNT}}}": "0x60"},
            {'node_filesystem_device_error{fstype="vfat",mountpoint="/boot/efi"}': "1x60"},
            {'gangway_lustre_connected{target="fsx-OST0001",instance="a"}': "1x58 0x1"},
        ],
    ),
    "ExporterDown": (
        [{f'up{{job="{GPU_JOB}",instance="a"}}': "0x60"}, {f'up{{job="{NODE_JOB}",instance="a"}}': "1x30 0x30"}],
        [{f'up{{job="{GPU_JOB}",instance="a"}}': "0x30 1x30"}, {'up{job="gangway-trainer",instance="a"}': "0x60"}],
    ),
    "CountersStale": (
        [{'node_textfile_mtime_seconds{instance="a"}': "600x60"}],
        [{'node_textfile_mtime_seconds{instance="a"}': "0+60x60"}],
    ),
}


def rules(idle: IdleScope = STACK) -> list[dict[str, Any]]:
    (group,) = alert_rules(idle)["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_every_alert_has_series_that_fire_it() -> None:
    assert {rule["alert"] for rule in rules()} == CASES.keys()


def unit_test(alert: str, series: dict[str, str], fires: bool) -> dict[str, Any]:
    """A test in promtool's form. It would compare labels and texts; the number of alerts is enough."""
    query = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": f"{MINUTES - 1}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }


def run_promtool(folder: Path, tests: list[dict[str, Any]], idle: IdleScope) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on this machine (Debian: prometheus)")
    (folder / "alerts.yml").write_text(yaml.safe_dump(alert_rules(idle)))
    (folder / "tests.yml").write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": tests}))
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "tests.yml"]):
        done = subprocess.run([promtool, *words], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    tests = [
        unit_test(alert, series, fires)
        for alert, both in CASES.items()
        for fires, many in zip((True, False), both, strict=True)
        for series in many
    ]
    assert len(tests) > 2 * len(CASES)
    run_promtool(tmp_path, tests, STACK)


def test_in_a_queue_only_gpus_that_a_pod_holds_can_be_idle(tmp_path: Path) -> None:
    busy = {'DCGM_FI_DEV_GPU_UTIL{instance="a",gpu="1",pod="job-0"}': "90x60"}
    held = busy | {'DCGM_FI_DEV_GPU_UTIL{instance="a",gpu="0",pod="job-0"}': "0x60"}
    free = busy | {'DCGM_FI_DEV_GPU_UTIL{instance="a",gpu="0"}': "0x60"}
    other = busy | {'DCGM_FI_DEV_GPU_UTIL{instance="b",gpu="0",pod="job-1"}': "0x60"}
    cases = [unit_test("GpuIdle", held, True), unit_test("GpuIdle", free, False), unit_test("GpuIdle", other, False)]
    run_promtool(tmp_path, cases, POD)


def test_an_alert_names_the_machine_and_what_is_wrong() -> None:
    for rule in rules():
        summary = rule["annotations"]["summary"]
        assert "{{ $labels.instance }}" in summary, rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert len(re.sub(r"\{\{.*?\}\}", "", summary).split()) > 1 or rule["alert"] == "GpuXid"
