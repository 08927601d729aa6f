"""The node's checks and its image, run as they are shipped: real bash and curl, fake commands, IMDSv2 in small."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gangway.components.aws.alarms import events_group
from gangway.images.aws import AwsHeadSpec


def make_rdma_devices(folder: Path, vendors: list[str]) -> None:
    for number, vendor in enumerate(vendors):
        device = folder / f"rdmap{number}s0" / "device"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")


def test_planned_efa_interfaces_let_the_node_go_on(machine: Any, tmp_path: Path) -> None:
    make_rdma_devices(tmp_path / "sys", ["0x1d0f"] * 32)
    done = machine.run("check-efa.sh", SYSFS_INFINIBAND=f"{tmp_path}/sys", EFA_DEADLINE_SEC="0")
    assert (done.returncode, done.stderr) == (0, "gangway: EFA: 32 interfaces, 32 planned\n")
    assert machine.calls("aws") == []


@pytest.mark.parametrize("vendors", [[], ["0x1d0f"] * 31, ["0x1d0f"] * 31 + ["0x15b3"] * 4])
def test_fewer_efa_interfaces_than_planned_give_the_node_up(machine: Any, tmp_path: Path, vendors: list[str]) -> None:
    (tmp_path / "sys").mkdir()
    make_rdma_devices(tmp_path / "sys", vendors)
    done = machine.run("check-efa.sh", SYSFS_INFINIBAND=f"{tmp_path}/sys", EFA_DEADLINE_SEC="0")
    assert done.returncode == 1
    assert f"{vendors.count('0x1d0f')} EFA interfaces after 0 s, 32 planned" in done.stderr
    assert machine.asked("autoscaling") == [machine.UNHEALTHY]


def test_efa_driver_may_be_late(machine: Any, tmp_path: Path) -> None:
    machine.plan(efa_interfaces_planned=1)
    # The first wait of the script is what brings the device.
    machine.fake("sleep", f"mkdir -p {tmp_path}/sys/efa_0/device; echo 0x1d0f >{tmp_path}/sys/efa_0/device/vendor")
    done = machine.run("check-efa.sh", SYSFS_INFINIBAND=f"{tmp_path}/sys", EFA_DEADLINE_SEC="20")
    assert done.returncode == 0
    assert machine.calls("sleep") == [["0.05"]]


def test_a_node_that_cannot_be_marked_says_so_and_still_stops(machine: Any, tmp_path: Path) -> None:
    machine.fake("aws", "exit 254")
    done = machine.run("check-efa.sh", SYSFS_INFINIBAND=f"{tmp_path}/sys", EFA_DEADLINE_SEC="0")
    assert done.returncode == 1
    assert "cannot replace this node: delete it by hand" in done.stderr


SMI = """case "$1" in
--query-gpu=index) seq 0 7 ;;
--query-gpu=compute_cap) echo {cap} ;;
--query-remapped-rows=*) printf 'GPU-%s, {pending}, 0\\n' 1 2 ;;
*) printf '%s, {ecc}\\n' 0 1 ;;
esac"""


@pytest.fixture
def gpu_node(machine: Any) -> Any:
    """Eight healthy GPUs, and no DCGM."""
    machine.fake("nvidia-smi", SMI.format(pending=0, ecc="[N/A]", cap="9.0"))
    machine.fake("dmesg", "echo 'NVRM: Xid (PCI:0000:53:00): 31, pid=1, name=x'")
    machine.fake("systemctl")
    return machine


def test_healthy_gpus_let_the_node_go_on(gpu_node: Any) -> None:
    done = gpu_node.run("check-gpu.sh", GPU_DEADLINE_SEC="0")
    assert done.returncode == 0, done.stderr
    assert "GPUs: 8, no DCGM" in done.stderr
    assert gpu_node.calls("aws") == []


def test_dcgm_is_asked_where_it_is(gpu_node: Any) -> None:
    gpu_node.fake("dcgmi")
    for before in ("inactive", "active"):
        gpu_node.fake("systemctl", f"[ $1 != is-active ] || echo {before}")
        done = gpu_node.run("check-gpu.sh", GPU_DEADLINE_SEC="0")
        assert done.returncode == 0, done.stderr
    assert gpu_node.calls("dcgmi") == [["discovery", "-l"], ["diag", "-r", "1"]] * 2
    looked = [["is-active", "nvidia-dcgm.service"], ["start", "nvidia-dcgm.service"]]
    # It takes orders from anybody: where it was not running it does not stay.
    assert gpu_node.calls("systemctl") == [*looked, ["stop", "nvidia-dcgm.service"], *looked]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "body", "reason"),
    [
        ("nvidia-smi", "exit 9", "0 GPUs after 0 s, 8 planned"),
        ("nvidia-smi", SMI.replace("0 7", "0 6").format(pending=0, ecc=0, cap="9.0"), "7 GPUs after 0 s, 8 planned"),
        ("nvidia-smi", SMI.format(pending=1, ecc=0, cap="9.0"), "rows to remap: GPU-1, 1, 0"),
        ("nvidia-smi", SMI.format(pending="Yes", ecc=0, cap="9.0"), "rows to remap: GPU-1, Yes, 0"),
        ("nvidia-smi", SMI.format(pending=0, ecc=12, cap="9.0"), "uncorrected ECC errors: 0, 12"),
        ("nvidia-smi", SMI.replace("=*) printf", "=*) exit 6; printf"), "does not answer for rows"),
        ("dmesg", "echo 'NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.'", "fatal Xid: NVRM: Xid"),
        ("dcgmi", "echo 'Memory: Fail'; [ $1 != diag ]", "dcgmi diag -r 1: Memory: Fail"),
    ],
)  # fmt: skip
def test_a_sick_gpu_gives_the_node_up(gpu_node: Any, command: str, body: str, reason: str) -> None:
    gpu_node.fake(command, body)
    done = gpu_node.run("check-gpu.sh", GPU_DEADLINE_SEC="0")
    assert done.returncode == 1
    assert reason in done.stderr
    assert gpu_node.asked("autoscaling") == [gpu_node.UNHEALTHY]


_ALL = "8.0 9.0 10.0 10.3 12.0"
_LINE = "NVRM: Xid (PCI:0000:53:00): "
_TO = "154, GPU recovery action changed from 0x0 (None) to "


@pytest.mark.parametrize(
    ("said", "fatal_on"),
    [
        ("31, pid=1, name=x", ""),
        ("46, pid=1, GPU stopped processing", _ALL),
        ("74, pid=1, NVLink: fatal error", "8.0 9.0"),
        ("94, pid=1, Contained memory error", ""),
        ("136, pid=1, Link Training Failed", "9.0"),
        ("140, pid=1, ECC", _ALL),
        ("143, pid=1, GPU_INIT_ERROR", "9.0 10.0 10.3 12.0"),
        ("144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x1 0x8)", ""),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x0)", "10.0 10.3 12.0"),
        ("155, NVLINK: SW Defined Error", ""),
        (f"{_TO}0x2 (Node Reboot Required)", _ALL),
        (f"{_TO}0x1 (GPU Reset Required)", _ALL),
        (f"{_TO}0x3 (Drain P2P)", ""),
        ("154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)", ""),
    ],
)
def test_what_is_fatal_depends_on_the_gpu(gpu_node: Any, said: str, fatal_on: str) -> None:
    gpu_node.fake("dmesg", f"echo '{_LINE}{said}'")
    for capability in _ALL.split():
        gpu_node.fake("nvidia-smi", SMI.format(pending=0, ecc=0, cap=capability))
        done = gpu_node.run("check-gpu.sh", GPU_DEADLINE_SEC="0")
        assert (done.returncode != 0) == (capability in fatal_on.split()), (capability, done.stderr)


def test_a_head_node_that_is_not_ready_speaks_to_no_group(machine: Any, head: AwsHeadSpec) -> None:
    machine.fake("docker", '[ "$1" = login ]')
    done = machine.run("pull-image.sh", head, PULL_DEADLINE_SEC="0")
    assert done.returncode == 1
    assert "not ready: cannot pull" in done.stderr
    assert machine.asked("autoscaling") == []
    (event,) = machine.events()
    assert event["event"] == "head-not-ready"
    assert "cannot pull" in event["reason"]


def test_image_is_pulled_by_digest_after_login(machine: Any) -> None:
    machine.fake("aws", "echo the-password")
    machine.fake("docker", '[ "$1" != login ] || [ "$(cat)" = the-password ]')
    done = machine.run("pull-image.sh")
    assert done.returncode == 0, done.stderr
    registry = machine.spec.image_registry
    assert machine.calls("docker") == [
        ["login", "--username", "AWS", "--password-stdin", registry],
        ["pull", "--quiet", machine.spec.job.image],
    ]


def test_image_that_cannot_be_pulled_gives_the_node_up(machine: Any) -> None:
    machine.fake("docker", '[ "$1" = login ]')
    assert machine.run("pull-image.sh", PULL_DEADLINE_SEC="0").returncode == 1
    assert machine.asked("autoscaling") == [machine.UNHEALTHY]


INSTANCE = "i-0123456789abcdef0"
EVENTS = events_group("/gangway/demo")


def test_giving_up_is_one_line_in_the_log_group(machine: Any) -> None:
    reason = "it said \"no\",\nthen \\ and '$HOME' ü \x01"
    assert machine.give_up(reason).returncode == 1
    (event,) = machine.events()
    assert event == {"event": "node-given-up", "instance_id": INSTANCE, "reason": reason}
    stream = ["--region", "us-east-2", "--log-group-name", EVENTS, "--log-stream-name", f"{INSTANCE}/node"]
    created, put = machine.asked("logs")
    assert created == ["logs", "create-log-stream", *stream]
    assert put[:-1] == ["logs", "put-log-events", *stream, "--log-events"]
    (entry,) = json.loads(put[-1])
    assert abs(entry["timestamp"] / 1000 - time.time()) < 600


def test_a_reason_without_end_or_encoding_is_cut_and_sent(machine: Any) -> None:
    assert machine.give_up("\udcff" + "x" * 9000).returncode == 1
    (event,) = machine.events()
    assert event["reason"] == "\ufffd" + "x" * 3999


def test_a_log_group_that_cannot_be_reached_stops_nothing(machine: Any) -> None:
    machine.fake("aws", "[ $1 != logs ]")
    done = machine.give_up("sick")
    assert "could not send to /gangway/demo: node-given-up" in done.stderr
    assert machine.asked("autoscaling") == [machine.UNHEALTHY]


def test_without_a_log_group_nothing_is_sent(machine: Any) -> None:
    machine.plan(log_group=None)
    assert machine.give_up("sick").returncode == 1
    assert machine.asked("logs") == []


def test_a_node_that_gave_up_does_not_wait_for_the_hooks_timeout(machine: Any, imds: Any) -> None:
    imds.answers["autoscaling/target-lifecycle-state"] = ["InService", "InService", "Terminated"]
    machine.fake("aws", machine.OWN_GROUP)
    assert machine.give_up("sick", LET_GO_SEC="20").returncode == 1
    assert machine.asked("autoscaling")[0] == machine.UNHEALTHY
    assert machine.asked("autoscaling")[-1][1:] == machine.COMPLETED


def test_the_wait_of_a_node_that_gave_up_has_an_end(machine: Any) -> None:
    assert machine.give_up("sick", LET_GO_SEC="1").returncode == 1
    assert machine.asked("autoscaling") == [machine.UNHEALTHY]


def test_without_a_hook_there_is_nothing_to_wait_for(machine: Any, imds: Any) -> None:
    machine.plan(lifecycle_hook=None)
    assert machine.give_up("sick", LET_GO_SEC="20").returncode == 1
    assert "autoscaling/target-lifecycle-state" not in imds.requests


def test_record_is_put_under_the_jobs_name(machine: Any, tmp_path: Path) -> None:
    machine.plan(run_dir=str(tmp_path))
    (tmp_path / "run.json").write_text("{}")
    assert machine.run("upload-record.sh").returncode == 0
    target = "s3://gangway-records/runs/dcgan-celeba64/run.json"
    ((*words, opened, last),) = machine.asked("s3")
    assert (words, last) == (["s3", "cp", "--region", "us-east-2"], target)
    assert opened.startswith("/proc/self/fd/"), "the folder is the job's, and a name in it may be another file by now"


def test_a_record_is_put_again_only_when_it_has_changed(machine: Any, tmp_path: Path) -> None:
    machine.plan(run_dir=str(tmp_path))
    for text in ("{}", "{}", '{"id": "x"}'):
        (tmp_path / "run.json").write_text(text)
        assert machine.run("upload-record.sh").returncode == 0
    assert len(machine.asked("s3")) == 2


def test_a_record_that_could_not_be_put_is_put_later(machine: Any, tmp_path: Path) -> None:
    machine.plan(run_dir=str(tmp_path))
    (tmp_path / "run.json").write_text("{}")
    machine.fake("aws", f"[ -e {tmp_path}/reachable ]")
    assert machine.run("upload-record.sh").returncode == 1
    (tmp_path / "reachable").touch()
    assert machine.run("upload-record.sh").returncode == 0
    assert len(machine.asked("s3")) == 2
    assert [event["event"] for event in machine.events()] == ["record-not-put", "record-put"]


def test_without_a_record_nothing_is_put(machine: Any, tmp_path: Path) -> None:
    machine.plan(run_dir=str(tmp_path))
    done = machine.run("upload-record.sh")
    assert done.returncode == 0
    assert "no run record" in done.stderr
    assert machine.calls("aws") == []
