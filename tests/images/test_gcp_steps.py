"""Docker, network interfaces and disks of a machine on Google Cloud, before its trainer: real bash, fake apt."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.images.gcp import TpuHostSpec

APT = ["-q", "-y", "-o", "DPkg::Lock::Timeout=120"]


def test_docker_and_the_toolkit_are_installed_where_they_are_missing(bare: Any) -> None:
    bare.without("docker", "nvidia-ctk")
    bare.brings("nvidia-container-toolkit", "nvidia-ctk")
    done = bare.run("install-docker.sh", DOCKER_DEADLINE_SEC="0")
    assert done.returncode == 0, done.stderr
    installed = [call[-1] for call in bare.calls("apt-get") if call[-1] != "update"]
    assert installed == ["docker.io", "nvidia-container-toolkit"]
    assert all(call[:4] == APT for call in bare.calls("apt-get"))
    assert bare.repository("nvidia-container-toolkit") == (
        "deb [signed-by=/usr/share/keyrings/nvidia-container-toolkit.gpg] "
        "https://nvidia.github.io/libnvidia-container/stable/deb/amd64 /\n"
    )
    last = bare.calls("systemctl")
    assert last == [["restart", "docker.service"], ["start", "docker.service"]]


def test_what_is_there_is_not_installed_again(bare: Any) -> None:
    for name in ("docker", "nvidia-ctk"):
        bare.fake(name)
    assert bare.run("install-docker.sh").returncode == 0
    assert bare.calls("apt-get") == []
    assert bare.calls("nvidia-ctk") == [["runtime", "configure", "--runtime=docker"]]


PACKAGES = "ii linux-gcp\nhi nvidia-utils-580-server\nrc nvidia-old\nii libnvidia-gl:amd64\nun runc\nii docker.io\n"


def test_what_a_job_runs_on_is_held(bare: Any) -> None:
    bare.fake("docker")
    bare.fake("nvidia-ctk")
    bare.fake("dpkg-query", f"printf '%s' '{PACKAGES}'; exit 1")
    assert bare.run("install-docker.sh").returncode == 0
    (asked,) = bare.calls("dpkg-query")
    assert {"linux-*", "*nvidia*", "docker.io", "containerd", "runc"} < set(asked)
    installed = ["linux-gcp", "nvidia-utils-580-server", "libnvidia-gl:amd64", "docker.io"]
    assert bare.calls("apt-mark") == [["hold", *installed]]


def test_a_hold_waits_for_dpkg_and_stops_no_node(bare: Any) -> None:
    bare.fake("docker")
    bare.fake("nvidia-ctk")
    bare.fake("dpkg-query", f"printf '%s' '{PACKAGES}'")
    bare.fails_at_first("apt-mark", 2)
    assert bare.run("install-docker.sh", HOLD_SEC="20").returncode == 0
    assert len(bare.calls("apt-mark")) == 3
    bare.fake("apt-mark", "exit 100")
    done = bare.run("install-docker.sh", HOLD_SEC="0")
    assert done.returncode == 0
    assert "cannot hold packages" in done.stderr
    assert bare.events() == []


def test_a_host_without_gpus_needs_no_toolkit(bare: Any, tpu_host: TpuHostSpec) -> None:
    bare.gcp = tpu_host
    bare.fake("docker")
    assert bare.run("install-docker.sh").returncode == 0
    assert (bare.calls("apt-get"), bare.calls("systemctl")) == ([], [["start", "docker.service"]])


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("apt-get", "cannot install docker within 0 s"),
        ("gpg", "cannot install NVIDIA's container toolkit within 0 s"),
        ("nvidia-ctk", "cannot configure NVIDIA's runtime for docker"),
        ("systemctl", "cannot configure NVIDIA's runtime for docker"),
    ],
)
def test_a_machine_that_gets_no_docker_is_given_up(bare: Any, broken: str, reason: str) -> None:
    there = {"apt-get": (), "gpg": ("docker",)}.get(broken, ("docker", "nvidia-ctk"))
    bare.without("docker", "nvidia-ctk")
    for name in (*there, broken):
        bare.fake(name, "exit 1" if name == broken else "exit 0")
    assert bare.run("install-docker.sh", DOCKER_DEADLINE_SEC="0").returncode == 1
    assert [line["reason"] for line in bare.events()] == [reason]
    assert bare.verbs() == ["recreateInstances"]


def test_apt_that_fails_at_first_is_tried_again(bare: Any) -> None:
    bare.without("docker")
    bare.gcp = replace(bare.gcp, job=bare.gcp.job.model_copy(update={"backend": "gloo"}))
    bare.fails_at_first("apt-get", 2)
    assert bare.run("install-docker.sh", DOCKER_DEADLINE_SEC="20").returncode == 0
    assert bare.events() == []


def make_nics(sysfs: Path, gvnics: int, rdma: int, driver: str = "gve") -> None:
    (sysfs / "drivers" / driver).mkdir(parents=True)
    (sysfs / "drivers/virtio_net").mkdir()
    for number in range(gvnics):
        device = sysfs / f"class/net/enp{number}s0/device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to(sysfs / "drivers" / driver)
    other = sysfs / "class/net/other/device"
    other.mkdir(parents=True)
    (other / "driver").symlink_to(sysfs / "drivers/virtio_net")
    (sysfs / "class/net/lo").mkdir()
    for number in range(rdma):
        (sysfs / f"class/infiniband/mlx5_{number}").mkdir(parents=True)


@pytest.mark.parametrize(("gvnics", "rdma", "driver"), [(9, 0, "gve"), (9, 0, "gvnic"), (2, 8, "gve")])
def test_planned_nics_let_the_node_go_on(bare: Any, tmp_path: Path, gvnics: int, rdma: int, driver: str) -> None:
    bare.plan(gvnics_planned=gvnics, rdma_nics_planned=rdma)
    make_nics(tmp_path / "sys", gvnics, rdma, driver)
    done = bare.run("check-nics.sh", SYSFS=f"{tmp_path}/sys", NIC_DEADLINE_SEC="0")
    assert (done.returncode, done.stderr) == (0, f"gangway: NICs: {gvnics} gVNIC, {rdma} RDMA\n")


@pytest.mark.parametrize(("gvnics", "rdma"), [(8, 0), (2, 7), (1, 8), (0, 0)])
def test_fewer_nics_than_planned_give_the_node_up(bare: Any, tmp_path: Path, gvnics: int, rdma: int) -> None:
    planned = (2, 8) if gvnics < 3 else (9, 0)
    bare.plan(gvnics_planned=planned[0], rdma_nics_planned=planned[1])
    make_nics(tmp_path / "sys", gvnics, rdma)
    assert bare.run("check-nics.sh", SYSFS=f"{tmp_path}/sys", NIC_DEADLINE_SEC="0").returncode == 1
    (event,) = bare.events()
    assert event["reason"] == (f"NICs after 0 s: {gvnics} gVNIC, {rdma} RDMA; planned: {planned[0]}, {planned[1]}")


def test_googles_local_disks_become_one_scratch(bare: Any, tmp_path: Path) -> None:
    by_id = tmp_path / "by-id"
    by_id.mkdir()
    for number in range(2):
        (tmp_path / f"nvme{number}").touch()
        (by_id / f"google-local-nvme-ssd-{number}").symlink_to(tmp_path / f"nvme{number}")
    (tmp_path / "boot").touch()
    (by_id / "google-persistent-disk-0").symlink_to(tmp_path / "boot")
    for name in ("mdadm", "mkfs.ext4", "chown"):
        bare.fake(name)
    bare.fake("blkid", f"[ -e {tmp_path}/formatted ] && echo /dev/md127")
    bare.fake("mkfs.ext4", f"touch {tmp_path}/formatted")
    bare.plan(scratch_mount_point=f"{tmp_path}/scratch")
    done = bare.run("mount-scratch.sh", DISK_BY_ID=str(by_id))
    assert done.returncode == 0, done.stderr
    (striped,) = bare.calls("mdadm")
    assert striped[-2:] == [f"{tmp_path}/nvme0", f"{tmp_path}/nvme1"]
    assert bare.calls("mount") == [["-o", "noatime", "/dev/md127", f"{tmp_path}/scratch"]]
