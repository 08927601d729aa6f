"""The node's scripts, run as they are shipped: real bash and curl, fake commands, a local stand-in of IMDSv2."""

import json
from pathlib import Path
from typing import Any

import pytest

from images import HeadInitSpec

UNHEALTHY = [
    *("autoscaling", "set-instance-health", "--region", "us-east-2", "--instance-id", "i-0123456789abcdef0"),
    *("--health-status", "Unhealthy", "--no-should-respect-grace-period"),
]
LUSTRE = "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com@tcp:/abcdefgh"


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
    assert machine.calls("aws") == [UNHEALTHY]


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
    assert "could not mark this node unhealthy: terminate it by hand" in done.stderr


@pytest.fixture
def lustre_node(machine: Any, tmp_path: Path) -> Any:
    machine.plan(lustre_mount_point=f"{tmp_path}/fsx")
    machine.fake("mountpoint", "exit 1")
    machine.fake("modprobe")
    machine.fake("mount")
    return machine


def test_lustre_is_mounted_with_the_documented_options(lustre_node: Any, tmp_path: Path) -> None:
    done = lustre_node.run("mount-lustre.sh")
    assert done.returncode == 0, done.stderr
    assert lustre_node.calls("mount") == [["-t", "lustre", "-o", "relatime,flock", LUSTRE, f"{tmp_path}/fsx"]]


def test_lustre_mount_is_tried_again(lustre_node: Any, tmp_path: Path) -> None:
    lustre_node.fake("mount", f'echo x >>{tmp_path}/tries; [ "$(wc -l <{tmp_path}/tries)" -ge 3 ]')
    done = lustre_node.run("mount-lustre.sh", LUSTRE_DEADLINE_SEC="20")
    assert done.returncode == 0, done.stderr
    assert len(lustre_node.calls("mount")) == 3
    assert lustre_node.calls("aws") == []


def test_lustre_deadline_gives_the_node_up(lustre_node: Any) -> None:
    lustre_node.fake("mount", "exit 2")
    done = lustre_node.run("mount-lustre.sh", LUSTRE_DEADLINE_SEC="2")
    assert done.returncode == 1
    assert f"cannot mount {LUSTRE}" in done.stderr
    assert "within 2 s" in done.stderr
    assert len(lustre_node.calls("mount")) > 1
    assert lustre_node.calls("aws") == [UNHEALTHY]


def test_a_lustre_mount_that_hangs_does_not_outlive_the_deadline(lustre_node: Any) -> None:
    lustre_node.fake("mount", "exec sleep 60")
    done = lustre_node.run("mount-lustre.sh", LUSTRE_DEADLINE_SEC="1")
    assert done.returncode == 1
    assert lustre_node.calls("aws") == [UNHEALTHY]


def test_a_mounted_lustre_is_left_alone(lustre_node: Any) -> None:
    lustre_node.fake("mountpoint")
    assert lustre_node.run("mount-lustre.sh").returncode == 0
    assert lustre_node.calls("mount") == []


def test_a_missing_lustre_client_is_installed_for_the_running_kernel(lustre_node: Any, tmp_path: Path) -> None:
    for folder in ("etc/apt/sources.list.d", "usr/share/keyrings"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text("VERSION_CODENAME=jammy\n")
    lustre_node.fake("modprobe", f"[ -e {tmp_path}/installed ]")
    lustre_node.fake("apt-get", f'[ "${{@: -1}}" = update ] || touch {tmp_path}/installed')
    lustre_node.fake("uname", "echo 6.8.0-1044-aws")
    lustre_node.fake("curl", "echo key")
    lustre_node.fake("gpg", "cat >/dev/null")
    done = lustre_node.run("mount-lustre.sh", ROOT=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [call[-1] for call in lustre_node.calls("apt-get")] == ["update", "lustre-client-modules-6.8.0-1044-aws"]
    source = (tmp_path / "etc/apt/sources.list.d/fsxlustreclientrepo.list").read_text()
    assert source.endswith("https://fsx-lustre-client-repo.s3.amazonaws.com/ubuntu jammy main\n")
    assert len(lustre_node.calls("mount")) == 1


def test_amazon_linux_has_the_lustre_client_itself(lustre_node: Any, tmp_path: Path) -> None:
    lustre_node.fake("modprobe", f"[ -e {tmp_path}/installed ]")
    lustre_node.fake("dnf", f"touch {tmp_path}/installed")
    done = lustre_node.run("mount-lustre.sh")
    assert done.returncode == 0, done.stderr
    assert lustre_node.calls("dnf") == [["-q", "-y", "install", "lustre-client"]]
    assert len(lustre_node.calls("mount")) == 1


SMI = """case "$1" in
--query-gpu=index) seq 0 7 ;;
--query-remapped-rows=*) printf 'GPU-%s, {pending}, 0\\n' 1 2 ;;
*) printf '%s, {ecc}\\n' 0 1 ;;
esac"""


@pytest.fixture
def gpu_node(machine: Any) -> Any:
    """Eight healthy GPUs, and no DCGM."""
    machine.fake("nvidia-smi", SMI.format(pending=0, ecc="[N/A]"))
    machine.fake("dmesg", "echo 'NVRM: Xid (PCI:0000:53:00): 31, pid=1, name=x'")
    machine.fake("systemctl")
    return machine


def test_healthy_gpus_let_the_node_go_on(gpu_node: Any) -> None:
    done = gpu_node.run("check-gpu.sh", GPU_DEADLINE_SEC="0")
    assert done.returncode == 0, done.stderr
    assert "GPUs: 8, no DCGM here" in done.stderr
    assert gpu_node.calls("aws") == []


def test_dcgm_is_asked_where_it_is(gpu_node: Any) -> None:
    gpu_node.fake("dcgmi")
    done = gpu_node.run("check-gpu.sh", GPU_DEADLINE_SEC="0")
    assert done.returncode == 0, done.stderr
    assert gpu_node.calls("dcgmi") == [["discovery", "-l"], ["diag", "-r", "1"]]
    assert gpu_node.calls("systemctl") == [["start", "nvidia-dcgm.service"]]


@pytest.mark.parametrize(
    ("command", "body", "reason"),
    [
        ("nvidia-smi", "exit 9", "0 GPUs after 0 s, 8 planned"),
        ("nvidia-smi", SMI.replace("seq 0 7", "seq 0 6").format(pending=0, ecc=0), "7 GPUs after 0 s, 8 planned"),
        ("nvidia-smi", SMI.format(pending=1, ecc=0), "rows to remap: GPU-1, 1, 0"),
        ("nvidia-smi", SMI.format(pending="Yes", ecc=0), "rows to remap: GPU-1, Yes, 0"),
        ("nvidia-smi", SMI.format(pending=0, ecc=12), "uncorrected ECC errors: 0, 12"),
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
    assert gpu_node.calls("aws") == [UNHEALTHY]


def test_a_head_node_that_is_not_ready_speaks_to_no_group(machine: Any, head: HeadInitSpec) -> None:
    machine.fake("docker", '[ "$1" = login ]')
    done = machine.run("pull-image.sh", head, PULL_DEADLINE_SEC="0")
    assert done.returncode == 1
    assert "not ready: cannot pull" in done.stderr
    assert all(call[0] == "ecr" for call in machine.calls("aws"))


@pytest.fixture
def disk_node(machine: Any, tmp_path: Path) -> Any:
    machine.plan(scratch_mount_point=f"{tmp_path}/scratch")
    machine.env["GANGWAY_DISK_BY_ID"] = f"{tmp_path}/by-id"
    (tmp_path / "by-id").mkdir()
    machine.fake("mountpoint", "exit 1")
    machine.fake("blkid", f"[ -e {tmp_path}/formatted ] && echo /dev/md127")
    machine.fake("mkfs.ext4", f"touch {tmp_path}/formatted")
    for name in ("chown", "mdadm", "mount"):
        machine.fake(name)
    return machine


def add_disks(tmp_path: Path, number: int) -> list[str]:
    """Instance-store devices, each under two names as udev makes them."""
    for disk in range(number):
        (tmp_path / f"nvme{disk}n1").touch()
        for name in (f"AWS{disk}", f"AWS{disk}_1"):
            link = tmp_path / "by-id" / f"nvme-Amazon_EC2_NVMe_Instance_Storage_{name}"
            link.symlink_to(tmp_path / f"nvme{disk}n1")
    return [str((tmp_path / f"nvme{disk}n1").resolve()) for disk in range(number)]


def test_scratch_uses_what_the_ami_has_mounted(disk_node: Any, tmp_path: Path) -> None:
    disk_node.fake("mountpoint", '[ "$2" = /opt/dlami/nvme ]')
    assert disk_node.run("mount-scratch.sh").returncode == 0
    assert disk_node.calls("mount") == [["--bind", "/opt/dlami/nvme", f"{tmp_path}/scratch"]]
    assert disk_node.calls("mkfs.ext4") == []


def test_scratch_stripes_each_disk_once(disk_node: Any, tmp_path: Path) -> None:
    disks = add_disks(tmp_path, 8)
    done = disk_node.run("mount-scratch.sh")
    assert done.returncode == 0, done.stderr
    array = "/dev/md/gangway-scratch"
    assert disk_node.calls("mdadm") == [["--create", array, "--run", "--level=0", "--raid-devices=8", *disks]]
    assert disk_node.calls("mkfs.ext4") == [["-q", "-m", "0", "-L", "gangway-scratch", array]]
    assert disk_node.calls("mount") == [["-o", "noatime", "/dev/md127", f"{tmp_path}/scratch"]]
    assert disk_node.calls("chown") == [["10001:10001", f"{tmp_path}/scratch"]]


def test_scratch_of_one_disk_needs_no_array(disk_node: Any, tmp_path: Path) -> None:
    (disk,) = add_disks(tmp_path, 1)
    assert disk_node.run("mount-scratch.sh").returncode == 0
    assert disk_node.calls("mdadm") == []
    assert disk_node.calls("mkfs.ext4")[0][-1] == disk


def test_scratch_after_a_reboot_is_not_formatted(disk_node: Any, tmp_path: Path) -> None:
    add_disks(tmp_path, 2)
    (tmp_path / "formatted").touch()
    assert disk_node.run("mount-scratch.sh").returncode == 0
    assert disk_node.calls("mkfs.ext4") == []
    assert len(disk_node.calls("mount")) == 1


@pytest.mark.parametrize("failing", ["mdadm", "mkfs.ext4", "mount"])
def test_scratch_that_fails_gives_the_node_up(disk_node: Any, tmp_path: Path, failing: str) -> None:
    add_disks(tmp_path, 2)
    disk_node.fake(failing, "exit 1")
    assert disk_node.run("mount-scratch.sh").returncode == 1
    assert disk_node.calls("aws") == [UNHEALTHY]


def test_planned_scratch_without_disks_gives_the_node_up(disk_node: Any) -> None:
    done = disk_node.run("mount-scratch.sh")
    assert done.returncode == 1
    assert "there is no instance store" in done.stderr
    assert disk_node.calls("aws") == [UNHEALTHY]


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
    assert UNHEALTHY in machine.calls("aws")


@pytest.mark.parametrize("status", [0, 1, 2, 75])
def test_trainer_hands_its_arguments_over_and_its_exit_code_back(machine: Any, tmp_path: Path, status: int) -> None:
    from images.shell import docker_argv

    machine.plan(run_dir=f"{tmp_path}/run", max_hours=None)
    machine.fake("docker", f"exit {status}")
    machine.fake("install")
    done = machine.run("run-trainer.sh")
    assert done.returncode == status
    assert machine.calls("docker") == [docker_argv(machine.spec)]
    assert machine.calls("install") == [["-d", "-o", "10001", "-g", "10001", f"{tmp_path}/run"]]


@pytest.fixture
def job_node(machine: Any, tmp_path: Path) -> Any:
    machine.plan(run_dir=f"{tmp_path}/run")
    machine.fake("docker")
    machine.fake("install", f"mkdir -p {tmp_path}/run")
    return machine


INTERRUPTED = {"spot/instance-action": [json.dumps({"action": "terminate", "time": "2026-11-21T08:22:00Z"})]}
ENDED = {"autoscaling/target-lifecycle-state": ["Terminated"]}


@pytest.mark.parametrize("answers", [INTERRUPTED, ENDED])
def test_the_trainer_is_not_started_on_a_node_that_is_about_to_go(job_node: Any, imds: Any, answers: Any) -> None:
    imds.answers |= answers
    done = job_node.run("run-trainer.sh")
    assert (done.returncode, job_node.calls("docker")) == (0, [])
    assert "about to go" in done.stderr


def test_the_jobs_hours_count_from_its_first_start_on_any_node(job_node: Any, tmp_path: Path) -> None:
    assert job_node.run("run-trainer.sh").returncode == 0
    began = int((tmp_path / "run" / "started-at").read_text())
    assert job_node.run("run-trainer.sh").returncode == 0
    assert int((tmp_path / "run" / "started-at").read_text()) == began
    for call in job_node.calls("docker"):
        assert call[:3] == ["run", "--env", f"GANGWAY_STOP_AT={began + 8 * 3600}"]
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["started-at"]


def test_a_job_whose_hours_are_over_is_not_started_again(job_node: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "started-at").write_text("1700000000\n")
    done = job_node.run("run-trainer.sh")
    assert (done.returncode, job_node.calls("docker")) == (0, [])
    assert "the job's 28800 s are over" in done.stderr
    job_node.plan(max_hours=None)
    assert job_node.run("run-trainer.sh").returncode == 0
    assert len(job_node.calls("docker")) == 1


GROUPS = ["describe-auto-scaling-groups", "--region", "us-east-2", "--output", "text"]
OF_STACK = [*GROUPS, "--filters", "Name=tag:gangway:stack,Values=demo", "--query"]
DONE = {"SERVICE_RESULT": "success", "EXIT_STATUS": "0"}


def test_a_group_that_waits_for_the_node_is_told_that_it_may_go(machine: Any, imds: Any) -> None:
    imds.answers |= ENDED
    machine.fake("aws", "[ $2 != describe-auto-scaling-groups ] || echo demo-0-spot")
    done = machine.run("leave-node.sh")
    assert done.returncode == 0, done.stderr
    query = "AutoScalingGroups[?Instances[?InstanceId=='i-0123456789abcdef0']].AutoScalingGroupName"
    completed = ["complete-lifecycle-action", "--region", "us-east-2", "--auto-scaling-group-name", "demo-0-spot"]
    completed += ["--lifecycle-hook-name", "gangway-leave", "--instance-id", "i-0123456789abcdef0"]
    completed += ["--lifecycle-action-result", "CONTINUE"]
    assert [call[1:] for call in machine.calls("aws")] == [[*OF_STACK, query], completed]


def test_a_node_whose_job_is_done_leaves_and_no_alarm_brings_another(machine: Any) -> None:
    machine.fake("aws", "[ $2 != describe-auto-scaling-groups ] || printf 'demo-0-spot\\tdemo-1-on-demand\\n'")
    machine.env |= DONE
    done = machine.run("leave-node.sh")
    assert done.returncode == 0, done.stderr
    quiet = ["suspend-processes", "--region", "us-east-2", "--auto-scaling-group-name"]
    ended = ["terminate-instance-in-auto-scaling-group", "--region", "us-east-2"]
    assert [call[1:] for call in machine.calls("aws")] == [
        [*OF_STACK, "AutoScalingGroups[].AutoScalingGroupName"],
        [*quiet, "demo-0-spot", "--scaling-processes", "AlarmNotification"],
        [*quiet, "demo-1-on-demand", "--scaling-processes", "AlarmNotification"],
        [*ended, "--instance-id", "i-0123456789abcdef0", "--should-decrement-desired-capacity"],
    ]


@pytest.mark.parametrize(
    ("answers", "plan", "ended"),
    [
        ({}, {}, {"SERVICE_RESULT": "exit-code", "EXIT_STATUS": "75"}),
        ({}, {}, {"SERVICE_RESULT": "exit-code", "EXIT_STATUS": "2"}),
        ({}, {}, {}),
        ({}, {"terminate_when_done": False}, DONE),
        (INTERRUPTED, {}, DONE),
        (ENDED, {"lifecycle_hook": None}, DONE),
    ],
)
def test_in_all_other_cases_a_node_says_nothing(machine: Any, imds: Any, answers: Any, plan: Any, ended: Any) -> None:
    imds.answers |= answers
    machine.plan(**plan)
    machine.env |= ended
    assert machine.run("leave-node.sh").returncode == 0
    assert machine.calls("aws") == []


def test_record_is_put_under_the_jobs_name(machine: Any, tmp_path: Path) -> None:
    machine.plan(run_dir=str(tmp_path))
    (tmp_path / "run.json").write_text("{}")
    assert machine.run("upload-record.sh", STATE_DIR=f"{tmp_path}/state").returncode == 0
    target = "s3://gangway-records/runs/dcgan-celeba64/run.json"
    assert machine.calls("aws") == [["s3", "cp", "--region", "us-east-2", f"{tmp_path}/run.json", target]]


def test_a_record_is_put_again_only_when_it_has_changed(machine: Any, tmp_path: Path) -> None:
    machine.plan(run_dir=str(tmp_path))
    for text in ("{}", "{}", '{"id": "x"}'):
        (tmp_path / "run.json").write_text(text)
        assert machine.run("upload-record.sh", STATE_DIR=f"{tmp_path}/state").returncode == 0
    assert len(machine.calls("aws")) == 2


def test_a_record_that_could_not_be_put_is_put_later(machine: Any, tmp_path: Path) -> None:
    machine.plan(run_dir=str(tmp_path))
    (tmp_path / "run.json").write_text("{}")
    machine.fake("aws", f"[ -e {tmp_path}/reachable ]")
    assert machine.run("upload-record.sh", STATE_DIR=f"{tmp_path}/state").returncode == 1
    (tmp_path / "reachable").touch()
    assert machine.run("upload-record.sh", STATE_DIR=f"{tmp_path}/state").returncode == 0
    assert len(machine.calls("aws")) == 2


def test_without_a_record_nothing_is_put(machine: Any, tmp_path: Path) -> None:
    machine.plan(run_dir=str(tmp_path))
    done = machine.run("upload-record.sh")
    assert done.returncode == 0
    assert "no run record" in done.stderr
    assert machine.calls("aws") == []
