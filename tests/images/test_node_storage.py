"""The scripts that mount a node's file systems, run as they are shipped with fake commands."""

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gangway.images.aws import EFA_SETUP_SHA256, AwsHeadSpec
from gangway.images.specs import FileSystem

LUSTRE = "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com@tcp:/abcdefgh"


@pytest.fixture
def lustre_node(machine: Any, tmp_path: Path) -> Any:
    machine.plan(file_system=FileSystem("lustre", LUSTRE, f"{tmp_path}/fsx"))
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


@pytest.mark.slow
def test_lustre_deadline_gives_the_node_up(lustre_node: Any) -> None:
    lustre_node.fake("mount", "exit 2")
    done = lustre_node.run("mount-lustre.sh", LUSTRE_DEADLINE_SEC="2")
    assert done.returncode == 1
    assert f"cannot mount {LUSTRE}" in done.stderr
    assert "within 2 s" in done.stderr
    assert len(lustre_node.calls("mount")) > 1
    assert lustre_node.asked("autoscaling") == [lustre_node.UNHEALTHY]


def test_a_lustre_mount_that_hangs_does_not_outlive_the_deadline(lustre_node: Any) -> None:
    lustre_node.fake("mount", "exec sleep 60")
    done = lustre_node.run("mount-lustre.sh", LUSTRE_DEADLINE_SEC="1")
    assert done.returncode == 1
    assert lustre_node.asked("autoscaling") == [lustre_node.UNHEALTHY]


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
    show = "case $* in *--show-keys*) printf 'pub:\\nfpr:::::::::9C36DD9C515F10DBC3AA835C5D5CCC3383A962E1:\\n' ;;"
    lustre_node.fake("gpg", f'{show} *) cat >"${{@: -1}}" ;; esac')
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
    assert disk_node.asked("autoscaling") == [disk_node.UNHEALTHY]


def test_planned_scratch_without_disks_gives_the_node_up(disk_node: Any) -> None:
    done = disk_node.run("mount-scratch.sh")
    assert done.returncode == 1
    assert "no local disks for scratch" in done.stderr
    assert disk_node.asked("autoscaling") == [disk_node.UNHEALTHY]


EFA_NET = """net:
    - net type: efa
      local NI(s):
        - nid: 1.251.91.0@efa
          status: {status}
        - nid: 1.251.92.0@efa
          status: {status}
"""


@pytest.fixture
def efa_node(lustre_node: Any, tmp_path: Path) -> Any:
    """A node whose LNet has an EFA interface once AWS's script, in the archive that curl brings, has run."""
    lustre_node.plan(lustre_efa=True)
    (tmp_path / "net").write_text(EFA_NET.format(status="up"))
    lustre_node.fake("lnetctl", f'[ "$2" != show ] || {{ [ -e {tmp_path}/configured ] && cat {tmp_path}/net; }}')
    lustre_node.fake("lustre_rmmod")
    with zipfile.ZipFile(tmp_path / "setup.zip", "w") as archive:
        script = f"#!/bin/sh\nset -e\n[ ! -e {tmp_path}/refuses ]\ntouch {tmp_path}/configured\n"
        archive.writestr("configure-efa-fsx-lustre-client/setup.sh", script)
    lustre_node.fake("curl", f'case "$*" in *-o*) cp {tmp_path}/setup.zip "$3" ;; *) exit 22 ;; esac')
    lustre_node.env["TMPDIR"] = str(tmp_path)
    lustre_node.more_settings["LUSTRE_EFA_SHA256"] = hashlib.sha256((tmp_path / "setup.zip").read_bytes()).hexdigest()
    return lustre_node


def test_lnet_takes_efa_before_the_mount(efa_node: Any, tmp_path: Path) -> None:
    done = efa_node.run("mount-lustre.sh")
    assert done.returncode == 0, done.stderr
    assert "lustre: 2 EFA interfaces" in done.stderr
    order = [call[0] for call in efa_node.every_call()]
    # The modules are loaded again by AWS's script, whose options count only then.
    assert order.index("lustre_rmmod") < order.index("curl") < order.index("mount")
    url = "https://docs.aws.amazon.com/fsx/latest/LustreGuide/samples/configure-efa-fsx-lustre-client.zip"
    assert efa_node.calls("curl")[0][-1] == url
    assert ["net", "show", "--net", "efa"] in efa_node.calls("lnetctl")


@pytest.mark.attack("who answers for a vendor", "another key for its packages, another installer")
def test_an_archive_that_aws_has_changed_is_not_run(efa_node: Any, tmp_path: Path) -> None:
    efa_node.more_settings["LUSTRE_EFA_SHA256"] = EFA_SETUP_SHA256
    done = efa_node.run("mount-lustre.sh")
    assert done.returncode == 1
    assert not (tmp_path / "configured").exists()
    assert efa_node.calls("mount") == []
    # The stand-in of curl knows no metadata, so no event is sent.
    found = hashlib.sha256((tmp_path / "setup.zip").read_bytes()).hexdigest()
    assert f"has SHA-256 {found}: review it, then set efa_setup_sha256" in done.stderr


def test_lnet_that_has_efa_already_is_left_alone(efa_node: Any, tmp_path: Path) -> None:
    (tmp_path / "configured").touch()
    assert efa_node.run("mount-lustre.sh").returncode == 0
    assert (efa_node.calls("curl"), efa_node.calls("lustre_rmmod"), len(efa_node.calls("mount"))) == ([], [], 1)


@pytest.mark.parametrize("trouble", ["refuses", "down", "offline"])
def test_without_efa_the_file_system_is_not_mounted_over_tcp(efa_node: Any, tmp_path: Path, trouble: str) -> None:
    if trouble == "down":
        (tmp_path / "net").write_text(EFA_NET.format(status="down"))
    elif trouble == "offline":
        (tmp_path / "setup.zip").unlink()
    (tmp_path / trouble).touch()
    # The stand-in of curl knows no metadata, so the group's word is not asked for here.
    done = efa_node.run("mount-lustre.sh", LUSTRE_DEADLINE_SEC="0")
    assert done.returncode == 1
    assert "LNet has 0 of 1 EFA interfaces up after 0 s" in done.stderr
    assert efa_node.calls("mount") == []


@pytest.mark.parametrize(("planned", "status"), [(2, 0), (3, 1)])
def test_fewer_interfaces_than_planned_are_not_enough(efa_node: Any, planned: int, status: int) -> None:
    efa_node.plan(lustre_efa_interfaces=planned)
    done = efa_node.run("mount-lustre.sh", LUSTRE_DEADLINE_SEC="0")
    assert (done.returncode, len(efa_node.calls("mount"))) == (status, 1 - status)
    assert ("LNet has 2 of 3 EFA interfaces up" in done.stderr) == bool(status)


def test_the_head_node_mounts_over_tcp(efa_node: Any, head: AwsHeadSpec) -> None:
    done = efa_node.run("mount-lustre.sh", head, ROOT="/nowhere")
    assert done.returncode == 0, done.stderr
    assert (efa_node.calls("lnetctl"), efa_node.calls("curl")) == ([], [])


def test_a_client_that_cannot_be_installed_gives_the_node_up(lustre_node: Any) -> None:
    lustre_node.fake("modprobe", "exit 1")
    lustre_node.fake("dnf", "exit 1")
    done = lustre_node.run("mount-lustre.sh", LUSTRE_DEADLINE_SEC="0")
    assert "cannot install the Lustre client" in done.stderr
    assert lustre_node.asked("autoscaling") == [lustre_node.UNHEALTHY]
