"""What workers run for hardware metrics: the script on trees as of real machines, node_exporter, and who runs what."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gangway.images
from gangway.components.core.hardware_alerts import GPU_JOB, NODE_JOB, STACK, alert_rules
from gangway.images.aws import AwsHeadSpec, AwsNodeSpec, render_aws_head, render_aws_node, user_data_base64gzip
from gangway.images.observability import HARDWARE_PANELS, PREFIX
from gangway.images.specs import EXPORTER_IMAGES, EXPORTER_PORTS, locked_digests

SCRIPT = Path(gangway.images.__file__).parent / "templates/node/write-counters.sh"
EXPORTED = Path(__file__).parent / "exported"
# A p5's adapter: counters of the driver (amzn-drivers, efa_verbs.c) and one that is none.
EFA = (
    *("rx_bytes", "rx_drops", "rx_pkts", "tx_bytes", "tx_pkts", "recv_bytes", "recv_wrs", "send_bytes", "send_wrs"),
    *("rdma_read_bytes", "rdma_read_resp_bytes", "rdma_read_wr_err", "rdma_read_wrs"),
    *("rdma_write_bytes", "rdma_write_recv_bytes", "rdma_write_wr_err", "rdma_write_wrs"),
    *("retrans_bytes", "retrans_pkts", "retrans_timeout_events"),
    *("unresponsive_remote_events", "impaired_remote_conn_events", "lifespan"),
)
# Lustre 2.15 and 2.10.
NEW_STATS = """\
snapshot_time             1783960164.279418700 secs.nsecs
start_time                1783705564.331211471 secs.nsecs
elapsed_time              254599.948207229 secs.nsecs
read_bytes                10 samples [bytes] 4096 1048576 5242880 123456
write_bytes               4 samples [bytes] 4096 1048576 18446744073709551615 654321
statfs                    16977 samples [usecs] 2 3904 16809097 16988546393
"""
OLD_STATS = """\
snapshot_time             1484342187.529473 secs.usecs
read_bytes                3 samples [bytes] 4096 1048576 2101248
open                      12 samples [regs]
"""
FAKE_IB = {"counters/port_xmit_discards": "5", "counters/port_rcv_data": "25", "counters/link_downed": "1"}


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text + "\n" * (not text.endswith("\n")))


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with EFA, InfiniBand and two Lustre file systems of different versions."""
    for position, name in enumerate(EFA):
        write(tmp_path, f"sys/class/infiniband/rdmap16s27/ports/1/hw_counters/{name}", str(1000 + position))
    write(tmp_path, "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer", "3")
    for name, value in FAKE_IB.items():
        write(tmp_path, f"sys/class/infiniband/mlx5_0/ports/1/{name}", value)
    for device, layer in (("mlx5_0", "InfiniBand"), ("rdmap16s27", "Unspecified")):
        port = f"sys/class/infiniband/{device}"
        write(tmp_path, f"{port}/fw_ver", "28.39.1002")
        values = {"link_layer": layer, "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
        for name, value in values.items():
            write(tmp_path, f"{port}/ports/1/{name}", value)
    write(tmp_path, "sys/kernel/debug/lustre/llite/my-fs-ffff9bc043537800/stats", NEW_STATS)
    write(tmp_path, "sys/fs/lustre/osc/my-fs-OST0000-osc-ffff9bc043537800/ost_server_uuid", "my-fs-OST0000_UUID\tFULL")
    write(tmp_path, "sys/fs/lustre/osc/my-fs-OST0001-osc-ffff9bc043537800/ost_server_uuid", "my-fs-OST0001_UUID\tIDLE")
    write(tmp_path, "sys/fs/lustre/mdc/my-fs-MDT0000-mdc-ffff9bc0/mds_server_uuid", "my-fs-MDT0000_UUID\tDISCONN")
    write(tmp_path, "proc/fs/lustre/llite/old-ffff88003b8a0000/stats", OLD_STATS)
    return tmp_path


def counters(root: Path) -> dict[str, str]:
    folder = root / "run/gangway-counters"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["bash", str(SCRIPT)], env={**os.environ, "GANGWAY_ROOT": str(root)}, check=True)
    assert [path.name for path in folder.iterdir()] == ["counters.prom"], "replaced as a whole"
    lines = (folder / "counters.prom").read_text().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines)


def test_counters_of_efa_are_those_of_its_ports(machine: Path) -> None:
    found = {name: value for name, value in counters(machine).items() if "efa" in name}
    assert found == {
        f'gangway_efa_{name}_total{{device="rdmap16s27"}}': str(1000 + position)
        for position, name in enumerate(EFA)
        if name != "lifespan"
    }


def test_counters_of_lustre_are_read_from_both_of_its_layouts(machine: Path) -> None:
    found = {name: value for name, value in counters(machine).items() if "lustre" in name}
    assert found == {
        'gangway_lustre_read_bytes_total{file_system="my-fs"}': "5242880",
        'gangway_lustre_write_bytes_total{file_system="my-fs"}': "18446744073709551615",
        'gangway_lustre_operations_total{file_system="my-fs",operation="statfs"}': "16977",
        'gangway_lustre_operation_microseconds_total{file_system="my-fs",operation="statfs"}': "16809097",
        'gangway_lustre_read_bytes_total{file_system="old"}': "2101248",
        'gangway_lustre_connected{target="my-fs-OST0000"}': "1",
        'gangway_lustre_connected{target="my-fs-OST0001"}': "1",
        'gangway_lustre_connected{target="my-fs-MDT0000"}': "0",
    }


def test_a_machine_without_both_has_an_empty_file(tmp_path: Path) -> None:
    assert counters(tmp_path) == {}


@contextmanager
def node_exporter(root: Path) -> Iterator[str]:
    """What the real one answers on this tree, with the collectors that are not about this machine's mounts."""
    program = shutil.which("node_exporter")  # Debian's prometheus-node-exporter 1.5 fails on EFA
    if program is None:
        pytest.skip("node_exporter is not on PATH: go install github.com/prometheus/node_exporter@v1.11.1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = [f"--web.listen-address={address}", f"--path.sysfs={root}/sys", "--collector.disable-defaults"]
    flags += ["--collector.infiniband", "--collector.textfile", "--collector.filesystem"]
    flags += [f"--collector.textfile.directory={root}/run/gangway-counters"]
    with subprocess.Popen([program, *flags], stderr=subprocess.DEVNULL) as running:
        try:
            yield _answer(f"http://{address}/metrics")
        finally:
            running.terminate()


def _answer(url: str) -> str:
    for _ in range(50):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} does not answer")


def test_node_exporter_itself_serves_them(machine: Path) -> None:
    written = counters(machine)
    with node_exporter(machine) as text:
        served = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert {name: float(served[name]) for name in written} == {name: float(value) for name, value in written.items()}
    port = '{device="mlx5_0",port="1"}'
    assert served[f"node_infiniband_port_discards_transmitted_total{port}"] == "5"
    assert served[f"node_infiniband_port_data_received_bytes_total{port}"] == "100", "in words of four bytes"
    assert served[f"node_infiniband_out_of_buffer_drops_total{port}"] == "3"
    assert served[f"node_infiniband_state_id{port}"] == "4"
    assert served['node_infiniband_state_id{device="rdmap16s27",port="1"}'] == "4", "EFA's ports too"
    assert any(name.startswith("node_textfile_mtime_seconds") for name in served)
    assert any(name.startswith("node_filesystem_avail_bytes") for name in served)


def test_every_metric_of_alerts_and_panels_is_exported(machine: Path) -> None:
    known = {name.partition("{")[0] for name in counters(machine)}
    for file in EXPORTED.iterdir():
        source, *names = file.read_text().splitlines()
        assert source.startswith("# github.com/")
        known |= {*names}
    (group,) = alert_rules(STACK)["groups"]
    queries = [rule["expr"] for rule in group["rules"]]
    queries += [query for panel in HARDWARE_PANELS for query in panel.queries.values()]
    used = {name for query in queries for name in re.findall(r"\b(?:DCGM|node|gangway|ALERTS|up)\w*", query)}
    used -= {GPU_JOB.partition("-")[0], "node"}  # in the name of a job
    assert used - known == {"ALERTS", "up"}, "Prometheus makes these itself"
    assert not any(name.startswith(PREFIX) for name in used)
    assert len(used) > 30


def argv(unit: Callable[[Any, str, str], list[str]], spec: Any, job: str) -> list[str]:
    (line,) = unit(spec, f"{job}.service", "ExecStart")
    return shlex.split(line)


def test_a_gpu_node_runs_both_exporters_by_digest(node: AwsNodeSpec, unit: Callable[..., list[str]]) -> None:
    spec = replace(node, hardware_metrics=True)
    for job, image in EXPORTER_IMAGES.items():
        words = argv(unit, spec, job)
        assert f"{image}@{locked_digests()[image]}" in words
        assert any(word.endswith(f":{EXPORTER_PORTS[job]}") for word in words)
        assert words[words.index("--cap-drop") + 1] == "ALL"
    assert argv(unit, spec, GPU_JOB)[-5:-3] == ["--gpus", "all"]
    own = argv(unit, spec, NODE_JOB)
    assert "--cap-add" not in own
    assert own[own.index("--user") + 1] == "65534:65534"
    assert "--collector.textfile.directory=/host/run/gangway-counters" in own


def test_the_largest_node_of_aws_still_fits(node: AwsNodeSpec, head: AwsHeadSpec) -> None:
    user_data_base64gzip(render_aws_node(replace(node, hardware_metrics=True)))
    user_data_base64gzip(render_aws_head(replace(head, hardware_metrics=True)))


@pytest.mark.parametrize(
    ("name", "started"),
    [
        ("node", [f"{GPU_JOB}.service", f"{NODE_JOB}.service", "gangway-counters.timer"]),
        ("plain_node", [f"{NODE_JOB}.service", "gangway-counters.timer"]),
        ("gcp_node", [f"{GPU_JOB}.service", f"{NODE_JOB}.service", "gangway-counters.timer"]),
        ("azure_node", [f"{GPU_JOB}.service", f"{NODE_JOB}.service", "gangway-counters.timer"]),
        ("openstack_node", [f"{GPU_JOB}.service", f"{NODE_JOB}.service", "gangway-counters.timer"]),
        ("tpu_host", []),
        ("head", []),
    ],
)
def test_workers_start_what_their_hardware_has(
    name: str, started: list[str], machines: Any, request: pytest.FixtureRequest
) -> None:
    spec = request.getfixturevalue(name)
    units = {f"{job}.service" for job in EXPORTER_IMAGES} | {"gangway-counters.timer"}
    plain, text = machines.rendered(spec), machines.rendered(replace(spec, hardware_metrics=True))
    assert not [one for one in units if one in plain]
    assert sorted(one for one in units if f"/etc/systemd/system/{one}" in text) == sorted(started)
    enabled = next(line for line in text.splitlines() if "systemctl" in line and "enable" in line)
    assert all(one in enabled for one in started)
